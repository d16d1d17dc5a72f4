//! A node bound to a stream: it is known here, its session is claimed, and it has a slot for its beats.
//!
//! The binding lasts as long as the [`Binding`]. Messages for the agent about its node are read off the state whenever
//! its stream is woken, so nothing is missed and nothing is said twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use muster_lifecycle::claim::claim_patience;
use muster_lifecycle::meta::Revision;
use muster_lifecycle::node::{Incarnation, Node, Slot};
use muster_lifecycle::session::{MissingNode, status_wanted};
use muster_lifecycle::state::State;
use muster_proto::protocol::AGENT_PROTOCOL;
use muster_proto::v1;
use muster_proto::v1::server_message::Message as Down;
use muster_pulse::table::Beat;
use muster_raft::replica::Replica;
use tonic::Status;

use crate::hearing::Hearing;
use crate::session::beat::Beats;
use crate::session::claim::arbiter;
use crate::session::claim::claimant::{ClaimOutcome, Claimant};
use crate::session::figures::{RefusalReason, SessionFigures};
use crate::session::stream::caller::Caller;
use crate::session::stream::orders::OrdersSent;
use crate::session::stream::pace::terms;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::wake::entry::{Ending, Entry, Wakeup, held};
use crate::session::wake::lagging::LaggingSessions;
use crate::session::wake::registry::Registry;
use crate::session::write::admission::Admitted;
use crate::session::write::catch_up::CatchUp;

/// Binds nodes to streams: it enters them into the registry and confirms their claims.
pub(crate) struct Binder {
    pub(crate) replica: Replica,
    pub(crate) hearing: Hearing,
    pub(crate) beats: Beats,
    pub(crate) registry: Arc<Registry>,
    pub(crate) claimant: Arc<Claimant>,
    pub(crate) catch_up: CatchUp,
    pub(crate) lagging: Arc<LaggingSessions>,
    pub(crate) figures: Arc<SessionFigures>,
}

pub(crate) struct Binding {
    binder: Arc<Binder>,
    entry: Arc<Entry>,
    incarnation: Incarnation,
    /// The revision of the node for which a status was last asked.
    asked: Revision,
    sent: OrdersSent,
}

/// What the state says about a bound node.
#[derive(Debug, PartialEq)]
pub(crate) enum Finding {
    /// The node is bound, and perhaps the agent should be told something.
    Bound(Option<Down>),
    /// The node is not what it was: the agent must be told, and the binding ends.
    Unbound(Down),
    /// The session must not go on here.
    Ended(Ending),
}

// === impl Binder ===

impl Binder {
    /// Binds a node to the stream behind `wakeup` if the outcome of its claim allows it. The binding counts as a beat.
    pub(crate) fn bind(
        self: &Arc<Self>,
        admitted: &Admitted,
        caller: &Caller,
        (wakeup, handle): (&Arc<Wakeup>, u32),
    ) -> Result<Binding, SessionRefusal> {
        let Admitted { node, number, outcome } = admitted;
        self.require_free(node, caller, outcome)?;
        let (name, slot) = (node.meta.name.clone(), node.slot);
        let entry = Entry::new((name, slot), (caller.instance, caller.remote), *number, (Arc::clone(wakeup), handle));
        let is_settled = !caller.newcomer || outcome.is_settled();
        let entry = Arc::new(if is_settled { entry } else { entry.unsettled() });
        self.enter(&entry, outcome);
        let asked = if status_wanted(node) { node.meta.revision } else { Revision::default() };
        self.prepare_orders(&entry, Revision(caller.orders_revision));
        let (binder, sent) = (Arc::clone(self), OrdersSent::default());
        let binding = Binding { binder, entry, incarnation: node.incarnation, asked, sent };
        let _ = self.hearing.beat(slot);
        // A change of the node before it was entered into the registry woke no stream.
        wakeup.touch(handle);
        Ok(binding)
    }

    /// The leader decides, but this replica also keeps two agents of one node apart by itself: a leader that was just
    /// elected may not know yet which agents are here.
    fn require_free(&self, node: &Node, caller: &Caller, outcome: &ClaimOutcome) -> Result<(), SessionRefusal> {
        let held_by =
            |by: &str| SessionRefusal::new(RefusalReason::Held, Status::already_exists(held(&node.meta.name, by)));
        match outcome {
            ClaimOutcome::Held(by) => Err(held_by(by)),
            ClaimOutcome::Provisional if caller.moving => {
                let why = "no leader can be asked whether the session may move here; stay where you are";
                Err(SessionRefusal::new(RefusalReason::NoLeader, Status::unavailable(why)))
            }
            ClaimOutcome::Granted { .. } | ClaimOutcome::Provisional => match self.rival(node, caller) {
                Some(rival) => Err(held_by(&rival)),
                None => Ok(()),
            },
        }
    }

