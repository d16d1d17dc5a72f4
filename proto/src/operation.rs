//! Write requests, turned into the commands they stand for.
//!
//! Everything that has a syntax (manifests, taints, selectors, uids, request ids) is parsed here, so that only valid
//! domain types reach the log. Whether the result is allowed is decided when it is applied.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use muster_lifecycle::aggregator::PATTERNS_MAX;
use muster_lifecycle::command::{OperatorOperation, Precondition, RequestId};
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::join_token;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::{Revision, Uid};
use muster_lifecycle::name;
use muster_lifecycle::pod::PodKey;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::rule;
use muster_lifecycle::taint::TaintError;
use muster_lifecycle::text::Text;
use muster_lifecycle::violation::NameViolation;
use muster_lifecycle::workload::WorkloadKey;

pub use crate::field::FieldError;
use crate::field::{Path, Shown};
use crate::manifest::{
    DEFAULT_NAMESPACE, Manifest, ManifestError, NodeManifest, PodManifest, WorkloadManifest, node_from_json, parse_uid,
};
use crate::v1;
use crate::v1::write_request::Operation as Wire;

/// The most labels, annotations or taints that one edit may set or remove.
pub const MAX_EDITS: usize = 1_024;

type Changes = Vec<(Text, Option<Text>)>;

/// The operation that `request` asks for. `uid` is for the Node in case it gets created.
pub fn operation(request: v1::WriteRequest, uid: Uid) -> Result<(Option<RequestId>, OperatorOperation), FieldError> {
    let id = request.request.map(request_id).transpose()?;
    let Some(wire) = request.operation else {
        let rule = "is missing; one of create, apply, replace, replace_status, label, annotate, taint, cordon, delete, \
                    policy, aggregator, create_token, revoke_token, revoke_node, finalize_upgrade";
        return Err(FieldError::new("operation", rule));
    };
    let operation = match wire {
        Wire::Create(write) => create(&write, uid)?,
        Wire::Apply(write) => apply(&write, uid)?,
        Wire::Replace(write) => {
            let NodeManifest { draft, precondition } = node_manifest(&write, "replace")?;
            OperatorOperation::ReplaceNode { draft: Box::new(draft), precondition }
        }
        Wire::ReplaceStatus(write) => replace_status(&write)?,
        Wire::Label(edit) => {
            let (name, changes, overwrite, precondition) = pairs_edit(edit, "label", check_label)?;
            OperatorOperation::LabelNode { name, changes, overwrite, precondition }
        }
        Wire::Annotate(edit) => {
            let (name, changes, overwrite, precondition) = pairs_edit(edit, "annotate", check_annotation)?;
            OperatorOperation::AnnotateNode { name, changes, overwrite, precondition }
        }
        Wire::Taint(edit) => taint(edit)?,
        Wire::Cordon(cordon) => OperatorOperation::CordonNode {
            name: required_name(cordon.name, "cordon")?,
            unschedulable: cordon.unschedulable,
            precondition: precondition(cordon.precondition, "cordon")?,
        },
        Wire::Delete(request) => delete(request)?,
        Wire::Policy(change) => policy(change)?,
        Wire::Aggregator(scope) => aggregator(scope)?,
        Wire::CreateToken(token) => create_token(token)?,
        Wire::RevokeToken(token) => OperatorOperation::RevokeToken { id: token_id(token.id, "revoke_token")? },
        Wire::RevokeNode(node) => OperatorOperation::RevokeNode { name: required_name(node.name, "revoke_node")? },
        // The replica that takes the request adds its version.
        Wire::FinalizeUpgrade(v1::UpgradeFinalization {}) => {
            OperatorOperation::FinalizeUpgrade { version: Text::default() }
        }
        Wire::RehearseNote(note) => {
            OperatorOperation::RehearseNote { aggregator: note.aggregator.into(), note: note.note.into() }
        }
    };
    Ok((id, operation))
}

