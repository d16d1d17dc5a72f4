//! Slices of a beat interval: the nodes of a connection beat in twenty groups, so that beats come evenly.

use std::iter::StepBy;
use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

pub(super) const COUNT: usize = 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Slices {
    /// The time between two beats of a node.
    pub(super) interval: Duration,
    current: usize,
    /// When the current slice is due.
    pub(super) due: Instant,
}

// === impl Slices ===

impl Slices {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, current: 0, due: Instant::now() }
    }

    pub(super) fn length(&self) -> Duration {
        self.interval / COUNT as u32
    }

    /// The places of the current slice among `nodes`.
    pub(super) fn places(&self, nodes: usize) -> StepBy<Range<usize>> {
        (self.current..nodes.max(self.current)).step_by(COUNT)
    }

    /// On to the next slice. A slice that is late is not made up for.
    pub(super) fn advance(&mut self) {
        self.current = (self.current + 1) % COUNT;
        self.due = (self.due + self.length()).max(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_one_turn_per_interval() {
        let mut slices = Slices::new(Duration::from_secs(10));
        for nodes in [0, 7, 20, 53] {
            let mut places = Vec::new();
            for _ in 0..COUNT {
                places.extend(slices.places(nodes));
                slices.advance();
            }
            places.sort_unstable();
            assert_eq!(places, (0..nodes).collect::<Vec<_>>());
        }
    }
}
