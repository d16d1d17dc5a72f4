//! How long it takes until everybody is back, noted in a timeline meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use crate::progress;
use crate::timeline::Timeline;

const LOOK_AGAIN: Duration = Duration::from_millis(50);
const NOTE_EVERY: Duration = Duration::from_millis(250);
const SPEAK_EVERY: Duration = Duration::from_secs(5);

/// Who is there, and whether that is all that should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    pub count: usize,
    pub complete: bool,
}

/// What is waited for, and since when.
#[derive(Debug, Clone, Copy)]
pub struct Comeback {
    /// As the series is called.
    pub name: &'static str,
    pub unit: &'static str,
    /// When all were sent away.
    pub since: Instant,
    /// On the timeline's clock.
    pub began: Instant,
    pub patience: Duration,
}

// === impl Comeback ===

impl Comeback {
    /// Seconds until `present` says that it is complete.
    pub async fn wait(&self, timeline: &mut Timeline, present: impl Fn() -> Present) -> Result<f64> {
        let (mut noted, mut spoken) = (None::<Instant>, self.since);
        loop {
            let (now, Present { count, complete }) = (Instant::now(), present());
            if complete || noted.is_none_or(|at| now - at >= NOTE_EVERY) {
                timeline.push(self.name, self.unit, (now - self.began).as_secs_f64(), count as f64);
                noted = Some(now);
            }
            if complete {
                return Ok((now - self.since).as_secs_f64());
            }
            if now - self.since > self.patience {
                bail!("only {count} were {} again after {} s", self.name, self.patience.as_secs());
            }
            if now - spoken > SPEAK_EVERY {
                progress::say(format_args!("{count} are {}", self.name));
                spoken = now;
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn the_last_one_to_come_is_noted() {
        let (mut timeline, now, looks) = (Timeline::default(), Instant::now(), AtomicUsize::new(0));
        let patience = Duration::from_secs(60);
        let comeback = Comeback { name: "bound", unit: "nodes", since: now, began: now, patience };
        let present = || {
            let count = looks.fetch_add(1, Ordering::Relaxed);
            Present { count, complete: count == 1 }
        };
        comeback.wait(&mut timeline, present).await.unwrap();
        let values: Vec<f64> = timeline.series[0].points.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [0.0, 1.0]);
        let hasty = Comeback { patience: Duration::ZERO, ..comeback };
        let late = hasty.wait(&mut timeline, || Present { count: 3, complete: false }).await.unwrap_err();
        assert_eq!(late.to_string(), "only 3 were bound again after 0 s");
    }
}
