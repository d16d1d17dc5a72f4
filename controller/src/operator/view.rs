//! Views that operators can read and that are no objects: zones, the settings in force, aggregators, join tokens.
//!
//! Zones are computed from the state when they are read, so there is no event when one of them changes. They can be
//! read again, but not watched.

use std::collections::BTreeSet;

use muster_lifecycle::state::State;
use muster_lifecycle::time::Stamp;
use muster_lifecycle::zone::ZoneKey;
use muster_proto::manifest::{CONFIG_NAME, aggregator_to_json, config_to_json, join_token_to_json, zone_to_json};
use serde_json::Value;
use tonic::Status;

/// How many zones the answer to an ambiguous name lists.
const CHOICES_SHOWN_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Zones,
    Config,
    Aggregators,
    Tokens,
}

// === impl View ===

impl View {
    pub(super) fn named(kind: &str) -> Option<Self> {
        match kind {
            "zones" => Some(Self::Zones),
            "config" => Some(Self::Config),
            "aggregators" => Some(Self::Aggregators),
            "tokens" => Some(Self::Tokens),
            _ => None,
        }
    }

    /// All items, in order of names. `now` is the time by cluster and wall clock.
    pub(super) fn list(self, state: &State, now: Stamp) -> Vec<Value> {
        match self {
            Self::Zones => zones(state).iter().map(|zone| zone_to_json(state, zone, now)).collect(),
            Self::Config => vec![config_to_json(state.policy_state(), state.addressing())],
            Self::Aggregators => state.aggregators().iter().map(|each| aggregator_to_json(each)).collect(),
            Self::Tokens => state.join_tokens().iter().map(|each| join_token_to_json(each, now)).collect(),
        }
    }

    /// The configuration is also found without a name: there is only one.
    pub(super) fn get(self, state: &State, name: &str, now: Stamp) -> Result<Value, Status> {
        match self {
            Self::Zones => resolve_zone(state, name).map(|zone| zone_to_json(state, &zone, now)),
            Self::Config if name.is_empty() || name == CONFIG_NAME => {
                Ok(config_to_json(state.policy_state(), state.addressing()))
            }
            Self::Config => Err(not_found("config", name)),
            Self::Aggregators => {
                let found = state.aggregators().get(name).map(|found| aggregator_to_json(found));
                found.ok_or_else(|| not_found("aggregator", name))
            }
            Self::Tokens => {
                let found = state.join_tokens().get(name).map(|found| join_token_to_json(found, now));
                found.ok_or_else(|| not_found("token", name))
            }
        }
    }

    pub(super) fn without_selectors(self, label_selector: &str, field_selector: &str) -> Result<Self, Status> {
        let rule = "selects nothing here: only objects have labels and fields to select by";
        for (field, selector) in [("label_selector", label_selector), ("field_selector", field_selector)] {
            if !selector.is_empty() {
                return Err(Status::invalid_argument(format!("{field}: {rule}")));
            }
        }
        Ok(self)
    }

    pub(super) fn refuse_watch(self) -> Status {
        let what = match self {
            Self::Zones => "zones are worked out when they are read",
            Self::Config => "the configuration has no revision",
            Self::Aggregators => "aggregators have no revision",
            Self::Tokens => "tokens have no revision",
        };
        let rule = "read it again, or watch events, which tell of changed zones and settings";
        Status::invalid_argument(format!("kind: cannot be watched: {what}; {rule}"))
    }
}

/// `region/zone`, `default`, or a zone's name alone where only one region has it.
pub(super) fn resolve_zone(state: &State, name: &str) -> Result<ZoneKey, Status> {
    let zones = zones(state);
    if let Ok(key) = name.parse::<ZoneKey>() {
        return zones.get(&key).cloned().ok_or_else(|| not_found("zone", name));
    }
    let mut namesakes = zones.into_iter().filter(|key| !name.is_empty() && &*key.zone == name);
    match (namesakes.next(), namesakes.next()) {
        (None, _) => Err(not_found("zone", name)),
        (Some(only), None) => Ok(only),
        (Some(first), Some(second)) => {
            let choices = [first, second].into_iter().chain(namesakes).take(CHOICES_SHOWN_MAX);
            let choices: Vec<String> = choices.map(|key| key.to_string()).collect();
            let message = format!("zone {name:?} is in several regions; write one of {}", choices.join(", "));
            Err(Status::invalid_argument(message))
        }
    }
}

