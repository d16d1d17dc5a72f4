//! Batches of bindings: many nodes at once, with one look at the state, at most one catch-up and one claim for all.
//!
//! The leader may take its time to decide, and the nodes that are bound already must not fall silent meanwhile. So
//! bindings wait here, the newest per handle, and a few batches of them are under way while beats are read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::pending;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use muster_lifecycle::session::{Recognition, status_wanted};
use muster_lifecycle::text::Text;
use muster_proto::v1;

use crate::session::claim::arbiter::CLAIMS_MAX;
use crate::session::figures::RefusalReason;
use crate::session::stream::caller::Caller;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::write::admission::{Admission, Admitted};

use super::{AggregatorStream, HANDLES_MAX, refused_node};

/// Bindings in one message, and in one batch. They are claimed together.
const BINDINGS_MAX: usize = CLAIMS_MAX;
/// Batches under way on one stream.
const RUNNING_MAX: usize = 4;
/// No node has a longer name.
const NAME_MAX: usize = 253;
/// How much of an unchecked name is quoted.
const QUOTED_MAX: usize = 64;

/// The bindings of one stream that have not been answered: at most one waits per handle, and one is under way.
#[derive(Default)]
pub(super) struct Binds {
    waiting: BTreeMap<u32, v1::Binding>,
    running: FuturesUnordered<BoxFuture<'static, Batch>>,
    /// The batch that a handle is in. A handle that was released meanwhile is in none.
    batch_of: HashMap<u32, u64>,
    next_batch: u64,
}

/// A batch with its outcome.
pub(super) struct Batch {
    number: u64,
    nodes: Vec<(v1::Binding, Found)>,
}

enum Found {
    Known(Admitted),
    Unknown,
    /// The node may be gone, but no leader can be asked.
    Doubtful(String),
}

// === impl Binds ===

impl Binds {
    /// Whether `handle` will stand for a node soon.
    pub(super) fn has(&self, handle: u32) -> bool {
        self.waiting.contains_key(&handle) || self.batch_of.contains_key(&handle)
    }

    pub(super) fn remove(&mut self, handle: u32) {
        self.waiting.remove(&handle);
        self.batch_of.remove(&handle);
    }

    /// Whether there is a batch to wait for.
    pub(super) fn is_under_way(&self) -> bool {
        !self.running.is_empty()
    }

    /// Waits for the next batch; for ever if none is under way.
    pub(super) async fn decided(&mut self) -> Batch {
        match self.running.next().await {
            Some(batch) => batch,
            None => pending().await,
        }
    }

    fn add(&mut self, binding: v1::Binding) {
        self.waiting.insert(binding.handle, binding);
    }

