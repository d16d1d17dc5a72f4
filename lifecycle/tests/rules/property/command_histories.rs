//! Random histories of commands. The invariants hold, every replica ends in the same state, and the stored records
//! are enough to rebuild it.

use std::collections::{BTreeMap, BTreeSet};

use muster_lifecycle::command::{
    AgentOperation, Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
    Precondition, ReceiptEffect, ReplicaOperation, RequestId,
};
use muster_lifecycle::invariant::check_all;
use muster_lifecycle::level::LevelRange;
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::node::{ConditionStatus, Incarnation, NodeDraft};
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord, ReplicaTrouble};
use muster_lifecycle::state::{Applied, State, StateBuilder};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::fixture::cluster::*;
use crate::fixture::fleet::status;

/// The precondition of a command, filled in when the state is known.
#[derive(Debug, Clone, Copy)]
enum Expectation {
    Nothing,
    Current,
    StaleRevision,
    OtherUid,
}

/// A planned command, with preconditions still open.
#[derive(Debug, Clone)]
struct Intent {
    operation: Operation,
    expectation: Expectation,
    /// `None` is an origin that is entitled.
    origin: Option<Origin>,
    request: Option<RequestId>,
}

#[derive(Debug, Clone)]
struct Step {
    stamp: Stamp,
    intents: Vec<Intent>,
    restart: bool,
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![12 => "[abcde]", 1 => Just("Not_valid".to_owned())]
}

fn any_draft() -> impl Strategy<Value = NodeDraft> {
    let key = prop_oneof![
        2 => Just("k"),
        4 => Just("topology.kubernetes.io/zone"),
        1 => Just("kubernetes.io/os"),
        1 => Just("node.kubernetes.io/exclude-disruption"),
    ];
    let pair = (key, "[xy]?");
    let taint = prop_oneof![
        Just("t:NoExecute"),
        Just("t=1:NoExecute"),
        Just("u:NoSchedule"),
        Just("node.kubernetes.io/unreachable:NoExecute"),
        Just("node.kubernetes.io/disk-pressure:NoSchedule"),
    ];
    let cidr = prop_oneof![Just("10.0.0.0/24"), Just("10.0.1.0/24"), Just("fd00::/64")];
    (
        any_name(),
        proptest::option::of(proptest::collection::vec(pair, 0..3)),
        proptest::option::of(proptest::collection::vec("f[12]", 0..2)),
        proptest::option::of(proptest::collection::vec(cidr, 0..3)),
        proptest::option::of("p?"),
        proptest::option::of(any::<bool>()),
        proptest::option::of(proptest::collection::vec(taint, 0..3)),
        proptest::option::of(any_readiness()),
    )
        .prop_map(|(name, labels, finalizers, cidrs, provider, unschedulable, taints, readiness)| NodeDraft {
            labels: labels.map(|labels| labels.into_iter().collect()),
            finalizers: finalizers.map(|names| names.into_iter().map(Text::from).collect()),
            pod_cidrs: cidrs.map(|cidrs| cidrs.into_iter().map(|cidr| cidr.parse().expect("a CIDR")).collect()),
            provider_id: provider.map(Text::from),
            unschedulable,
            taints: taints.map(|taints| taints.into_iter().map(raw_taint).collect()),
            status: readiness.map(ready),
            ..draft(&name)
        })
}

fn any_readiness() -> impl Strategy<Value = ConditionStatus> {
    prop_oneof![Just(ConditionStatus::True), Just(ConditionStatus::False), Just(ConditionStatus::Unknown)]
}

fn any_node_write() -> impl Strategy<Value = OperatorOperation> {
    let boxed = || any_draft().prop_map(Box::new);
    let uid = || any::<u128>().prop_map(Uid);
    let words = prop_oneof![Just("k=1"), Just("k=2 l=1"), Just("k-"), Just("l- k=3"), Just("-bad-=1")];
    let (add, remove) =
        (prop_oneof![Just(""), Just("t=1:NoExecute"), Just("t=2:NoExecute v:NoSchedule")], "(t-|v:NoSchedule)?");
    prop_oneof![
        4 => (boxed(), uid()).prop_map(|(draft, uid)| OperatorOperation::CreateNode { draft, uid }),
        3 => (boxed(), uid()).prop_map(|(draft, uid)| OperatorOperation::ApplyNode { draft, uid, precondition: ANY }),
        3 => boxed().prop_map(|draft| OperatorOperation::ReplaceNode { draft, precondition: ANY }),
        2 => (any_name(), any_readiness()).prop_map(|(name, readiness)| replace_status(&name, ready(readiness))),
        2 => (any_name(), words, any::<bool>()).prop_map(|(name, words, overwrite)| label(&name, words, overwrite)),
        2 => (any_name(), add, remove, any::<bool>()).prop_map(|(name, add, remove, overwrite)| taint(&name, add, &remove, overwrite)),
        2 => (any_name(), any::<bool>()).prop_map(|(name, unschedulable)| cordon(&name, unschedulable)),
        3 => any_name().prop_map(|name| delete(&name)),
    ]
}

