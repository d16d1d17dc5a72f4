//! Rules for Nodes: what they may look like (NV-1 to NV-5) and how they may change (NV-7, NV-8).
//!
//! The rules are checked on the Node as it would be stored, so that no path into the state can go around them.

use std::collections::BTreeSet;

use ipnet::IpNet;

use crate::command::Origin;
use crate::object::node::{Address, Condition, Node, NodeDraft, NodeSpec, NodeStatus, Resources};
use crate::object::record::{RECORD_BYTES_MAX, encoded_len, part_len};
use crate::object::taint::Taint;
use crate::rejection::{Limit, NodePart, Rejection};
use crate::value::invalid::Invalid;
use crate::value::meta::{ObjectMeta, OwnerReference};
use crate::value::name;
use crate::value::quantity::Quantity;
use crate::value::text::Text;
use crate::value::violation::{AddressViolation, NodeViolation, ValueViolation};

type Checked = Result<(), Invalid>;

impl NodeDraft {
    /// Whether a Node made of this draft alone would be valid.
    pub fn check(&self) -> Checked {
        node(&self.to_node())
    }
}

/// NV-1 to NV-5.
pub fn node(node: &Node) -> Checked {
    metadata(&node.meta)?;
    spec(&node.spec)?;
    status(&node.status)
}

/// NV-7, and the changes that are forbidden for a Node that is being deleted. NV-8 is [`addresses_once`].
pub fn update(before: &Node, after: &Node) -> Checked {
    if !before.spec.pod_cidrs.is_empty() && before.spec.pod_cidrs != after.spec.pod_cidrs {
        let cidrs = before.spec.pod_cidrs.clone();
        return Err(Invalid::new("spec.podCIDRs", AddressViolation::Fixed { cidrs }));
    }
    let known = before.spec.provider_id.as_deref().unwrap_or_default();
    if !known.is_empty() && before.spec.provider_id != after.spec.provider_id {
        let known = Text::clipped(known, 128);
        return Err(Invalid::new("spec.providerID", NodeViolation::ProviderIdFixed { known }));
    }
    let late = after.meta.finalizers.iter().find(|finalizer| !before.meta.finalizers.contains(finalizer));
    match late {
        Some(finalizer) if before.meta.deleted.is_some() => {
            let finalizer = finalizer.clone();
            Err(Invalid::new("metadata.finalizers", NodeViolation::LateFinalizer { finalizer }))
        }
        Some(_) | None => Ok(()),
    }
}

/// NV-8, for status updates.
pub fn addresses_once(addresses: &[Address]) -> Checked {
    let mut seen = BTreeSet::new();
    for (index, address) in addresses.iter().enumerate() {
        if !seen.insert((&address.kind, &address.address)) {
            let (kind, address) = (address.kind.clone(), Text::clipped(&address.address, 128));
            let repeated = NodeViolation::AddressRepeated { kind, address };
            return Err(Invalid::new(format!("status.addresses[{index}]"), repeated));
        }
    }
    Ok(())
}

/// What the lifecycle adds to a Node by itself (conditions, taints, mirrored labels) stays well below this.
const LIFECYCLE_RESERVE: usize = 2048;

/// The weight limit of a Node for every writer but the controller. A node that had no room left for the mark of its
/// own silence could never be evicted, and neither could the nodes that wait behind it.
pub const NODE_BYTES_MAX: usize = RECORD_BYTES_MAX - LIFECYCLE_RESERVE;

/// Whether a Node that the origin makes of `before` is light enough. A Node that is too heavy already may change as
/// long as it does not get heavier.
pub(crate) fn weight(origin: &Origin, before: Option<&Node>, after: &Node) -> Result<(), Rejection> {
    let limit = match origin {
        Origin::Controller { .. } => RECORD_BYTES_MAX,
        Origin::Operator { .. } | Origin::Replica { .. } | Origin::Node { .. } => NODE_BYTES_MAX,
    };
    size(after, limit).or_else(|refusal| match before {
        Some(before) if encoded_len(after) <= encoded_len(before) => Ok(()),
        Some(_) | None => Err(refusal),
    })
}

/// Whether the Node has at most this many bytes; a refusal names its heaviest part.
pub(crate) fn size(node: &Node, limit: usize) -> Result<(), Rejection> {
    let bytes = encoded_len(node);
    if bytes <= limit {
        return Ok(());
    }
    let parts = [
        (NodePart::Labels, part_len(&node.meta.labels)),
        (NodePart::Annotations, part_len(&node.meta.annotations)),
        (NodePart::Owners, part_len(&node.meta.owners)),
        (NodePart::Finalizers, part_len(&node.meta.finalizers)),
        (NodePart::Spec, part_len(&node.spec)),
        (NodePart::Status, part_len(&node.status)),
        (NodePart::Unmodelled, part_len(&node.unmodelled)),
    ];
    let heaviest = parts.into_iter().max_by_key(|(_, bytes)| *bytes).map_or(NodePart::Unmodelled, |(part, _)| part);
    let what = Limit::NodeBytes { name: node.meta.name.clone(), bytes: bytes as u64, heaviest };
    Err(Rejection::limit(what, limit))
}

