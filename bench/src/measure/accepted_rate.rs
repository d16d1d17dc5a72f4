//! Rate at which the replicas accept beats, by their own counts, from one look to the next.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

use super::scrape::AcceptedBeats;
use crate::harness::cluster::BenchCluster;
use crate::report::timeline::MeasuredTimeline;

pub(crate) struct AcceptedRate<'a> {
    cluster: &'a BenchCluster,
    pub(crate) first: AcceptedBeats,
    pub(crate) started: Instant,
    last: AcceptedBeats,
    last_at: Instant,
}

// === impl AcceptedRate ===

impl<'a> AcceptedRate<'a> {
    pub(crate) async fn start(cluster: &'a BenchCluster) -> Result<Self> {
        let first = cluster.accepted().await?;
        let now = Instant::now();
        Ok(Self { cluster, last: first.clone(), first, started: now, last_at: now })
    }

    /// Seconds since the start.
    pub(crate) fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Waits for `period`, and notes the rate of that time in the timeline.
    pub(crate) async fn sample(&mut self, period: Duration, timeline: &mut MeasuredTimeline) -> Result<f64> {
        sleep(period).await;
        let (now, at) = (self.cluster.accepted().await?, Instant::now());
        let rate = now.since(&self.last).total() as f64 / (at - self.last_at).as_secs_f64();
        timeline.push("accepted", "beats/s", (at - self.started).as_secs_f64(), rate);
        (self.last, self.last_at) = (now, at);
        Ok(rate)
    }

    /// Beats accepted from the start to the last sample.
    pub(crate) fn total(&self) -> u64 {
        self.last.since(&self.first).total()
    }

    /// The rate from the start to the last sample.
    pub(crate) fn mean(&self) -> f64 {
        self.total() as f64 / (self.last_at - self.started).as_secs_f64()
    }
}