fn any_replica_write() -> impl Strategy<Value = ReplicaOperation> {
    prop_oneof![
        (0u64..3, 0u128..2).prop_map(|(id, store)| ReplicaOperation::AnnounceReplica {
            replica: ReplicaRecord::new(ReplicaId(id), Uid(store), Text::from("1"), LevelRange::SHIPPED),
        }),
        (0u64..3).prop_map(|id| ReplicaOperation::RetireReplica { id: ReplicaId(id) }),
        (0u64..3)
            .prop_map(|id| ReplicaOperation::ReportReplica { id: ReplicaId(id), trouble: ReplicaTrouble::Diverged }),
    ]
}

/// The incarnation of the node is filled in later.
fn any_report() -> impl Strategy<Value = AgentOperation> {
    let name = any_name().prop_map(Text::from);
    let boxed = (any_draft(), any::<bool>())
        .prop_map(|(draft, modest)| Box::new(if modest { modest_part(draft) } else { draft }));
    let status = any_conditions().prop_map(|conditions| Box::new(status(conditions)));
    prop_oneof![
        (boxed, any_uid()).prop_map(|(draft, uid)| AgentOperation::RegisterNode { draft, uid, running: None }),
        (name, status).prop_map(|(name, status)| AgentOperation::ReportStatus {
            name,
            incarnation: ANEW,
            status,
            running: None,
        }),
    ]
}

/// The incarnation of the node is filled in later.
fn any_verdict() -> impl Strategy<Value = LeaderOperation> {
    let name = || any_name().prop_map(Text::from);
    let names = proptest::collection::vec(name(), 0..4);
    let readiness = proptest::option::of(any_readiness());
    let reason = || Text::from("why");
    prop_oneof![
        6 => (name(), readiness).prop_map(|(name, from)| LeaderOperation::MarkSilent {
            name,
            incarnation: ANEW,
            from,
            heard: None,
            decided: ClusterTime(0),
        }),
        6 => Just(LeaderOperation::AssessZones),
        8 => name().prop_map(|name| LeaderOperation::EvictNode { name, incarnation: ANEW }),
        2 => names.prop_map(|names| LeaderOperation::LiftEvictions { names }),
        1 => Just(LeaderOperation::FoundPolicy { policy: Box::default() }),
        1 => name().prop_map(move |name| LeaderOperation::NoteQuarantine { name, incarnation: ANEW, reason: reason() }),
    ]
}

fn any_fleet_write() -> impl Strategy<Value = OperatorOperation> {
    prop_oneof![
        2 => any_settings().prop_map(|changes| OperatorOperation::SetPolicy { changes }),
        1 => ("[gh]", proptest::collection::vec("[a*]", 0..3)).prop_map(|(name, nodes)| OperatorOperation::SetAggregator {
            name: Text::from(name),
            nodes: nodes.into_iter().map(Text::from).collect(),
        }),
    ]
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        18 => any_node_write().prop_map(Operation::from),
        2 => any_replica_write().prop_map(Operation::from),
        6 => any_report().prop_map(Operation::from),
        12 => any_verdict().prop_map(Operation::from),
        2 => any_fleet_write().prop_map(Operation::from),
    ]
}

/// Stands for the incarnation that the node has when the command is made.
const ANEW: Incarnation = Incarnation(0);

fn modest_part(draft: NodeDraft) -> NodeDraft {
    NodeDraft { finalizers: None, pod_cidrs: None, ..draft }
}

fn any_conditions() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("Ready=True"),
        2 => Just("Ready=False"),
        1 => Just("Ready=True DiskPressure=True"),
        1 => Just("DiskPressure=False Custom=True"),
    ]
}

