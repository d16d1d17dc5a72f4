//! Retries: a retried write happens once.

use muster_lifecycle::client::CLIENTS_MAX;
use muster_lifecycle::command::{Batch, Command, OperatorOperation, Position};
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::state::State;

use crate::fixture::cluster::*;

fn numbered(client: u128, sequence: u64, operation: OperatorOperation) -> Command {
    Command { origin: alice(), request: request(client, sequence), operation: operation.into() }
}

#[test]
fn the_same_request_gets_the_same_answer_and_nothing_happens() {
    let mut cluster = Cluster::default();
    let first = cluster.submit(numbered(7, 1, create(draft("a"))));
    cluster.done(delete("a"));
    let (revision, objects) = (cluster.state.revision(), cluster.state.objects_digest());
    let again = cluster.submit(numbered(7, 1, create(draft("a"))));
    assert_eq!(again.outcomes, first.outcomes);
    assert_eq!((cluster.state.revision(), cluster.state.objects_digest()), (revision, objects));
    assert_eq!(again.touched, [RecordKey::Counters], "only the time changed");
}

#[test]
fn a_rejection_is_remembered_too() {
    let mut cluster = Cluster::default();
    let rejected = cluster.submit(numbered(7, 1, cordon("a", true)));
    cluster.create(draft("a"));
    let again = cluster.submit(numbered(7, 1, cordon("a", true)));
    assert_eq!(again.outcomes, rejected.outcomes);
    assert!(!cluster.node("a").spec.unschedulable);
}

#[test]
fn an_older_request_is_overtaken() {
    let mut cluster = Cluster::with_node("a");
    cluster.submit(numbered(7, 5, cordon("a", true)));
    let late = cluster.submit(numbered(7, 4, cordon("a", false)));
    let message = "request 4 was overtaken by request 5 of the same client; its outcome is no longer kept";
    assert_eq!(told(&late.outcomes[0]), message);
    assert_eq!(told(&cluster.submit(numbered(8, 4, cordon("a", false))).outcomes[0]), "changed", "another client");
}

#[test]
fn a_retry_within_one_batch_happens_once() {
    let mut state = State::new();
    let command = numbered(1, 1, create(draft("a")));
    let batch = Batch { stamp: stamp(1), commands: vec![command.clone(), command] };
    let applied = state.apply(Position { term: TERM, index: 1 }, &batch);
    assert_eq!(applied.outcomes[0], applied.outcomes[1]);
    assert_eq!(applied.changes.len(), 2, "one node, one event");
    assert_eq!(batch.to_string(), "2 commands");
}

#[test]
fn the_client_unused_for_longest_is_forgotten() {
    let mut state = State::new();
    let mut apply = |commands: Vec<Command>| {
        let batch = Batch { stamp: stamp(1), commands };
        let applied = state.apply(Position { term: TERM, index: 1 }, &batch);
        (applied, state.clients().len())
    };
    let clients = 0..CLIENTS_MAX as u128;
    apply(clients.map(|client| numbered(client, 1, cordon("a", true))).collect());
    apply(vec![numbered(0, 2, cordon("a", true))]);
    let (applied, kept) = apply(vec![numbered(u128::MAX, 1, cordon("a", true))]);
    assert_eq!(kept, CLIENTS_MAX);
    assert!(applied.touched.contains(&RecordKey::Client { id: 1 }), "client 0 was used later than client 1");
    assert!(state.clients().contains(&0) && !state.clients().contains(&1));
}
