//! Golden bytes of every record, key and value: stores on disk stay readable, and digests of two builds agree.

use muster_golden::GoldenBytes;
use proptest::prelude::*;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use crate::command::client::ClientRecord;
use crate::command::{Outcome, Receipt, ReceiptEffect};
use crate::object::addressing::{Addressing, Pool, Resting};
use crate::object::aggregator::AggregatorRecord;
use crate::object::credential::{Credential, Revocation};
use crate::object::event::{Event, NodeHappening, Subject};
use crate::object::join_token::{JoinToken, TokenUse};
use crate::object::kind::Kind;
use crate::object::level_in_force::LevelInForce;
use crate::object::node::{
    Address, Condition, ConditionStatus, Incarnation, Node, NodeInfo, NodeSpec, NodeStatus, Resources, Slot,
};
use crate::object::pod::{Binding, Ending, Phase, Pod, PodSpec, PodStatus, PodTemplate};
use crate::object::policy::Rate;
use crate::object::policy_state::{FleetPolicyState, Reprieve, ReprieveReason};
use crate::object::record::*;
use crate::object::replica::{ReplicaId, ReplicaRecord};
use crate::object::slot::FreeSlot;
use crate::object::token_bucket::TokenBucket;
use crate::object::toleration::Toleration;
use crate::object::workload::{Workload, WorkloadSpec};
use crate::object::zone::ZoneRecord;
use crate::object::zone::{Zone, ZoneKey, ZoneState};
use crate::rejection::Rejection;
use crate::state::Counters;
use crate::value::author::Author;
use crate::value::cidr::Grid;
use crate::value::fingerprint::Fingerprint;
use crate::value::level::{Level, LevelRange};
use crate::value::meta::{ObjectMeta, OwnerReference, Pairs, Revision, Uid};
use crate::value::time::Period;
use crate::value::time::{ClusterTime, Stamp, WallTime};

fn stamp(cluster: u64, wall: i64) -> Stamp {
    Stamp { cluster: ClusterTime(cluster), wall: WallTime(wall) }
}

fn meta(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Text::from(name),
        namespace: None,
        uid: Uid(0xabc),
        revision: Revision(7),
        generation: 2,
        created: stamp(1, 1000),
        deleted: Some(stamp(2, 2000)),
        labels: Pairs::from_iter([("l", "1")]),
        annotations: Pairs::from_iter([("n", "2")]),
        owners: Box::new([OwnerReference {
            api_version: Text::from("v1"),
            kind: Text::from("K"),
            name: Text::from("o"),
            uid: Uid(1),
            controller: true,
            block_owner_deletion: false,
        }]),
        finalizers: Box::new([Text::from("f")]),
    }
}

