//! A zone as JSON: its state, its eviction rate and the nodes that wait. It is only printed, and computed on request.
//!
//! The next token has a cluster time only; its wall time is computed from the moment at which the zone is shown.

use muster_lifecycle::policy::Rate;
use muster_lifecycle::state::State;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_lifecycle::zone::{ZoneKey, ZoneState};
use serde_json::{Number, Value, json};

use super::{OWN_API_VERSION, moment};

const MILLION: f64 = 1_000_000.0;

/// The zone as of `now`. A zone that was not assessed yet is in state Initial and has no rate.
///
/// `total` counts the nodes by which the zone is judged; those with the exclusion label are in `excluded` alone.
pub fn zone_to_json(state: &State, zone: &ZoneKey, now: Stamp) -> Value {
    let census = state.census_of(zone);
    let record = state.zones().get(zone);
    let next_token = record.and_then(|record| record.bucket.next_token_at(now.cluster));
    json!({
        "apiVersion": OWN_API_VERSION,
        "kind": "Zone",
        "metadata": { "name": zone.to_string() },
        "status": {
            "state": record.map_or(ZoneState::Initial, |record| record.zone.state).as_str(),
            "since": moment::write_optional(record.map(|record| record.zone.since)),
            "ready": census.ready,
            "total": census.size(),
            "excluded": census.excluded,
            "evictionRate": record.and_then(|record| per_second(record.zone.rate)),
            "queue": state.queue(zone).map_or(0, |queue| queue.len()),
            "evictions": record.map_or(0, |record| record.evictions),
            "nextToken": moment::write_optional(next_token.map(|at| seen_from(now, at))),
        },
    })
}

/// A moment of cluster time, with its wall time by the clock that reads `now`.
fn seen_from(now: Stamp, at: ClusterTime) -> Stamp {
    let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    let ahead = signed(at.0.saturating_sub(now.cluster.0));
    let ago = signed(now.cluster.0.saturating_sub(at.0));
    Stamp { cluster: at, wall: WallTime(now.wall.0.saturating_add(ahead).saturating_sub(ago)) }
}

/// A rate as people write it: six decimals are exact in the nearest number.
fn per_second(rate: Rate) -> Option<Number> {
    Number::from_f64(rate.0 as f64 / MILLION)
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::{
        Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
    };
    use muster_lifecycle::meta::Uid;

    use super::*;
    use crate::manifest::node_from_json;

    const TERM: u64 = 1;
    /// Wall time is seven hours off from cluster time, so that the two cannot be mistaken for each other.
    const WALL_AHEAD: i64 = 7 * 3_600_000;

    fn at(seconds: u64) -> Stamp {
        Stamp { cluster: ClusterTime(seconds * 1_000), wall: WallTime(seconds as i64 * 1_000 + WALL_AHEAD) }
    }

    /// Nodes by name, Ready status and whether they are excluded, assessed ten seconds after they came.
    fn fleet(nodes: &[(&str, &str, bool)]) -> State {
        let mut state = State::new();
        for (name, ready, excluded) in nodes {
            let mut labels = json!({"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1"});
            if *excluded {
                labels["node.kubernetes.io/exclude-disruption"] = "".into();
            }
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let node = json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": { "name": name, "labels": labels },
                "status": { "conditions": conditions },
            });
            let draft = Box::new(node_from_json(node.to_string().as_bytes()).unwrap().draft);
            let origin = Origin::Operator { user: "alice".into() };
            apply(&mut state, at(0), origin, OperatorOperation::CreateNode { draft, uid: Uid(1) });
        }
        apply(&mut state, at(10), Origin::Controller { term: TERM }, LeaderOperation::AssessZones);
        state
    }

    fn apply(state: &mut State, stamp: Stamp, origin: Origin, operation: impl Into<Operation>) {
        let commands = vec![Command { origin, request: None, operation: operation.into() }];
        let applied = state.apply(Position { term: TERM, index: 1 }, &Batch { stamp, commands });
        assert!(matches!(applied.outcomes[..], [Outcome::Done(_)]), "{applied:?}");
    }

    fn shown(state: &State, zone: &str, now: Stamp) -> Value {
        zone_to_json(state, &zone.parse().unwrap(), now)
    }

    #[test]
    fn a_zone_shows_its_state_its_nodes_its_rate_and_its_queue() {
        let state = fleet(&[("a", "True", false), ("b", "Unknown", false), ("c", "True", false), ("d", "False", true)]);
        let wanted = json!({
            "apiVersion": "muster/v1",
            "kind": "Zone",
            "metadata": { "name": "r1/z1" },
            "status": {
                "state": "Normal",
                "since": "1970-01-01T07:00:10Z",
                "ready": 2,
                "total": 3,
                "excluded": 1,
                "evictionRate": 0.1,
                "queue": 2,
                "evictions": 0,
                "nextToken": "1970-01-01T07:00:20Z",
            },
        });
        assert_eq!(shown(&state, "r1/z1", at(20)), wanted);
    }

    /// Cluster time stands still while no replica runs.
    #[test]
    fn an_outage_of_the_whole_cluster_does_not_move_the_time_since_when_a_zone_is_in_its_state() {
        let state = fleet(&[("a", "True", false)]);
        let a_day_later = Stamp { wall: WallTime(at(20).wall.0 + 86_400_000), ..at(20) };
        assert_eq!(shown(&state, "r1/z1", a_day_later)["status"]["since"], "1970-01-01T07:00:10Z");
    }

    #[test]
    fn z_5_a_zone_that_evicts_nothing_has_no_next_token() {
        let lost = |name| (name, "Unknown", false);
        let state = fleet(&[("a", "True", false), lost("b"), lost("c"), lost("d")]);
        let zone = shown(&state, "r1/z1", at(20));
        assert_eq!(zone["status"]["state"], "PartialDisruption");
        assert_eq!(zone["status"]["evictionRate"].as_f64(), Some(0.0));
        assert_eq!(zone["status"]["nextToken"], Value::Null);
    }

    #[test]
    fn z_2_a_zone_not_assessed_yet_is_initial_and_has_no_rate() {
        let zone = shown(&fleet(&[]), "default", at(20));
        assert_eq!(zone["metadata"]["name"], "default");
        assert_eq!(zone["status"]["state"], "Initial");
        assert_eq!((&zone["status"]["since"], &zone["status"]["evictionRate"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn rates_are_numbers_without_rounding_noise() {
        for (millionths, wanted) in [(10_000, "0.01"), (100_000, "0.1"), (1, "1e-6"), (1_500_000, "1.5")] {
            assert_eq!(per_second(Rate(millionths)).unwrap().to_string(), wanted);
        }
    }
}
