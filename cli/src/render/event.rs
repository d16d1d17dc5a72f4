//! An Event as a row.

use jiff::Timestamp;
use serde_json::Value;

use super::{age, or, text};

pub const HEADERS: &[&str] = &["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];

pub fn row(event: &Value, now: Timestamp) -> Vec<String> {
    vec![
        age::since(last_seen(event), now),
        text(event, &["type"]).to_owned(),
        text(event, &["reason"]).to_owned(),
        object(event),
        // A message of several lines would tear the table apart.
        text(event, &["message"]).split_whitespace().collect::<Vec<_>>().join(" "),
    ]
}

/// Events are read in the order in which they happened.
pub fn sort(events: &mut [Value]) {
    let key = |event: &Value| {
        let at = last_seen(event).parse::<Timestamp>().unwrap_or(Timestamp::UNIX_EPOCH);
        let version = text(event, &["metadata", "resourceVersion"]).parse::<u64>().unwrap_or(0);
        (at, version)
    };
    events.sort_by_key(key);
}

fn last_seen(event: &Value) -> &str {
    ["lastTimestamp", "eventTime", "firstTimestamp"]
        .iter()
        .map(|key| text(event, &[key]))
        .find(|time| !time.is_empty())
        .unwrap_or_else(|| text(event, &["metadata", "creationTimestamp"]))
}

fn object(event: &Value) -> String {
    let kind = or(text(event, &["involvedObject", "kind"]), "<unknown>").to_lowercase();
    format!("{kind}/{}", text(event, &["involvedObject", "name"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_names_age_type_reason_object_and_message() {
        let event = json!({
            "involvedObject": {"kind": "Node", "name": "n1"},
            "type": "Normal", "reason": "RegisteredNode", "message": "node n1\nregistered",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        });
        let now = "2026-01-01T00:00:42Z".parse().unwrap();
        assert_eq!(row(&event, now), ["42s", "Normal", "RegisteredNode", "node/n1", "node n1 registered"]);
    }

    #[test]
    fn events_sort_by_time_then_revision() {
        let event =
            |time: &str, version: &str| json!({"lastTimestamp": time, "metadata": {"resourceVersion": version}});
        let (t1, t2) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let mut events = [event(t2, "3"), event(t1, "10"), event(t1, "9")];
        sort(&mut events);
        let order: Vec<&str> = events.iter().map(|event| text(event, &["metadata", "resourceVersion"])).collect();
        assert_eq!(order, ["9", "10", "3"]);
    }
}
