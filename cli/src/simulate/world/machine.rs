//! One simulated machine with its agent: what it reports, when it beats, and which replica it is attached to.

use std::collections::BTreeMap;

use muster_lifecycle::health::{STATUS_UNKNOWN, STATUS_UNKNOWN_MESSAGE};
use muster_lifecycle::load::PODS;
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::node::{Condition, ConditionStatus, Incarnation, NodeDraft, NodeStatus, READY, Resources, Slot};
use muster_lifecycle::node::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};
use muster_lifecycle::taint::Taint;
use muster_lifecycle::text::Text;

use super::{Millis, ReplicaIndex};

/// A machine as a scenario describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSpec {
    pub name: Text,
    pub labels: Pairs,
    pub taints: Vec<Taint>,
    pub ready: InitialReady,
    /// `None` for never.
    pub heartbeat: Option<Millis>,
    /// `None` for never again.
    pub status: Option<Millis>,
    /// When its Node was created, from the start of the world on.
    pub created: i64,
}

/// The machine's Ready condition at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialReady {
    Says(ConditionStatus),
    /// The machine has never posted a status.
    NeverPosted,
}

pub(super) struct Machine {
    pub(super) spec: MachineSpec,
    pub(super) home: Home,
    /// Its Node, while there is one.
    pub(super) node: Option<(Slot, Incarnation)>,
    silenced: bool,
    /// The scenario resumed the machine, so it is there even if it gives no signals by itself.
    came_back: bool,
    next_beat: Option<Millis>,
    next_status: Option<Millis>,
    /// What it last reported, by condition.
    says: Vec<(Text, ConditionStatus)>,
    /// A status that found no leader to write it down.
    pub(super) unwritten: bool,
    allocatable: Resources,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    Attached(ReplicaIndex),
    /// Its replica is gone; it finds another at this moment.
    Adrift {
        until: Millis,
    },
}

/// Which of its two signals are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) beat: bool,
    pub(super) status: bool,
}

/// Condition, then reason and message for True and for False, in the kubelet's words.
const VOCABULARY: [(&str, [&str; 2], [&str; 2]); 4] = [
    (
        READY,
        ["KubeletReady", "kubelet is posting ready status"],
        ["KubeletNotReady", "kubelet is posting that it is not ready"],
    ),
    (
        MEMORY_PRESSURE,
        ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
        ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
    ),
    (
        DISK_PRESSURE,
        ["KubeletHasDiskPressure", "kubelet has disk pressure"],
        ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
    ),
    (
        PID_PRESSURE,
        ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
        ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
    ),
];

/// How many pods a kubelet takes unless it is told otherwise.
const PODS_PER_MACHINE: &str = "110";

/// For conditions that the kubelet has no word for, and for what it cannot determine.
const POSTED: [&str; 2] = ["Posted", "posted by the node"];

// === impl Machine ===

impl Machine {
    pub(super) fn new(spec: MachineSpec, home: ReplicaIndex) -> Self {
        let ready = match spec.ready {
            InitialReady::Says(ConditionStatus::False) => Some(ConditionStatus::False),
            InitialReady::Says(ConditionStatus::True | ConditionStatus::Unknown) => Some(ConditionStatus::True),
            InitialReady::NeverPosted => None,
        };
        Self {
            says: ready.map(says_ready).unwrap_or_default(),
            spec,
            home: Home::Attached(home),
            node: None,
            silenced: false,
            came_back: false,
            next_beat: None,
            next_status: None,
            unwritten: false,
            allocatable: PODS_PER_MACHINE.parse().ok().map(|places| (PODS, places)).into_iter().collect(),
        }
    }

    /// The Node as it stands when the world begins, or when this machine comes into it.
    pub(super) fn initial_draft(&self) -> NodeDraft {
        let conditions = match self.spec.ready {
            InitialReady::NeverPosted => Vec::new(),
            InitialReady::Says(ConditionStatus::True | ConditionStatus::False) => self.conditions(),
            InitialReady::Says(ConditionStatus::Unknown) => {
                let silenced = |condition: Condition| match condition.kind == READY {
                    true => written_off(&condition.kind),
                    false => condition,
                };
                self.conditions().into_iter().map(silenced).collect()
            }
        };
        self.draft(conditions)
    }

    /// The Node that its agent registers.
    pub(super) fn registration(&self) -> NodeDraft {
        self.draft(self.conditions())
    }

    fn draft(&self, conditions: Vec<Condition>) -> NodeDraft {
        NodeDraft {
            name: self.spec.name.clone(),
            labels: Some(self.spec.labels.clone()),
            taints: Some(self.spec.taints.clone().into_boxed_slice()),
            status: Some(self.status_of(conditions)),
            ..NodeDraft::default()
        }
    }

