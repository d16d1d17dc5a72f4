//! Limits of everything that could grow: events, records, replicas.

use muster_lifecycle::command::{Batch, Command, Operation, Position, ReplicaOperation};
use muster_lifecycle::event::EVENTS_MAX;
use muster_lifecycle::level::LevelRange;
use muster_lifecycle::meta::{Pairs, Revision};
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::record::{RECORD_BYTES_MAX, RecordKey};
use muster_lifecycle::replica::{REPLICAS_MAX, ReplicaId, ReplicaRecord};
use muster_lifecycle::rule::node::NODE_BYTES_MAX;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;

fn commands(operations: impl IntoIterator<Item = impl Into<Operation>>) -> Batch {
    let command = |operation| Command { origin: alice(), request: None, operation };
    Batch { stamp: stamp(1), commands: operations.into_iter().map(Into::into).map(command).collect() }
}

#[test]
fn the_oldest_events_are_removed_without_a_revision() {
    let mut state = State::new();
    let position = Position { term: TERM, index: 1 };
    state.apply(position, &commands([create(draft("a"))]));
    let flips = (0..EVENTS_MAX).map(|round| cordon("a", round % 2 == 0));
    let applied = state.apply(position, &commands(flips));
    assert_eq!(state.events().len(), EVENTS_MAX);
    assert_eq!(state.events().first().unwrap().sequence, 2);
    assert_eq!(applied.changes.len(), 2 * EVENTS_MAX);
    assert_eq!(state.revision(), Revision(2 + 2 * EVENTS_MAX as u64));
    assert!(applied.touched.contains(&RecordKey::Event { sequence: 1 }), "its record is to be deleted");
    assert_eq!(state.record(&RecordKey::Event { sequence: 1 }), None);
}

#[test]
fn a_node_must_fit_into_one_record_and_its_largest_field_is_named() {
    let mut cluster = Cluster::with_node("a");
    let annotated =
        |bytes: usize| NodeDraft { annotations: Some(Pairs::from_iter([("note", "x".repeat(bytes))])), ..draft("a") };
    cluster.apply(annotated(NODE_BYTES_MAX - 500));
    let refused = cluster.rejected(replace(annotated(RECORD_BYTES_MAX))).to_string();
    assert!(refused.contains("most of them in metadata.annotations (at most 63487)"), "{refused}");
    let unmodelled = NodeDraft { unmodelled: Some(Text::from("x".repeat(RECORD_BYTES_MAX))), ..draft("b") };
    let refused = cluster.rejected(create(unmodelled)).to_string();
    assert!(refused.contains("node \"b\"") && refused.contains("fields kept as given"), "{refused}");
    let many = NodeDraft { annotations: annotated(257 * 1024).annotations, ..draft("c") };
    let refused = cluster.rejected(create(many)).to_string();
    assert!(refused.starts_with("metadata.annotations: 263172 bytes"), "{refused}");
}

#[test]
fn a_refused_creation_uses_up_no_slot() {
    let mut cluster = Cluster::default();
    let huge = NodeDraft { unmodelled: Some(Text::from("x".repeat(RECORD_BYTES_MAX))), ..draft("a") };
    cluster.rejected(create(huge));
    cluster.create(draft("b"));
    assert_eq!((cluster.node("b").slot.index, cluster.node("b").incarnation.0), (0, 1));
}

#[test]
fn replicas_and_their_fields_are_bounded() {
    let mut state = State::new();
    let retire = (0..=REPLICAS_MAX as u64).map(|id| ReplicaOperation::RetireReplica { id: ReplicaId(id) });
    let applied = state.apply(Position { term: TERM, index: 1 }, &commands(retire));
    assert_eq!(told(&applied.outcomes[REPLICAS_MAX]), format!("limit reached: replicas (at most {REPLICAS_MAX})"));
    let version = Text::from("v".repeat(300));
    let wordy = ReplicaRecord::new(ReplicaId(1), Default::default(), version, LevelRange::SHIPPED);
    let refused = Cluster::default().rejected(ReplicaOperation::AnnounceReplica { replica: wordy }).to_string();
    assert_eq!(refused, "replica.version: 300 bytes are too many: at most 256");
}
