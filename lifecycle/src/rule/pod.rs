//! Rules for pods and workloads: what they may look like, and how they may change.
//!
//! As with nodes, the rules are checked on the object as it would be stored, so that no path into the state can go
//! around them.

use crate::object::kind::WorkloadKind;
use crate::object::pod::{GRACE_DEFAULT, GRACE_MAX, Pod, PodDraft, PodSpec, PodTemplate};
use crate::object::record::{RECORD_BYTES_MAX, encode};
use crate::object::toleration::{self, TOLERATIONS_MAX, Toleration};
use crate::object::workload::{REPLICAS_MAX, Workload, WorkloadDraft};
use crate::rejection::{Limit, Rejection};
use crate::rule;
use crate::value::invalid::Invalid;
use crate::value::meta::ObjectMeta;
use crate::value::name;
use crate::value::text::Text;
use crate::value::violation::{PodViolation, ValueViolation};

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
        let wrong = ValueViolation::NotBetween { given, least: 0, most: i64::from(REPLICAS_MAX) };
        replicas.ok_or_else(|| Invalid::new("spec.replicas", wrong))
    }

    fn check_selector(&self) -> Checked {
        if self.selector.is_empty() {
            return Err(Invalid::new("spec.selector.matchLabels", PodViolation::NoSelector));
        }
        match self.selector.iter().find(|(key, value)| self.pod_labels.get(key) != Some(value)) {
            None => Ok(()),
            Some((key, value)) => {
                let (key, value) = (key.clone(), value.clone());
                Err(Invalid::new("spec.template.metadata.labels", PodViolation::LabelNotSelected { key, value }))
            }
        }
    }
}

impl PodTemplate {
    fn check(&self, path: &str) -> Checked {
        if !self.has_containers {
            return Err(Invalid::new(format!("{path}.containers"), PodViolation::NoContainers));
        }
        let tolerations = self.tolerations.as_deref().unwrap_or_default();
        check_tolerations(tolerations, TOLERATIONS_GIVEN_MAX, &format!("{path}.tolerations"))?;
        let selector = self.node_selector.as_ref().map_or(Ok(()), name::labels);
        selector.map_err(|rule| Invalid::new(format!("{path}.nodeSelector"), rule))?;
        if let Some(priority) = self.priority.filter(|priority| priority.abs() > PRIORITY_MAX) {
            let wrong = ValueViolation::NotBetween { given: priority, least: -PRIORITY_MAX, most: PRIORITY_MAX };
            return Err(Invalid::new(format!("{path}.priority"), wrong));
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
        let (count, most) = (tolerations.len() as u64, most as u64);
        return Err(Invalid::new(path, ValueViolation::TooMany { count, most }));
    }
    tolerations.iter().enumerate().try_for_each(|(index, toleration)| toleration.check(&format!("{path}[{index}]")))
}

/// Checks a grace in seconds as a manifest or a command gives it.
pub fn grace(given: Option<i64>, field: &str) -> Checked {
    match given {
        Some(seconds) if seconds < 0 => Err(Invalid::new(field, PodViolation::GraceNegative { seconds })),
        Some(seconds) if seconds > GRACE_MAX => {
            Err(Invalid::new(field, PodViolation::GraceTooLong { seconds, most: GRACE_MAX }))
        }
        Some(_) | None => Ok(()),
    }
}

/// No finalizers: no controller would ever remove one.
fn no_finalizers(finalizers: Option<&[Text]>) -> Checked {
    match finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
        true => Err(Invalid::new("metadata.finalizers", PodViolation::Finalizers)),
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
    immutable(&fields, PodViolation::PodFixed)
}

/// The fields by which a workload knows its pods cannot change.
pub fn workload_update(before: &Workload, after: &Workload) -> Checked {
    let fields = [("spec.selector", before.spec.selector == after.spec.selector)];
    immutable(&fields, PodViolation::SelectorFixed)
}

fn immutable(fields: &[(&str, bool)], rule: PodViolation) -> Checked {
    match fields.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((field, _)) => Err(Invalid::new(*field, rule)),
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
    let (bytes, most) = (encode(pod).len(), RECORD_BYTES_MAX - LIFECYCLE_RESERVE);
    weight(bytes, most, || Limit::PodBytes { name: pod.meta.name.clone(), bytes: bytes as u64 })
}

/// Whether a pod made of the template would have room, too.
pub(crate) fn workload_weight(workload: &Workload) -> Result<(), Rejection> {
    let (bytes, most) = (encode(workload).len(), RECORD_BYTES_MAX - 2 * LIFECYCLE_RESERVE);
    weight(bytes, most, || Limit::WorkloadBytes { name: workload.meta.name.clone(), bytes: bytes as u64 })
}

fn weight(bytes: usize, most: usize, what: impl FnOnce() -> Limit) -> Result<(), Rejection> {
    if bytes <= most { Ok(()) } else { Err(Rejection::limit(what(), most)) }
}
