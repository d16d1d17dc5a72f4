//! Pods as Kubernetes JSON, and the pod templates of workloads.
//!
//! The fields that decide where a pod runs and when it leaves are modelled. Containers and everything else are kept as
//! given, and only read for what they request.

use muster_lifecycle::command::Precondition;
use muster_lifecycle::node::{Condition, Resources};
use muster_lifecycle::pod::{Pod, PodDraft, PodKey, PodSpec, PodStatus, PodTemplate};
use muster_lifecycle::pod_requests::{self, Container};
use muster_lifecycle::taint::{Effect, TaintError};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_lifecycle::toleration::{OperatorError, Toleration, TolerationOperator};
use serde_json::{Map, Value, json};

use super::fields::{Fields, Read, mismatch};
use super::json::Json;
use super::{expect, meta, moment, status, unmodelled};
use crate::field::{FieldError, Path};

/// The pod that a manifest asks for, and the pod that it was written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodManifest {
    pub draft: PodDraft,
    pub precondition: Precondition,
}

const ALWAYS: &str = "Always";

// === reading ===

pub(super) fn read(mut fields: Fields<'_>) -> Read<PodManifest> {
    expect(&mut fields, "apiVersion", "v1")?;
    expect(&mut fields, "kind", "Pod")?;
    let meta = fields.object("metadata", meta::read_namespaced)?;
    let (namespace, meta) = meta.ok_or_else(|| FieldError::new("metadata.name", "is required"))?;
    let spec = fields.object_apart("spec", spec)?.ok_or_else(|| FieldError::new("spec", "is required"))?;
    // The pod's node reports its status; a manifest does not.
    fields.ignore(&["status"]);
    let Spec { node, mut template, rest } = spec;
    template.unmodelled = kept(fields.leftovers(), rest);
    let key = PodKey { namespace, name: meta.name };
    let draft = PodDraft {
        key,
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owners: meta.owners,
        node,
        template,
    };
    Ok(PodManifest { draft, precondition: meta.precondition })
}

pub(super) struct Spec {
    pub(super) node: Option<Text>,
    pub(super) template: PodTemplate,
    /// Fields that are not modelled.
    pub(super) rest: Map<String, Value>,
}

/// The spec of a pod, or of a template.
pub(super) fn spec(mut fields: Fields<'_>) -> Read<Spec> {
    let containers = containers(&fields, "containers")?;
    let template = PodTemplate {
        tolerations: fields.list("tolerations", &[], toleration)?,
        priority: fields.integer("priority")?,
        grace: fields.integer("terminationGracePeriodSeconds")?,
        node_selector: meta::pairs(&mut fields, "nodeSelector")?,
        requests: pod_requests::effective(
            &containers,
            &self::containers(&fields, "initContainers")?,
            &quantities(fields.peek("overhead").as_ref(), &fields.path().field("overhead"))?,
        ),
        host_network: fields.flag("hostNetwork")?.unwrap_or_default(),
        has_containers: !containers.is_empty(),
        unmodelled: None,
    };
    let node = fields.text("nodeName")?.filter(|node| !node.is_empty()).map(Text::from);
    Ok(Spec { node, template, rest: fields.leftovers() })
}

/// The leftovers as one text in the shape of the manifest.
pub(super) fn kept(mut outer: Map<String, Value>, spec: Map<String, Value>) -> Option<Text> {
    if !spec.is_empty() {
        outer.insert("spec".to_owned(), Value::Object(spec));
    }
    (!outer.is_empty()).then(|| Text::from(Value::Object(outer).to_string()))
}

fn containers(fields: &Fields<'_>, name: &str) -> Read<Vec<Container>> {
    let path = fields.path();
    let path = path.field(name);
    let Some(value) = fields.peek(name) else { return Ok(Vec::new()) };
    let Value::Array(containers) = value else { return Err(mismatch(&path, "an array", &value)) };
    containers.iter().enumerate().map(|(index, value)| container(value, &path.index(index))).collect()
}

fn container(value: &Value, path: &Path<'_>) -> Read<Container> {
    let Value::Object(container) = value else { return Err(mismatch(path, "an object", value)) };
    match container.get("name").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => {}
        Some(_) | None => return Err(path.field("name").error("is required")),
    }
    let stays = container.get("restartPolicy").and_then(Value::as_str) == Some(ALWAYS);
    let resources = path.field("resources");
    let given = container.get("resources").filter(|given| !given.is_null());
    if let Some(given) = given.filter(|given| !given.is_object()) {
        return Err(mismatch(&resources, "an object", given));
    }
    let part = |name: &str| given.and_then(|given| given.get(name));
    let limits = quantities(part("limits"), &resources.field("limits"))?;
    let requests = quantities(part("requests"), &resources.field("requests"))?;
    // As upstream does, a resource with a limit and no request is requested up to the limit.
    let all = limits.iter().chain(requests.iter()).map(|(name, quantity)| (name.clone(), quantity));
    Ok(Container { requests: all.collect(), stays })
}