fn any_settings() -> impl Strategy<Value = Vec<(Text, Text)>> {
    let setting = prop_oneof![
        ("node-eviction-rate", prop_oneof![Just("0"), Just("0.1"), Just("1")]),
        ("unhealthy-zone-threshold", prop_oneof![Just("0.1"), Just("0.55")]),
        ("large-cluster-size-threshold", prop_oneof![Just("1"), Just("50")]),
        ("node-monitor-grace-period", prop_oneof![Just("1s"), Just("5s"), Just("40s")]),
    ];
    proptest::collection::vec(setting.prop_map(|(name, value)| (Text::from(name), Text::from(value))), 0..3)
}

fn any_uid() -> impl Strategy<Value = Uid> {
    any::<u128>().prop_map(Uid)
}

fn any_intent() -> impl Strategy<Value = Intent> {
    let expectation = prop_oneof![
        4 => Just(Expectation::Nothing),
        2 => Just(Expectation::Current),
        1 => Just(Expectation::StaleRevision),
        1 => Just(Expectation::OtherUid),
    ];
    let origin = prop_oneof![
        12 => Just(None),
        1 => Just(Some(alice())),
        1 => (TERM - 1..=TERM).prop_map(|term| Some(Origin::Controller { term })),
        1 => Just(Some(Origin::Replica { id: ReplicaId(1) })),
        1 => any_name().prop_map(|name| Some(Origin::Node { name: Text::from(name) })),
    ];
    let request =
        proptest::option::of((0u128..3, 0u64..8).prop_map(|(client, sequence)| RequestId { client, sequence }));
    (any_operation(), expectation, origin, request).prop_map(|(operation, expectation, origin, request)| Intent {
        operation,
        expectation,
        origin,
        request,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let stamp = (0u64..100_000, 0i64..100)
        .prop_map(|(cluster, wall)| Stamp { cluster: ClusterTime(cluster), wall: WallTime(wall) });
    (stamp, proptest::collection::vec(any_intent(), 0..6), proptest::bool::weighted(0.2))
        .prop_map(|(stamp, intents, restart)| Step { stamp, intents, restart })
}

fn resolved(intent: &Intent, state: &State) -> Command {
    let mut operation = intent.operation.clone();
    if let Some((name, precondition)) = about(&mut operation) {
        let (revision, uid) = state.node(&name).map(|node| (node.meta.revision, node.meta.uid)).unwrap_or_default();
        *precondition = match intent.expectation {
            Expectation::Nothing => ANY,
            Expectation::Current => Precondition { revision: Some(revision), uid: Some(uid) },
            Expectation::StaleRevision => Precondition { revision: Some(Revision(revision.0 + 1)), uid: None },
            Expectation::OtherUid => Precondition { revision: None, uid: Some(Uid(uid.0 ^ 1)) },
        };
    }
    let is_stale = matches!(intent.expectation, Expectation::StaleRevision);
    identify(&mut operation, state, is_stale);
    let origin = intent.origin.clone().unwrap_or_else(|| entitled(&operation));
    Command { origin, request: intent.request, operation }
}

/// Fills in what the state knows of the node that a command is about.
fn identify(operation: &mut Operation, state: &State, is_stale: bool) {
    let node = operation.node_name().and_then(|name| state.node(name)).cloned();
    let current = node.as_ref().map_or(ANEW, |node| node.incarnation);
    let ready = node.as_ref().and_then(|node| node.status.ready()).map(|ready| ready.status);
    if let Operation::Leader(LeaderOperation::MarkSilent { from, decided, .. }) = operation
        && !is_stale
    {
        *from = ready;
        *decided = state.cluster_time();
    }
    if let Operation::Agent(AgentOperation::ReportStatus { incarnation, .. })
    | Operation::Leader(
        LeaderOperation::MarkSilent { incarnation, .. }
        | LeaderOperation::EvictNode { incarnation, .. }
        | LeaderOperation::NoteQuarantine { incarnation, .. },
    ) = operation
    {
        *incarnation = if is_stale { Incarnation(current.0 + 1) } else { current };
    }
}

fn entitled(operation: &Operation) -> Origin {
    match operation {
        Operation::Operator(_) | Operation::Replica(_) => alice(),
        Operation::Leader(_) => Origin::Controller { term: TERM },
        Operation::Agent(operation) => Origin::Node { name: Text::from(operation.node_name()) },
    }
}

fn about(operation: &mut Operation) -> Option<(Text, &mut Precondition)> {
    let Operation::Operator(operation) = operation else { return None };
    match operation {
        OperatorOperation::ApplyNode { draft, precondition, .. }
        | OperatorOperation::ReplaceNode { draft, precondition } => Some((draft.name.clone(), precondition)),
        OperatorOperation::ReplaceNodeStatus { name, precondition, .. }
        | OperatorOperation::LabelNode { name, precondition, .. }
        | OperatorOperation::AnnotateNode { name, precondition, .. }
        | OperatorOperation::TaintNode { name, precondition, .. }
        | OperatorOperation::CordonNode { name, precondition, .. }
        | OperatorOperation::DeleteNode { name, precondition } => Some((name.clone(), precondition)),
        OperatorOperation::CreateNode { .. }
        | OperatorOperation::RevokeNode { .. }
        | OperatorOperation::CreatePod { .. }
        | OperatorOperation::ApplyPod { .. }
        | OperatorOperation::DeletePod { .. }
        | OperatorOperation::CreateWorkload { .. }
        | OperatorOperation::ApplyWorkload { .. }
        | OperatorOperation::DeleteWorkload { .. }
        | OperatorOperation::SetPolicy { .. }
        | OperatorOperation::SetAggregator { .. }
        | OperatorOperation::CreateToken { .. }
        | OperatorOperation::RevokeToken { .. }
        | OperatorOperation::FinalizeUpgrade { .. }
        | OperatorOperation::RehearseNote { .. } => None,
    }
}

fn rebuilt(records: impl IntoIterator<Item = (RecordKey, Vec<u8>)>) -> State {
    let mut builder = StateBuilder::new();
    for (key, value) in records {
        builder.push(&key, &value).expect("own records can be read");
    }
    builder.finish().expect("own records are complete")
}

/// Writes the touched records into a store, and nothing else.
fn write_down(store: &mut BTreeMap<RecordKey, Vec<u8>>, state: &State, applied: &Applied) {
    assert!(applied.touched.is_sorted_by(|left, right| left < right), "each touched key once");
    for key in &applied.touched {
        match state.record(key) {
            Some(value) => store.insert(key.clone(), value),
            None => store.remove(key),
        };
    }
}

fn revisions_are_gapless(before: Revision, state: &State, applied: &Applied) {
    let expected = before.0 + 1..=state.revision().0;
    assert!(applied.changes.iter().map(|change| change.revision.0).eq(expected));
}

fn any_history() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any_step(), 1..30)
}