// === metadata ===

pub(crate) fn metadata(meta: &ObjectMeta) -> Checked {
    name::dns_subdomain(&meta.name).map_err(|rule| Invalid::new("metadata.name", rule))?;
    name::labels(&meta.labels).map_err(|rule| Invalid::new("metadata.labels", rule))?;
    name::annotations(&meta.annotations).map_err(|rule| Invalid::new("metadata.annotations", rule))?;
    for (index, finalizer) in meta.finalizers.iter().enumerate() {
        let field = || format!("metadata.finalizers[{index}]");
        name::qualified_name(finalizer).map_err(|rule| Invalid::new(field(), rule))?;
    }
    owners(&meta.owners)
}

fn owners(owners: &[OwnerReference]) -> Checked {
    for (index, owner) in owners.iter().enumerate() {
        let path = format!("metadata.ownerReferences[{index}]");
        let texts = [("apiVersion", &owner.api_version), ("kind", &owner.kind), ("name", &owner.name)];
        for (field, text) in texts {
            filled(|| format!("{path}.{field}"), text)?;
        }
        if owner.controller && owners[..index].iter().any(|earlier| earlier.controller) {
            return Err(Invalid::new(format!("{path}.controller"), NodeViolation::SecondController));
        }
    }
    Ok(())
}

// === spec ===

fn spec(spec: &NodeSpec) -> Checked {
    pod_cidrs(&spec.pod_cidrs)?;
    taints(&spec.taints)
}

fn taints(taints: &[Taint]) -> Checked {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("spec.taints[{index}]");
        taint.check(&path)?;
        if !seen.insert((&taint.key, taint.effect)) {
            let taint = Text::from(format!("{}:{}", taint.key, taint.effect));
            return Err(Invalid::new(path, NodeViolation::TaintRepeated { taint }));
        }
    }
    Ok(())
}

fn pod_cidrs(cidrs: &[IpNet]) -> Checked {
    let is_v4 = |cidr: &IpNet| matches!(cidr, IpNet::V4(_));
    match cidrs {
        [] | [_] => Ok(()),
        [first, second] if is_v4(first) != is_v4(second) => Ok(()),
        [_, second] => Err(Invalid::new("spec.podCIDRs[1]", AddressViolation::SameFamily { cidr: *second })),
        [_, _, ..] => {
            let count = cidrs.len() as u64;
            Err(Invalid::new("spec.podCIDRs", AddressViolation::TooMany { count }))
        }
    }
}

// === status ===

pub fn status(status: &NodeStatus) -> Checked {
    resources("status.capacity", &status.capacity)?;
    resources("status.allocatable", &status.allocatable)?;
    conditions(&status.conditions)?;
    for (index, address) in status.addresses.iter().enumerate() {
        filled(|| format!("status.addresses[{index}].type"), &address.kind)?;
        filled(|| format!("status.addresses[{index}].address"), &address.address)?;
    }
    match status.info.as_ref().and_then(|info| info.swap_capacity) {
        Some(bytes) if bytes <= 0 => {
            Err(Invalid::new("status.nodeInfo.swap.capacity", NodeViolation::SwapNotPositive { bytes }))
        }
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn resources(path: &str, resources: &Resources) -> Checked {
    for (resource, quantity) in resources.iter() {
        let field = || format!("{path}[{}]", Text::clipped(resource, 128));
        name::qualified_name(resource).map_err(|rule| Invalid::new(field(), rule))?;
        resource_quantity(resource, quantity).map_err(|rule| Invalid::new(field(), rule))?;
    }
    Ok(())
}

fn resource_quantity(resource: &str, given: Quantity) -> Result<(), ValueViolation> {
    if given.is_negative() {
        return Err(ValueViolation::Negative { given });
    }
    if is_counted(resource) && !given.is_integral() {
        return Err(ValueViolation::NotWhole { given });
    }
    Ok(())
}

/// Resources that come in whole units. Memory and storage may be written with fractions of a byte, as upstream.
fn is_counted(resource: &str) -> bool {
    let is_extended = resource.contains('/') && !resource.starts_with("kubernetes.io/");
    resource == "pods"
        || resource.starts_with("hugepages-")
        || resource.starts_with("attachable-volumes-")
        || is_extended
}

fn conditions(conditions: &[Condition]) -> Checked {
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let field = || format!("status.conditions[{index}].type");
        name::qualified_name(&condition.kind).map_err(|rule| Invalid::new(field(), rule))?;
        if !seen.insert(&condition.kind) {
            return Err(Invalid::new(field(), ValueViolation::Repeated { key: condition.kind.clone() }));
        }
    }
    Ok(())
}

// === shared by all parts ===

fn filled(field: impl FnOnce() -> String, text: &str) -> Checked {
    if text.is_empty() { Err(Invalid::new(field(), ValueViolation::Empty)) } else { Ok(()) }
}
