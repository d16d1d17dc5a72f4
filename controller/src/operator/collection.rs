//! Collections of objects that an operator can read, selected and rendered.

use std::sync::Arc;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::node::Node;
use muster_lifecycle::pod::{Pod, PodKey};
use muster_lifecycle::selector::{
    EventFieldSelector, LabelSelector, NameSelector, NodeFieldSelector, PodFieldSelector, SelectorError,
};
use muster_lifecycle::staffing;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;
use muster_lifecycle::workload::WorkloadKey;
use muster_proto::manifest::{event_to_json, heard_node_to_json, node_to_json, pod_to_json, workload_to_json};
use muster_proto::operation;
use serde_json::Value;
use tonic::Status;

/// The objects of one kind that a reader selects.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: Fields,
    /// `None` for all namespaces.
    namespace: Option<Text>,
}

#[derive(Debug, Clone)]
enum Fields {
    Nodes(NodeFieldSelector),
    Events(EventFieldSelector),
    Pods(PodFieldSelector),
    Workloads(WorkloadKind, NameSelector),
}

/// The time at which a node was last heard, as far as this replica knows.
pub(super) type LastHeard = dyn Fn(&Node) -> Option<Stamp> + Send + Sync;

/// A change as seen by a reader of only the selected objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Added,
    Modified,
    Deleted,
}

// === impl Selection ===

impl Selection {
    pub(super) fn parse(
        kind: &str,
        label_selector: &str,
        field_selector: &str,
        namespace: &str,
    ) -> Result<Self, Status> {
        let labels = label_selector.parse().map_err(|error| invalid("label_selector", &error))?;
        let fields = Fields::parse(kind, field_selector)?;
        if !namespace.is_empty() && matches!(fields, Fields::Nodes(_)) {
            return Err(Status::invalid_argument("namespace: nodes are not namespaced"));
        }
        let namespace = (!namespace.is_empty()).then(|| Text::from(namespace));
        Ok(Self { labels, fields, namespace })
    }

    /// The selected objects in key order.
    pub(super) fn objects(&self, state: &State) -> Vec<Object> {
        match &self.fields {
            Fields::Nodes(_) => self.select(state.nodes().iter().cloned().map(Object::Node)),
            Fields::Events(_) => self.select(state.events().iter().cloned().map(Object::Event)),
            Fields::Pods(fields) => match fields.node() {
                Some(node) => self.select(pods_on(state, node).map(Object::Pod)),
                None => self.select(state.pods().iter().cloned().map(Object::Pod)),
            },
            Fields::Workloads(..) => self.select(state.workloads().iter().cloned().map(Object::Workload)),
        }
    }

    pub(super) fn get(&self, state: &State, name: &str) -> Option<Object> {
        let namespace = || operation::namespace(self.namespace.as_deref().unwrap_or_default().to_owned());
        match &self.fields {
            Fields::Nodes(_) => state.node(name).cloned().map(Object::Node),
            Fields::Events(_) => {
                let event = state.events().iter().find(|event| &*event.meta.name == name);
                event.cloned().map(Object::Event)
            }
            Fields::Pods(_) => state.pods().get(&PodKey::new(namespace(), name)).cloned().map(Object::Pod),
            Fields::Workloads(kind, _) => {
                let key = WorkloadKey { kind: *kind, namespace: namespace(), name: name.into() };
                state.workloads().get(&key).cloned().map(Object::Workload)
            }
        }
    }

    /// The change as this reader sees it, with the object to show. `None` if it concerns no selected object.
    pub(super) fn see<'a>(&self, change: &'a Change) -> Option<(Seen, &'a Object)> {
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
        let meta = object.meta();
        let is_here = self.namespace.as_ref().is_none_or(|namespace| meta.namespace.as_ref() == Some(namespace));
        is_here && self.fields.match_object(object) && self.labels.matches(&meta.labels)
    }
}

// === impl Fields ===

impl Fields {
    fn parse(kind: &str, selector: &str) -> Result<Self, Status> {
        let wrong = |error: SelectorError| invalid("field_selector", &error);
        Ok(match kind {
            "nodes" => Self::Nodes(selector.parse().map_err(wrong)?),
            "events" => Self::Events(selector.parse().map_err(wrong)?),
            "pods" => Self::Pods(selector.parse().map_err(wrong)?),
            "replicasets" => Self::Workloads(WorkloadKind::ReplicaSet, selector.parse().map_err(wrong)?),
            "statefulsets" => Self::Workloads(WorkloadKind::StatefulSet, selector.parse().map_err(wrong)?),
            "daemonsets" => Self::Workloads(WorkloadKind::DaemonSet, selector.parse().map_err(wrong)?),
            other => {
                let message = format!(
                    "kind: {other:?} is not known here; known kinds are nodes, pods, replicasets, statefulsets, \
                     daemonsets, events, zones, config, aggregators and tokens"
                );
                return Err(Status::invalid_argument(message));
            }
        })
    }

    fn match_object(&self, object: &Object) -> bool {
        match (self, object) {
            (Self::Nodes(fields), Object::Node(node)) => fields.matches(node),
            (Self::Events(fields), Object::Event(event)) => fields.matches(event),
            (Self::Pods(fields), Object::Pod(pod)) => fields.matches(pod),
            (Self::Workloads(kind, fields), Object::Workload(workload)) => {
                *kind == workload.kind && fields.matches(&workload.meta)
            }
            (
                Self::Nodes(_) | Self::Events(_) | Self::Pods(_) | Self::Workloads(..),
                Object::Node(_) | Object::Event(_) | Object::Pod(_) | Object::Workload(_),
            ) => false,
        }
    }
}

fn pods_on<'a>(state: &'a State, node: &str) -> impl Iterator<Item = Arc<Pod>> + use<'a> {
    let tenants = state.tenants(node).into_iter().flat_map(|tenants| tenants.keys());
    tenants.filter_map(|key| state.pods().get(key)).cloned()
}

/// The object as Kubernetes JSON. Beats are not stored, so a node's heartbeat time comes from `last_heard`. A
/// workload's pod count is read off the state.
pub(super) fn render(object: &Object, state: &State, last_heard: Option<&LastHeard>) -> Value {
    match object {
        Object::Node(node) => match last_heard.and_then(|last_heard| last_heard(node)) {
            Some(heard) => heard_node_to_json(node, heard),
            None => node_to_json(node),
        },
        Object::Event(event) => event_to_json(event),
        Object::Pod(pod) => pod_to_json(pod),
        Object::Workload(workload) => {
            workload_to_json(workload, state.staff(workload.meta.uid), staffing::desired(state, workload))
        }
    }
}

fn invalid(field: &str, error: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{field}: {error}"))
}
