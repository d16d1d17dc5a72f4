//! Taints and labels that a node's own state asks for (TC-1, TC-2, NE-1 to NE-8, LB-1).
//!
//! NoSchedule taints follow the conditions at once, because keeping new pods away costs nothing. NoExecute taints
//! cost running pods, so a new one has to wait in its zone's queue for a token. Only swapping one for the other is
//! free, because the pods' countdown has begun already.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::node::{Condition, ConditionStatus, READY};
use crate::object::node::{DISK_PRESSURE, MEMORY_PRESSURE, NETWORK_UNAVAILABLE, PID_PRESSURE};
use crate::object::taint::NOT_READY_TAINT;
use crate::object::taint::{
    DISK_PRESSURE_TAINT, MEMORY_PRESSURE_TAINT, NETWORK_UNAVAILABLE_TAINT, PID_PRESSURE_TAINT, UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
};
use crate::object::taint::{Effect, Taint, TaintSelector};
use crate::value::meta::Pairs;
use crate::value::text::Text;
use crate::value::time::Stamp;

/// Conditions that keep pods away while they are True. Unknown does not: Ready says enough then.
const WHILE_TRUE: [(&str, &str); 4] = [
    (MEMORY_PRESSURE, MEMORY_PRESSURE_TAINT),
    (DISK_PRESSURE, DISK_PRESSURE_TAINT),
    (PID_PRESSURE, PID_PRESSURE_TAINT),
    (NETWORK_UNAVAILABLE, NETWORK_UNAVAILABLE_TAINT),
];

/// The stable label and the older one that must say the same.
const MIRRORED_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The reason for a NoSchedule taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The status of the condition of this type.
    Condition(&'static str),
    /// The node has never said whether it is ready.
    NeverReady,
    Cordon,
}

/// The difference between a node's taints and those it should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaintDifference {
    pub add: Vec<Taint>,
    pub remove: Vec<TaintSelector>,
}

/// The two ways of being absent. At rest a node has the NoExecute taint of at most one of them (NE-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Absence {
    /// The node says that it is not ready.
    NotReady,
    /// The node says nothing.
    Unreachable,
}

/// The action that a node's NoExecute taints need.
///
/// The same question is asked again when the node's turn in the queue comes: any answer but `Enqueue` means that it
/// leaves the queue without costing a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoExecuteAction {
    /// In one step and without a token: the taint is replaced, so no countdown is cancelled in between (NE-7).
    Swap {
        from: Absence,
        to: Absence,
    },
    /// Wait in the zone's queue for this taint.
    Enqueue(Absence),
    /// The node is back, or has a taint too many: lift these, and leave the queue.
    Clear(Vec<Absence>),
    Nothing,
}

/// TC-1: the keys of the NoSchedule taints that the node should have, and what asks for each.
///
/// Without a Ready condition the node keeps the not-ready taint that it was created with. Upstream lifts it then, and
/// pods land on machines that have never reported.
pub fn wanted_no_schedule(conditions: &[Condition], unschedulable: bool) -> BTreeMap<&'static str, Cause> {
    let absence = match status(conditions, READY) {
        Some(ConditionStatus::True) => None,
        Some(ConditionStatus::Unknown) => Some((UNREACHABLE_TAINT, Cause::Condition(READY))),
        Some(ConditionStatus::False) => Some((NOT_READY_TAINT, Cause::Condition(READY))),
        None => Some((NOT_READY_TAINT, Cause::NeverReady)),
    };
    WHILE_TRUE
        .into_iter()
        .filter(|(kind, _)| status(conditions, kind) == Some(ConditionStatus::True))
        .map(|(kind, key)| (key, Cause::Condition(kind)))
        .chain(absence)
        .chain(unschedulable.then_some((UNSCHEDULABLE_TAINT, Cause::Cordon)))
        .collect()
}

