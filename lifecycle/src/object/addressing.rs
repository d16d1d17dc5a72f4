//! Addresses of nodes for their pods: the ranges, what is kept out of them, and which blocks rest (IP-1 to IP-11).
//!
//! The plan and the resting blocks are replicated; which node holds which block is read off the nodes. So a block is
//! given out inside `apply`, in one order, and never twice.

mod shortage;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::shortage::{AddressShortage, PoolShortage};
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::cidr::{FreeBlocks, Grid};
use crate::value::invalid::Invalid;
use crate::value::text::Text;
use crate::value::time::ClusterTime;
use crate::value::time::Period;
use crate::value::violation::{AddressViolation, SettingViolation};

/// The request for a plan, in the words of the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressRequest {
    pub cluster_cidrs: Vec<IpNet>,
    pub mask_size: Option<u8>,
    pub mask_size_ipv4: Option<u8>,
    pub mask_size_ipv6: Option<u8>,
    pub service_ranges: Vec<IpNet>,
    pub quarantine: Option<Period>,
}

/// The ranges in force. There is one such record, or none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Addressing {
    /// One per family.
    pub pools: Box<[Pool]>,
    /// Ranges of services: no node gets a block that touches them.
    pub reserved: Box<[IpNet]>,
    /// How long a block rests before another node gets it.
    pub quarantine: Period,
    /// After a restore: a node that got a block since the backup was made may still use it.
    pub held_until: Option<ClusterTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    pub grid: Grid,
    /// IP-3: where to look for the next free block.
    pub cursor: u64,
}

/// A block that a node gave back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resting {
    pub cidr: IpNet,
    pub until: ClusterTime,
    /// The node that had it.
    pub node: Text,
}

pub const CLUSTER_CIDR: &str = "cluster-cidr";
pub const NODE_CIDR_MASK_SIZE: &str = "node-cidr-mask-size";
pub const NODE_CIDR_MASK_SIZE_IPV4: &str = "node-cidr-mask-size-ipv4";
pub const NODE_CIDR_MASK_SIZE_IPV6: &str = "node-cidr-mask-size-ipv6";
pub const SERVICE_CLUSTER_IP_RANGE: &str = "service-cluster-ip-range";
pub const NODE_CIDR_QUARANTINE: &str = "node-cidr-quarantine";

const MASK_IPV4_DEFAULT: u8 = 24;
const MASK_IPV6_DEFAULT: u8 = 64;

/// Much longer than an agent that has lost its fleet takes to learn that its Node is gone.
pub const QUARANTINE_DEFAULT: Period = Period::from_secs(600);
const QUARANTINE_MAX: Period = Period::from_secs(7 * 24 * 3600);

/// IP-2: upstream's bound for IPv6, because a bitmap would not fit otherwise.
const IPV6_BITS_MAX: u8 = 16;

// === impl AddressRequest ===

impl AddressRequest {
    /// IP-1, IP-2: the plan that the flags ask for, or the flag that is wrong.
    pub fn plan(&self) -> Result<Addressing, Invalid> {
        self.check_families()?;
        self.check_masks()?;
        let pools = self.cluster_cidrs.iter().map(|range| self.pool(range)).collect::<Result<_, _>>()?;
        let quarantine = self.quarantine.unwrap_or(QUARANTINE_DEFAULT);
        if quarantine > QUARANTINE_MAX {
            let too_long = SettingViolation::TooLong { period: quarantine, most: QUARANTINE_MAX };
            return Err(Invalid::new(NODE_CIDR_QUARANTINE, too_long));
        }
        let plan = Addressing { pools, reserved: self.service_ranges.clone().into(), quarantine, held_until: None };
        plan.check()?;
        Ok(plan)
    }

    fn check_families(&self) -> Result<(), Invalid> {
        let rule = match self.cluster_cidrs.as_slice() {
            [_] => return Ok(()),
            [first, second] if is_v6(first) != is_v6(second) => return Ok(()),
            [] => AddressViolation::NoRange,
            [_, second] => AddressViolation::SameFamilyRange { range: *second },
            [_, _, ..] => AddressViolation::TooManyRanges { count: self.cluster_cidrs.len() as u64 },
        };
        Err(Invalid::new(CLUSTER_CIDR, rule))
    }