    /// Describes another instance that has the session here and was heard recently.
    fn rival(&self, node: &Node, caller: &Caller) -> Option<String> {
        let rival = self.registry.get(node.slot).filter(|entry| entry.instance != caller.instance)?;
        if !rival.is_settled() && !caller.newcomer {
            return None;
        }
        let patience = claim_patience(self.replica.current().state.policy());
        let heard = self.hearing.pulses().own().heard(node.slot)?;
        let silence = self.hearing.tick().elapsed_since(heard);
        let place = (self.replica.id(), rival.remote.to_string());
        (silence < patience).then(|| arbiter::shown(rival.instance, (place.0, &place.1), silence))
    }

    /// An agent that has had orders gets no older ones. An agent that remembers none gets none from a replica that lags
    /// behind.
    fn prepare_orders(&self, entry: &Arc<Entry>, seen: Revision) {
        if seen == Revision::default() {
            return self.catch_up.allow_orders(entry);
        }
        entry.allow_orders(seen);
        if self.replica.current().state.revision() < seen {
            self.lagging.add(entry, seen);
        }
    }

    fn enter(&self, entry: &Arc<Entry>, outcome: &ClaimOutcome) {
        self.figures.opened();
        self.hearing.sessions().fetch_add(1, Ordering::Relaxed);
        if let Some(before) = self.registry.enter(Arc::clone(entry)) {
            let at = self.replica.id();
            // A session of another generation learns from the state that its node is gone.
            if before.slot == entry.slot {
                let same = before.instance == entry.instance;
                before.end(if same { Ending::Continued { at } } else { Ending::Displaced { at } });
            }
        }
        self.claimant.confirm(entry, outcome);
    }

    fn leave(&self, entry: &Arc<Entry>) {
        self.figures.closed();
        self.hearing.sessions().fetch_sub(1, Ordering::Relaxed);
        if self.registry.leave(entry) {
            self.claimant.release(entry.claim());
        }
    }
}

// === impl Binding ===

impl Binding {
    pub(crate) fn slot(&self) -> Slot {
        self.entry.slot
    }

    pub(crate) fn node(&self) -> &str {
        &self.entry.node
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub(crate) fn beat(&self) -> Beat {
        self.binder.beats.heard(self.entry.slot)
    }

    pub(crate) fn examine(&mut self, state: &State) -> Finding {
        if let Some(ending) = self.entry.ending() {
            return Finding::Ended(ending.clone());
        }
        let Some(node) = state.node(&self.entry.node) else {
            let (incarnation, revision) = (self.incarnation.0, state.revision().0);
            return Finding::Unbound(Down::Removed(v1::Removed { incarnation, revision }));
        };
        if node.incarnation != self.incarnation {
            return Finding::Unbound(registration_wanted(MissingNode::Replaced.shown(&self.entry.node)));
        }
        if !status_wanted(node) || node.meta.revision <= self.asked {
            return Finding::Bound(None);
        }
        self.asked = node.meta.revision;
        Finding::Bound(Some(Down::StatusWanted(v1::StatusWanted { revision: node.meta.revision.0 })))
    }

    /// Orders about the node's pods, as many as fit into one message. Called again until there are no more.
    pub(crate) fn orders(&mut self, state: &State) -> Option<Down> {
        if !self.entry.is_settled() || state.revision() < self.entry.orders_from() {
            return None;
        }
        self.sent.orders(state, &self.entry.node, self.incarnation).map(Down::Pods)
    }

    pub(crate) fn welcome(&self, state: &State, caller: &Caller) -> v1::Welcome {
        let node = state.node(&self.entry.node).filter(|node| node.incarnation == self.incarnation);
        v1::Welcome {
            fleet: caller.fleet.to_string(),
            replica: self.binder.replica.id().0,
            incarnation: self.incarnation.0,
            uid: node.map(|node| node.meta.uid.to_string()).unwrap_or_default(),
            terms: Some(terms(state)),
            status_wanted: node.is_some_and(|node| status_wanted(node)),
            protocol_min: AGENT_PROTOCOL.min,
            protocol_max: AGENT_PROTOCOL.max,
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.binder.leave(&self.entry);
    }
}

pub(crate) fn registration_wanted(why: String) -> Down {
    Down::RegistrationWanted(v1::RegistrationWanted { why })
}
