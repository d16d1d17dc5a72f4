//! What a leader remembers of one node between two looks at it, and what it makes of a look.
//!
//! The sweep says "not heard for a while"; whether that is too long is for the health core to say, which knows the
//! node's own grace, the excuses and the state. So a node that fell silent is a *candidate*: it is judged at once,
//! and again at each later sweep from the moment on that the last verdict named.

use muster_lifecycle::command::{Operation, Sighting};
use muster_lifecycle::health::{Evidence, Excuse, Verdict};
use muster_lifecycle::node::{Incarnation, Node, Slot};
use muster_lifecycle::oversight;
use muster_lifecycle::state::State;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;
use muster_pulse::blindness::{Blindness, Trace};
use muster_pulse::by_replica::PulseTables;
use muster_pulse::tick::Tick;

use muster_pulse::moment::Moment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeWatch {
    slot: Slot,
    incarnation: Incarnation,
    /// Since when it is watched; its grace starts here if nobody can place it.
    since: Tick,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Heard,
    /// Not heard for a while; not to be judged before this moment.
    Candidate {
        judge_from: ClusterTime,
    },
    /// A verdict is on its way through the log.
    Proposed,
}

/// What came of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing is to be done about it.
    Nothing,
    /// Look again from this moment on.
    LookAgain(ClusterTime),
    Propose(Operation),
}

// === impl NodeWatch ===

impl NodeWatch {
    pub fn new(node: &Node, since: Tick) -> Self {
        Self { slot: node.slot, incarnation: node.incarnation, since, standing: Standing::Heard }
    }

    /// Words about the node may have been lost, so it is judged anew whatever the sweep believes.
    pub fn unsure(node: &Node, since: Tick) -> Self {
        Self { standing: Standing::Candidate { judge_from: ClusterTime(0) }, ..Self::new(node, since) }
    }

    pub fn slot(&self) -> Slot {
        self.slot
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    pub fn is_candidate(&self) -> bool {
        matches!(self.standing, Standing::Candidate { .. })
    }

    pub fn fell_silent(&mut self) {
        if self.standing == Standing::Heard {
            self.standing = Standing::Candidate { judge_from: ClusterTime(0) };
        }
    }

    pub fn was_heard(&mut self) {
        self.standing = Standing::Heard;
    }

    /// The proposal was decided, either way: from here on the state says what came of it.
    pub fn settled(&mut self) {
        if self.standing == Standing::Proposed {
            self.standing = Standing::Candidate { judge_from: ClusterTime(0) };
        }
    }

    /// What it was judged by is not what it was: the node itself, or the policy.
    pub fn reconsider(&mut self) {
        if self.is_candidate() {
            self.standing = Standing::Candidate { judge_from: ClusterTime(0) };
        }
    }

    /// From when on a look would be of use, if it ever would.
    pub fn due_at(&self) -> Option<ClusterTime> {
        match self.standing {
            Standing::Candidate { judge_from } => Some(judge_from),
            Standing::Heard | Standing::Proposed => None,
        }
    }

    /// Whether a look now would be of use.
    pub fn is_due(&self, now: ClusterTime) -> bool {
        self.due_at().is_some_and(|due| due <= now)
    }

    /// Looks at a candidate. `node` is the node as the state has it now.
    pub fn judge(
        &mut self,
        state: &State,
        node: &Node,
        tables: &PulseTables,
        blindness: &Blindness,
        moment: Moment,
    ) -> Judgement {
        if !self.is_due(moment.stamp.cluster) || node.incarnation != self.incarnation {
            return Judgement::Nothing;
        }
        let trace = self.trace(tables);
        let evidence = evidence(state, node, trace, blindness, moment);
        match evidence.verdict(state.policy()) {
            Verdict::Alive => self.look_again(evidence.deadline(state.policy())),
            Verdict::WaitUntil(deadline) => self.look_again(deadline),
            // NH-9: it is known to be silent already. Looked at again once in a while, in case its state is changed
            // behind its back.
            Verdict::Silent(changes) if changes.is_empty() => {
                let judge_from = state.policy().node_monitor_grace_period.after(moment.stamp.cluster);
                self.standing = Standing::Candidate { judge_from };
                Judgement::Nothing
            }
            Verdict::Silent(_) => {
                self.standing = Standing::Proposed;
                Judgement::Propose(self.mark_silent(node, trace, moment))
            }
        }
    }

    /// What is known of the last beat.
    pub fn trace(&self, tables: &PulseTables) -> Trace {
        match tables.last_heard(self.slot) {
            Some((at, through)) => Trace::Heard { at, through },
            None => Trace::Unplaced { since: self.since },
        }
    }

    /// NH-6: strictly after the deadline.
    fn look_again(&mut self, deadline: ClusterTime) -> Judgement {
        let judge_from = ClusterTime(deadline.0.saturating_add(1));
        self.standing = Standing::Candidate { judge_from };
        Judgement::LookAgain(judge_from)
    }

    fn mark_silent(&self, node: &Node, trace: Trace, moment: Moment) -> Operation {
        Operation::MarkSilent {
            name: node.meta.name.clone(),
            incarnation: node.incarnation,
            from: node.status.ready().map(|ready| ready.status),
            heard: sighting(trace, moment),
            decided: moment.stamp.cluster,
        }
    }
}

/// What a node with this trace is judged on.
pub fn evidence<'a>(
    state: &State,
    node: &'a Node,
    trace: Trace,
    blindness: &Blindness,
    moment: Moment,
) -> Evidence<'a> {
    let heard = moment.cluster_time_of(blindness.silent_since(trace, moment.tick));
    oversight::evidence(state, node, Some(heard), excuse(blindness, trace, moment), moment.stamp)
}

pub fn sighting(trace: Trace, moment: Moment) -> Option<Sighting> {
    match trace {
        Trace::Heard { at, through } => Some(Sighting { at: moment.cluster_time_of(at), through }),
        Trace::Unplaced { .. } => None,
    }
}

/// The blindness that counts for this trace, in the health core's terms.
pub fn excuse(blindness: &Blindness, trace: Trace, moment: Moment) -> Option<Excuse> {
    let (until, _) = blindness.excuse_for(trace, moment.tick)?;
    Some(Excuse { blind_until: moment.cluster_time_of(until), reattach_window: Period(0) })
}
