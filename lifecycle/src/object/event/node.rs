//! Happenings of nodes.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::addressing::AddressShortage;
use crate::object::credential::Distrust;
use crate::object::event::headline::{Headline, normal, warning};
use crate::object::event::subject::Subject;
use crate::object::policy::Rate;
use crate::object::taint::Taint;
use crate::object::zone::ZoneKey;
use crate::value::author::Author;
use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;
use crate::value::time::Period;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(NodeHappeningKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`NodeHappening`], without their parameters.")]
pub enum NodeHappening {
    Registered {
        by: Author,
    },
    Removed {
        by: Author,
    },
    Cordoned {
        by: Author,
    },
    Uncordoned {
        by: Author,
    },
    /// The leader marked a node that was ready and has not been heard. `None` if no replica remembers having heard it.
    FellSilent {
        heard: Option<LastHeard>,
    },
    /// The crash is in the words of the program that crashed.
    Quarantined {
        crash: Text,
    },
    TaintedForEviction {
        taint: Taint,
        zone: ZoneKey,
        rate: Rate,
    },
    /// A condition turned, by the agent's word.
    Turned {
        to: ConditionTurn,
    },
    Rebooted {
        boot_id: Text,
    },
    Unaddressed {
        shortage: Box<AddressShortage>,
    },
    Enrolled {
        token: Text,
    },
    EnrolmentRefused {
        remote: SocketAddr,
        why: Box<Distrust>,
    },
    ExpiredCertificateRenewed,
    Revoked {
        by: Author,
    },
}

/// When a node that fell silent was last heard, counted back from the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastHeard {
    pub before: Period,
    pub through: ReplicaId,
}

/// A condition and the status that it turned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, VariantArray)]
pub enum ConditionTurn {
    Ready,
    NotReady,
    InsufficientMemory,
    SufficientMemory,
    DiskPressure,
    NoDiskPressure,
    InsufficientPid,
    SufficientPid,
}

/// Agents report in the kubelet's place, and dashboards look for its name.
const AGENT: &str = "kubelet";

const NOT_READY: &str = "NodeNotReady";

/// How much of a refusal is shown.
const REFUSAL_MAX: usize = 512;

// === impl NodeHappening ===

impl NodeHappeningKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl NodeHappening {
    pub(super) fn headline(&self) -> Headline {
        match self {
            Self::Registered { .. } => normal("RegisteredNode"),
            Self::Removed { .. } => normal("RemovingNode"),
            Self::Cordoned { .. } => normal("NodeNotSchedulable"),
            Self::Uncordoned { .. } => normal("NodeSchedulable"),
            Self::FellSilent { .. } => normal(NOT_READY),
            Self::Quarantined { .. } => warning("NodeQuarantined"),
            Self::TaintedForEviction { .. } => normal("NodeTaintedForEviction"),
            Self::Turned { to } => normal(to.reason()).from(AGENT),
            Self::Rebooted { .. } => warning("Rebooted").from(AGENT),
            Self::Unaddressed { .. } => normal("CIDRNotAvailable"),
            Self::Enrolled { .. } => normal("NodeEnrolled"),
            Self::EnrolmentRefused { .. } => warning("EnrolmentRefused"),
            Self::ExpiredCertificateRenewed => warning("ExpiredCertificateRenewed"),
            Self::Revoked { .. } => warning("NodeRevoked"),
        }
    }

    pub(super) fn message(&self, Subject { name, .. }: &Subject) -> String {
        match self {
            Self::Registered { by } => format!("node {name} was registered by {by}"),
            Self::Removed { by } => format!("node {name} was removed by {by}"),
            Self::Cordoned { by } => format!("node {name} was cordoned by {by}"),
            Self::Uncordoned { by } => format!("node {name} was uncordoned by {by}"),
            Self::FellSilent { heard } => format!("Node {name} status is now: {NOT_READY}; {}", sighting(*heard)),
            Self::Quarantined { crash } => format!(
                "watching node {name} keeps failing ({crash}): it keeps its last known state until it changes or \
                 another replica leads"
            ),
            Self::TaintedForEviction { taint, zone, rate } => {
                format!("{taint} was added; zone {zone} evicts {rate} nodes per second")
            }
            Self::Turned { to } => format!("Node {name} status is now: {}", to.reason()),
            Self::Rebooted { boot_id } => format!("Node {name} has been rebooted, boot id: {boot_id}"),
            Self::Unaddressed { shortage } => format!("node {name} got no addresses for pods: {shortage}"),
            Self::Enrolled { token } => format!("joined with token {token}"),
            Self::EnrolmentRefused { remote, why } => {
                Text::clipped(&format!("{remote} was not let in: {why}"), REFUSAL_MAX).to_string()
            }
            Self::ExpiredCertificateRenewed => "renewed its certificate after it had expired".to_owned(),
            Self::Revoked { by } => format!("its credentials were revoked by {by}"),
        }
    }
}

fn sighting(heard: Option<LastHeard>) -> String {
    match heard {
        Some(LastHeard { before, through }) => format!("it was last heard {before} before, through replica {through}"),
        None => "no replica remembers having heard it".to_owned(),
    }
}

// === impl ConditionTurn ===

impl ConditionTurn {
    fn reason(self) -> &'static str {
        match self {
            Self::Ready => "NodeReady",
            Self::NotReady => NOT_READY,
            Self::InsufficientMemory => "NodeHasInsufficientMemory",
            Self::SufficientMemory => "NodeHasSufficientMemory",
            Self::DiskPressure => "NodeHasDiskPressure",
            Self::NoDiskPressure => "NodeHasNoDiskPressure",
            Self::InsufficientPid => "NodeHasInsufficientPID",
            Self::SufficientPid => "NodeHasSufficientPID",
        }
    }
}