/// The property below is not vacuous: each kind of command succeeds somewhere in a few hundred histories.
#[test]
fn the_random_histories_contain_every_operation() {
    let mut runner = TestRunner::deterministic();
    let mut done = BTreeSet::new();
    for _ in 0..300 {
        let mut state = State::new();
        for step in any_history().new_tree(&mut runner).expect("a history").current() {
            let commands: Vec<Command> = step.intents.iter().map(|intent| resolved(intent, &state)).collect();
            let batch = Batch { stamp: step.stamp, commands };
            let applied = state.apply(Position { term: TERM, index: 0 }, &batch);
            for (command, outcome) in batch.commands.iter().zip(&applied.outcomes) {
                if matches!(outcome, Outcome::Done(receipt) if receipt.effect != ReceiptEffect::Unchanged) {
                    done.insert(command.operation.label());
                }
            }
        }
    }
    assert_eq!(done.len(), 21, "all but annotate-node, which never changes anything here: {done:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_history_keeps_every_invariant(steps in any_history()) {
        let (mut state, mut twin) = (State::new(), State::new());
        let mut store: BTreeMap<RecordKey, Vec<u8>> = state.records().collect();
        for (index, step) in steps.iter().enumerate() {
            let commands = step.intents.iter().map(|intent| resolved(intent, &state)).collect();
            let batch = Batch { stamp: step.stamp, commands };
            let position = Position { term: TERM, index: index as u64 };
            let (revision, objects, snapshot) = (state.revision(), state.objects_digest(), state.clone());
            let frozen = snapshot.digest();

            let applied = state.apply(position, &batch);
            check_all(&state).unwrap();
            revisions_are_gapless(revision, &state, &applied);
            prop_assert_eq!(applied.outcomes.len(), batch.commands.len());
            if applied.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Rejected(_))) {
                prop_assert_eq!(state.objects_digest(), objects, "rejected commands leave objects alone");
            }
            prop_assert_eq!(snapshot.digest(), frozen, "a snapshot does not see later changes");

            write_down(&mut store, &state, &applied);
            prop_assert!(state.records().eq(store.clone()), "touched records are all that changed");

            if step.restart {
                twin = rebuilt(twin.records());
                check_all(&twin).unwrap();
            }
            prop_assert_eq!(twin.apply(position, &batch), applied);
            prop_assert_eq!(twin.digest(), state.digest());
        }
    }
}