    fn check_masks(&self) -> Result<(), Invalid> {
        let has = |v6: bool| self.cluster_cidrs.iter().any(|range| is_v6(range) == v6);
        let per_family = self.mask_size_ipv4.or(self.mask_size_ipv6).is_some();
        let wrong = |flag: &str, rule: AddressViolation| Err(Invalid::new(flag, rule));
        if self.mask_size.is_some() && self.cluster_cidrs.len() > 1 {
            return wrong(NODE_CIDR_MASK_SIZE, AddressViolation::MaskForOneRange);
        }
        if self.mask_size.is_some() && per_family {
            return wrong(NODE_CIDR_MASK_SIZE, AddressViolation::MaskExcludesOthers);
        }
        if self.mask_size_ipv4.is_some() && !has(false) {
            return wrong(NODE_CIDR_MASK_SIZE_IPV4, AddressViolation::NoIpv4Range);
        }
        if self.mask_size_ipv6.is_some() && !has(true) {
            return wrong(NODE_CIDR_MASK_SIZE_IPV6, AddressViolation::NoIpv6Range);
        }
        Ok(())
    }

    fn pool(&self, range: &IpNet) -> Result<Pool, Invalid> {
        let (flag, own, default) = match is_v6(range) {
            false => (NODE_CIDR_MASK_SIZE_IPV4, self.mask_size_ipv4, MASK_IPV4_DEFAULT),
            true => (NODE_CIDR_MASK_SIZE_IPV6, self.mask_size_ipv6, MASK_IPV6_DEFAULT),
        };
        let flag = if self.mask_size.is_some() { NODE_CIDR_MASK_SIZE } else { flag };
        let block_mask = self.mask_size.or(own).unwrap_or(default);
        let grid = Grid { range: range.trunc(), block_mask };
        check_grid(&grid).map_err(|rule| Invalid::new(flag, rule))?;
        Ok(Pool { grid, cursor: 0 })
    }
}

fn check_grid(grid: &Grid) -> Result<(), AddressViolation> {
    let (range, mask) = (grid.range, grid.block_mask);
    if mask == 0 {
        return Err(AddressViolation::MaskZero);
    }
    if mask > range.max_prefix_len() {
        return Err(AddressViolation::MaskTooLong { mask, bits: range.max_prefix_len() });
    }
    if mask < range.prefix_len() {
        return Err(AddressViolation::RangeTooSmall { mask, range });
    }
    if is_v6(&range) && mask - range.prefix_len() > IPV6_BITS_MAX {
        let most = range.prefix_len() + IPV6_BITS_MAX;
        return Err(AddressViolation::TooManyBlocks { mask, range, most });
    }
    Ok(())
}

// === impl Addressing ===

impl Addressing {
    /// Whether the plan makes sense, wherever it came from.
    pub fn check(&self) -> Result<(), Invalid> {
        let families = self.pools.iter().map(|pool| pool.grid.range);
        let request = AddressRequest { cluster_cidrs: families.collect(), ..AddressRequest::default() };
        request.check_families()?;
        for pool in &self.pools {
            check_grid(&pool.grid).map_err(|rule| Invalid::new(NODE_CIDR_MASK_SIZE, rule))?;
            self.check_reserved(&pool.grid)?;
        }
        Ok(())
    }

    /// No node gets a block that a service range touches, so even a small range can take up too much.
    fn check_reserved(&self, grid: &Grid) -> Result<(), Invalid> {
        let mut free = FreeBlocks::all_below(grid.blocks());
        for reserved in &self.reserved {
            if let Some((start, end)) = grid.touched_by(reserved) {
                free.occupy(start, end);
            }
            if free.is_empty() {
                let nothing_left = AddressViolation::NothingLeft { reserved: *reserved, range: grid.range };
                return Err(Invalid::new(SERVICE_CLUSTER_IP_RANGE, nothing_left));
            }
        }
        Ok(())
    }

    /// The settings in the form people write.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let joined =
            |nets: &mut dyn Iterator<Item = IpNet>| nets.map(|net| net.to_string()).collect::<Vec<_>>().join(",");
        let mut settings = vec![(CLUSTER_CIDR, joined(&mut self.pools.iter().map(|pool| pool.grid.range)))];
        for pool in &self.pools {
            let flag = if is_v6(&pool.grid.range) { NODE_CIDR_MASK_SIZE_IPV6 } else { NODE_CIDR_MASK_SIZE_IPV4 };
            settings.push((flag, pool.grid.block_mask.to_string()));
        }
        settings.push((SERVICE_CLUSTER_IP_RANGE, joined(&mut self.reserved.iter().copied())));
        settings.push((NODE_CIDR_QUARANTINE, self.quarantine.to_string()));
        settings
    }

    /// Whether both plans have the same ranges. The cursors may differ.
    pub fn is_same_plan(&self, other: &Self) -> bool {
        self.settings() == other.settings()
    }
}

fn is_v6(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

// === impl Resting ===

impl Versioned for Addressing {}

impl Versioned for Resting {}

impl Stored for Resting {
    type Key = IpNet;

    fn key(&self) -> IpNet {
        self.cidr
    }

    fn record_key(cidr: &IpNet) -> RecordKey {
        RecordKey::Resting { cidr: *cidr }
    }
}
