//! Manifests: Kubernetes JSON, read for Nodes, Pods and workloads, and printed for every kind.
//!
//! A manifest is read strictly where Muster models it (wrong types and values are errors that name the field) and kept
//! verbatim where it does not, so that `get`, edit and `apply` lose nothing. Fields that the server owns (timestamps,
//! generation, managed fields) are printed, and ignored on input. Whether names, labels and resources are *legal* is
//! decided when a command is applied.

use muster_lifecycle::command::Precondition;
use muster_lifecycle::kind::Kind;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Revision;
use muster_lifecycle::node::{Node, NodeDraft, NodeStatus};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;
use muster_lifecycle::workload::API_VERSION;
use serde_json::{Value, json};
use thiserror::Error;

use crate::field::{FieldError, Path, Shown};

pub use aggregator::aggregator_to_json;
pub use event::event_to_json;
use fields::Fields;
pub use join_token::join_token_to_json;
use json::Json;
pub use meta::DEFAULT_NAMESPACE;
pub(crate) use meta::parse_uid;
pub use pod::{PodManifest, pod_to_json};
pub use policy::{CONFIG_NAME, config_to_json};
pub use workload::{WorkloadManifest, workload_to_json};
pub use zone::zone_to_json;

mod aggregator;
mod event;
mod fields;
mod join_token;
mod json;
mod meta;
mod moment;
mod pod;
mod policy;
mod spec;
mod status;
#[cfg(test)]
mod tests;
mod unmodelled;
mod workload;
mod zone;

/// The API version of the kinds that Kubernetes does not have.
const OWN_API_VERSION: &str = "muster/v1";

/// The largest manifest that is read.
pub const MAX_BYTES: usize = 1 << 20;
/// The deepest nesting that is read. Parsers give up at 128 levels, and a list must stay readable around it.
pub const MAX_DEPTH: usize = 64;

/// The Node that a manifest asks for, and the Node that it was written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeManifest {
    pub draft: NodeDraft,
    /// From `metadata.resourceVersion` and `metadata.uid`.
    pub precondition: Precondition,
}

#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("the manifest has {size} bytes; at most {MAX_BYTES} are accepted")]
    TooLarge { size: usize },
    #[error("the manifest is nested too deeply; at most {MAX_DEPTH} levels are accepted")]
    TooDeep,
    #[error("the manifest is not valid JSON: {0}")]
    Syntax(serde_json::Error),
    #[error("{0}")]
    Field(FieldError),
}

// === impl ManifestError ===

impl From<FieldError> for ManifestError {
    fn from(error: FieldError) -> Self {
        Self::Field(error)
    }
}

/// An object of one of the kinds that can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    Node(NodeManifest),
    Pod(PodManifest),
    Workload(WorkloadManifest),
}

// === impl Manifest ===

impl Manifest {
    /// Reads an object of the kind that it names.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ManifestError> {
        let fields = Fields::open(read_value(bytes)?, Path::MANIFEST)?;
        let kind = fields.peek("kind");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(match kind.as_str() {
            "Node" => Self::Node(read_node(fields)?),
            "Pod" => Self::Pod(pod::read(fields)?),
            _ => match kind.parse::<WorkloadKind>() {
                Ok(kind) => Self::Workload(workload::read(kind, fields)?),
                Err(_) => {
                    let known = "Node, Pod, ReplicaSet, StatefulSet and DaemonSet are";
                    let rule = format!("{} is not supported here, only {known}", Shown(&kind));
                    return Err(fields.error("kind", rule).into());
                }
            },
        })
    }

    /// The name that `get` uses for its kind: `pod`, `replicaset`.
    pub fn noun(&self) -> String {
        match self {
            Self::Node(_) => Kind::Node.to_string(),
            Self::Pod(_) => Kind::Pod.to_string(),
            Self::Workload(manifest) => Kind::Workload(manifest.draft.key.kind).to_string(),
        }
    }

    pub fn name(&self) -> &Text {
        match self {
            Self::Node(manifest) => &manifest.draft.name,
            Self::Pod(manifest) => &manifest.draft.key.name,
            Self::Workload(manifest) => &manifest.draft.key.name,
        }
    }
}

