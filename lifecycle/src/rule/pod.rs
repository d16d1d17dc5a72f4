//! Rules for pods and workloads: what they may look like, and how they may change.
//!
//! As with nodes, the rules are checked on the object as it would be stored, so that no path into the state can go
//! around them.

use crate::object::kind::WorkloadKind;
use crate::object::pod::{GRACE_DEFAULT, GRACE_MAX, Pod, PodDraft, PodSpec, PodTemplate};
use crate::object::record::{RECORD_BYTES_MAX, encode};
use crate::object::toleration::{self, TOLERATIONS_MAX, Toleration};
use crate::object::workload::{REPLICAS_MAX, Workload, WorkloadDraft};
use crate::rejection::Rejection;
use crate::rule;
use crate::value::invalid::Invalid;
use crate::value::meta::ObjectMeta;
use crate::value::name;
use crate::value::text::Text;

type Checked = Result<(), Invalid>;

/// What the lifecycle adds to a pod by itself stays well below this.
const LIFECYCLE_RESERVE: usize = 4096;

/// How many tolerations a manifest may have: those of TE-11 and TE-12 come on top.
const TOLERATIONS_GIVEN_MAX: usize = TOLERATIONS_MAX - 8;

/// Kubernetes' bounds for the priority of a pod that is no system component.
const PRIORITY_MAX: i64 = 2_000_001_000;

impl PodDraft {
    /// The checks that do not need the state.
    pub fn check(&self) -> Checked {
        name::dns_label(&self.key.namespace).map_err(|rule| Invalid::new("metadata.namespace", rule))?;
        name::dns_subdomain(&self.key.name).map_err(|rule| Invalid::new("metadata.name", rule))?;
        no_finalizers(self.finalizers.as_deref())?;
        self.template.check("spec")
    }
}

impl WorkloadDraft {
    pub fn check(&self) -> Checked {
        name::dns_label(&self.key.namespace).map_err(|rule| Invalid::new("metadata.namespace", rule))?;
        // Its pods carry its name and a few letters more.
        name::dns_label(&self.key.name).map_err(|rule| Invalid::new("metadata.name", rule))?;
        no_finalizers(self.finalizers.as_deref())?;
        self.replicas().map(drop)?;
        self.check_selector()?;
        name::labels(&self.pod_labels).map_err(|rule| Invalid::new("spec.template.metadata.labels", rule))?;
        let annotations = name::annotations(&self.pod_annotations);
        annotations.map_err(|rule| Invalid::new("spec.template.metadata.annotations", rule))?;
        self.template.check("spec.template.spec")
    }

    pub(crate) fn replicas(&self) -> Result<u32, Invalid> {
        let given = self.replicas.unwrap_or(1);
        let replicas = u32::try_from(given).ok().filter(|replicas| *replicas <= REPLICAS_MAX);
        replicas.ok_or_else(|| Invalid::new("spec.replicas", format!("{given} is not between 0 and {REPLICAS_MAX}")))
    }

    fn check_selector(&self) -> Checked {
        if self.selector.is_empty() {
            return Err(Invalid::new("spec.selector.matchLabels", "is required: labels that its pods have"));
        }
        match self.selector.iter().find(|(key, value)| self.pod_labels.get(key) != Some(value)) {
            None => Ok(()),
            Some((key, value)) => {
                let rule = format!("must have \"{key}={value}\", as spec.selector asks: its pods would not be its own");
                Err(Invalid::new("spec.template.metadata.labels", rule))
            }
        }
    }
}

impl PodTemplate {
    fn check(&self, path: &str) -> Checked {
        if !self.has_containers {
            return Err(Invalid::new(format!("{path}.containers"), "is required: at least one"));
        }
        let tolerations = self.tolerations.as_deref().unwrap_or_default();
        check_tolerations(tolerations, TOLERATIONS_GIVEN_MAX, &format!("{path}.tolerations"))?;
        let selector = self.node_selector.as_ref().map_or(Ok(()), name::labels);
        selector.map_err(|rule| Invalid::new(format!("{path}.nodeSelector"), rule))?;
        if let Some(priority) = self.priority.filter(|priority| priority.abs() > PRIORITY_MAX) {
            let rule = format!("{priority} is not between -{PRIORITY_MAX} and {PRIORITY_MAX}");
            return Err(Invalid::new(format!("{path}.priority"), rule));
        }
        grace(self.grace, &format!("{path}.terminationGracePeriodSeconds"))?;
        rule::node::resources(&format!("{path}.containers.resources.requests"), &self.requests)
    }

