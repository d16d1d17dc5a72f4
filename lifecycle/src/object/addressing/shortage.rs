//! Shortage of node CIDRs: why a node that should have addresses has none.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::value::time::Period;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddressShortage {
    pub pools: Box<[PoolShortage]>,
    /// Blocks that were given back and rest for up to `quarantine`.
    pub resting: u64,
    pub quarantine: Period,
    /// After a restore nothing is given out for a while.
    pub is_held: bool,
}

/// The blocks of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolShortage {
    pub range: IpNet,
    pub blocks: u64,
    pub free: u64,
}

impl fmt::Display for AddressShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pools = self.pools.iter();
        let pools = pools.map(|pool| format!("{} has {} blocks, {} of them free", pool.range, pool.blocks, pool.free));
        let (resting, quarantine) = (self.resting, self.quarantine);
        let rest = (resting > 0).then(|| format!("{resting} given back ones rest for up to {quarantine}"));
        let held = self.is_held.then(|| "after a restore nothing is given out for a while".to_owned());
        f.write_str(&pools.chain(rest).chain(held).collect::<Vec<_>>().join("; "))
    }
}