/// Reads one `v1` Node.
pub fn node_from_json(bytes: &[u8]) -> Result<NodeManifest, ManifestError> {
    Ok(read_node(Fields::open(read_value(bytes)?, Path::MANIFEST)?)?)
}

/// Reads the `status` of a `v1` Node. Fields that Muster does not model are not kept.
pub fn status_from_json(bytes: &[u8]) -> Result<NodeStatus, ManifestError> {
    Ok(status::read(&mut Fields::open(read_value(bytes)?, Path::Root("status"))?)?)
}

/// Prints a Node as Kubernetes does, with the fields that Muster does not model back in their places. Slot and
/// incarnation are internal to Muster and do not appear.
pub fn node_to_json(node: &Node) -> Value {
    let mut json = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta::write(&node.meta),
        "spec": spec::write(&node.spec),
        "status": status::write(&node.status),
    });
    if let Some(unmodelled) = &node.unmodelled {
        unmodelled::restore(&mut json, unmodelled);
    }
    status::complete(&mut json["status"]);
    json
}

/// As [`node_to_json`], for a node that was last heard at `heard`. Beats are not stored, so the conditions that the
/// node's own agent vouches for are dated by when it was heard.
pub fn heard_node_to_json(node: &Node, heard: Stamp) -> Value {
    let mut json = node_to_json(node);
    status::show_heard(&mut json["status"], &node.status.conditions, heard);
    json
}

/// Wraps objects of one kind as the list that was read at `revision`.
pub fn list_to_json(kind: Kind, items: impl Iterator<Item = Value>, revision: Revision) -> Value {
    let api_version = if let Kind::Workload(_) = kind { API_VERSION } else { "v1" };
    json!({
        "apiVersion": api_version,
        "kind": format!("{}List", kind.as_str()),
        "metadata": { "resourceVersion": revision.0.to_string() },
        "items": items.collect::<Value>(),
    })
}

fn read_value(bytes: &[u8]) -> Result<Json<'_>, ManifestError> {
    if bytes.len() > MAX_BYTES {
        return Err(ManifestError::TooLarge { size: bytes.len() });
    }
    let json: Json<'_> = serde_json::from_slice(bytes).map_err(ManifestError::Syntax)?;
    if json.is_deeper_than(MAX_DEPTH) {
        return Err(ManifestError::TooDeep);
    }
    Ok(json)
}

fn read_node(mut fields: Fields<'_>) -> Result<NodeManifest, FieldError> {
    expect(&mut fields, "apiVersion", "v1")?;
    expect(&mut fields, "kind", "Node")?;
    let meta = fields.object("metadata", meta::read)?;
    let meta = meta.ok_or_else(|| FieldError::new("metadata.name", "is required"))?;
    let spec = fields.object("spec", spec::read)?.unwrap_or_default();
    let status = fields.object("status", status::read)?;
    let leftovers = fields.leftovers();
    let draft = NodeDraft {
        name: meta.name,
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owners: meta.owners,
        pod_cidrs: spec.pod_cidrs,
        provider_id: spec.provider_id,
        unschedulable: spec.unschedulable,
        taints: spec.taints,
        status,
        unmodelled: (!leftovers.is_empty()).then(|| Text::from(Value::Object(leftovers).to_string())),
    };
    Ok(NodeManifest { draft, precondition: meta.precondition })
}

fn expect(fields: &mut Fields<'_>, name: &str, wanted: &str) -> Result<(), FieldError> {
    match fields.text(name)? {
        Some(found) if found == wanted => Ok(()),
        Some(found) => Err(fields.error(name, format_args!("{} is not supported here, only {wanted}", Shown(&found)))),
        None => Err(fields.error(name, format_args!("is required, and only {wanted} is supported here"))),
    }
}
