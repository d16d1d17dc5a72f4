//! Binding many nodes at once: one look at the state, at most one catching up, one claim for all.
//!
//! The leader may take its time over that, and the nodes that are bound already must not fall silent meanwhile. So
//! bindings wait here, the newest per handle, and a few batches of them are under way beside the reading of beats.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::pending;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::Sessions;
use crate::session::claim::arbiter::CLAIMS_MAX;
use crate::session::claim::claimant::Verdict;
use crate::session::figures::Refused;
use crate::session::stream::binding::Binding;
use crate::session::stream::caller::Caller;
use crate::session::stream::refusal::Refusal;
use crate::session::stream::terms::status_wanted;
use crate::session::write::admission::{Admitted, Look, look};

use super::{Carrier, HANDLES_MAX, refused_node};

/// Bindings in one message, and in one batch. They are claimed together.
const BINDINGS_MAX: usize = CLAIMS_MAX;
/// Batches under way on one stream.
const RUNNING_MAX: usize = 4;
/// No node has a longer name.
const NAME_MAX: usize = 253;
/// How much of a name that may be anything is quoted.
const QUOTED_MAX: usize = 64;

/// The bindings of one stream that have not been answered: at most one waits per handle, and one is under way.
#[derive(Default)]
pub(crate) struct Binds {
    waiting: BTreeMap<u32, v1::Binding>,
    running: FuturesUnordered<BoxFuture<'static, Batch>>,
    /// Which batch a handle is in. One that was released meanwhile is in none.
    batch_of: HashMap<u32, u64>,
    next_batch: u64,
}

/// A batch that has been decided.
pub(crate) struct Batch {
    number: u64,
    nodes: Vec<(v1::Binding, Found)>,
}

enum Found {
    Known(Admitted),
    Unknown,
    /// It may be gone, but nobody can be asked.
    Doubtful(String),
}

// === impl Binds ===

impl Binds {
    /// Whether `handle` will stand for a node soon.
    pub(crate) fn has(&self, handle: u32) -> bool {
        self.waiting.contains_key(&handle) || self.batch_of.contains_key(&handle)
    }

    pub(crate) fn remove(&mut self, handle: u32) {
        self.waiting.remove(&handle);
        self.batch_of.remove(&handle);
    }

    /// Whether there is a batch to wait for.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.running.is_empty()
    }

    /// Waits for the next batch; for ever if none is under way.
    pub(crate) async fn decided(&mut self) -> Batch {
        match self.running.next().await {
            Some(batch) => batch,
            None => pending().await,
        }
    }

    fn add(&mut self, binding: v1::Binding) {
        self.waiting.insert(binding.handle, binding);
    }

    /// Begins as many batches as may be under way.
    fn begin(&mut self, sessions: &Sessions, caller: &Caller) {
        while self.running.len() < RUNNING_MAX
            && let Some((number, bindings)) = self.next_batch()
        {
            self.running.push(decide(sessions.clone(), caller.clone(), number, bindings).boxed());
        }
    }

    fn next_batch(&mut self) -> Option<(u64, Vec<v1::Binding>)> {
        let free = self.waiting.keys().filter(|handle| !self.batch_of.contains_key(handle));
        let handles: Vec<u32> = free.take(BINDINGS_MAX).copied().collect();
        if handles.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        self.batch_of.extend(handles.iter().map(|handle| (*handle, number)));
        Some((number, handles.iter().filter_map(|handle| self.waiting.remove(handle)).collect()))
    }

    /// Whether `handle` still waits for that batch. It does not wait any longer.
    fn take(&mut self, handle: u32, batch: u64) -> bool {
        let waits = self.batch_of.get(&handle) == Some(&batch);
        if waits {
            self.batch_of.remove(&handle);
        }
        waits
    }
}

// === impl Carrier ===

