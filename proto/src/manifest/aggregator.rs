//! An aggregator's scope as JSON. It is only printed: operators set it by name and nodes.

use muster_lifecycle::aggregator::AggregatorRecord;
use serde_json::{Value, json};

use super::OWN_API_VERSION;

pub fn aggregator_to_json(aggregator: &AggregatorRecord) -> Value {
    let nodes: Vec<&str> = aggregator.nodes.iter().map(|pattern| &**pattern).collect();
    json!({
        "apiVersion": OWN_API_VERSION,
        "kind": "Aggregator",
        "metadata": { "name": &*aggregator.name },
        "spec": { "nodes": nodes },
    })
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::text::Text;

    use super::*;

    #[test]
    fn a_scope_is_shown_as_it_was_given() {
        let nodes = ["b-*", "a"].map(Text::from).into();
        let wanted = json!({
            "apiVersion": "muster/v1",
            "kind": "Aggregator",
            "metadata": { "name": "rack-1" },
            "spec": { "nodes": ["b-*", "a"] },
        });
        assert_eq!(aggregator_to_json(&AggregatorRecord { name: "rack-1".into(), nodes, note: "".into() }), wanted);
    }
}