fn node() -> Node {
    let resources = || Resources::from_iter([("cpu", "1500m".parse().unwrap()), ("memory", "1Gi".parse().unwrap())]);
    Node {
        meta: meta("a"),
        slot: Slot { index: 3, generation: 1 },
        incarnation: Incarnation(4),
        spec: NodeSpec {
            pod_cidrs: Box::new(["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()]),
            provider_id: Some(Text::from("p")),
            unschedulable: true,
            taints: Box::new(["t=v:NoExecute".parse().unwrap()]),
        },
        status: NodeStatus {
            capacity: resources(),
            allocatable: resources(),
            conditions: Box::new([Condition {
                kind: Text::from("Ready"),
                status: ConditionStatus::True,
                last_heartbeat: Some(stamp(1, 1)),
                last_transition: None,
                reason: Text::from("r"),
                message: Text::from("m"),
            }]),
            addresses: Box::new([Address { kind: Text::from("Hostname"), address: Text::from("a") }]),
            info: Some(Box::new(NodeInfo { swap_capacity: Some(1), ..NodeInfo::default() })),
        },
        unmodelled: Some(Text::from("{}")),
    }
}

fn event() -> Event {
    Event {
        meta: ObjectMeta { namespace: Some(Text::from("default")), ..meta("a.1") },
        sequence: 1,
        subject: Subject { kind: Text::from("Node"), name: Text::from("a"), namespace: None, uid: Uid(0xabc) },
        happening: NodeHappening::Rebooted { boot_id: Text::from("b") }.into(),
        at: stamp(3, 3000),
    }
}

fn policy_state() -> FleetPolicyState {
    let reprieve = Some(Reprieve { until: ClusterTime(9), because: ReprieveReason::ShorterGrace });
    FleetPolicyState { founded: true, all_disrupted: true, reprieve, ..FleetPolicyState::default() }
}

fn zone_record() -> ZoneRecord {
    let key = ZoneKey { region: Text::from("r"), zone: Text::from("z") };
    let (since, rate) = (stamp(300, 3000), Rate(100_000));
    let zone = Zone { state: ZoneState::PartialDisruption, since, rate };
    ZoneRecord { key, zone, bucket: TokenBucket::new(rate, since.cluster), evictions: 7 }
}

fn aggregator() -> AggregatorRecord {
    AggregatorRecord { name: Text::from("g"), nodes: Box::new([Text::from("n-*")]), note: Text::default() }
}

fn namespaced(name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(Text::from("ns")), ..meta(name) }
}

fn condition() -> Condition {
    Condition {
        kind: Text::from("Ready"),
        status: ConditionStatus::False,
        last_heartbeat: None,
        last_transition: Some(stamp(2, 2)),
        reason: Text::from("r"),
        message: Text::from("m"),
    }
}

fn tolerations() -> Box<[Toleration]> {
    let tolerated = crate::object::taint::Effect::NoExecute;
    Box::new([
        Toleration::exists("t", tolerated, Some(300)),
        Toleration { key: Text::from("u"), ..Toleration::default() },
    ])
}

fn requests() -> Resources {
    Resources::from_iter([("cpu", "1500m".parse().unwrap())])
}

fn pod() -> Pod {
    Pod {
        meta: namespaced("p"),
        spec: PodSpec {
            binding: Some(Binding { node: Text::from("a"), incarnation: Incarnation(4), at: stamp(3, 3) }),
            tolerations: tolerations(),
            priority: -7,
            grace: 30,
            node_selector: Pairs::from_iter([("s", "1")]),
            requests: requests(),
            host_network: true,
        },
        status: PodStatus {
            phase: Phase::Running,
            conditions: Box::new([condition()]),
            reason: Text::from("R"),
            message: Text::from("M"),
            restarts: 5,
            started: Some(stamp(4, 4)),
        },
        ending: Some(Ending { grace: 9, in_absence: true, orphaned: Some(stamp(4, 4000)) }),
        unmodelled: Some(Text::from("{}")),
    }
}

fn workload() -> Workload {
    let template = PodTemplate {
        tolerations: Some(tolerations()),
        priority: Some(-7),
        grace: Some(9),
        node_selector: Some(Pairs::from_iter([("s", "1")])),
        requests: requests(),
        host_network: true,
        has_containers: true,
        unmodelled: Some(Text::from("{}")),
    };
    let (selector, labels) = (Pairs::from_iter([("a", "w")]), Pairs::from_iter([("a", "w"), ("b", "x")]));
    let spec = WorkloadSpec { replicas: 300, selector, labels, annotations: Pairs::from_iter([("n", "2")]), template };
    Workload {
        kind: WorkloadKind::StatefulSet,
        meta: namespaced("w"),
        spec,
        made: 8,
        unmodelled: Some(Text::from("{}")),
    }
}

fn addressing() -> Addressing {
    let pool =
        |range: &str, block_mask, cursor| Pool { grid: Grid { range: range.parse().unwrap(), block_mask }, cursor };
    Addressing {
        pools: Box::new([pool("10.0.0.0/8", 24, 300), pool("fd00::/48", 64, 1)]),
        reserved: Box::new(["10.96.0.0/12".parse().unwrap()]),
        quarantine: Period::from_secs(600),
        held_until: Some(ClusterTime(9)),
    }
}

fn resting() -> Resting {
    Resting { cidr: "10.1.2.0/24".parse().unwrap(), until: ClusterTime(300), node: Text::from("a") }
}

fn join_token() -> JoinToken {
    JoinToken {
        id: Text::from("0123456789"),
        hash: Fingerprint([1; 32]),
        node: Some(Text::from("a")),
        created: stamp(1, 1000),
        created_by: Author::operator("alice"),
        expires: stamp(300, 3000),
        used: Some(TokenUse { node: Text::from("a"), key: Fingerprint([2; 32]), at: stamp(3, 3) }),
        revoked: Some(stamp(4, 4)),
    }
}

fn credential() -> Credential {
    Credential {
        lineage: Some(Fingerprint([5; 32])),
        node: Text::from("a"),
        key: Some(Fingerprint([2; 32])),
        previous: Some(Fingerprint([1; 32])),
        issued: WallTime(5),
        expires: WallTime(300),
        revoked: Some(Revocation { at: stamp(6, 6), by: Author::operator("alice") }),
        lapses: ClusterTime(300),
    }
}

fn pinned_trust() -> [Pinned; 2] {
    [
        (RecordKey::JoinToken { id: join_token().id }, encode(&join_token())),
        (RecordKey::Credential { node: Text::from("a") }, encode(&credential())),
    ]
}

fn pod_key() -> RecordKey {
    RecordKey::Pod { namespace: Text::from("ns"), name: Text::from("p") }
}

fn workload_key() -> RecordKey {
    RecordKey::Workload { kind: WorkloadKind::StatefulSet, namespace: Text::from("ns"), name: Text::from("w") }
}

type Pinned = (RecordKey, Vec<u8>);

fn pinned_work() -> [Pinned; 4] {
    [
        (pod_key(), encode(&pod())),
        (workload_key(), encode(&workload())),
        (RecordKey::Addressing, encode(&addressing())),
        (RecordKey::Resting { cidr: resting().cidr }, encode(&resting())),
    ]
}

/// Stores written by one build are read by the next.
#[test]
fn the_format_of_every_kind_is_pinned() {
    let counters = Counters {
        revision: Revision(300),
        stamp: stamp(5, -6),
        generation: 1,
        incarnations: 2,
        slots: 3,
        events: 4,
        requests: 5,
    };
    let outcome = Outcome::Done(Receipt { revision: Revision(9), effect: ReceiptEffect::Changed });
    let client = ClientRecord { id: 0xff, sequence: 8, outcome, used: 2 };
    let rejection = Rejection::NotFound { kind: Kind::Node, name: Text::from("a") };
    let refused = ClientRecord { id: 0xfe, sequence: 8, outcome: Outcome::Rejected(rejection), used: 2 };
    let levels = LevelRange::new(Level(1), Level(2));
    let replica = ReplicaRecord {
        announced: ClusterTime(300),
        ..ReplicaRecord::new(ReplicaId(2), Uid(5), Text::from("0.1.0"), levels)
    };
    let level = LevelInForce { level: Level(2), raised_by: Text::from("0.2.0"), raised_at: stamp(5, -6) };
    let pinned = [
        (RecordKey::Counters, encode(&counters)),
        (RecordKey::LevelInForce, encode(&level)),
        (RecordKey::Node { name: Text::from("a") }, encode(&node())),
        (RecordKey::Event { sequence: 1 }, encode(&event())),
        (RecordKey::Replica { id: ReplicaId(2) }, encode(&replica)),
        (RecordKey::Client { id: 255 }, encode(&client)),
        (RecordKey::Client { id: 254 }, encode(&refused)),
        (RecordKey::FreeSlot { index: 258 }, encode(&FreeSlot { index: 258, next_generation: 2 })),
        (RecordKey::FleetPolicyState, encode(&policy_state())),
        (RecordKey::Zone { region: Text::from("r"), zone: Text::from("z") }, encode(&zone_record())),
        (RecordKey::Aggregator { name: Text::from("g") }, encode(&aggregator())),
    ];
    let mut golden = GoldenBytes::default();
    let mut kinds = BTreeSet::new();
    for (key, value) in pinned.into_iter().chain(pinned_work()).chain(pinned_trust()) {
        golden.pin(format!("{key}/key"), key.to_bytes());
        golden.pin(format!("{key}/value"), value);
        kinds.insert(RecordKind::from(&key));
    }
    assert!(kinds.iter().eq(RecordKind::VARIANTS), "every kind is pinned");
    golden.check(Path::new("golden/records.txt"));
}

#[test]
fn what_is_written_is_read_back() {
    let key = RecordKey::Node { name: Text::from("a") };
    assert_eq!(decode::<Node>(&key, &encode(&node())), Ok(node()));
    let key = RecordKey::Event { sequence: 1 };
    assert_eq!(decode::<Event>(&key, &encode(&event())), Ok(event()));
    assert_eq!(decode::<FleetPolicyState>(&RecordKey::FleetPolicyState, &encode(&policy_state())), Ok(policy_state()));
    let key = RecordKey::Zone { region: Text::from("r"), zone: Text::from("z") };
    assert_eq!(decode::<ZoneRecord>(&key, &encode(&zone_record())), Ok(zone_record()));
    let key = RecordKey::Aggregator { name: Text::from("g") };
    assert_eq!(decode::<AggregatorRecord>(&key, &encode(&aggregator())), Ok(aggregator()));
    assert_eq!(decode::<Pod>(&pod_key(), &encode(&pod())), Ok(pod()));
    assert_eq!(decode::<Workload>(&workload_key(), &encode(&workload())), Ok(workload()));
    assert_eq!(decode::<Addressing>(&RecordKey::Addressing, &encode(&addressing())), Ok(addressing()));
    let key = RecordKey::Resting { cidr: resting().cidr };
    assert_eq!(decode::<Resting>(&key, &encode(&resting())), Ok(resting()));
    let key = RecordKey::JoinToken { id: join_token().id };
    assert_eq!(decode::<JoinToken>(&key, &encode(&join_token())), Ok(join_token()));
    let key = RecordKey::Credential { node: Text::from("a") };
    assert_eq!(decode::<Credential>(&key, &encode(&credential())), Ok(credential()));
}

#[test]
fn unknown_keys_are_refused() {
    let wrong: [&[u8]; 7] = [&[], &[0], &[0x60, 1], &[0x01, 0], &[0x10, 0xff], &[0x70, 0x61], &[0x50; 6]];
    // A pod without a separator, a workload of no kind, two plans, and ranges of no family or too long.
    let newer: [&[u8]; 6] = [
        &[0x90, 0x61],
        &[0xa0, 9, 0x61, 0, 0x62],
        &[0xb0, 0],
        &[0xc0],
        &[0xc0, 5, 1, 2, 3, 4, 8],
        &[0xc0, 4, 1, 2, 3, 4, 33],
    ];
    for bytes in wrong.into_iter().chain(newer) {
        assert!(RecordKey::from_bytes(bytes).is_err(), "{bytes:?}");
    }
    let error = RecordKey::from_bytes(&[0xf0, 0xab]).unwrap_err().to_string();
    assert!(error.starts_with("record key f0ab is not known"), "{error}");
}

fn any_key() -> impl Strategy<Value = RecordKey> {
    prop_oneof![
        Just(RecordKey::Counters),
        Just(RecordKey::LevelInForce),
        "[a-c.]{0,4}".prop_map(|name| RecordKey::Node { name: Text::from(name) }),
        any::<u64>().prop_map(|sequence| RecordKey::Event { sequence }),
        any::<u64>().prop_map(|id| RecordKey::Replica { id: ReplicaId(id) }),
        any::<u128>().prop_map(|id| RecordKey::Client { id }),
        any::<u32>().prop_map(|index| RecordKey::FreeSlot { index }),
        Just(RecordKey::FleetPolicyState),
        ("[a-c.]{0,3}", "[a-c.]{0,3}")
            .prop_map(|(region, zone)| RecordKey::Zone { region: Text::from(region), zone: Text::from(zone) }),
        "[a-c.]{0,4}".prop_map(|name| RecordKey::Aggregator { name: Text::from(name) }),
        ("[a-c-]{0,3}", "[a-c.]{0,3}")
            .prop_map(|(namespace, name)| RecordKey::Pod { namespace: Text::from(namespace), name: Text::from(name) }),
        (proptest::sample::select(WorkloadKind::ALL.to_vec()), "[a-c-]{0,3}", "[a-c-]{0,3}").prop_map(
            |(kind, namespace, name)| RecordKey::Workload {
                kind,
                namespace: Text::from(namespace),
                name: Text::from(name)
            }
        ),
        "[a-c0-9]{0,4}".prop_map(|id| RecordKey::JoinToken { id: Text::from(id) }),
        "[a-c.]{0,4}".prop_map(|node| RecordKey::Credential { node: Text::from(node) }),
        Just(RecordKey::Addressing),
        (any::<IpAddr>(), any::<u8>()).prop_map(|(address, length)| {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let cidr = IpNet::new(address, length % (longest + 1)).expect("a prefix of this family");
            RecordKey::Resting { cidr }
        }),
    ]
}

proptest! {
    #[test]
    fn keys_round_trip_and_sort_like_their_bytes(left in any_key(), right in any_key()) {
        prop_assert_eq!(RecordKey::from_bytes(&left.to_bytes()), Ok(left.clone()));
        prop_assert_eq!(left.cmp(&right), left.to_bytes().cmp(&right.to_bytes()));
    }

    #[test]
    fn damaged_values_never_panic(mut bytes in Just(encode(&node())), at in 0usize..200, to in any::<u8>(), cut in 0usize..200) {
        let at = at % bytes.len();
        bytes[at] = to;
        bytes.truncate(bytes.len() - cut % bytes.len());
        let _ = decode::<Node>(&RecordKey::Counters, &bytes);
    }
}
