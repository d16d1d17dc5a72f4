//! Golden bytes of every rejection, and of what each says why.

use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::author::Author;
use muster_lifecycle::command::{Outcome, Receipt, ReceiptEffect};
use muster_lifecycle::credential::{Distrust, DistrustKind};
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::kind::{Kind as ObjectKind, WorkloadKind};
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::node::{ConditionStatus, Incarnation};
use muster_lifecycle::pod::{PlacementRefusal, PlacementRefusalKind, PodKey, Shortage};
use muster_lifecycle::rejection::{Limit, LimitKind, NodePart, Rejection, RejectionKind, UnstoppedPod};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::violation::ValueViolation;

use crate::golden::encoded;

fn text() -> Text {
    Text::from("x")
}

fn rejection(rejection: RejectionKind) -> Rejection {
    use RejectionKind as Kind;
    let (name, node, id, kind) = (text(), Text::from("a"), text(), ObjectKind::Node);
    let (replica, invalid) = (ReplicaId(2), Invalid::new("f", ValueViolation::Empty));
    match rejection {
        Kind::Invalid => Rejection::Invalid(invalid),
        Kind::NotFound => Rejection::NotFound { kind: ObjectKind::Workload(WorkloadKind::DaemonSet), name },
        Kind::AlreadyExists => Rejection::AlreadyExists { kind, name },
        Kind::Conflict => Rejection::Conflict { kind, name, expected: Revision(300), actual: Revision(1) },
        Kind::OtherUid => Rejection::OtherUid { kind, name, expected: Uid(300), actual: Uid(1) },
        Kind::ForeignTerm => Rejection::ForeignTerm { proposed: 1, committed: 300 },
        Kind::Overtaken => Rejection::Overtaken { sequence: 1, latest: 300 },
        Kind::ReplicaStoreChanged => Rejection::ReplicaStoreChanged { id: replica },
        Kind::ReplicaRetired => Rejection::ReplicaRetired { id: replica },
        Kind::LimitReached => Rejection::LimitReached { what: Limit::Nodes, limit: 300 },
        Kind::NotEntitled => Rejection::NotEntitled { what: Text::from("evict-node"), origin: Author::Agent },
        Kind::OtherIncarnation => {
            Rejection::OtherIncarnation { name, expected: Incarnation(1), actual: Incarnation(300) }
        }
        Kind::ReadyMoved => Rejection::ReadyMoved { name, expected: None, actual: Some(ConditionStatus::Unknown) },
        Kind::NotWaiting => Rejection::NotWaiting { name },
        Kind::ZonesMoved => Rejection::ZonesMoved,
        Kind::NoToken => Rejection::NoToken { zone: "r/z".parse().expect("a sample") },
        Kind::Spared => Rejection::Spared,
        Kind::NotAllDisrupted => Rejection::NotAllDisrupted,
        Kind::Stale => Rejection::Stale { age: Period(300) },
        Kind::NotLeaving => Rejection::NotLeaving { name },
        Kind::NotUnplaced => Rejection::NotUnplaced { name },
        Kind::Unfit => Rejection::Unfit { name, node, why: PlacementRefusal::Cordoned },
        Kind::NotGarbage => Rejection::NotGarbage { name },
        Kind::StillRunning => {
            let shown = [UnstoppedPod::Known(PodKey::new("ns", "p")), UnstoppedPod::Unknown(Uid(300))];
            Rejection::StillRunning { name, count: 300, shown: Box::new(shown) }
        }
        Kind::NoAddressing => Rejection::NoAddressing,
        Kind::Forbidden => Rejection::Forbidden(invalid),
        Kind::Distrusted => Rejection::Distrusted(Distrust::WrongSecret { id }),
        Kind::NoSuchToken => Rejection::NoSuchToken { id },
        Kind::TokenSpent => Rejection::TokenSpent { id, node },
        Kind::LevelHeldBack => Rejection::LevelHeldBack {
            needs: Level(2),
            id: replica,
            version: text(),
            levels: LevelRange::new(Level(1), Level(1)),
        },
        Kind::LevelNotRaised => Rejection::LevelNotRaised { needs: Level(2), in_force: Level(1) },
        Kind::LevelNotSpoken => {
            let levels = LevelRange::new(Level(1), Level(2));
            Rejection::LevelNotSpoken { id: replica, levels, level: Level(3), raised_by: text() }
        }
    }
}