    /// Begins as many batches as may be under way.
    fn begin(&mut self, admission: &Admission, caller: &Caller) {
        while self.running.len() < RUNNING_MAX
            && let Some((number, bindings)) = self.next_batch()
        {
            self.running.push(decide(admission.clone(), caller.clone(), number, bindings).boxed());
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

    /// Whether `handle` still waits for that batch. After this it no longer waits.
    fn take(&mut self, handle: u32, batch: u64) -> bool {
        let waits = self.batch_of.get(&handle) == Some(&batch);
        if waits {
            self.batch_of.remove(&handle);
        }
        waits
    }
}

// === impl AggregatorStream ===

impl AggregatorStream {
    pub(super) fn bind(&mut self, v1::Bind { bindings }: v1::Bind) -> Result<(), SessionRefusal> {
        if bindings.len() > BINDINGS_MAX {
            let text = format!("{} bindings in one message; at most {BINDINGS_MAX} are taken", bindings.len());
            return Err(SessionRefusal::message(text));
        }
        let mut answers = Vec::new();
        let mut handles = HashSet::with_capacity(bindings.len());
        for binding in bindings {
            match self.check(&binding, &mut handles) {
                Ok(()) => self.binds.add(binding),
                Err(why) => {
                    self.context.figures.refuse(RefusalReason::Scope);
                    answers.push(refused_node(binding.handle, &why));
                }
            }
        }
        self.bound(answers);
        self.binds.begin(&self.context.admission, &self.caller);
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
        let current = self.context.current();
        current.state.admits_carried(node).map_err(|distrust| distrust.to_string())
    }

    /// Binds the nodes of a decided batch, and begins the next.
    pub(super) fn bind_decided(&mut self, batch: Batch) {
        let Batch { number, nodes } = batch;
        let mut answers = Vec::with_capacity(nodes.len());
        for (binding, found) in nodes {
            if self.binds.take(binding.handle, number) {
                answers.push(self.bind_found(binding, found));
            } else if let Found::Known(admitted) = found {
                self.context.admission.release(&self.caller, &admitted);
            }
        }
        self.bound(answers);
        self.binds.begin(&self.context.admission, &self.caller);
    }

    fn bind_found(&mut self, binding: v1::Binding, found: Found) -> v1::BoundNode {
        let v1::Binding { handle, node, orders_revision, continues, .. } = binding;
        // The pending writes are about the node that the handle stood for.
        self.writes.clear(handle);
        match found {
            Found::Known(admitted) if self.scope.may_carry(&node) => {
                self.bind_known(handle, &admitted, (orders_revision, continues))
            }
            Found::Known(admitted) => {
                self.context.admission.release(&self.caller, &admitted);
                refused_node(handle, &self.out_of_scope(&node))
            }
            Found::Unknown => {
                self.unknown_handles.remove(&handle);
                self.handles.expect(handle, node.into());
                v1::BoundNode { handle, registration_wanted: true, ..Default::default() }
            }
            Found::Doubtful(why) => {
                self.context.figures.refuse(RefusalReason::NoLeader);
                let why = format!("{why}, it seems, but no leader can be asked; try again in a moment");
                refused_node(handle, &why)
            }
        }
    }

    fn bind_known(
        &mut self,
        handle: u32,
        admitted: &Admitted,
        (orders_revision, continues): (u64, bool),
    ) -> v1::BoundNode {
        let caller = Caller { orders_revision, newcomer: !continues, ..self.caller.clone() };
        match self.context.binder.bind(admitted, &caller, (&self.stream.wakeup, handle)) {
            Ok(binding) => {
                let (incarnation, status_wanted) = (binding.incarnation().0, status_wanted(&admitted.node));
                self.unknown_handles.remove(&handle);
                self.handles.bind(handle, binding);
                v1::BoundNode { handle, incarnation, status_wanted, ..Default::default() }
            }
            Err(refusal) => {
                self.context.figures.refuse(refusal.reason);
                self.drop_handle(handle);
                refused_node(handle, refusal.status.message())
            }
        }
    }
}

async fn decide(admission: Admission, caller: Caller, number: u64, bindings: Vec<v1::Binding>) -> Batch {
    let found = admission.recognise_all(&bindings).await;
    let known = |(found, binding): (&Recognition, &v1::Binding)| match found {
        Recognition::Known(node) => Some((Arc::clone(node), binding.continues)),
        Recognition::Unknown(_) | Recognition::Doubtful(_) => None,
    };
    let known = found.iter().zip(&bindings).filter_map(known).collect();
    let mut admitted = admission.admit_all(known, &caller).await.into_iter();
    let mut result = |(binding, found): (v1::Binding, Recognition)| match found {
        Recognition::Known(_) => admitted.next().map(|admitted| (binding, Found::Known(admitted))),
        Recognition::Unknown(_) => Some((binding, Found::Unknown)),
        Recognition::Doubtful(absence) => {
            let why = absence.shown(&binding.node);
            Some((binding, Found::Doubtful(why)))
        }
    };
    Batch { number, nodes: bindings.into_iter().zip(found).filter_map(&mut result).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(handle: u32, node: &str) -> v1::Binding {
        v1::Binding { handle, node: node.to_owned(), incarnation: 0, orders_revision: 0, continues: false }
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
    fn a_node_released_meanwhile_is_not_bound() {
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
