//! Recovery time: how long it takes until all nodes or agents are back, with a timeline of how many are.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use crate::harness::progress;
use crate::report::timeline::MeasuredTimeline;

const POLL_EVERY: Duration = Duration::from_millis(50);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// How many are back, and whether that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) count: usize,
    pub(crate) complete: bool,
}

/// The recovery to wait for, and its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recovery {
    /// Name of the series.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// When the connections were lost.
    pub(crate) since: Instant,
    /// Zero of the timeline.
    pub(crate) began: Instant,
    pub(crate) timeout: Duration,
}

// === impl Recovery ===

impl Recovery {
    /// Seconds until `recovered` is complete.
    pub(crate) async fn wait(&self, timeline: &mut MeasuredTimeline, recovered: impl Fn() -> Recovered) -> Result<f64> {
        let (mut sampled, mut reported) = (None::<Instant>, self.since);
        loop {
            let (now, Recovered { count, complete }) = (Instant::now(), recovered());
            if complete || sampled.is_none_or(|at| now - at >= SAMPLE_EVERY) {
                timeline.push(self.name, self.unit, (now - self.began).as_secs_f64(), count as f64);
                sampled = Some(now);
            }
            if complete {
                return Ok((now - self.since).as_secs_f64());
            }
            if now - self.since > self.timeout {
                bail!("only {count} were {} again after {} s", self.name, self.timeout.as_secs());
            }
            if now - reported > REPORT_EVERY {
                progress::print(format_args!("{count} are {}", self.name));
                reported = now;
            }
            sleep(POLL_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_last_sample_is_the_complete_recovery() {
        let (mut timeline, now, looks) = (MeasuredTimeline::default(), Instant::now(), AtomicUsize::new(0));
        let timeout = Duration::from_secs(60);
        let recovery = Recovery { name: "bound", unit: "nodes", since: now, began: now, timeout };
        let recovered = || {
            let count = looks.fetch_add(1, Ordering::Relaxed);
            Recovered { count, complete: count == 1 }
        };
        recovery.wait(&mut timeline, recovered).await.unwrap();
        let values: Vec<f64> = timeline.series[0].points.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [0.0, 1.0]);
        let hasty = Recovery { timeout: Duration::ZERO, ..recovery };
        let late = hasty.wait(&mut timeline, || Recovered { count: 3, complete: false }).await.unwrap_err();
        assert_eq!(late.to_string(), "only 3 were bound again after 0 s");
    }
}
