//! Restriction of nodes (NR-1 to NR-5): an agent may touch its own Node, its status, and the pods bound to it.
//!
//! Each rule is decided here, by the origin, when the command is applied: no service can forget it. A refusal names
//! the key and the rule, and nothing of the command is done.

use crate::object::node::{Node, NodeDraft};
use crate::object::pod::{Pod, PodKey, PodReport};
use crate::object::zone::EXCLUDE_DISRUPTION_LABEL;
use crate::rejection::Rejection;
use crate::value::invalid::Invalid;
use crate::value::meta::Pairs;
use crate::value::text::Text;
use crate::value::violation::AccessViolation;

/// The labels by which an agent describes its machine.
pub(crate) const MACHINE_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
];

/// NR-4: of the labels in Kubernetes' own domains an agent may set those of its machine, and those in these.
const OPEN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
const KUBERNETES_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// A key of compact JSON: within a string its quotes would be escaped.
const CONFIG_SOURCE_KEY: &str = "\"configSource\":";

const NAMES_MAX: usize = 320;

type Permitted = Result<(), Rejection>;

/// NR-1: the agent of `own` may not speak for `other`.
pub(crate) fn of_another(other: &str, own: &str) -> Rejection {
    let (other, own) = (Text::clipped(other, NAMES_MAX), Text::clipped(own, NAMES_MAX));
    forbidden("metadata.name", AccessViolation::OtherNode { other, own })
}

/// NR-2 to NR-4: what an agent may say of the node it brings. `known` is the Node if it exists; labels that it
/// already has are no change.
pub(crate) fn registration(draft: &NodeDraft, known: Option<&Node>) -> Permitted {
    let says = |list: Option<usize>| list.is_some_and(|length| length > 0);
    if says(draft.owners.as_ref().map(|owners| owners.len())) {
        return Err(forbidden("metadata.ownerReferences", AccessViolation::NotOfAgents));
    }
    if says(draft.finalizers.as_ref().map(|finalizers| finalizers.len())) {
        return Err(forbidden("metadata.finalizers", AccessViolation::NotOfAgents));
    }
    if says(draft.pod_cidrs.as_ref().map(|cidrs| cidrs.len())) {
        return Err(forbidden("spec.podCIDRs", AccessViolation::NotOfAgents));
    }
    if draft.unmodelled.as_ref().is_some_and(|unmodelled| unmodelled.contains(CONFIG_SOURCE_KEY)) {
        return Err(forbidden("spec.configSource", AccessViolation::ConfigSource));
    }
    let has = |key: &str, value: &Text| known.is_some_and(|known| known.meta.labels.get(key) == Some(value));
    let mut labels = draft.labels.iter().flat_map(Pairs::iter);
    match labels.find(|(key, value)| !is_open_label(key) && !has(key, value)) {
        Some((key, _)) => {
            let field = format!("metadata.labels[{}]", Text::clipped(key, 253));
            Err(forbidden(&field, AccessViolation::LabelNotOfAgents))
        }
        None => Ok(()),
    }
}

/// NR-5: a report is about pods that are bound to the node. A report about pods that are gone, or were bound to a
/// former life of the node, is merely late.
pub(crate) fn pods<'a>(node: &Node, reports: &[PodReport], known: impl Fn(&PodKey) -> Option<&'a Pod>) -> Permitted {
    let is_foreign = |report: &PodReport, pod: &Pod| pod.meta.uid == report.uid && pod.node() != Some(&node.meta.name);
    let foreign = |report: &&PodReport| known(&report.key).is_some_and(|pod| is_foreign(report, pod));
    match reports.iter().find(foreign) {
        Some(report) => {
            let key = format!("pods[{}]", Text::clipped(&report.key.to_string(), NAMES_MAX));
            Err(forbidden(&key, AccessViolation::OtherNodesPod { node: node.meta.name.clone() }))
        }
        None => Ok(()),
    }
}

/// NR-4: whether an agent may set this label. A node that could exclude itself from its zone's count could switch off
/// the slower eviction rate for its neighbours.
pub fn is_open_label(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_under =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let ours = KUBERNETES_DOMAINS.into_iter().any(is_under);
    let open = MACHINE_LABELS.contains(&label) || OPEN_DOMAINS.into_iter().any(is_under);
    label != EXCLUDE_DISRUPTION_LABEL && (!ours || open)
}

fn forbidden(key: &str, rule: AccessViolation) -> Rejection {
    Rejection::Forbidden(Invalid::new(key, rule))
}
