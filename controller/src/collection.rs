//! The kinds of objects an operator can read, selected and rendered.

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::node::Node;
use muster_lifecycle::selector::{EventFieldSelector, LabelSelector, NodeFieldSelector};
use muster_lifecycle::state::State;
use muster_lifecycle::time::Stamp;
use muster_proto::manifest::{event_to_json, heard_node_to_json, node_to_json};
use serde_json::Value;
use tonic::Status;

/// What of which kind a reader wants.
#[derive(Debug, Clone)]
pub struct Selection {
    labels: LabelSelector,
    fields: Fields,
}

#[derive(Debug, Clone)]
enum Fields {
    Nodes(NodeFieldSelector),
    Events(EventFieldSelector),
}

/// Says when a node was last heard, as far as this replica knows.
pub type LastHeard = dyn Fn(&Node) -> Option<Stamp> + Send + Sync;

/// How a change looks to a reader who sees only what it selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    Added,
    Modified,
    Deleted,
}

// === impl Selection ===

impl Selection {
    pub fn parse(kind: &str, label_selector: &str, field_selector: &str) -> Result<Self, Status> {
        let labels = label_selector.parse().map_err(|error| invalid("label_selector", &error))?;
        let fields = match kind {
            "nodes" => Fields::Nodes(field_selector.parse().map_err(|error| invalid("field_selector", &error))?),
            "events" => Fields::Events(field_selector.parse().map_err(|error| invalid("field_selector", &error))?),
            other => {
                let message = format!(
                    "kind: {other:?} is not known here; known kinds are nodes, events, zones, config and aggregators"
                );
                return Err(Status::invalid_argument(message));
            }
        };
        Ok(Self { labels, fields })
    }

    /// The selected objects in key order.
    pub fn objects(&self, state: &State) -> Vec<Object> {
        match &self.fields {
            Fields::Nodes(_) => self.select(state.nodes().iter().cloned().map(Object::Node)),
            Fields::Events(_) => self.select(state.events().iter().cloned().map(Object::Event)),
        }
    }

    pub fn get(&self, state: &State, name: &str) -> Option<Object> {
        match &self.fields {
            Fields::Nodes(_) => state.node(name).cloned().map(Object::Node),
            Fields::Events(_) => {
                let event = state.events().iter().find(|event| &*event.meta.name == name);
                event.cloned().map(Object::Event)
            }
        }
    }

    /// The change as this reader sees it, with the object to show. `None` if it concerns others only.
    pub fn see<'a>(&self, change: &'a Change) -> Option<(Seen, &'a Object)> {
        let before = change.before.as_ref().filter(|object| self.matches(object));
        let after = change.after.as_ref().filter(|object| self.matches(object));
        match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some((Seen::Added, after)),
            (Some(_), Some(after)) => Some((Seen::Modified, after)),
            // An object that left the selection is shown as it is now, a deleted one as it was last.
            (Some(before), None) => Some((Seen::Deleted, change.after.as_ref().unwrap_or(before))),
        }
    }

    fn select(&self, objects: impl Iterator<Item = Object>) -> Vec<Object> {
        objects.filter(|object| self.matches(object)).collect()
    }

    fn matches(&self, object: &Object) -> bool {
        match (&self.fields, object) {
            (Fields::Nodes(fields), Object::Node(node)) => {
                self.labels.matches(&node.meta.labels) && fields.matches(node)
            }
            (Fields::Events(fields), Object::Event(event)) => {
                self.labels.matches(&event.meta.labels) && fields.matches(event)
            }
            (Fields::Nodes(_), Object::Event(_)) | (Fields::Events(_), Object::Node(_)) => false,
        }
    }
}

/// The object as Kubernetes JSON. Beats are not written down, so a node's heartbeat time comes from `last_heard`.
pub fn render(object: &Object, last_heard: Option<&LastHeard>) -> Value {
    match object {
        Object::Node(node) => match last_heard.and_then(|last_heard| last_heard(node)) {
            Some(heard) => heard_node_to_json(node, heard),
            None => node_to_json(node),
        },
        Object::Event(event) => event_to_json(event),
    }
}

fn invalid(field: &str, error: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {error}"))
}
