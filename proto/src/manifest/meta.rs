//! `metadata` of any kind, and the part of it that a Node manifest may set.

use std::borrow::Cow;

use muster_lifecycle::command::Precondition;
use muster_lifecycle::meta::{ObjectMeta, OwnerReference, Pairs, Revision, Uid, UidError};
use muster_lifecycle::text::Text;
use serde_json::{Map, Value, json};

use super::fields::{self, Fields, Read};
use super::moment;
use crate::field::Shown;

/// Fields that are printed for people and ignored on input.
const SERVER_OWNED: [&str; 6] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "selfLink"];

/// The namespace of objects that name none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The fields that identify the owner to which an unknown field belongs.
const OWNER_IDENTITY: [&str; 3] = ["apiVersion", "kind", "name"];

pub(super) struct Metadata {
    pub(super) name: Text,
    pub(super) labels: Option<Pairs>,
    pub(super) annotations: Option<Pairs>,
    pub(super) finalizers: Option<Box<[Text]>>,
    pub(super) owners: Option<Box<[OwnerReference]>>,
    pub(super) precondition: Precondition,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Read<Metadata> {
    if let Some(namespace) = fields.text("namespace")?.filter(|namespace| !namespace.is_empty()) {
        let rule = format!("{} must not be set: nodes are not namespaced", Shown(&namespace));
        return Err(fields.error("namespace", rule));
    }
    read_common(fields)
}

/// The metadata of a kind that has namespaces, with the namespace.
pub(super) fn read_namespaced(fields: &mut Fields<'_>) -> Read<(Text, Metadata)> {
    let namespace = fields.text("namespace")?.filter(|namespace| !namespace.is_empty());
    let namespace = namespace.unwrap_or(Cow::Borrowed(DEFAULT_NAMESPACE)).into();
    Ok((namespace, read_common(fields)?))
}

fn read_common(fields: &mut Fields<'_>) -> Read<Metadata> {
    fields.ignore(&SERVER_OWNED);
    let name = fields.required_text("name")?.into();
    Ok(Metadata {
        name,
        labels: pairs(fields, "labels")?,
        annotations: pairs(fields, "annotations")?,
        finalizers: fields.texts("finalizers", |text| Ok(text.into()))?,
        owners: fields.list("ownerReferences", &OWNER_IDENTITY, owner)?,
        precondition: precondition(fields)?,
    })
}

pub(super) fn write(meta: &ObjectMeta) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), (*meta.name).into());
    json.insert("uid".into(), meta.uid.to_string().into());
    json.insert("resourceVersion".into(), meta.revision.0.to_string().into());
    json.insert("generation".into(), meta.generation.into());
    json.insert("creationTimestamp".into(), moment::write(meta.created));
    if let Some(namespace) = &meta.namespace {
        json.insert("namespace".into(), (**namespace).into());
    }
    if let Some(deleted) = meta.deleted {
        json.insert("deletionTimestamp".into(), moment::write(deleted));
        json.insert("deletionGracePeriodSeconds".into(), 0.into());
    }
    write_pairs(&mut json, "labels", &meta.labels);
    write_pairs(&mut json, "annotations", &meta.annotations);
    if !meta.finalizers.is_empty() {
        json.insert("finalizers".into(), meta.finalizers.iter().map(|finalizer| &**finalizer).collect());
    }
    if !meta.owners.is_empty() {
        json.insert("ownerReferences".into(), meta.owners.iter().map(write_owner).collect());
    }
    Value::Object(json)
}

pub(super) fn pairs(fields: &mut Fields<'_>, name: &str) -> Read<Option<Pairs>> {
    let entries = fields.entries(name, fields::text)?;
    Ok(entries.map(Pairs::from_iter))
}

fn write_pairs(json: &mut Map<String, Value>, name: &str, pairs: &Pairs) {
    if !pairs.is_empty() {
        json.insert(name.into(), pairs_to_json(pairs));
    }
}

pub(super) fn pairs_to_json(pairs: &Pairs) -> Value {
    Value::Object(pairs.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect())
}

fn owner(fields: &mut Fields<'_>) -> Read<OwnerReference> {
    Ok(OwnerReference {
        api_version: fields.required_text("apiVersion")?.into(),
        kind: fields.required_text("kind")?.into(),
        name: fields.required_text("name")?.into(),
        uid: fields.parsed("uid", parse_uid)?.ok_or_else(|| fields.error("uid", "is required"))?,
        controller: fields.flag("controller")?.unwrap_or_default(),
        block_owner_deletion: fields.flag("blockOwnerDeletion")?.unwrap_or_default(),
    })
}

fn write_owner(owner: &OwnerReference) -> Value {
    let mut json = json!({
        "apiVersion": &*owner.api_version,
        "kind": &*owner.kind,
        "name": &*owner.name,
        "uid": owner.uid.to_string(),
    });
    if owner.controller {
        json["controller"] = true.into();
    }
    if owner.block_owner_deletion {
        json["blockOwnerDeletion"] = true.into();
    }
    json
}

/// As upstream does, resource version "0" counts as "any".
fn precondition(fields: &mut Fields<'_>) -> Read<Precondition> {
    let revision = fields.parsed("resourceVersion", |text| {
        let revision: u64 =
            text.parse().map_err(|_| format!("{} is not a resource version that a read returned", Shown(text)))?;
        Ok(Revision(revision))
    })?;
    Ok(Precondition {
        revision: revision.filter(|revision| *revision != Revision(0)),
        uid: fields.parsed("uid", parse_uid)?,
    })
}

pub(crate) fn parse_uid(text: &str) -> Result<Uid, String> {
    text.parse().map_err(|error: UidError| error.to_string())
}
