//! Aggregators: clients that may speak for many nodes on one stream.

use muster_lifecycle::aggregator::{AGGREGATORS_MAX, PATTERNS_MAX};
use muster_lifecycle::command::{Batch, Command, OperatorOperation, Position};
use muster_lifecycle::invariant::check_all;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::rebuilt;

fn set(name: &str, nodes: &str) -> OperatorOperation {
    OperatorOperation::SetAggregator {
        name: Text::from(name),
        nodes: nodes.split_whitespace().map(Text::from).collect(),
    }
}

fn carries(cluster: &Cluster, name: &str, node: &str) -> bool {
    cluster.state.aggregators().get(name).is_some_and(|aggregator| aggregator.may_carry(node))
}

#[test]
fn an_aggregator_is_set_changed_and_removed() {
    let mut cluster = Cluster::default();
    let steps = [
        (set("rack-1", "rack-1-* gateway"), "created"),
        (set("rack-1", "rack-1-* gateway"), "unchanged"),
        (set("rack-1", "rack-1-*"), "changed"),
        (set("rack-2", "*"), "created"),
        (set("rack-1", ""), "deleted"),
    ];
    for (operation, effect) in steps {
        assert_eq!(cluster.told(operation), effect);
    }
    assert!(!carries(&cluster, "rack-1", "rack-1-7") && carries(&cluster, "rack-2", "anything"));
    assert_eq!(cluster.state.revision().0, 0, "aggregators are no objects");
}

#[test]
fn scopes_survive_a_restart() {
    let mut cluster = Cluster::default();
    cluster.done(set("rack-1", "a b-*"));
    let applied = cluster.run(set("rack-2", "c"));
    assert!(applied.touched.contains(&RecordKey::Aggregator { name: Text::from("rack-2") }));
    cluster.state = rebuilt(&cluster.state);
    for (node, expected) in [("a", true), ("b-1", true), ("b", false), ("c", false)] {
        assert_eq!(carries(&cluster, "rack-1", node), expected, "{node}");
    }
}

#[test]
fn an_invalid_aggregator_is_refused() {
    let cases = [
        (set("rack-1", ""), "name: \"rack-1\" is not known and cannot be forgotten: name the nodes it may carry"),
        (set("Rack", "a"), "name: \"Rack\" is not a DNS-1123 subdomain"),
        (set("rack-1", "a Not_valid"), "nodes[1]: \"Not_valid\" is not a DNS-1123 subdomain"),
        (set("rack-1", "A*"), "nodes[0]: \"Ax\" is not a DNS-1123 subdomain"),
        (set("rack-1", &"a ".repeat(PATTERNS_MAX + 1)), "nodes: 251 patterns are too many: at most 250"),
    ];
    for (operation, message) in cases {
        let refused = Cluster::default().rejected(operation).to_string();
        assert!(refused.starts_with(message), "{refused}");
    }
}

#[test]
fn the_largest_scope_fits_into_one_record() {
    let label = "x".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", &label[..61]);
    assert_eq!(longest.len(), 253);
    let mut cluster = Cluster::default();
    assert_eq!(cluster.told(set(&longest, &format!("{longest} ").repeat(PATTERNS_MAX))), "created");
}

#[test]
fn aggregators_are_bounded() {
    let mut state = State::new();
    let operations = (0..=AGGREGATORS_MAX).map(|index| set(&format!("rack-{index}"), "*"));
    let command =
        |operation: OperatorOperation| Command { origin: alice(), request: None, operation: operation.into() };
    let batch = Batch { stamp: stamp(1), commands: operations.map(command).collect() };
    let applied = state.apply(Position { term: TERM, index: 1 }, &batch);
    assert_eq!(told(&applied.outcomes[AGGREGATORS_MAX]), "limit reached: aggregators (at most 10000)");
    assert_eq!(told(&applied.outcomes[AGGREGATORS_MAX - 1]), "created");
    check_all(&state).unwrap();
}
