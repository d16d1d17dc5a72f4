//! Happenings of pods, and of workloads that make and delete them.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::event::headline::{Headline, NODE_CONTROLLER, normal, warning};
use crate::object::event::subject::Subject;
use crate::object::kind::WorkloadKind;
use crate::object::pod::{Garbage, PodKey};
use crate::object::taint::Taint;
use crate::value::author::Author;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(PodHappeningKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`PodHappening`], without their parameters.")]
pub enum PodHappening {
    /// `None` if the pod was gone at once.
    Deleted {
        by: Author,
        grace: Option<u32>,
    },
    Collected {
        why: Garbage,
    },
    Bound {
        node: Text,
    },
    /// The leader's words, which came with the command: to `apply` they are data.
    Unplaced {
        why: Text,
    },
    Evicted {
        taint: Taint,
    },
    /// The pod's node fell silent.
    NodeFellSilent,
    /// About the workload that made the pod.
    Made {
        name: Text,
    },
    /// About the workload that had too many.
    Dismissed {
        name: Text,
    },
}

const DEFAULT_SCHEDULER: &str = "default-scheduler";
const TAINT_MANAGER: &str = "taint-eviction-controller";

// === impl PodHappening ===

impl PodHappeningKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl PodHappening {
    pub(super) fn headline(&self, subject: &Subject) -> Headline {
        match self {
            Self::Deleted { .. } => normal("Killing"),
            Self::Collected { .. } => normal("PodCollected"),
            Self::Bound { .. } => normal("Scheduled").from(DEFAULT_SCHEDULER),
            Self::Unplaced { .. } => warning("FailedScheduling").from(DEFAULT_SCHEDULER),
            Self::Evicted { .. } => normal("TaintManagerEviction").from(TAINT_MANAGER),
            Self::NodeFellSilent => warning("NodeNotReady"),
            Self::Made { .. } => normal("SuccessfulCreate").from(workload_controller(subject)),
            Self::Dismissed { .. } => normal("SuccessfulDelete").from(workload_controller(subject)),
        }
    }

    pub(super) fn message(&self, subject: &Subject) -> String {
        let key = || PodKey::new(subject.namespace.clone().unwrap_or_default(), subject.name.clone());
        match self {
            Self::Deleted { by, grace: None } => format!("pod {} was deleted by {by} and is gone", key()),
            Self::Deleted { by, grace: Some(grace) } => {
                format!("pod {} was deleted by {by} and has {grace}s to stop", key())
            }
            Self::Collected { why } => format!("pod {} was taken away: {}", key(), why.why()),
            Self::Bound { node } => format!("Successfully assigned {} to {node}", key()),
            Self::Unplaced { why } => why.to_string(),
            Self::Evicted { taint } => format!("Marking for deletion Pod {}: {taint}", key()),
            Self::NodeFellSilent => "Node is not ready".to_owned(),
            Self::Made { name } => format!("Created pod: {name}"),
            Self::Dismissed { name } => format!("Deleted pod: {name}"),
        }
    }
}

fn workload_controller(subject: &Subject) -> &'static str {
    match subject.kind.parse() {
        Ok(WorkloadKind::ReplicaSet) => "replicaset-controller",
        Ok(WorkloadKind::StatefulSet) => "statefulset-controller",
        Ok(WorkloadKind::DaemonSet) => "daemonset-controller",
        Err(_) => NODE_CONTROLLER,
    }
}
