//! Shortage of node CIDRs, as the state has it.

use crate::object::addressing::{AddressShortage, PoolShortage};
use crate::state::State;

impl State {
    /// Why a node without addresses has none; `None` if node CIDRs are not allocated in this cluster.
    pub fn address_shortage(&self) -> Option<AddressShortage> {
        let plan = self.addressing()?;
        let pools = plan.pools.iter().zip(self.free_blocks());
        let pools = pools.map(|(pool, free)| PoolShortage { range: pool.grid.range, blocks: pool.grid.blocks(), free });
        Some(AddressShortage {
            pools: pools.collect(),
            resting: self.resting().len() as u64,
            quarantine: plan.quarantine,
            is_held: plan.held_until.is_some_and(|until| self.cluster_time() < until),
        })
    }
}