    /// The spec of a pod that is not bound yet. The template must have been checked.
    pub(crate) fn to_spec(&self) -> PodSpec {
        PodSpec {
            binding: None,
            tolerations: self.tolerations.clone().unwrap_or_default(),
            priority: i32::try_from(self.priority.unwrap_or(0)).unwrap_or(0),
            grace: u32::try_from(self.grace.unwrap_or(i64::from(GRACE_DEFAULT))).unwrap_or(GRACE_DEFAULT),
            node_selector: self.node_selector.clone().unwrap_or_default(),
            requests: self.requests.clone(),
            host_network: self.host_network,
        }
    }
}

fn check_tolerations(tolerations: &[Toleration], most: usize, path: &str) -> Checked {
    if tolerations.len() > most {
        let rule = format!("{} are too many: at most {most}", tolerations.len());
        return Err(Invalid::new(path, rule));
    }
    tolerations.iter().enumerate().try_for_each(|(index, toleration)| toleration.check(&format!("{path}[{index}]")))
}

/// Checks a grace in seconds as a manifest or a command gives it.
pub fn grace(given: Option<i64>, field: &str) -> Checked {
    match given {
        Some(seconds) if seconds < 0 => {
            Err(Invalid::new(field, format!("{seconds} is negative: write seconds, 0 or more")))
        }
        Some(seconds) if seconds > GRACE_MAX => {
            Err(Invalid::new(field, format!("{seconds} is too long: at most {GRACE_MAX}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// No finalizers: no controller would ever remove one.
fn no_finalizers(finalizers: Option<&[Text]>) -> Checked {
    match finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
        true => Err(Invalid::new("metadata.finalizers", "are not supported on pods and workloads: leave them out")),
        false => Ok(()),
    }
}

/// Checks a pod as it would be stored.
pub fn pod(pod: &Pod) -> Checked {
    metadata(&pod.meta)?;
    check_tolerations(&pod.spec.tolerations, TOLERATIONS_MAX, "spec.tolerations")
}

fn metadata(meta: &ObjectMeta) -> Checked {
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    name::dns_label(namespace).map_err(|rule| Invalid::new("metadata.namespace", rule))?;
    rule::node::metadata(meta)
}

/// Only labels, annotations and, by T-4, tolerations of a pod can change.
pub fn pod_update(before: &Pod, after: &Pod) -> Checked {
    toleration::check_update(&before.spec.tolerations, &after.spec.tolerations, "spec.tolerations")?;
    let (was, is) = (&before.spec, &after.spec);
    let node = |spec: &PodSpec| spec.binding.as_ref().map(|binding| binding.node.clone());
    let fields = [
        ("spec.nodeName", node(was) == node(is)),
        ("spec.priority", was.priority == is.priority),
        ("spec.terminationGracePeriodSeconds", was.grace == is.grace),
        ("spec.nodeSelector", was.node_selector == is.node_selector),
        ("spec.hostNetwork", was.host_network == is.host_network),
        ("spec.containers[*].resources.requests", was.requests == is.requests),
        ("spec", before.unmodelled == after.unmodelled),
        ("metadata.ownerReferences", before.meta.owners == after.meta.owners),
    ];
    immutable(&fields, "of a pod that exists only labels, annotations and tolerations can change")
}

/// The fields by which a workload knows its pods cannot change.
pub fn workload_update(before: &Workload, after: &Workload) -> Checked {
    let fields = [("spec.selector", before.spec.selector == after.spec.selector)];
    immutable(&fields, "it says which pods are its own; make a new one under another name")
}

fn immutable(fields: &[(&str, bool)], why: &str) -> Checked {
    match fields.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((field, _)) => Err(Invalid::new(*field, format!("cannot be changed: {why}"))),
    }
}

pub fn workload(workload: &Workload) -> Checked {
    metadata(&workload.meta)?;
    let longest = workload.ordinal_name(REPLICAS_MAX);
    match workload.kind {
        WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet | WorkloadKind::DaemonSet => {
            name::dns_subdomain(&longest).map_err(|rule| Invalid::new("metadata.name", rule))
        }
    }
}

/// Whether the pod leaves room for what the lifecycle will write into it.
pub(crate) fn pod_weight(pod: &Pod) -> Result<(), Rejection> {
    weight("pod", &pod.meta, encode(pod).len(), RECORD_BYTES_MAX - LIFECYCLE_RESERVE)
}

/// Whether a pod made of the template would have room, too.
pub(crate) fn workload_weight(workload: &Workload) -> Result<(), Rejection> {
    weight("workload", &workload.meta, encode(workload).len(), RECORD_BYTES_MAX - 2 * LIFECYCLE_RESERVE)
}

fn weight(noun: &str, meta: &ObjectMeta, bytes: usize, limit: usize) -> Result<(), Rejection> {
    if bytes <= limit {
        return Ok(());
    }
    let what = format!("bytes of {noun} {:?}: it would have {bytes}", meta.name);
    Err(Rejection::LimitReached { what: Text::from(what), limit: limit as u64 })
}
