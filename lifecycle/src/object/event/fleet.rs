//! Happenings of the fleet: zones and the policy.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::object::event::headline::{Headline, normal, warning};
use crate::object::event::subject::Subject;
use crate::object::policy::Rate;
use crate::object::replica::ReplicaTrouble;
use crate::object::zone::ZoneState;
use crate::value::author::Author;
use crate::value::text::Text;
use crate::value::time::Period;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(FleetHappeningKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`FleetHappening`], without their parameters.")]
pub enum FleetHappening {
    ZoneStateChanged {
        from: ZoneState,
        to: ZoneState,
        ready: u64,
        size: u64,
        rate: Rate,
    },
    AllZonesDisrupted,
    ZonesRecovered {
        grace: Period,
    },
    /// Both values are in the notation in which people write them.
    PolicyChanged {
        from: Text,
        to: Text,
        by: Author,
    },
    ReplicaInTrouble {
        trouble: ReplicaTrouble,
    },
}

// === impl FleetHappening ===

impl FleetHappeningKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}

impl FleetHappening {
    pub(super) fn headline(&self) -> Headline {
        match self {
            Self::ZoneStateChanged { .. } => normal("ZoneStateChanged"),
            Self::AllZonesDisrupted => warning("AllZonesDisrupted"),
            Self::ZonesRecovered { .. } => warning("ZonesRecovered"),
            Self::PolicyChanged { .. } => normal("PolicyChanged"),
            Self::ReplicaInTrouble { trouble } => warning(match trouble {
                ReplicaTrouble::WentBack => "ReplicaWentBack",
                ReplicaTrouble::Diverged => "ReplicaDiverged",
                ReplicaTrouble::Disputed => "ReplicaDisputed",
                ReplicaTrouble::Halted => "ReplicaHalted",
            }),
        }
    }

    pub(super) fn message(&self, Subject { name, .. }: &Subject) -> String {
        match self {
            Self::ZoneStateChanged { from, to, ready, size, rate } => format!(
                "zone {name} went from {from} to {to}: {ready} of {size} nodes are ready, {rate} nodes per second are \
                 evicted"
            ),
            Self::AllZonesDisrupted => {
                "every zone is fully disrupted: evictions stop and their NoExecute taints are removed".to_owned()
            }
            Self::ZonesRecovered { grace } => {
                format!("a zone has a ready node again: every node gets a new grace period of {grace}")
            }
            Self::PolicyChanged { from, to, by } => format!("{name} was changed from {from} to {to} by {by}"),
            Self::ReplicaInTrouble { trouble } => {
                let what = match trouble {
                    ReplicaTrouble::WentBack => "knows less than it acknowledged and takes no part",
                    ReplicaTrouble::Diverged => "has another state than the majority and takes no part",
                    ReplicaTrouble::Disputed => "has another state than another replica",
                    ReplicaTrouble::Halted => "panicked on an entry of the log and takes no part",
                };
                format!("replica {name} {what}; `muster status` says what to do")
            }
        }
    }
}