fn request_id(id: v1::RequestId) -> Result<RequestId, FieldError> {
    let client: [u8; 16] = (&*id.client)
        .try_into()
        .map_err(|_| FieldError::new("request.client", format_args!("must be 16 bytes, is {}", id.client.len())))?;
    Ok(RequestId { client: u128::from_be_bytes(client), sequence: id.sequence })
}

/// A resource version on an object yet to be created is a mistake. A uid is not: upstream gives a new one as well.
fn create(write: &v1::ManifestWrite, uid: Uid) -> Result<OperatorOperation, FieldError> {
    let (precondition, operation) = match manifest(write, "create")? {
        Manifest::Node(NodeManifest { draft, precondition }) => {
            (precondition, OperatorOperation::CreateNode { draft: Box::new(draft), uid })
        }
        Manifest::Pod(PodManifest { draft, precondition }) => {
            (precondition, OperatorOperation::CreatePod { draft: Box::new(draft), uid })
        }
        Manifest::Workload(WorkloadManifest { draft, precondition }) => {
            (precondition, OperatorOperation::CreateWorkload { draft: Box::new(draft), uid })
        }
    };
    match precondition.revision {
        None => Ok(operation),
        Some(_) => Err(FieldError::new("metadata.resourceVersion", "must not be set on an object to be created")),
    }
}

fn apply(write: &v1::ManifestWrite, uid: Uid) -> Result<OperatorOperation, FieldError> {
    Ok(match manifest(write, "apply")? {
        Manifest::Node(NodeManifest { draft, precondition }) => {
            OperatorOperation::ApplyNode { draft: Box::new(draft), uid, precondition }
        }
        Manifest::Pod(PodManifest { draft, precondition }) => {
            OperatorOperation::ApplyPod { draft: Box::new(draft), uid, precondition }
        }
        Manifest::Workload(WorkloadManifest { draft, precondition }) => {
            OperatorOperation::ApplyWorkload { draft: Box::new(draft), uid, precondition }
        }
    })
}

fn replace_status(write: &v1::ManifestWrite) -> Result<OperatorOperation, FieldError> {
    let NodeManifest { draft, precondition } = node_manifest(write, "replace_status")?;
    let status = draft.status.ok_or_else(|| FieldError::new("status", "is required"))?;
    Ok(OperatorOperation::ReplaceNodeStatus { name: draft.name, status: Box::new(status), precondition })
}

/// Fields of the manifest are named as the author of the manifest knows them, without the message around it.
fn manifest(write: &v1::ManifestWrite, operation: &str) -> Result<Manifest, FieldError> {
    Manifest::from_json(&write.object).map_err(|error| located(error, operation))
}

/// As [`manifest`], for requests that take only nodes.
fn node_manifest(write: &v1::ManifestWrite, operation: &str) -> Result<NodeManifest, FieldError> {
    node_from_json(&write.object).map_err(|error| located(error, operation))
}

fn located(error: ManifestError, operation: &str) -> FieldError {
    match error {
        ManifestError::Field(error) => error,
        ManifestError::TooLarge { .. } | ManifestError::TooDeep | ManifestError::Syntax(_) => {
            Path::Root(operation).field("object").error(error)
        }
    }
}

fn pairs_edit(
    edit: v1::PairsEdit,
    operation: &str,
    check: impl Fn(&str, &str) -> Result<(), NameViolation>,
) -> Result<(Text, Changes, bool, Precondition), FieldError> {
    let root = Path::Root(operation);
    let name = required_name(edit.name, operation)?;
    bounded(edit.set.len(), &root.field("set"))?;
    bounded(edit.remove.len(), &root.field("remove"))?;
    if edit.set.is_empty() && edit.remove.is_empty() {
        return Err(root.error("sets nothing and removes nothing"));
    }
    // In order of keys: the map on the wire has no order, and a replicated command needs one.
    let mut changes: BTreeMap<String, Option<Text>> = BTreeMap::new();
    for (key, value) in edit.set.into_iter().collect::<BTreeMap<_, _>>() {
        check(&key, &value).map_err(|rule| root.field("set").key(&key).error(rule))?;
        changes.insert(key, Some(value.into()));
    }
    for (index, key) in edit.remove.into_iter().enumerate() {
        check(&key, "").map_err(|rule| root.field("remove").index(index).error(rule))?;
        if let Some(Some(_)) = changes.get(&key) {
            let rule = format!("{} is also set; do one or the other", Shown(&key));
            return Err(root.field("remove").index(index).error(rule));
        }
        changes.insert(key, None);
    }
    let changes = changes.into_iter().map(|(key, value)| (key.into(), value)).collect();
    Ok((name, changes, edit.overwrite, precondition(edit.precondition, operation)?))
}

