//! Rules for address ranges: those of the cluster, and those of a node.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::text::Text;
use crate::value::time::Period;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(AddressViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`AddressViolation`], without their parameters.")]
pub enum AddressViolation {
    #[error("is not set, so the ranges that are given have no effect")]
    Unallocated,
    #[error("{text:?} is not a CIDR such as 10.244.0.0/16 or fd00:10::/48")]
    NotCidr { text: Text },
    #[error("is required to allocate node CIDRs: one range, or one per address family")]
    NoRange,
    #[error("\"{range}\" has the family of the first: give one IPv4 and one IPv6 range")]
    SameFamilyRange { range: IpNet },
    #[error("{count} ranges are too many: one per address family")]
    TooManyRanges { count: u64 },
    #[error("is for one range only: use the flag of each family for two")]
    MaskForOneRange,
    #[error("excludes the flags per family: use one or the other")]
    MaskExcludesOthers,
    #[error("is given, but cluster-cidr has no IPv4 range")]
    NoIpv4Range,
    #[error("is given, but cluster-cidr has no IPv6 range")]
    NoIpv6Range,
    #[error("0 would be every address there is")]
    MaskZero,
    #[error("{mask} is more than the {bits} bits of an address")]
    MaskTooLong { mask: u8, bits: u8 },
    #[error("{mask}: cluster CIDR {range} is smaller than one node's block, a /{mask}")]
    RangeTooSmall { mask: u8, range: IpNet },
    #[error("{mask}: {range} would have too many blocks: at most /{most}")]
    TooManyBlocks { mask: u8, range: IpNet, most: u8 },
    #[error("\"{reserved}\" leaves nothing of cluster CIDR {range} for nodes")]
    NothingLeft { reserved: IpNet, range: IpNet },
    #[error("\"{cidr}\" has the address family of the first: two must be one IPv4 and one IPv6")]
    SameFamily { cidr: IpNet },
    #[error("{count} are too many: at most one per address family")]
    TooMany { count: u64 },
    #[error("\"{cidr}\" overlaps what node {node:?} has")]
    HeldByNode { cidr: IpNet, node: Text },
    #[error("\"{cidr}\" overlaps the service range {range}")]
    Reserved { cidr: IpNet, range: IpNet },
    #[error("\"{cidr}\" was freed a moment ago and rests for another {left}: the node that had it may still use it")]
    Resting { cidr: IpNet, left: Period },
    #[error("is {} and cannot be changed or cleared once set", listed(cidrs))]
    Fixed { cidrs: Box<[IpNet]> },
}

fn listed(cidrs: &[IpNet]) -> String {
    cidrs.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ")
}

impl AddressViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
