//! A whole fleet on simulated aggregators: many nodes on few streams, spread over all replicas.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::aggregator::{FleetCounts, SimulatedAggregator};
use super::doors::AgentDoors;
use crate::harness::wait;

/// As many nodes as a rack agent or an edge gateway might carry.
const NODES_PER_AGGREGATOR: usize = 10_000;
/// Without any progress for so long, the wait ends with an error; a large fleet gets a little longer.
const STUCK_AFTER: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(crate) struct FleetLoad {
    aggregators: Vec<SimulatedAggregator>,
    pub(crate) counts: Arc<FleetCounts>,
    pub(crate) nodes: usize,
}

/// When each silenced node last beat, by number.
pub(crate) type Silenced = BTreeMap<usize, Instant>;

// === impl FleetLoad ===

impl FleetLoad {
    /// Begins to bind and to register the nodes that are missing to `nodes`, beside those that beat already. Does not
    /// wait.
    pub(crate) fn grow(&mut self, doors: &AgentDoors, nodes: usize, instance: u64) {
        let known = self.aggregators.len();
        for (place, numbers) in groups(self.nodes..nodes, doors.count()).enumerate() {
            let counts = Arc::clone(&self.counts);
            self.aggregators.push(SimulatedAggregator::start(doors.clone(), known + place, numbers, instance, counts));
        }
        self.nodes = self.nodes.max(nodes);
    }

    pub(crate) fn streams(&self) -> usize {
        self.aggregators.len()
    }

    /// How often a node was refused and tried again.
    pub(crate) fn refused(&self) -> usize {
        self.counts.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn bound(&self) -> usize {
        self.counts.bound.load(Ordering::Relaxed)
    }

    /// Waits until so many nodes are bound and beat.
    pub(crate) async fn wait_bound(&self, wanted: usize) -> Result<()> {
        let why = || format!("the last refusal: {}", self.counts.last_refusal());
        wait::for_count("nodes beat", wanted, wait::limit(STUCK_AFTER, wanted), || self.bound(), why).await
    }

    /// These nodes beat no more.
    pub(crate) async fn silence(&self, numbers: &[usize]) -> Result<Silenced> {
        let mut silenced = Silenced::new();
        for aggregator in &self.aggregators {
            let own: Vec<usize> =
                numbers.iter().copied().filter(|number| aggregator.numbers.contains(number)).collect();
            if own.is_empty() {
                continue;
            }
            for (number, last) in aggregator.silence(own).await? {
                silenced.insert(number, last.with_context(|| format!("node {number} has never beaten"))?);
            }
        }
        Ok(silenced)
    }

    pub(crate) async fn speak(&self, numbers: &[usize]) -> Result<()> {
        for aggregator in &self.aggregators {
            let own: Vec<usize> =
                numbers.iter().copied().filter(|number| aggregator.numbers.contains(number)).collect();
            if !own.is_empty() {
                aggregator.speak(own).await?;
            }
        }
        Ok(())
    }

    /// All nodes beat again.
    pub(crate) async fn speak_all(&self) -> Result<()> {
        for aggregator in &self.aggregators {
            aggregator.speak(aggregator.numbers.clone().collect()).await?;
        }
        Ok(())
    }

    /// Releases all nodes, so that other streams may bind them.
    pub(crate) async fn release(self) -> Result<()> {
        for aggregator in self.aggregators {
            aggregator.release().await?;
        }
        Ok(())
    }
}

/// Groups of nodes, one per aggregator: as few as will do, and no fewer than there are doors.
fn groups(numbers: Range<usize>, doors: usize) -> impl Iterator<Item = Range<usize>> {
    let size = NODES_PER_AGGREGATOR.min(numbers.len().div_ceil(doors)).max(1);
    numbers.clone().step_by(size).map(move |first| first..(first + size).min(numbers.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_cover_every_node_and_use_every_replica() {
        for (numbers, expected) in [
            (0..0, vec![]),
            (0..2, vec![0..1, 1..2]),
            (0..7, vec![0..3, 3..6, 6..7]),
            (300..1_000, vec![300..534, 534..768, 768..1_000]),
            (10_000..45_000, vec![10_000..20_000, 20_000..30_000, 30_000..40_000, 40_000..45_000]),
        ] {
            assert_eq!(groups(numbers.clone(), 3).collect::<Vec<_>>(), expected, "{numbers:?}");
        }
    }
}
