//! ReplicaSets, StatefulSets and DaemonSets as Kubernetes JSON.

use muster_lifecycle::command::Precondition;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::pod::PodTemplate;
use muster_lifecycle::pod_index::Staff;
use muster_lifecycle::workload::{API_VERSION, Workload, WorkloadDraft, WorkloadKey};
use serde_json::{Map, Value, json};

use super::fields::{Fields, Read};
use super::{expect, meta, pod, unmodelled};
use crate::field::FieldError;

/// The workload that a manifest asks for, and the workload that it was written for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadManifest {
    pub draft: WorkloadDraft,
    pub precondition: Precondition,
}

struct Spec {
    replicas: Option<i64>,
    selector: Pairs,
    template: Template,
    rest: Map<String, Value>,
}

struct Template {
    labels: Pairs,
    annotations: Pairs,
    spec: PodTemplate,
    rest: Map<String, Value>,
}

// === reading ===

pub(super) fn read(kind: WorkloadKind, mut fields: Fields<'_>) -> Read<WorkloadManifest> {
    expect(&mut fields, "apiVersion", API_VERSION)?;
    expect(&mut fields, "kind", kind.as_str())?;
    let meta = fields.object("metadata", meta::read_namespaced)?;
    let (namespace, meta) = meta.ok_or_else(|| FieldError::new("metadata.name", "is required"))?;
    let spec = fields.object_apart("spec", spec)?.ok_or_else(|| FieldError::new("spec", "is required"))?;
    fields.ignore(&["status"]);
    let Spec { replicas, selector, template, rest } = spec;
    let draft = WorkloadDraft {
        key: WorkloadKey { kind, namespace, name: meta.name },
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owners: meta.owners,
        replicas,
        selector,
        pod_labels: template.labels,
        pod_annotations: template.annotations,
        template: template.spec,
        unmodelled: pod::kept(fields.leftovers(), rest),
    };
    Ok(WorkloadManifest { draft, precondition: meta.precondition })
}

fn spec(mut fields: Fields<'_>) -> Read<Spec> {
    let replicas = fields.integer("replicas")?;
    let selector = fields.object("selector", selector)?.unwrap_or_default();
    let template = fields.object_apart("template", template)?;
    let template = template.ok_or_else(|| fields.error("template", "is required"))?;
    let mut rest = fields.leftovers();
    if !template.rest.is_empty() {
        rest.insert("template".to_owned(), Value::Object(template.rest.clone()));
    }
    Ok(Spec { replicas, selector, template, rest })
}

fn selector(fields: &mut Fields<'_>) -> Read<Pairs> {
    if fields.peek("matchExpressions").is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty())) {
        return Err(fields.error("matchExpressions", "is not supported here: use matchLabels"));
    }
    fields.ignore(&["matchExpressions"]);
    Ok(meta::pairs(fields, "matchLabels")?.unwrap_or_default())
}

fn template(mut fields: Fields<'_>) -> Read<Template> {
    let read_labels = |fields: &mut Fields<'_>| {
        fields.ignore(&["creationTimestamp"]);
        Ok((meta::pairs(fields, "labels")?, meta::pairs(fields, "annotations")?))
    };
    let (labels, annotations) = fields.object("metadata", read_labels)?.unwrap_or_default();
    let spec = fields.object_apart("spec", pod::spec)?.ok_or_else(|| fields.error("spec", "is required"))?;
    if spec.node.is_some() {
        return Err(fields.error("spec.nodeName", "must not be set in a template: use nodeSelector"));
    }
    let mut template = spec.template;
    template.unmodelled = pod::kept(Map::new(), spec.rest);
    Ok(Template {
        labels: labels.unwrap_or_default(),
        annotations: annotations.unwrap_or_default(),
        spec: template,
        rest: fields.leftovers(),
    })
}

// === writing ===

/// Prints a workload as Kubernetes does. `staff` are its pods; `desired` is the number of nodes on which a DaemonSet
/// wants one.
pub fn workload_to_json(workload: &Workload, staff: Option<&Staff>, desired: usize) -> Value {
    let spec = &workload.spec;
    let mut json = json!({
        "apiVersion": API_VERSION,
        "kind": workload.kind.as_str(),
        "metadata": meta::write(&workload.meta),
        "spec": {
            "selector": { "matchLabels": meta::pairs_to_json(&spec.selector) },
            "template": write_template(workload),
        },
        "status": write_status(workload, staff, desired),
    });
    if workload.kind != WorkloadKind::DaemonSet {
        json["spec"]["replicas"] = spec.replicas.into();
    }
    if let Some(unmodelled) = &workload.unmodelled {
        unmodelled::restore(&mut json, unmodelled);
    }
    json
}

fn write_template(workload: &Workload) -> Value {
    let (spec, template) = (&workload.spec, &workload.spec.template);
    let mut metadata = Map::new();
    for (name, pairs) in [("labels", &spec.labels), ("annotations", &spec.annotations)] {
        if !pairs.is_empty() {
            metadata.insert(name.to_owned(), meta::pairs_to_json(pairs));
        }
    }
    let mut json = json!({ "metadata": metadata, "spec": {} });
    if let Some(tolerations) = &template.tolerations {
        json["spec"]["tolerations"] = tolerations.iter().map(pod::write_toleration).collect();
    }
    if let Some(priority) = template.priority {
        json["spec"]["priority"] = priority.into();
    }
    if let Some(grace) = template.grace {
        json["spec"]["terminationGracePeriodSeconds"] = grace.into();
    }
    if let Some(selector) = &template.node_selector {
        json["spec"]["nodeSelector"] = meta::pairs_to_json(selector);
    }
    if template.host_network {
        json["spec"]["hostNetwork"] = true.into();
    }
    if let Some(unmodelled) = &template.unmodelled {
        unmodelled::restore(&mut json, unmodelled);
    }
    json
}

fn write_status(workload: &Workload, staff: Option<&Staff>, desired: usize) -> Value {
    let (active, ready) = staff.map_or((0, 0), |staff| (staff.active(), staff.ready()));
    match workload.kind {
        WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
            json!({ "replicas": active, "readyReplicas": ready, "observedGeneration": workload.meta.generation })
        }
        WorkloadKind::DaemonSet => json!({
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": active,
            "numberReady": ready,
            "observedGeneration": workload.meta.generation,
        }),
    }
}
