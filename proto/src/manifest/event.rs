//! Events as `core/v1` prints them. They are only printed: no client sends one.

use muster_lifecycle::event::{Event, EventType};
use serde_json::{Value, json};

use super::{meta, moment};

/// One core/v1 Event that happened once.
pub fn event_to_json(event: &Event) -> Value {
    let at = moment::write(event.at);
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
        "reason": &*event.reason,
        "message": &*event.message,
        "type": event_type(event.event_type),
        "source": { "component": &*event.source },
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "eventTime": null,
        "reportingComponent": &*event.source,
        "reportingInstance": "",
    })
}

fn event_type(event_type: EventType) -> &'static str {
    match event_type {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}
