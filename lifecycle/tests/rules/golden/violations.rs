//! Golden bytes of every rule that a value can break.

use std::path::Path;
use std::time::Duration;

use muster_golden::GoldenBytes;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::violation::{
    AccessViolation, AccessViolationKind, AddressViolation, AddressViolationKind, NameViolation, NameViolationKind,
    NodeViolation, NodeViolationKind, PodViolation, PodViolationKind, SettingViolation, SettingViolationKind,
    ValueViolation, ValueViolationKind, Violation,
};

use crate::golden::encoded;

fn text() -> Text {
    Text::from("x")
}

fn of_value(kind: ValueViolationKind) -> ValueViolation {
    use ValueViolationKind as Kind;
    let (key, known, given) = (text(), Text::from("y"), "1500m".parse().expect("a sample"));
    match kind {
        Kind::Empty => ValueViolation::Empty,
        Kind::TooMany => ValueViolation::TooMany { count: 300, most: 7 },
        Kind::TooManyBytes => ValueViolation::TooManyBytes { bytes: 300, most: 7 },
        Kind::NotBetween => ValueViolation::NotBetween { given: 300, least: -1, most: 7 },
        Kind::Negative => ValueViolation::Negative { given },
        Kind::NotWhole => ValueViolation::NotWhole { given },
        Kind::Repeated => ValueViolation::Repeated { key },
        Kind::NamedTwice => ValueViolation::NamedTwice { key },
        Kind::HasOtherValue => ValueViolation::HasOtherValue { key, known },
        Kind::Reserved => ValueViolation::Reserved { key },
    }
}

fn of_name(kind: NameViolationKind) -> NameViolation {
    use NameViolationKind as Kind;
    let (value, length) = (text(), 300);
    match kind {
        Kind::Subdomain => NameViolation::Subdomain { value },
        Kind::TooLong => NameViolation::TooLong { value, length },
        Kind::LongPart => NameViolation::LongPart { value, length },
        Kind::Label => NameViolation::Label { value },
        Kind::Qualified => NameViolation::Qualified { value },
        Kind::LabelValue => NameViolation::LabelValue { value },
        Kind::LabelValueOf => NameViolation::LabelValueOf { value, key: Text::from("k") },
        Kind::AnnotationBytes => NameViolation::AnnotationBytes { bytes: 300, most: 7 },
    }
}

fn of_setting(kind: SettingViolationKind) -> SettingViolation {
    use SettingViolationKind as Kind;
    let (text, period, grace) = (text(), Period(300), Period(7));
    match kind {
        Kind::Unknown => SettingViolation::Unknown,
        Kind::NamedTwice => SettingViolation::NamedTwice,
        Kind::NotPeriod => SettingViolation::from("soon".parse::<Period>().expect_err("no period")),
        Kind::NotRate => SettingViolation::NotRate { text },
        Kind::NotFraction => SettingViolation::NotFraction { text },
        Kind::NotSize => SettingViolation::NotSize { text },
        Kind::NotScope => SettingViolation::NotScope { text },
        Kind::TooLong => SettingViolation::TooLong { period, most: grace },
        Kind::TooShort => SettingViolation::TooShort { period, least: grace },
        Kind::NotWholeSeconds => SettingViolation::NotWholeSeconds { period },
        Kind::GraceTooShort => SettingViolation::GraceTooShort { grace, least: period },
        Kind::AboveGrace => SettingViolation::AboveGrace { period, setting: text, grace },
        Kind::TooFast => SettingViolation::TooFast { rate: 300, most: 7 },
        Kind::NoShare => SettingViolation::NoShare { fraction: 300 },
        Kind::NotFinalization => SettingViolation::NotFinalization { text },
    }
}

fn of_address(kind: AddressViolationKind) -> AddressViolation {
    use AddressViolationKind as Kind;
    let (range, cidr) = ("10.0.0.0/8".parse().expect("a sample"), "fd00::/64".parse().expect("a sample"));
    let (mask, node) = (24, text());
    match kind {
        Kind::Unallocated => AddressViolation::Unallocated,
        Kind::NotCidr => AddressViolation::NotCidr { text: text() },
        Kind::NoRange => AddressViolation::NoRange,
        Kind::SameFamilyRange => AddressViolation::SameFamilyRange { range },
        Kind::TooManyRanges => AddressViolation::TooManyRanges { count: 3 },
        Kind::MaskForOneRange => AddressViolation::MaskForOneRange,
        Kind::MaskExcludesOthers => AddressViolation::MaskExcludesOthers,
        Kind::NoIpv4Range => AddressViolation::NoIpv4Range,
        Kind::NoIpv6Range => AddressViolation::NoIpv6Range,
        Kind::MaskZero => AddressViolation::MaskZero,
        Kind::MaskTooLong => AddressViolation::MaskTooLong { mask, bits: 32 },
        Kind::RangeTooSmall => AddressViolation::RangeTooSmall { mask, range },
        Kind::TooManyBlocks => AddressViolation::TooManyBlocks { mask, range, most: 7 },
        Kind::NothingLeft => AddressViolation::NothingLeft { reserved: cidr, range },
        Kind::SameFamily => AddressViolation::SameFamily { cidr },
        Kind::TooMany => AddressViolation::TooMany { count: 3 },
        Kind::HeldByNode => AddressViolation::HeldByNode { cidr, node },
        Kind::Reserved => AddressViolation::Reserved { cidr, range },
        Kind::Resting => AddressViolation::Resting { cidr, left: Period(300) },
        Kind::Fixed => AddressViolation::Fixed { cidrs: Box::new([range, cidr]) },
    }
}

