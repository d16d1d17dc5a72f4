//! Pod address ranges of nodes, among an operator's settings: `[addressing]` in the file, flags of the same names.

use ipnet::IpNet;
use muster_lifecycle::addressing::{
    AddressRequest, Addressing, CLUSTER_CIDR, NODE_CIDR_QUARANTINE, SERVICE_CLUSTER_IP_RANGE,
};
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::time::PeriodError;
use muster_lifecycle::violation::{AddressViolation, SettingViolation};
use serde::{Deserialize, Serialize};

pub const ALLOCATE_NODE_CIDRS: &str = "allocate-node-cidrs";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct AddressLayer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocate_node_cidrs: Option<bool>,
    /// One range, or one per family, with a comma between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_cidr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_cidr_mask_size: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_cluster_ip_range: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_cidr_quarantine: Option<String>,
}

// === impl AddressLayer ===

impl AddressLayer {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This layer; `below` supplies every setting that this layer does not name.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            allocate_node_cidrs: self.allocate_node_cidrs.or(below.allocate_node_cidrs),
            cluster_cidr: self.cluster_cidr.or(below.cluster_cidr),
            node_cidr_mask_size: self.node_cidr_mask_size.or(below.node_cidr_mask_size),
            node_cidr_mask_size_ipv4: self.node_cidr_mask_size_ipv4.or(below.node_cidr_mask_size_ipv4),
            node_cidr_mask_size_ipv6: self.node_cidr_mask_size_ipv6.or(below.node_cidr_mask_size_ipv6),
            service_cluster_ip_range: self.service_cluster_ip_range.or(below.service_cluster_ip_range),
            node_cidr_quarantine: self.node_cidr_quarantine.or(below.node_cidr_quarantine),
        }
    }

    /// The addressing plan, or `None` if this controller gives nodes no addresses.
    pub fn resolve(&self) -> Result<Option<Addressing>, Invalid> {
        let is_wanted = self.allocate_node_cidrs.unwrap_or(false);
        let others = Self { allocate_node_cidrs: None, ..self.clone() };
        match (is_wanted, others.is_empty()) {
            (true, _) => self.request()?.plan().map(Some),
            (false, true) => Ok(None),
            (false, false) => Err(Invalid::new(ALLOCATE_NODE_CIDRS, AddressViolation::Unallocated)),
        }
    }

    fn request(&self) -> Result<AddressRequest, Invalid> {
        let quarantine = self.node_cidr_quarantine.as_deref().map(str::parse).transpose();
        Ok(AddressRequest {
            cluster_cidrs: ranges(self.cluster_cidr.as_deref(), CLUSTER_CIDR)?,
            mask_size: self.node_cidr_mask_size,
            mask_size_ipv4: self.node_cidr_mask_size_ipv4,
            mask_size_ipv6: self.node_cidr_mask_size_ipv6,
            service_ranges: ranges(self.service_cluster_ip_range.as_deref(), SERVICE_CLUSTER_IP_RANGE)?,
            quarantine: quarantine
                .map_err(|error: PeriodError| Invalid::new(NODE_CIDR_QUARANTINE, SettingViolation::from(error)))?,
        })
    }
}

fn ranges(text: Option<&str>, field: &str) -> Result<Vec<IpNet>, Invalid> {
    let parse = |part: &str| {
        let wrong = |_| Invalid::new(field, AddressViolation::NotCidr { text: part.into() });
        part.parse().map_err(wrong)
    };
    text.into_iter().flat_map(|text| text.split(',')).map(str::trim).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_without_allocate_node_cidrs_are_refused() {
        let layer = AddressLayer { cluster_cidr: Some("10.0.0.0/16".into()), ..AddressLayer::default() };
        assert!(layer.resolve().unwrap_err().to_string().starts_with("allocate-node-cidrs: is not set"));
        assert_eq!(AddressLayer::default().resolve(), Ok(None));
    }

    #[test]
    fn two_families_are_written_with_a_comma() {
        let layer = AddressLayer {
            allocate_node_cidrs: Some(true),
            cluster_cidr: Some("10.0.0.0/16, fd00::/56".into()),
            service_cluster_ip_range: Some("10.0.255.0/24".into()),
            ..AddressLayer::default()
        };
        let plan = layer.resolve().unwrap().unwrap();
        assert_eq!(plan.pools.len(), 2);
        let wrong = AddressLayer { cluster_cidr: Some("10.0.0.0/33".into()), ..layer };
        let error = wrong.resolve().unwrap_err().to_string();
        assert_eq!(error, "cluster-cidr: \"10.0.0.0/33\" is not a CIDR such as 10.244.0.0/16 or fd00:10::/48");
    }
}