/// Zones with nodes, and zones that had some when they were last assessed.
fn zones(state: &State) -> BTreeSet<ZoneKey> {
    let inhabited = state.census().map(|(key, _)| key.clone());
    inhabited.chain(state.zones().iter().map(|record| record.key.clone())).collect()
}

fn not_found(noun: &str, name: &str) -> Status {
    Status::not_found(format!("{noun} {name:?} not found"))
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::{Batch, Command, OperatorOperation, Origin, Outcome, Position};
    use muster_lifecycle::meta::Uid;
    use muster_lifecycle::node::NodeDraft;
    use muster_lifecycle::text::Text;
    use tonic::Code;

    use super::*;

    fn state() -> State {
        let mut state = State::new();
        for (name, region, zone) in [("a", "r1", "b"), ("c", "r2", "b"), ("d", "r2", "e")] {
            let labels = [("topology.kubernetes.io/region", region), ("topology.kubernetes.io/zone", zone)];
            let labels = labels.into_iter().map(|(key, value)| (Text::from(key), Text::from(value))).collect();
            let draft = NodeDraft { name: name.into(), labels: Some(labels), ..NodeDraft::default() };
            apply(&mut state, OperatorOperation::CreateNode { draft: Box::new(draft), uid: Uid(1) });
        }
        for name in ["rack-2", "rack-1"] {
            apply(&mut state, OperatorOperation::SetAggregator { name: name.into(), nodes: vec!["a-*".into()] });
        }
        state
    }

    fn apply(state: &mut State, operation: OperatorOperation) {
        let origin = Origin::Operator { user: "alice".into() };
        let batch = Batch {
            stamp: Stamp::default(),
            commands: vec![Command { origin, request: None, operation: operation.into() }],
        };
        let applied = state.apply(Position { term: 1, index: 1 }, &batch);
        assert!(matches!(applied.outcomes[..], [Outcome::Done(_)]), "{applied:?}");
    }

    fn names(view: View) -> Vec<String> {
        let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        view.list(&state(), Stamp::default()).into_iter().map(name).collect()
    }

    #[test]
    fn lists_are_in_order_of_names() {
        assert_eq!(names(View::Zones), ["r1/b", "r2/b", "r2/e"]);
        assert_eq!(names(View::Aggregators), ["rack-1", "rack-2"]);
        assert_eq!(names(View::Config), ["cluster"]);
    }

    #[test]
    fn a_named_object_is_found_or_reported_missing() {
        let table = [
            (View::Zones, "r1/b", Ok("r1/b")),
            (View::Zones, "e", Ok("r2/e")),
            (View::Zones, "b", Err((Code::InvalidArgument, "several regions; write one of r1/b, r2/b"))),
            (View::Zones, "r9/b", Err((Code::NotFound, "zone \"r9/b\" not found"))),
            (View::Zones, "", Err((Code::NotFound, "zone \"\" not found"))),
            (View::Zones, "default", Err((Code::NotFound, "zone \"default\" not found"))),
            (View::Aggregators, "rack-2", Ok("rack-2")),
            (View::Aggregators, "rack-3", Err((Code::NotFound, "aggregator \"rack-3\" not found"))),
            (View::Config, "", Ok("cluster")),
            (View::Config, "cluster", Ok("cluster")),
            (View::Config, "policy", Err((Code::NotFound, "config \"policy\" not found"))),
        ];
        for (view, name, wanted) in table {
            match (view.get(&state(), name, Stamp::default()), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found["metadata"]["name"], wanted),
                (Err(status), Err((code, part))) => {
                    assert_eq!(status.code(), code, "{status}");
                    assert!(status.message().contains(part), "{status}");
                }
                (got, wanted) => panic!("{view:?} {name:?}: wanted {wanted:?}, got {got:?}"),
            }
        }
    }

    #[test]
    fn views_are_neither_selected_nor_watched() {
        assert!(View::Zones.without_selectors("", "").is_ok());
        let refused = View::Zones.without_selectors("", "metadata.name=x").unwrap_err();
        assert!(refused.message().starts_with("field_selector: selects nothing here"), "{refused}");
        for view in ["zones", "config", "aggregators"].map(|kind| View::named(kind).unwrap()) {
            let refused = view.refuse_watch();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains("cannot be watched"), "{refused}");
        }
        assert_eq!(View::named("nodes"), None);
    }
}