    /// The status it posts. A machine that posts at all says whether it is ready.
    pub(super) fn status(&mut self) -> NodeStatus {
        if !self.says.iter().any(|(kind, _)| kind == READY) {
            self.say_healthy();
        }
        self.last_said()
    }

    fn conditions(&self) -> Vec<Condition> {
        self.says.iter().map(|(kind, status)| posted(kind, *status)).collect()
    }

    pub(super) fn say(&mut self, conditions: &BTreeMap<Text, ConditionStatus>) {
        for (kind, status) in conditions {
            match self.says.iter_mut().find(|(known, _)| known == kind) {
                Some((_, known)) => *known = *status,
                None => self.says.push((kind.clone(), *status)),
            }
        }
    }

    fn say_healthy(&mut self) {
        self.say(&says_ready(ConditionStatus::True).into_iter().collect());
    }

    /// The status it posts when asked to, without adding that it is ready.
    pub(super) fn last_said(&self) -> NodeStatus {
        self.status_of(self.conditions())
    }

    fn status_of(&self, conditions: Vec<Condition>) -> NodeStatus {
        NodeStatus {
            conditions: conditions.into_boxed_slice(),
            allocatable: self.allocatable.clone(),
            ..NodeStatus::default()
        }
    }

    pub(super) fn is_silenced(&self) -> bool {
        self.silenced
    }

    pub(super) fn fall_silent(&mut self) {
        self.silenced = true;
        self.came_back = false;
        self.stop();
    }

    /// The machine reports from now on that it is healthy.
    pub(super) fn come_back(&mut self) {
        self.silenced = false;
        self.came_back = true;
        self.say_healthy();
    }

    /// L-2, S-1: beats at once, and posts after one interval.
    pub(super) fn begin(&mut self, now: Millis) {
        self.next_beat = self.spec.heartbeat.map(|_| now);
        self.next_status = self.spec.status.map(|interval| now.saturating_add(interval));
    }

    /// Both signals have just been given: the next ones follow at their intervals.
    pub(super) fn go_on_from(&mut self, now: Millis) {
        self.next_beat = self.spec.heartbeat.map(|interval| now.saturating_add(interval));
        self.next_status = self.spec.status.map(|interval| now.saturating_add(interval));
    }

    pub(super) fn stop(&mut self) {
        self.next_beat = None;
        self.next_status = None;
    }

    pub(super) fn next_due(&self) -> Option<Millis> {
        let reattach = match self.home {
            Home::Adrift { until } => Some(until),
            Home::Attached(_) => None,
        };
        [self.next_beat, self.next_status, reattach].into_iter().flatten().min()
    }

    /// The signals that are due now; each is due again after one interval.
    pub(super) fn take_due(&mut self, now: Millis) -> Due {
        let beat = self.next_beat.is_some_and(|at| at <= now);
        let status = self.next_status.is_some_and(|at| at <= now);
        if beat {
            self.next_beat = self.spec.heartbeat.map(|interval| now.saturating_add(interval));
        }
        if status {
            self.next_status = self.spec.status.map(|interval| now.saturating_add(interval));
        }
        Due { beat, status }
    }

    /// Whether it has an agent that gives any signal at all.
    pub(super) fn has_agent(&self) -> bool {
        self.node.is_some() && !self.silenced && (self.spec.heartbeat.is_some() || self.spec.status.is_some())
    }

    /// Whether it starts and stops pods, and reports it.
    pub(super) fn is_there(&self) -> bool {
        self.has_agent() || (self.node.is_some() && self.came_back)
    }
}

fn says_ready(ready: ConditionStatus) -> Vec<(Text, ConditionStatus)> {
    let said = |kind: &str| (Text::from(kind), if kind == READY { ready } else { ConditionStatus::False });
    VOCABULARY.iter().map(|(kind, ..)| said(kind)).collect()
}

fn posted(kind: &Text, status: ConditionStatus) -> Condition {
    let words = VOCABULARY.iter().find(|(known, ..)| kind == known);
    let [reason, message] = match (words, status) {
        (Some((_, when_true, _)), ConditionStatus::True) => *when_true,
        (Some((_, _, when_false)), ConditionStatus::False) => *when_false,
        (Some(_), ConditionStatus::Unknown) | (None, _) => POSTED,
    };
    condition(kind, status, [reason, message])
}

/// A condition that a leader marked Unknown before the world began.
fn written_off(kind: &Text) -> Condition {
    condition(kind, ConditionStatus::Unknown, [STATUS_UNKNOWN, STATUS_UNKNOWN_MESSAGE])
}

fn condition(kind: &Text, status: ConditionStatus, [reason, message]: [&str; 2]) -> Condition {
    Condition {
        kind: kind.clone(),
        status,
        last_heartbeat: None,
        last_transition: None,
        reason: Text::from(reason),
        message: Text::from(message),
    }
}