impl Carrier {
    pub(crate) fn bind(&mut self, v1::Bind { bindings }: v1::Bind) -> Result<(), Refusal> {
        if bindings.len() > BINDINGS_MAX {
            let text = format!("{} bindings in one message; at most {BINDINGS_MAX} are taken", bindings.len());
            return Err(Refusal::message(text));
        }
        let mut answers = Vec::new();
        let mut handles = HashSet::with_capacity(bindings.len());
        for binding in bindings {
            match self.check(&binding, &mut handles) {
                Ok(()) => self.binds.add(binding),
                Err(why) => {
                    self.sessions.figures().refuse(Refused::Scope);
                    answers.push(refused_node(binding.handle, &why));
                }
            }
        }
        self.bound(answers);
        self.binds.begin(&self.sessions, &self.caller);
        Ok(())
    }

    fn check(&self, binding: &v1::Binding, handles: &mut HashSet<u32>) -> Result<(), String> {
        let v1::Binding { handle, node, .. } = binding;
        if *handle >= HANDLES_MAX {
            return Err(format!("handle {handle} is too high; they must be below {HANDLES_MAX}"));
        }
        if !handles.insert(*handle) {
            return Err(format!("handle {handle} is bound twice in one message"));
        }
        if node.len() > NAME_MAX {
            return Err(format!("{:?} is no node's name: it is too long", Text::clipped(node, QUOTED_MAX)));
        }
        if !self.scope.may_carry(node) {
            return Err(self.out_of_scope(&Text::clipped(node, QUOTED_MAX)));
        }
        let current = self.sessions.replica().current();
        current.state.admits_carried(node).map_err(|distrust| distrust.to_string())
    }

    /// Binds what a batch has found, and begins the next.
    pub(crate) fn bind_decided(&mut self, batch: Batch) {
        let Batch { number, nodes } = batch;
        let mut answers = Vec::with_capacity(nodes.len());
        for (binding, found) in nodes {
            if self.binds.take(binding.handle, number) {
                answers.push(self.bind_found(binding, found));
            } else if let Found::Known(admitted) = found {
                self.give_back(&admitted);
            }
        }
        self.bound(answers);
        self.binds.begin(&self.sessions, &self.caller);
    }

    fn bind_found(&mut self, binding: v1::Binding, found: Found) -> v1::BoundNode {
        let v1::Binding { handle, node, orders_revision, .. } = binding;
        // Whatever waits to be written is about the node that the handle stood for.
        self.jobs.forget(handle);
        match found {
            Found::Known(admitted) if self.scope.may_carry(&node) => {
                self.bind_known(handle, &admitted, orders_revision)
            }
            Found::Known(admitted) => {
                self.give_back(&admitted);
                refused_node(handle, &self.out_of_scope(&node))
            }
            Found::Unknown => {
                self.strangers.remove(&handle);
                self.holds.expect(handle, node.into());
                v1::BoundNode { handle, registration_wanted: true, ..Default::default() }
            }
            Found::Doubtful(why) => {
                self.sessions.figures().refuse(Refused::NoLeader);
                let why = format!("{why}, it seems, but no leader can be asked; try again in a moment");
                refused_node(handle, &why)
            }
        }
    }

    fn bind_known(&mut self, handle: u32, admitted: &Admitted, orders_revision: u64) -> v1::BoundNode {
        let caller = Caller { orders_revision, ..self.caller.clone() };
        match Binding::new(&self.sessions, admitted, &caller, (&self.stream.bell, handle)) {
            Ok(binding) => {
                let (incarnation, status_wanted) = (binding.incarnation().0, status_wanted(&admitted.node));
                self.strangers.remove(&handle);
                self.holds.bind(handle, binding);
                v1::BoundNode { handle, incarnation, status_wanted, ..Default::default() }
            }
            Err(refusal) => {
                self.sessions.figures().refuse(refusal.reason);
                self.holds.remove(handle);
                refused_node(handle, refusal.status.message())
            }
        }
    }

