//! A zone as a row: its state, how fast it evicts, and how many nodes wait.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, at, or, text};

pub const HEADERS: &[&str] = &["ZONE", "STATE", "READY", "RATE", "QUEUE", "SINCE"];
pub const WIDE_HEADERS: &[&str] =
    &["ZONE", "STATE", "READY", "RATE", "QUEUE", "SINCE", "EXCLUDED", "EVICTIONS", "NEXT-TOKEN"];

pub fn row(zone: &Value, wide: bool, now: Timestamp) -> Vec<String> {
    let mut row = vec![
        text(zone, &["metadata", "name"]).to_owned(),
        or(text(zone, &["status", "state"]), "<unknown>"),
        format!("{}/{}", count(zone, "ready"), count(zone, "total")),
        rate(zone),
        count(zone, "queue").to_string(),
        since(zone, now),
    ];
    if wide {
        row.extend([
            count(zone, "excluded").to_string(),
            count(zone, "evictions").to_string(),
            or(text(zone, &["status", "nextToken"]), "<none>"),
        ]);
    }
    row
}

fn count(zone: &Value, key: &str) -> u64 {
    at(zone, &["status", key]).as_u64().unwrap_or(0)
}

/// Nodes per second; nothing for a zone that has not been assessed yet.
fn rate(zone: &Value) -> String {
    at(zone, &["status", "evictionRate"]).as_f64().map_or_else(|| "<none>".into(), |rate| format!("{rate}/s"))
}

fn since(zone: &Value, now: Timestamp) -> String {
    match text(zone, &["status", "since"]) {
        "" => "<none>".into(),
        since => age::since(since, now),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::table;

    fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    fn zones() -> Vec<Value> {
        vec![
            json!({"metadata": {"name": "r1/b"}, "status": {
                "state": "PartialDisruption", "since": "2026-01-01T00:01:55Z", "ready": 12, "total": 20, "excluded": 1,
                "evictionRate": 0.1, "queue": 3, "evictions": 17, "nextToken": "2026-01-01T00:05:07Z",
            }}),
            json!({"metadata": {"name": "default"}, "status": {
                "state": "Initial", "since": null, "ready": 0, "total": 1, "excluded": 0,
                "evictionRate": null, "queue": 0, "evictions": 0, "nextToken": null,
            }}),
        ]
    }

    #[test]
    fn a_zone_table_has_the_documented_columns() {
        let rows: Vec<_> = zones().iter().map(|zone| row(zone, false, now())).collect();
        assert_eq!(
            table::render(HEADERS, &rows, true),
            [
                "ZONE      STATE               READY   RATE     QUEUE   SINCE",
                "r1/b      PartialDisruption   12/20   0.1/s    3       3m5s",
                "default   Initial             0/1     <none>   0       <none>",
            ]
        );
    }

    #[test]
    fn wide_adds_excluded_nodes_evictions_and_the_next_token() {
        let wide: Vec<_> = zones().iter().map(|zone| row(zone, true, now())).collect();
        assert_eq!(wide[0].len(), WIDE_HEADERS.len());
        assert_eq!(wide[0][6..], ["1", "17", "2026-01-01T00:05:07Z"]);
        assert_eq!(wide[1][8], "<none>");
        assert_eq!(WIDE_HEADERS[..HEADERS.len()], *HEADERS);
    }

    #[test]
    fn a_rate_is_never_written_with_an_exponent() {
        let zone = |rate: f64| json!({"status": {"evictionRate": rate}});
        for (given, wanted) in [(0.0, "0/s"), (0.01, "0.01/s"), (0.000_001, "0.000001/s"), (1_000.0, "1000/s")] {
            assert_eq!(rate(&zone(given)), wanted);
        }
    }
}