fn quantities(value: Option<&Value>, path: &Path<'_>) -> Read<Resources> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Resources::default()) };
    let Value::Object(entries) = value else { return Err(mismatch(path, "an object", value)) };
    let read = |(name, value): (&String, &Value)| {
        let quantity = status::quantity(Json::from(value), &path.key(name))?;
        match quantity.is_negative() {
            true => Err(path.key(name).error(format_args!("\"{quantity}\" is negative"))),
            false => Ok((Text::from(name), quantity)),
        }
    };
    entries.iter().map(read).collect()
}

fn toleration(fields: &mut Fields<'_>) -> Read<Toleration> {
    let parse_operator = |text: &str| text.parse().map_err(|error: OperatorError| error.to_string());
    let parse_effect = |text: &str| text.parse::<Effect>().map_err(|error: TaintError| error.to_string());
    Ok(Toleration {
        key: fields.text("key")?.unwrap_or_default().into(),
        operator: fields.parsed("operator", parse_operator)?.unwrap_or(TolerationOperator::Equal),
        value: fields.text("value")?.unwrap_or_default().into(),
        effect: fields.parsed("effect", parse_effect)?,
        seconds: fields.integer("tolerationSeconds")?,
    })
}

// === writing ===

/// Prints a Pod as Kubernetes does.
pub fn pod_to_json(pod: &Pod) -> Value {
    let mut json = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta::write(&pod.meta),
        "spec": write_spec(&pod.spec),
        "status": write_status(&pod.status),
    });
    if let (Some(deleted), Some(ending)) = (pod.meta.deleted, pod.ending) {
        json["metadata"]["deletionTimestamp"] = moment::write(later(deleted, ending.grace));
        json["metadata"]["deletionGracePeriodSeconds"] = ending.grace.into();
    }
    if let Some(unmodelled) = &pod.unmodelled {
        unmodelled::restore(&mut json, unmodelled);
    }
    let containers = container_statuses(&json, pod);
    json["status"]["containerStatuses"] = containers;
    json
}

/// The end of the grace, as upstream dates a deletion.
fn later(stamp: Stamp, seconds: u32) -> Stamp {
    let millis = i64::from(seconds) * 1000;
    let wall = WallTime(stamp.wall.0.saturating_add(millis));
    Stamp { cluster: ClusterTime(stamp.cluster.0.saturating_add(millis.unsigned_abs())), wall }
}

fn write_spec(spec: &PodSpec) -> Value {
    let mut json = json!({
        "priority": spec.priority,
        "terminationGracePeriodSeconds": spec.grace,
        "tolerations": spec.tolerations.iter().map(write_toleration).collect::<Value>(),
    });
    if let Some(binding) = &spec.binding {
        json["nodeName"] = (*binding.node).into();
    }
    if !spec.node_selector.is_empty() {
        json["nodeSelector"] = meta::pairs_to_json(&spec.node_selector);
    }
    if spec.host_network {
        json["hostNetwork"] = true.into();
    }
    json
}

pub(super) fn write_toleration(toleration: &Toleration) -> Value {
    let mut json = Map::new();
    if !toleration.key.is_empty() {
        json.insert("key".into(), (*toleration.key).into());
    }
    json.insert("operator".into(), toleration.operator.as_str().into());
    if !toleration.value.is_empty() {
        json.insert("value".into(), (*toleration.value).into());
    }
    if let Some(effect) = toleration.effect {
        json.insert("effect".into(), effect.as_str().into());
    }
    if let Some(seconds) = toleration.seconds {
        json.insert("tolerationSeconds".into(), seconds.into());
    }
    Value::Object(json)
}

fn write_status(status: &PodStatus) -> Value {
    let mut json = json!({ "phase": status.phase.as_str() });
    if !status.conditions.is_empty() {
        json["conditions"] = status.conditions.iter().map(write_condition).collect();
    }
    for (name, text) in [("reason", &status.reason), ("message", &status.message)] {
        if !text.is_empty() {
            json[name] = (**text).into();
        }
    }
    if let Some(started) = status.started {
        json["startTime"] = moment::write(started);
    }
    json
}

fn write_condition(condition: &Condition) -> Value {
    let mut json = json!({
        "type": &*condition.kind,
        "status": condition.status.as_str(),
        "lastProbeTime": null,
        "lastTransitionTime": moment::write_optional(condition.last_transition),
    });
    for (name, text) in [("reason", &condition.reason), ("message", &condition.message)] {
        if !text.is_empty() {
            json[name] = (**text).into();
        }
    }
    json
}

/// A node reports on a pod as a whole: its containers are ready when it is.
fn container_statuses(json: &Value, pod: &Pod) -> Value {
    let containers = json["spec"]["containers"].as_array().into_iter().flatten();
    let write = |(index, container): (usize, &Value)| {
        json!({
            "name": container["name"],
            "image": container.get("image").cloned().unwrap_or_default(),
            "ready": pod.is_ready(),
            "restartCount": if index == 0 { pod.status.restarts } else { 0 },
        })
    };
    containers.enumerate().map(write).collect()
}
