//! Events as `core/v1` prints them. They are only printed: no client sends one.

use muster_lifecycle::event::Event;
use serde_json::{Value, json};

use super::{meta, moment};

/// One core/v1 Event that happened once.
pub fn event_to_json(event: &Event) -> Value {
    let at = moment::write(event.at);
    let headline = event.headline();
    let mut involved = json!({
        "apiVersion": "v1",
        "kind": &*event.subject.kind,
        "name": &*event.subject.name,
        "uid": event.subject.uid.to_string(),
    });
    if let Some(namespace) = &event.subject.namespace {
        involved["namespace"] = (**namespace).into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": meta::write(&event.meta),
        "involvedObject": involved,
        "reason": headline.reason,
        "message": event.message(),
        "type": headline.event_type.as_str(),
        "source": { "component": headline.source },
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "eventTime": null,
        "reportingComponent": headline.source,
        "reportingInstance": "",
    })
}
