//! Shortage of node CIDRs, in words.

use crate::state::State;

impl State {
    /// Why a node without addresses has none, for people.
    pub fn address_shortage(&self) -> String {
        let Some(plan) = self.addressing() else { return "node CIDRs are not allocated in this cluster".to_owned() };
        let pools =
            plan.pools.iter().zip(self.free_blocks()).map(|(pool, free)| {
                format!("{} has {} blocks, {free} of them free", pool.grid.range, pool.grid.blocks())
            });
        let resting = self.resting().len();
        let rest = (resting > 0).then(|| format!("{resting} given back ones rest for up to {}", plan.quarantine));
        let is_held = plan.held_until.is_some_and(|until| self.cluster_time() < until);
        let held = is_held.then(|| "after a restore nothing is given out for a while".to_owned());
        pools.chain(rest).chain(held).collect::<Vec<_>>().join("; ")
    }
}
