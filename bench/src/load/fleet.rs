//! A whole fleet in crowds: so many nodes on few streams, spread over all replicas.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use crate::load::crowd::{Crowd, Tally};
use crate::load::doors::Doors;
use crate::progress;

/// As many as a rack agent or an edge gateway might carry.
const NODES_PER_CROWD: usize = 10_000;
const LOOK_AGAIN: Duration = Duration::from_millis(100);
const SPEAK_EVERY: Duration = Duration::from_secs(5);
/// After so long without any progress nothing more is waited for.
const STUCK_AFTER: Duration = Duration::from_secs(120);

pub struct Load {
    crowds: Vec<Crowd>,
    pub tally: Arc<Tally>,
    pub nodes: usize,
}

/// When each silenced node last beat, by number.
pub type Silenced = BTreeMap<usize, Instant>;

// === impl Load ===

impl Load {
    /// Begins to bind and to register; nothing is waited for.
    pub fn start(doors: &Doors, nodes: usize, instance: u64) -> Self {
        let tally = Arc::<Tally>::default();
        let per_crowd = NODES_PER_CROWD.min(nodes.div_ceil(doors.count())).max(1);
        let starts = (0..nodes).step_by(per_crowd).enumerate();
        let crowds = starts.map(|(door, first)| {
            let numbers = first..(first + per_crowd).min(nodes);
            Crowd::start(doors.clone(), door, numbers, instance, Arc::clone(&tally))
        });
        Self { crowds: crowds.collect(), tally, nodes }
    }

    pub fn streams(&self) -> usize {
        self.crowds.len()
    }

    pub fn bound(&self) -> usize {
        self.tally.bound.load(Ordering::Relaxed)
    }

    /// Until so many nodes beat.
    pub async fn wait_bound(&self, wanted: usize) -> Result<()> {
        let (mut seen, mut since, mut spoken) = (0, Instant::now(), Instant::now());
        loop {
            let bound = self.bound();
            if bound >= wanted {
                return Ok(());
            }
            if bound != seen {
                (seen, since) = (bound, Instant::now());
            } else if since.elapsed() > STUCK_AFTER {
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

    /// Lets go of all nodes, so that other streams may have them.
    pub async fn release(self) -> Result<()> {
        for crowd in self.crowds {
            crowd.release().await?;
        }
        Ok(())
    }
}