fn check_label(key: &str, value: &str) -> Result<(), NameViolation> {
    name::qualified_name(key)?;
    name::label_value(value)
}

fn check_annotation(key: &str, _value: &str) -> Result<(), NameViolation> {
    name::annotation_key(key)
}

fn taint(edit: v1::TaintEdit) -> Result<OperatorOperation, FieldError> {
    if edit.add.is_empty() && edit.remove.is_empty() {
        return Err(FieldError::new("taint", "adds nothing and removes nothing"));
    }
    Ok(OperatorOperation::TaintNode {
        name: required_name(edit.name, "taint")?,
        add: taint_list(&edit.add, &Path::Root("taint").field("add"))?,
        remove: taint_list(&edit.remove, &Path::Root("taint").field("remove"))?,
        overwrite: edit.overwrite,
        precondition: precondition(edit.precondition, "taint")?,
    })
}

fn delete(delete: v1::Delete) -> Result<OperatorOperation, FieldError> {
    let name = required_name(delete.name, "delete")?;
    let precondition = precondition(delete.precondition, "delete")?;
    let namespace = namespace(delete.namespace);
    if delete.grace_seconds.is_some() && delete.kind != "pods" {
        return Err(FieldError::new("delete.grace_seconds", "is for pods only"));
    }
    let workload = |kind| {
        let key = WorkloadKey { kind, namespace: namespace.clone(), name: name.clone() };
        OperatorOperation::DeleteWorkload { key, precondition }
    };
    Ok(match delete.kind.as_str() {
        "nodes" => OperatorOperation::DeleteNode { name, precondition },
        "pods" => {
            let grace = grace(delete.grace_seconds)?;
            OperatorOperation::DeletePod { key: PodKey { namespace, name }, grace, precondition }
        }
        "replicasets" => workload(WorkloadKind::ReplicaSet),
        "statefulsets" => workload(WorkloadKind::StatefulSet),
        "daemonsets" => workload(WorkloadKind::DaemonSet),
        other => {
            let known = "nodes, pods, replicasets, statefulsets and daemonsets are";
            let rule = format!("{} cannot be deleted here; only {known}", Shown(other));
            return Err(FieldError::new("delete.kind", rule));
        }
    })
}

fn grace(seconds: Option<i64>) -> Result<Option<u32>, FieldError> {
    let checked = rule::pod::grace(seconds, "delete.grace_seconds");
    checked.map_err(|invalid| FieldError::new(invalid.field, invalid.rule))?;
    Ok(seconds.and_then(|seconds| u32::try_from(seconds).ok()))
}

/// The namespace of an object that has one.
pub fn namespace(given: String) -> Text {
    if given.is_empty() { Text::from(DEFAULT_NAMESPACE) } else { given.into() }
}

/// A setting is named in errors as people know it, like a field of a manifest. Whether the settings agree with those
/// that are not changed is decided when they are applied.
fn policy(change: v1::PolicyChange) -> Result<OperatorOperation, FieldError> {
    let path = Path::Root("policy").field("settings").to_string();
    if change.settings.is_empty() {
        return Err(FieldError::new(path, "changes nothing; name a setting and its value"));
    }
    let mut scratch = Policy::default();
    let mut changes = Vec::new();
    // In order of names: the map on the wire has no order, and a replicated command needs one.
    for (name, value) in change.settings.into_iter().collect::<BTreeMap<_, _>>() {
        scratch.set(&name, &value).map_err(|invalid| FieldError::new(invalid.field, invalid.rule))?;
        changes.push((name.into(), value.into()));
    }
    Ok(OperatorOperation::SetPolicy { changes })
}

