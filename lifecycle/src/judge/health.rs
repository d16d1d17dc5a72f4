//! Health of one node: whether it has fallen silent, and what its conditions say then (NH-2 to NH-11).
//!
//! Two signals keep a node alive, its lease and its status; either is enough. All times are cluster time, so no clock
//! but the cluster's own can make a node look old. Blindness is not the node's fault: where the replicas could not
//! have heard it, its deadline moves until it has had time to reach one again.

use crate::object::node::{AGENT_CONDITIONS, Condition, ConditionStatus, READY};
use crate::object::policy::Policy;
use crate::value::text::{Text, fixed};
use crate::value::time::Period;
use crate::value::time::{ClusterTime, Stamp};

/// Dashboards and alerts match these words, so they are upstream's to the letter.
pub const NEVER_UPDATED: &str = "NodeStatusNeverUpdated";
pub const NEVER_UPDATED_MESSAGE: &str = "Kubelet never posted node status.";
pub const STATUS_UNKNOWN: &str = "NodeStatusUnknown";
pub const STATUS_UNKNOWN_MESSAGE: &str = "Kubelet stopped posting node status.";

/// A time in which the leader could not have heard the node. The end of a time in which all zones were fully
/// disrupted is one too, with a whole grace as its window. Of several excuses the one that [ends](Excuse::end) last
/// counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excuse {
    /// When the leader could hear the node again; the present moment for as long as it cannot.
    pub blind_until: ClusterTime,
    /// How long the node may take from then on to reach a replica.
    pub reattach_window: Period,
}

/// The evidence on which a node is judged.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub conditions: &'a [Condition],
    pub created: Stamp,
    /// The last sign of life by [`last_heard`]. After a take-over it is the end of the take-over for a node that no
    /// reachable replica has heard.
    pub heard: Option<ClusterTime>,
    pub excuse: Option<Excuse>,
    pub now: Stamp,
}

/// No verdict ever says Ready (NH-11): only the node itself can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Heard within its grace.
    Alive,
    /// Not heard within its grace, or never, but not to be judged before this moment has passed.
    WaitUntil(ClusterTime),
    /// Past its deadline. The list is empty if its Ready condition says so already (NH-9).
    Silent(Vec<ConditionChange>),
}

/// One condition as it will be, and what it was at the time of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionChange {
    /// `None` if there was no such condition.
    pub from: Option<ConditionStatus>,
    pub to: Condition,
}

/// The later of the two signals: either one keeps a node alive.
pub fn last_heard(lease: Option<ClusterTime>, status: Option<ClusterTime>) -> Option<ClusterTime> {
    lease.max(status)
}

/// The last moment at which the node still counts as alive.
pub fn deadline(heard: ClusterTime, grace: Period, excuse: Option<Excuse>) -> ClusterTime {
    let own = grace.after(heard);
    excuse.map_or(own, |excuse| own.max(excuse.end()))
}

/// The conditions of a node that can no longer vouch for them, from `now` on (NH-8, NH-9).
pub fn silenced(conditions: &[Condition], created: Stamp, now: Stamp) -> Box<[Condition]> {
    let evidence = Evidence { conditions, created, heard: None, excuse: None, now };
    let mut after = conditions.to_vec();
    for ConditionChange { to, .. } in evidence.changes() {
        match after.iter_mut().find(|condition| condition.kind == to.kind) {
            Some(condition) => *condition = to,
            None => after.push(to),
        }
    }
    after.into_boxed_slice()
}

impl Excuse {
    pub fn end(self) -> ClusterTime {
        self.reattach_window.after(self.blind_until)
    }
}

impl Evidence<'_> {
    pub fn deadline(&self, policy: &Policy) -> ClusterTime {
        deadline(self.silent_since(), self.grace(policy), self.excuse)
    }

    pub fn verdict(&self, policy: &Policy) -> Verdict {
        let now = self.now.cluster;
        if self.heard.is_some() && now <= self.grace(policy).after(self.silent_since()) {
            return Verdict::Alive;
        }
        let deadline = self.deadline(policy);
        // NH-6: strictly after.
        if now > deadline { Verdict::Silent(self.changes()) } else { Verdict::WaitUntil(deadline) }
    }

    /// NH-2, NH-3: a node that was never ready gets the time a machine takes to start.
    pub fn grace(&self, policy: &Policy) -> Period {
        match self.condition(READY) {
            None => policy.node_startup_grace_period,
            Some(_) => policy.node_monitor_grace_period,
        }
    }

    /// A node is not silent from before it existed.
    fn silent_since(&self) -> ClusterTime {
        self.heard.map_or(self.created.cluster, |heard| heard.max(self.created.cluster))
    }

    /// NH-9: the other conditions are rewritten only together with Ready.
    fn changes(&self) -> Vec<ConditionChange> {
        match self.condition(READY).map(|ready| ready.status) {
            Some(ConditionStatus::Unknown) => Vec::new(),
            Some(ConditionStatus::True | ConditionStatus::False) | None => {
                AGENT_CONDITIONS.into_iter().filter_map(|kind| self.change(kind)).collect()
            }
        }
    }

    /// NH-8.
    fn change(&self, kind: &str) -> Option<ConditionChange> {
        let Some(before) = self.condition(kind) else {
            return Some(ConditionChange { from: None, to: self.never_updated(kind) });
        };
        match before.status {
            ConditionStatus::Unknown => None,
            from @ (ConditionStatus::True | ConditionStatus::False) => {
                Some(ConditionChange { from: Some(from), to: self.no_longer_updated(before) })
            }
        }
    }

    fn never_updated(&self, kind: &str) -> Condition {
        Condition {
            kind: Text::from(kind),
            status: ConditionStatus::Unknown,
            last_heartbeat: Some(self.created),
            last_transition: Some(self.now),
            reason: fixed!(NEVER_UPDATED),
            message: fixed!(NEVER_UPDATED_MESSAGE),
        }
    }

    fn no_longer_updated(&self, before: &Condition) -> Condition {
        Condition {
            status: ConditionStatus::Unknown,
            last_transition: Some(self.now),
            reason: fixed!(STATUS_UNKNOWN),
            message: fixed!(STATUS_UNKNOWN_MESSAGE),
            ..before.clone()
        }
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}