    /// A session was claimed for a node that the aggregator has let go of in the meantime.
    pub(crate) fn give_back(&self, admitted: &Admitted) {
        self.sessions.claimant().release(self.caller.claim(admitted.node.slot, admitted.number));
    }
}

async fn decide(sessions: Sessions, caller: Caller, number: u64, bindings: Vec<v1::Binding>) -> Batch {
    let looks = look_for_all(&sessions, &bindings).await;
    let mut found: Vec<Found> = looks.into_iter().map(|look| Found::of(look, &sessions)).collect();
    let mut known: Vec<&mut Admitted> = found.iter_mut().filter_map(Found::admitted).collect();
    let claims = known.iter().map(|admitted| caller.claim(admitted.node.slot, admitted.number)).collect();
    let verdicts = sessions.claimant().claim(claims).await;
    for (admitted, verdict) in known.iter_mut().zip(verdicts) {
        admitted.verdict = verdict;
    }
    Batch { number, nodes: bindings.into_iter().zip(found).collect() }
}

/// Those in doubt are doubtful still if this replica cannot catch up.
async fn look_for_all(sessions: &Sessions, bindings: &[v1::Binding]) -> Vec<Look> {
    let look_now = || -> Vec<Look> {
        let current = sessions.replica().current();
        bindings.iter().map(|binding| look(&current.state, &binding.node, binding.incarnation)).collect()
    };
    let looks = look_now();
    if !looks.iter().any(|look| matches!(look, Look::Doubtful(_))) || sessions.catch_up().await.is_err() {
        return looks;
    }
    look_now().into_iter().map(Look::decided).collect()
}

// === impl Found ===

impl Found {
    fn of(look: Look, sessions: &Sessions) -> Self {
        match look {
            Look::Known(node) => {
                let number = sessions.claimant().number();
                Self::Known(Admitted { node, number, verdict: Verdict::Provisional })
            }
            Look::Unknown(_) => Self::Unknown,
            Look::Doubtful(why) => Self::Doubtful(why),
        }
    }

    fn admitted(&mut self) -> Option<&mut Admitted> {
        match self {
            Self::Known(admitted) => Some(admitted),
            Self::Unknown | Self::Doubtful(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(handle: u32, node: &str) -> v1::Binding {
        v1::Binding { handle, node: node.to_owned(), incarnation: 0, orders_revision: 0 }
    }

    #[test]
    fn a_handle_is_in_one_batch_at_a_time_and_the_newest_binding_waits() {
        let mut binds = Binds::default();
        binds.add(binding(1, "a"));
        binds.add(binding(2, "b"));
        let (first, bindings) = binds.next_batch().unwrap();
        assert_eq!(bindings, [binding(1, "a"), binding(2, "b")]);
        binds.add(binding(1, "c"));
        binds.add(binding(1, "d"));
        assert!(binds.next_batch().is_none(), "the first answer is awaited");
        assert!(binds.take(1, first) && binds.has(1));
        assert_eq!(binds.next_batch().unwrap().1, [binding(1, "d")]);
    }

    #[test]
    fn what_was_released_meanwhile_is_not_bound() {
        let mut binds = Binds::default();
        binds.add(binding(1, "a"));
        let (first, _) = binds.next_batch().unwrap();
        binds.remove(1);
        binds.add(binding(1, "b"));
        let (second, _) = binds.next_batch().unwrap();
        assert!(!binds.take(1, first), "the answer to the former binding says nothing about this one");
        assert!(binds.take(1, second) && !binds.has(1));
    }

    #[test]
    fn a_batch_is_no_larger_than_a_claim() {
        let mut binds = Binds::default();
        (0..2_000).for_each(|handle| binds.add(binding(handle, "a")));
        let sizes: Vec<usize> = std::iter::from_fn(|| binds.next_batch()).map(|(_, batch)| batch.len()).collect();
        assert_eq!(sizes, [BINDINGS_MAX, 2_000 - BINDINGS_MAX]);
    }
}