fn aggregator(scope: v1::AggregatorScope) -> Result<OperatorOperation, FieldError> {
    let root = Path::Root("aggregator");
    let name = required_name(scope.name, "aggregator")?;
    name::dns_subdomain(&name).map_err(|rule| root.field("name").error(rule))?;
    let path = root.field("nodes");
    if scope.nodes.len() > PATTERNS_MAX {
        let rule = format!("{} patterns are too many: at most {PATTERNS_MAX}", scope.nodes.len());
        return Err(path.error(rule));
    }
    if let Some(index) = scope.nodes.iter().position(String::is_empty) {
        return Err(path.index(index).error("is empty; write a node name, or a prefix that ends in *"));
    }
    Ok(OperatorOperation::SetAggregator { name, nodes: scope.nodes.into_iter().map(Text::from).collect() })
}

fn create_token(token: v1::TokenCreation) -> Result<OperatorOperation, FieldError> {
    let root = Path::Root("create_token");
    let hash = <[u8; 32]>::try_from(&*token.hash)
        .map_err(|_| root.field("hash").error(format_args!("must be 32 bytes, is {}", token.hash.len())))?;
    let ttl = Duration::from_millis(token.ttl_ms);
    join_token::check_ttl(ttl).map_err(|invalid| root.field("ttl_ms").error(invalid.rule))?;
    let node = (!token.node.is_empty()).then(|| Text::from(token.node));
    if let Some(node) = &node {
        name::host_name(node).map_err(|rule| root.field("node").error(rule))?;
    }
    let id = token_id(token.id, "create_token")?;
    Ok(OperatorOperation::CreateToken { id, hash: Fingerprint(hash), node, ttl_ms: token.ttl_ms })
}

fn token_id(id: String, operation: &str) -> Result<Text, FieldError> {
    join_token::check_id(&id).map_err(|invalid| Path::Root(operation).field("id").error(invalid.rule))?;
    Ok(id.into())
}

fn required_name(name: String, operation: &str) -> Result<Text, FieldError> {
    match name.is_empty() {
        true => Err(Path::Root(operation).field("name").error("is required")),
        false => Ok(name.into()),
    }
}

fn precondition(wire: Option<v1::Precondition>, operation: &str) -> Result<Precondition, FieldError> {
    let Some(wire) = wire else { return Ok(Precondition::default()) };
    let uid = (!wire.uid.is_empty()).then(|| parse_uid(&wire.uid)).transpose();
    let uid = uid.map_err(|rule| Path::Root(operation).field("precondition").field("uid").error(rule))?;
    Ok(Precondition { revision: wire.revision.map(Revision), uid })
}

fn taint_list<T: FromStr<Err = TaintError>>(texts: &[String], path: &Path<'_>) -> Result<Vec<T>, FieldError> {
    bounded(texts.len(), path)?;
    let parse = |(index, text): (usize, &String)| text.parse().map_err(|error| taint_error(error, &path.index(index)));
    texts.iter().enumerate().map(parse).collect()
}

/// The taint's own error names a field of the taint. In a request the taint is one text, and its place names it better.
fn taint_error(error: TaintError, path: &Path<'_>) -> FieldError {
    match error {
        TaintError::Invalid(invalid) => path.error(invalid.rule),
        TaintError::Malformed { .. } | TaintError::UnknownEffect { .. } | TaintError::MalformedSelector { .. } => {
            path.error(error)
        }
    }
}

fn bounded(len: usize, path: &Path<'_>) -> Result<(), FieldError> {
    match len > MAX_EDITS {
        true => Err(path.error(format_args!("has {len} entries; at most {MAX_EDITS} are accepted in one request"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
