//! Golden bytes of everything an event can tell.

use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::addressing::{AddressShortage, PoolShortage};
use muster_lifecycle::author::Author;
use muster_lifecycle::credential::Distrust;
use muster_lifecycle::event::{
    ConditionTurn, FleetHappening, FleetHappeningKind, Happening, LastHeard, NodeHappening, NodeHappeningKind,
    PodHappening, PodHappeningKind,
};
use muster_lifecycle::garbage::Garbage;
use muster_lifecycle::policy::Rate;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::replica::ReplicaTrouble;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::zone::ZoneState;
use strum::VariantArray;

use crate::golden::encoded;

fn text() -> Text {
    Text::from("x")
}

fn of_node(kind: NodeHappeningKind) -> NodeHappening {
    use NodeHappeningKind as Kind;
    let by = Author::operator("alice");
    match kind {
        Kind::Registered => NodeHappening::Registered { by },
        Kind::Removed => NodeHappening::Removed { by },
        Kind::Cordoned => NodeHappening::Cordoned { by },
        Kind::Uncordoned => NodeHappening::Uncordoned { by },
        Kind::FellSilent => {
            NodeHappening::FellSilent { heard: Some(LastHeard { before: Period(300), through: ReplicaId(2) }) }
        }
        Kind::Quarantined => NodeHappening::Quarantined { crash: text() },
        Kind::TaintedForEviction => {
            let (taint, zone) = ("k=v:NoExecute".parse().expect("a sample"), "r/z".parse().expect("a sample"));
            NodeHappening::TaintedForEviction { taint, zone, rate: Rate(300) }
        }
        Kind::Turned => NodeHappening::Turned { to: ConditionTurn::Ready },
        Kind::Rebooted => NodeHappening::Rebooted { boot_id: text() },
        Kind::Unaddressed => {
            let pools =
                Box::new([PoolShortage { range: "10.0.0.0/16".parse().expect("a sample"), blocks: 256, free: 0 }]);
            let shortage = AddressShortage { pools, resting: 3, quarantine: Period(300), is_held: true };
            NodeHappening::Unaddressed { shortage: Box::new(shortage) }
        }
        Kind::Enrolled => NodeHappening::Enrolled { token: text() },
        Kind::EnrolmentRefused => {
            let why = Box::new(Distrust::ExpiredToken { id: text() });
            NodeHappening::EnrolmentRefused { remote: "10.0.0.1:300".parse().expect("a sample"), why }
        }
        Kind::ExpiredCertificateRenewed => NodeHappening::ExpiredCertificateRenewed,
        Kind::Revoked => NodeHappening::Revoked { by },
    }
}

fn of_fleet(kind: FleetHappeningKind) -> FleetHappening {
    use FleetHappeningKind as Kind;
    match kind {
        Kind::ZoneStateChanged => {
            let (from, to) = (ZoneState::Normal, ZoneState::FullDisruption);
            FleetHappening::ZoneStateChanged { from, to, ready: 0, size: 300, rate: Rate(7) }
        }
        Kind::AllZonesDisrupted => FleetHappening::AllZonesDisrupted,
        Kind::ZonesRecovered => FleetHappening::ZonesRecovered { grace: Period(300) },
        Kind::PolicyChanged => {
            FleetHappening::PolicyChanged { from: Text::from("40s"), to: Text::from("1m"), by: Author::Controller }
        }
        Kind::ReplicaInTrouble => FleetHappening::ReplicaInTrouble { trouble: ReplicaTrouble::Disputed },
    }
}

fn of_pod(kind: PodHappeningKind) -> PodHappening {
    use PodHappeningKind as Kind;
    match kind {
        Kind::Deleted => PodHappening::Deleted { by: Author::Replica { id: ReplicaId(2) }, grace: Some(30) },
        Kind::Collected => PodHappening::Collected { why: Garbage::Terminated },
        Kind::Bound => PodHappening::Bound { node: text() },
        Kind::Unplaced => PodHappening::Unplaced { why: text() },
        Kind::Evicted => PodHappening::Evicted { taint: "k:NoExecute".parse().expect("a sample") },
        Kind::NodeFellSilent => PodHappening::NodeFellSilent,
        Kind::Made => PodHappening::Made { name: text() },
        Kind::Dismissed => PodHappening::Dismissed { name: text() },
    }
}

#[test]
fn happenings_keep_their_bytes() {
    let mut golden = GoldenBytes::default();
    let mut pin = |group: &str, name: &str, happening: Happening| {
        golden.pin(format!("{group}/{name}"), encoded(&happening));
    };
    NodeHappeningKind::ALL.iter().for_each(|kind| pin("node", (*kind).into(), of_node(*kind).into()));
    FleetHappeningKind::ALL.iter().for_each(|kind| pin("fleet", (*kind).into(), of_fleet(*kind).into()));
    PodHappeningKind::ALL.iter().for_each(|kind| pin("pod", (*kind).into(), of_pod(*kind).into()));
    for to in ConditionTurn::VARIANTS {
        pin("turn", &format!("{to:?}"), NodeHappening::Turned { to: *to }.into());
    }
    for why in Garbage::VARIANTS {
        pin("collected", &format!("{why:?}"), PodHappening::Collected { why: *why }.into());
    }
    for by in [Author::operator("alice"), Author::Controller, Author::Replica { id: ReplicaId(300) }, Author::Agent] {
        pin("author", &by.to_string().replace(' ', "-"), NodeHappening::Removed { by }.into());
    }
    pin("node", "fell-silent-unheard", NodeHappening::FellSilent { heard: None }.into());
    golden.check(Path::new("golden/events.txt"));
}

/// A long reason fits into an event, and a reworded one cannot change it: the smallest event of a silent node is its
/// code and two numbers.
#[test]
fn the_event_of_a_silent_node_is_a_code_and_two_numbers() {
    let heard = Some(LastHeard { before: Period(40_000), through: ReplicaId(2) });
    assert_eq!(encoded(&Happening::from(NodeHappening::FellSilent { heard })).len(), 7);
}
