//! A node bound to a stream: it is known here, its session is claimed, and its beats have a slot to go to.
//!
//! The binding lasts as long as this value. What the agent should hear about its node is read off the state whenever
//! somebody rings, so nothing is missed and nothing is said twice.

use std::sync::Arc;

use muster_lifecycle::meta::Revision;
use muster_lifecycle::node::{Incarnation, Node, Slot};
use muster_lifecycle::state::State;
use muster_proto::v1;
use muster_proto::v1::server_message::Message as Down;
use muster_pulse::table::Beat;
use tonic::Status;

use crate::session::Sessions;
use crate::session::claim::arbiter;
use crate::session::claim::claimant::Verdict;
use crate::session::figures::Refused;
use crate::session::stream::caller::Caller;
use crate::session::stream::orders::Told;
use crate::session::stream::refusal::Refusal;
use crate::session::stream::terms::{status_wanted, terms};
use crate::session::wake::entry::{Bell, Ending, Entry, held};
use crate::session::write::admission::Admitted;

pub(crate) struct Binding {
    sessions: Sessions,
    entry: Arc<Entry>,
    incarnation: Incarnation,
    /// The state of the node for which a status was last asked.
    asked: Revision,
    told: Told,
}

/// What a look at the state says about a bound node.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    /// All is well, and perhaps the agent should be told something.
    Bound(Option<Down>),
    /// The node is not what it was: the agent must be told, and the binding ends.
    Unbound(Down),
}

// === impl Binding ===

impl Binding {
    /// Binds a node to the stream behind `bell` if the verdict on its claim allows it. Being taken in counts as a beat.
    pub(crate) fn new(
        sessions: &Sessions,
        admitted: &Admitted,
        caller: &Caller,
        (bell, handle): (&Arc<Bell>, u32),
    ) -> Result<Self, Refusal> {
        let Admitted { node, number, verdict } = admitted;
        sessions.require_free(node, caller, verdict)?;
        let (name, slot) = (node.meta.name.clone(), node.slot);
        let entry = Entry::new((name, slot), (caller.instance, caller.remote), *number, (Arc::clone(bell), handle));
        let entry = Arc::new(entry);
        sessions.enter(&entry, verdict);
        let asked = if status_wanted(node) { node.meta.revision } else { Revision::default() };
        sessions.prepare_orders(&entry, Revision(caller.orders_revision));
        let binding =
            Self { sessions: sessions.clone(), entry, incarnation: node.incarnation, asked, told: Told::default() };
        let _ = sessions.saw(slot);
        // Had the node changed before it was entered, nobody would have rung.
        bell.touch(handle);
        Ok(binding)
    }

    pub(crate) fn slot(&self) -> Slot {
        self.entry.slot
    }

    pub(crate) fn node(&self) -> &str {
        &self.entry.node
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.entry.ending()
    }

    pub(crate) fn beat(&self) -> Beat {
        self.sessions.beats().heard(self.entry.slot)
    }

    pub(crate) fn examine(&mut self, state: &State) -> Finding {
        let Some(node) = state.node(&self.entry.node) else {
            let (incarnation, revision) = (self.incarnation.0, state.revision().0);
            return Finding::Unbound(Down::Removed(v1::Removed { incarnation, revision }));
        };
        if node.incarnation != self.incarnation {
            return Finding::Unbound(registration_wanted(anew(&self.entry.node)));
        }
        if !status_wanted(node) || node.meta.revision <= self.asked {
            return Finding::Bound(None);
        }
        self.asked = node.meta.revision;
        Finding::Bound(Some(Down::StatusWanted(v1::StatusWanted { revision: node.meta.revision.0 })))
    }

    /// What the agent is to do about its pods, as much as fits into one message. Called again until there is no more.
    pub(crate) fn orders(&mut self, state: &State) -> Option<Down> {
        if state.revision() < self.entry.orders_from() {
            return None;
        }
        self.told.orders(state, &self.entry.node, self.incarnation).map(Down::Pods)
    }

    pub(crate) fn welcome(&self, state: &State, caller: &Caller) -> v1::Welcome {
        let node = state.node(&self.entry.node).filter(|node| node.incarnation == self.incarnation);
        v1::Welcome {
            fleet: caller.fleet.to_string(),
            replica: self.sessions.replica().id().0,
            incarnation: self.incarnation.0,
            uid: node.map(|node| node.meta.uid.to_string()).unwrap_or_default(),
            terms: Some(terms(state)),
            status_wanted: node.is_some_and(|node| status_wanted(node)),
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.sessions.leave(&self.entry);
    }
}

pub(crate) fn registration_wanted(why: String) -> Down {
    Down::RegistrationWanted(v1::RegistrationWanted { why })
}

pub(crate) fn anew(node: &str) -> String {
    format!("node {node:?} was deleted and created anew")
}

impl Sessions {
    /// The leader's word counts, but this replica does not let two in by itself: a leader that was just elected may not know yet
    /// who is here.
    fn require_free(&self, node: &Node, caller: &Caller, verdict: &Verdict) -> Result<(), Refusal> {
        let held_by = |by: &str| Refusal::new(Refused::Held, Status::already_exists(held(&node.meta.name, by)));
        match verdict {
            Verdict::Held(by) => Err(held_by(by)),
            Verdict::Provisional if caller.moving => {
                let why = "no leader can be asked whether the session may move here; stay where you are";
                Err(Refusal::new(Refused::NoLeader, Status::unavailable(why)))
            }
            Verdict::Granted { .. } | Verdict::Provisional => match self.rival(node, caller) {
                Some(rival) => Err(held_by(&rival)),
                None => Ok(()),
            },
        }
    }

    /// Another instance that has the session here and was heard of late, as it is told.
    fn rival(&self, node: &Node, caller: &Caller) -> Option<String> {
        let rival = self.registry().get(node.slot).filter(|entry| entry.instance != caller.instance)?;
        let patience = arbiter::patience(self.replica().current().state.policy());
        let heard = self.hearing().pulses().own().heard(node.slot)?;
        let silence = self.hearing().tick().elapsed_since(heard);
        let place = (self.replica().id(), rival.remote.to_string());
        (silence < patience).then(|| arbiter::shown(rival.instance, (place.0, &place.1), silence))
    }

    /// An agent that has had orders gets no older ones; one that remembers none gets none from a replica that lags behind.
    fn prepare_orders(&self, entry: &Arc<Entry>, seen: Revision) {
        if seen == Revision::default() {
            return self.0.currency.allow_orders(entry);
        }
        entry.allow_orders(seen);
        if self.replica().current().state.revision() < seen {
            self.0.lagging.add(entry, seen);
        }
    }

    fn enter(&self, entry: &Arc<Entry>, verdict: &Verdict) {
        self.opened();
        if let Some(before) = self.registry().enter(Arc::clone(entry)) {
            let at = self.replica().id();
            // One of another generation learns from the state that its node is gone.
            if before.slot == entry.slot {
                let same = before.instance == entry.instance;
                before.end(if same { Ending::Continued { at } } else { Ending::Displaced { at } });
            }
        }
        self.claimant().settle(entry, verdict);
    }

    fn leave(&self, entry: &Arc<Entry>) {
        self.closed();
        if self.registry().leave(entry) {
            self.claimant().release(entry.claim());
        }
    }
}