fn of_node(kind: NodeViolationKind) -> NodeViolation {
    use NodeViolationKind as Kind;
    let taint = text();
    match kind {
        Kind::NoSuchTaint => NodeViolation::NoSuchTaint { taint },
        Kind::TaintThere => NodeViolation::TaintThere { taint },
        Kind::TaintRepeated => NodeViolation::TaintRepeated { taint },
        Kind::ProviderIdFixed => NodeViolation::ProviderIdFixed { known: text() },
        Kind::LateFinalizer => NodeViolation::LateFinalizer { finalizer: text() },
        Kind::SecondController => NodeViolation::SecondController,
        Kind::AddressRepeated => NodeViolation::AddressRepeated { kind: text(), address: Text::from("y") },
        Kind::SwapNotPositive => NodeViolation::SwapNotPositive { bytes: -300 },
    }
}

fn of_pod(kind: PodViolationKind) -> PodViolation {
    use PodViolationKind as Kind;
    match kind {
        Kind::OperatorWithoutKey => PodViolation::OperatorWithoutKey,
        Kind::ValueWithExists => PodViolation::ValueWithExists,
        Kind::ValueNoNumber => PodViolation::ValueNoNumber,
        Kind::SecondsWithoutNoExecute => PodViolation::SecondsWithoutNoExecute,
        Kind::TolerationGone => PodViolation::TolerationGone { toleration: text() },
        Kind::NoSelector => PodViolation::NoSelector,
        Kind::LabelNotSelected => PodViolation::LabelNotSelected { key: text(), value: Text::from("y") },
        Kind::NoContainers => PodViolation::NoContainers,
        Kind::GraceNegative => PodViolation::GraceNegative { seconds: -300 },
        Kind::GraceTooLong => PodViolation::GraceTooLong { seconds: 300, most: 7 },
        Kind::Finalizers => PodViolation::Finalizers,
        Kind::PodFixed => PodViolation::PodFixed,
        Kind::SelectorFixed => PodViolation::SelectorFixed,
        Kind::FalseOwner => {
            PodViolation::FalseOwner { workload: text(), kind: Text::from("ReplicaSet"), uid: Uid(300) }
        }
        Kind::NoSuchNode => PodViolation::NoSuchNode { node: text() },
    }
}

fn of_access(kind: AccessViolationKind) -> AccessViolation {
    use AccessViolationKind as Kind;
    let (id, name, node) = (text(), text(), text());
    match kind {
        Kind::TokenId => AccessViolation::TokenId { id, length: 10 },
        Kind::TokenLife => AccessViolation::TokenLife { ttl: Duration::from_millis(300_007) },
        Kind::TokenThere => AccessViolation::TokenThere { id },
        Kind::TooManyPatterns => AccessViolation::TooManyPatterns { count: 300, most: 7 },
        Kind::NoSuchAggregator => AccessViolation::NoSuchAggregator { name },
        Kind::SameKey => AccessViolation::SameKey,
        Kind::OtherNode => AccessViolation::OtherNode { other: text(), own: Text::from("y") },
        Kind::ConfigSource => AccessViolation::ConfigSource,
        Kind::NotOfAgents => AccessViolation::NotOfAgents,
        Kind::LabelNotOfAgents => AccessViolation::LabelNotOfAgents,
        Kind::OtherNodesPod => AccessViolation::OtherNodesPod { node },
        Kind::UnknownAggregator => AccessViolation::UnknownAggregator { name },
    }
}

#[test]
fn violations_keep_their_bytes() {
    let mut golden = GoldenBytes::default();
    let mut pin = |group: &str, name: &'static str, violation: Violation| {
        assert!(!violation.to_string().is_empty(), "{group}/{name} says something");
        golden.pin(format!("{group}/{name}"), encoded(&violation));
    };
    ValueViolationKind::ALL.iter().for_each(|kind| pin("value", (*kind).into(), of_value(*kind).into()));
    NameViolationKind::ALL.iter().for_each(|kind| pin("name", (*kind).into(), of_name(*kind).into()));
    SettingViolationKind::ALL.iter().for_each(|kind| pin("setting", (*kind).into(), of_setting(*kind).into()));
    AddressViolationKind::ALL.iter().for_each(|kind| pin("address", (*kind).into(), of_address(*kind).into()));
    NodeViolationKind::ALL.iter().for_each(|kind| pin("node", (*kind).into(), of_node(*kind).into()));
    PodViolationKind::ALL.iter().for_each(|kind| pin("pod", (*kind).into(), of_pod(*kind).into()));
    AccessViolationKind::ALL.iter().for_each(|kind| pin("access", (*kind).into(), of_access(*kind).into()));
    golden.check(Path::new("golden/violations.txt"));
}
