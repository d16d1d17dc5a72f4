//! A whole fleet in crowds: so many nodes on few streams, spread over all replicas.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use crate::load::crowd::{Crowd, Tally};
use crate::load::doors::Doors;
use crate::{patience, progress};

/// As many as a rack agent or an edge gateway might carry.
const NODES_PER_CROWD: usize = 10_000;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const SPEAK_EVERY: Duration = Duration::from_secs(5);
/// After so long without any progress nothing more is waited for, and a little later in a large fleet.
const STUCK_AFTER: Duration = Duration::from_secs(120);

#[derive(Default)]
pub struct Load {
    crowds: Vec<Crowd>,
    pub tally: Arc<Tally>,
    pub nodes: usize,
}

/// When each silenced node last beat, by number.
pub type Silenced = BTreeMap<usize, Instant>;

// === impl Load ===

impl Load {
    /// Begins to bind and to register those that are missing to `nodes`, beside those that beat already; nothing is waited
    /// for.
    pub fn grow(&mut self, doors: &Doors, nodes: usize, instance: u64) {
        let known = self.crowds.len();
        for (place, numbers) in crowds(self.nodes..nodes, doors.count()).enumerate() {
            let tally = Arc::clone(&self.tally);
            self.crowds.push(Crowd::start(doors.clone(), known + place, numbers, instance, tally));
        }
        self.nodes = self.nodes.max(nodes);
    }

    pub fn streams(&self) -> usize {
        self.crowds.len()
    }

    /// So often was a node refused and tried again.
    pub fn refused(&self) -> usize {
        self.tally.refused.load(Ordering::Relaxed)
    }

    pub fn bound(&self) -> usize {
        self.tally.bound.load(Ordering::Relaxed)
    }

    /// Until so many nodes beat.
    pub async fn wait_bound(&self, wanted: usize) -> Result<()> {
        let (mut seen, mut since, mut spoken) = (0, Instant::now(), Instant::now());
        let patience = patience::with(STUCK_AFTER, wanted);
        loop {
            let bound = self.bound();
            if bound >= wanted {
                return Ok(());
            }
            if bound != seen {
                (seen, since) = (bound, Instant::now());
            } else if since.elapsed() > patience {
                let refusal = self.tally.last_refusal().unwrap_or_else(|| "nothing was refused".to_owned());
                bail!("{bound} of {wanted} nodes are bound and no more come; the last refusal: {refusal}");
            }
            if spoken.elapsed() > SPEAK_EVERY {
                progress::say(format_args!("{bound} of {wanted} nodes beat"));
                spoken = Instant::now();
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// These nodes beat no more.
    pub async fn silence(&self, numbers: &[usize]) -> Result<Silenced> {
        let mut silenced = Silenced::new();
        for crowd in &self.crowds {
            let own: Vec<usize> = numbers.iter().copied().filter(|number| crowd.numbers.contains(number)).collect();
            if own.is_empty() {
                continue;
            }
            for (number, last) in crowd.silence(own).await? {
                silenced.insert(number, last.with_context(|| format!("node {number} has never beaten"))?);
            }
        }
        Ok(silenced)
    }

    pub async fn speak(&self, numbers: &[usize]) -> Result<()> {
        for crowd in &self.crowds {
            let own: Vec<usize> = numbers.iter().copied().filter(|number| crowd.numbers.contains(number)).collect();
            if !own.is_empty() {
                crowd.speak(own).await?;
            }
        }
        Ok(())
    }

    /// Nobody is silent any longer.
    pub async fn speak_all(&self) -> Result<()> {
        for crowd in &self.crowds {
            crowd.speak(crowd.numbers.clone().collect()).await?;
        }
        Ok(())
    }

    /// Lets go of all nodes, so that other streams may have them.
    pub async fn release(self) -> Result<()> {
        for crowd in self.crowds {
            crowd.release().await?;
        }
        Ok(())
    }
}

/// Who goes into a crowd with whom: as few crowds as will do, and no fewer than there are doors.
fn crowds(numbers: Range<usize>, doors: usize) -> impl Iterator<Item = Range<usize>> {
    let size = NODES_PER_CROWD.min(numbers.len().div_ceil(doors)).max(1);
    numbers.clone().step_by(size).map(move |first| first..(first + size).min(numbers.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_are_at_every_door_and_leave_nobody_out() {
        for (numbers, expected) in [
            (0..0, vec![]),
            (0..2, vec![0..1, 1..2]),
            (0..7, vec![0..3, 3..6, 6..7]),
            (300..1_000, vec![300..534, 534..768, 768..1_000]),
            (10_000..45_000, vec![10_000..20_000, 20_000..30_000, 30_000..40_000, 40_000..45_000]),
        ] {
            assert_eq!(crowds(numbers.clone(), 3).collect::<Vec<_>>(), expected, "{numbers:?}");
        }
    }
}
