//! Flags for node CIDRs, under upstream's names, for every command that starts replicas.
//!
//! A cluster that has no ranges gets these. Addresses that have been given out cannot be moved, so from then
//! on the ranges stay as they are.

use muster_controller::config::{ALLOCATE_NODE_CIDRS, AddressLayer};
use muster_lifecycle::addressing::{
    CLUSTER_CIDR, NODE_CIDR_MASK_SIZE, NODE_CIDR_MASK_SIZE_IPV4, NODE_CIDR_MASK_SIZE_IPV6, NODE_CIDR_QUARANTINE,
    SERVICE_CLUSTER_IP_RANGE,
};

#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Node CIDRs")]
pub struct AddressArgs {
    /// Give every node a block of addresses for its pods; needs --cluster-cidr
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allocate_node_cidrs: Option<bool>,
    /// The range that the blocks are cut from, or one per address family
    #[arg(long, value_name = "CIDR[,CIDR]")]
    pub cluster_cidr: Option<String>,
    /// How long the prefix of a node's block is, where there is one range [upstream: 24 for IPv4, 64 for IPv6]
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size: Option<u8>,
    /// The same for the IPv4 range of two
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv4: Option<u8>,
    /// The same for the IPv6 range of two
    #[arg(long, value_name = "BITS")]
    pub node_cidr_mask_size_ipv6: Option<u8>,
    /// Ranges of services, which no node's block may touch
    #[arg(long, value_name = "CIDR[,CIDR]")]
    pub service_cluster_ip_range: Option<String>,
    /// How long the block of a node that was deleted rests before another one gets it [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub node_cidr_quarantine: Option<String>,
}

// === impl AddressArgs ===

impl AddressArgs {
    /// The given flags, as the layer above a configuration file's `[addressing]`.
    pub fn layer(&self) -> AddressLayer {
        AddressLayer {
            allocate_node_cidrs: self.allocate_node_cidrs,
            cluster_cidr: self.cluster_cidr.clone(),
            node_cidr_mask_size: self.node_cidr_mask_size,
            node_cidr_mask_size_ipv4: self.node_cidr_mask_size_ipv4,
            node_cidr_mask_size_ipv6: self.node_cidr_mask_size_ipv6,
            service_cluster_ip_range: self.service_cluster_ip_range.clone(),
            node_cidr_quarantine: self.node_cidr_quarantine.clone(),
        }
    }

    /// The given flags, as they have to be written to be given again.
    pub fn flags(&self) -> Vec<String> {
        let number = |size: Option<u8>| size.map(|size| size.to_string());
        let given = [
            (ALLOCATE_NODE_CIDRS, self.allocate_node_cidrs.map(|allocate| allocate.to_string())),
            (CLUSTER_CIDR, self.cluster_cidr.clone()),
            (NODE_CIDR_MASK_SIZE, number(self.node_cidr_mask_size)),
            (NODE_CIDR_MASK_SIZE_IPV4, number(self.node_cidr_mask_size_ipv4)),
            (NODE_CIDR_MASK_SIZE_IPV6, number(self.node_cidr_mask_size_ipv6)),
            (SERVICE_CLUSTER_IP_RANGE, self.service_cluster_ip_range.clone()),
            (NODE_CIDR_QUARANTINE, self.node_cidr_quarantine.clone()),
        ];
        given.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        addressing: AddressArgs,
    }

    fn parse(line: &str) -> AddressArgs {
        let words = std::iter::once("muster").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().addressing
    }

    const ALL: &str = "--allocate-node-cidrs --cluster-cidr 10.0.0.0/16,fd00::/56 --node-cidr-mask-size-ipv4 25 \
        --node-cidr-mask-size-ipv6 66 --service-cluster-ip-range 10.0.255.0/24 --node-cidr-quarantine 1m";

    #[test]
    fn every_flag_reaches_the_plan() {
        let plan = parse(ALL).layer().resolve().unwrap().unwrap();
        let settings: Vec<String> =
            plan.settings().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            settings,
            [
                "cluster-cidr=10.0.0.0/16,fd00::/56",
                "node-cidr-mask-size-ipv4=25",
                "node-cidr-mask-size-ipv6=66",
                "service-cluster-ip-range=10.0.255.0/24",
                "node-cidr-quarantine=1m",
            ]
        );
        assert!(parse("").layer().is_empty());
        assert_eq!(parse("--allocate-node-cidrs=false").layer().allocate_node_cidrs, Some(false));
    }

    #[test]
    fn flags_read_back_as_given() {
        for line in [ALL, "", "--allocate-node-cidrs --cluster-cidr 10.0.0.0/16 --node-cidr-mask-size 28"] {
            let given = parse(line);
            assert_eq!(parse(&given.flags().join(" ")), given, "{line}");
        }
    }

    #[test]
    fn wrong_combinations_are_refused_before_anything_starts() {
        for (line, part) in [
            ("--cluster-cidr 10.0.0.0/16", "allocate-node-cidrs: is not set"),
            ("--allocate-node-cidrs", "cluster-cidr: is required"),
            ("--allocate-node-cidrs --cluster-cidr 10.0.0.0/28", "node-cidr-mask-size-ipv4: 24: cluster CIDR"),
            ("--allocate-node-cidrs --cluster-cidr ten", "cluster-cidr: \"ten\" is not a CIDR"),
        ] {
            let error = parse(line).layer().resolve().unwrap_err().to_string();
            assert!(error.starts_with(part), "{line}: {error}");
        }
    }
}