fn limit(kind: LimitKind) -> Limit {
    use LimitKind as Kind;
    let (name, bytes) = (text(), 300);
    match kind {
        Kind::Nodes => Limit::Nodes,
        Kind::Pods => Limit::Pods,
        Kind::Workloads => Limit::Workloads,
        Kind::Replicas => Limit::Replicas,
        Kind::Aggregators => Limit::Aggregators,
        Kind::Credentials => Limit::Credentials,
        Kind::OpenTokens => Limit::OpenTokens,
        Kind::Settings => Limit::Settings,
        Kind::NodesPerEntry => Limit::NodesPerEntry,
        Kind::NamesPerEntry => Limit::NamesPerEntry,
        Kind::PodsPerReport => Limit::PodsPerReport,
        Kind::PodsOnNode => Limit::PodsOnNode { node: name },
        Kind::NodeBytes => Limit::NodeBytes { name, bytes, heaviest: NodePart::Unmodelled },
        Kind::PodBytes => Limit::PodBytes { name, bytes },
        Kind::WorkloadBytes => Limit::WorkloadBytes { name, bytes },
        Kind::ReasonBytes => Limit::ReasonBytes,
    }
}

fn distrust(kind: DistrustKind) -> Distrust {
    use DistrustKind as Kind;
    let (id, node) = (text(), Text::from("a"));
    match kind {
        Kind::UnknownToken => Distrust::UnknownToken { id },
        Kind::ForeignToken => Distrust::ForeignToken { id },
        Kind::WrongSecret => Distrust::WrongSecret { id },
        Kind::ReplayedToken => Distrust::ReplayedToken { id, node },
        Kind::ExpiredToken => Distrust::ExpiredToken { id },
        Kind::RevokedToken => Distrust::RevokedToken { id },
        Kind::OtherNode => Distrust::OtherNode { id, meant: Text::from("b"), node },
        Kind::NameTaken => Distrust::NameTaken { node },
        Kind::RevokedNode => Distrust::RevokedNode { node, by: Author::operator("alice") },
        Kind::OtherKey => Distrust::OtherKey { node },
    }
}

fn refusal(kind: PlacementRefusalKind) -> PlacementRefusal {
    use PlacementRefusalKind as Kind;
    match kind {
        Kind::Unreachable => PlacementRefusal::Unreachable,
        Kind::NotReady => PlacementRefusal::NotReady,
        Kind::Unheard => PlacementRefusal::Unheard,
        Kind::Deleted => PlacementRefusal::Deleted,
        Kind::Cordoned => PlacementRefusal::Cordoned,
        Kind::Taint => PlacementRefusal::Taint(text()),
        Kind::Selector => PlacementRefusal::Selector,
        Kind::Short => PlacementRefusal::Short(Shortage::Resource(text())),
    }
}

#[test]
fn outcomes_keep_their_bytes() {
    let mut golden = GoldenBytes::default();
    let effects = [ReceiptEffect::Created, ReceiptEffect::Changed, ReceiptEffect::Unchanged, ReceiptEffect::Deleted];
    for effect in effects {
        let receipt = Receipt { revision: Revision(300), effect };
        golden.pin(format!("done/{effect:?}"), encoded(&Outcome::Done(receipt)));
    }
    for kind in RejectionKind::ALL {
        golden.pin(format!("rejected/{}", <&str>::from(*kind)), encoded(&Outcome::Rejected(rejection(*kind))));
    }
    for kind in LimitKind::ALL {
        golden.pin(format!("limit/{}", <&str>::from(*kind)), encoded(&limit(*kind)));
    }
    for kind in DistrustKind::ALL {
        golden.pin(format!("distrust/{}", <&str>::from(*kind)), encoded(&distrust(*kind)));
    }
    for kind in PlacementRefusalKind::ALL {
        golden.pin(format!("refusal/{}", <&str>::from(*kind)), encoded(&refusal(*kind)));
    }
    golden.pin("refusal/short-of-pods", encoded(&PlacementRefusal::Short(Shortage::Pods)));
    golden.check(Path::new("golden/outcomes.txt"));
}