/// TC-2: of the NoSchedule taints only those with a managed key are compared; all others belong to other writers.
pub fn no_schedule_difference(
    conditions: &[Condition],
    unschedulable: bool,
    taints: &[Taint],
    now: Stamp,
) -> TaintDifference {
    let wanted = wanted_no_schedule(conditions, unschedulable);
    let present: BTreeSet<&str> =
        taints.iter().filter(|taint| taint.effect == Effect::NoSchedule).map(|taint| taint.key.as_str()).collect();
    let add = wanted.keys().filter(|key| !present.contains(**key)).map(|key| no_schedule(key, now)).collect();
    let remove = present
        .into_iter()
        .filter(|key| is_managed(key) && !wanted.contains_key(key))
        .map(|key| TaintSelector { key: Text::from(key), effect: Some(Effect::NoSchedule) })
        .collect();
    TaintDifference { add, remove }
}

/// NE-1 to NE-3. A node without a Ready condition was never there, so it has not gone missing either; but of both
/// taints even such a node keeps only one (NE-7).
pub fn no_execute_action(conditions: &[Condition], taints: &[Taint]) -> NoExecuteAction {
    let wanted = match status(conditions, READY) {
        None => {
            let surplus: Vec<Absence> = present_absences(taints).into_iter().skip(1).collect();
            return if surplus.is_empty() { NoExecuteAction::Nothing } else { NoExecuteAction::Clear(surplus) };
        }
        Some(ConditionStatus::True) => return NoExecuteAction::Clear(present_absences(taints)),
        Some(ConditionStatus::False) => Absence::NotReady,
        Some(ConditionStatus::Unknown) => Absence::Unreachable,
    };
    if wanted.other().is_on(taints) {
        NoExecuteAction::Swap { from: wanted.other(), to: wanted }
    } else if wanted.is_on(taints) {
        NoExecuteAction::Nothing
    } else {
        NoExecuteAction::Enqueue(wanted)
    }
}

/// The lifecycle NoExecute taints that are there. Those of users do not count (NE-8).
pub fn present_absences(taints: &[Taint]) -> Vec<Absence> {
    [Absence::NotReady, Absence::Unreachable].into_iter().filter(|absence| absence.is_on(taints)).collect()
}

/// LB-1: the labels that have to be set, with their values.
pub fn label_corrections(labels: &Pairs) -> Vec<(Text, Text)> {
    MIRRORED_LABELS
        .into_iter()
        .filter_map(|(stable, beta)| labels.get(stable).map(|value| (beta, value)))
        .filter(|(beta, value)| labels.get(beta) != Some(value))
        .map(|(beta, value)| (Text::from(beta), value.clone()))
        .collect()
}

impl Absence {
    pub fn key(self) -> &'static str {
        match self {
            Self::NotReady => NOT_READY_TAINT,
            Self::Unreachable => UNREACHABLE_TAINT,
        }
    }

    pub fn other(self) -> Self {
        match self {
            Self::NotReady => Self::Unreachable,
            Self::Unreachable => Self::NotReady,
        }
    }

    /// `since` is where the pods' countdown starts: now for a node whose turn has come, the replaced taint's time for
    /// a swap.
    pub fn taint(self, since: Stamp) -> Taint {
        Taint { effect: Effect::NoExecute, ..no_schedule(self.key(), since) }
    }

    /// The absence that a NoExecute taint stands for, if it is one of the lifecycle's.
    pub fn of(taint: &Taint) -> Option<Self> {
        [Self::NotReady, Self::Unreachable].into_iter().find(|absence| absence.selector().matches(taint))
    }

    pub fn selector(self) -> TaintSelector {
        TaintSelector { key: Text::from(self.key()), effect: Some(Effect::NoExecute) }
    }

    fn is_on(self, taints: &[Taint]) -> bool {
        taints.iter().any(|taint| taint.effect == Effect::NoExecute && taint.key == self.key())
    }
}

impl TaintDifference {
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

fn is_managed(key: &str) -> bool {
    [NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT].contains(&key)
        || WHILE_TRUE.into_iter().any(|(_, managed)| managed == key)
}

fn no_schedule(key: &str, now: Stamp) -> Taint {
    Taint { key: Text::from(key), value: Text::default(), effect: Effect::NoSchedule, added: Some(now) }
}

fn status(conditions: &[Condition], kind: &str) -> Option<ConditionStatus> {
    conditions.iter().find(|condition| condition.kind == kind).map(|condition| condition.status)
}
