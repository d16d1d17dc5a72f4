//! Waits with a limit. Work for every node takes longer the more nodes there are, so limits grow with the fleet: a
//! fixed limit would fail large runs that are only slow, or let small ones hang.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use super::progress;

const POLL_EVERY: Duration = Duration::from_millis(200);
const COUNT_EVERY: Duration = Duration::from_millis(100);
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Registrations were seen to be four times as fast, so a million nodes that do not come within this do not come.
const PER_NODE: Duration = Duration::from_millis(1);

/// The limit for a wait that depends on the number of nodes.
pub(crate) fn limit(least: Duration, nodes: usize) -> Duration {
    least + PER_NODE * u32::try_from(nodes).unwrap_or(u32::MAX)
}

/// Looks until `look` succeeds. Its error says what is missing. Errors on the way are a busy replica or a change of
/// leaders; only the last one is returned.
pub(crate) async fn until<T, Look: Future<Output = Result<T>>>(limit: Duration, look: impl Fn() -> Look) -> Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(missing) if start.elapsed() > limit => {
                return Err(missing.context(format!("not within {} s", limit.as_secs())));
            }
            Err(_) => sleep(POLL_EVERY).await,
        }
    }
}

/// Waits until `count` reaches `wanted`, and prints how far it is. Fails if it does not grow for `stuck_after`; `why`
/// adds the reason.
pub(crate) async fn for_count(
    what: &str,
    wanted: usize,
    stuck_after: Duration,
    count: impl Fn() -> usize,
    why: impl Fn() -> String,
) -> Result<()> {
    let (mut last, mut since, mut reported) = (0, Instant::now(), Instant::now());
    loop {
        let now = count();
        if now >= wanted {
            return Ok(());
        }
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > stuck_after {
            let seconds = stuck_after.as_secs();
            bail!("{now} of {wanted} {what}, and no more for {seconds} s; {}", why());
        }
        if reported.elapsed() > REPORT_EVERY {
            progress::print(format_args!("{now} of {wanted} {what}"));
            reported = Instant::now();
        }
        sleep(COUNT_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::ensure;

    use super::*;

    #[test]
    fn limits_grow_with_the_fleet() {
        let least = Duration::from_secs(300);
        for (nodes, seconds) in [(0, 300), (3_000, 303), (1_000_000, 1_300)] {
            assert_eq!(limit(least, nodes).as_secs(), seconds, "{nodes}");
        }
    }

    #[tokio::test]
    async fn errors_are_retried_and_the_last_one_is_returned() {
        let looks = AtomicUsize::new(0);
        let look = || async {
            let seen = looks.fetch_add(1, Ordering::Relaxed);
            ensure!(seen == 1, "{seen} of 1 seen");
            Ok(seen)
        };
        assert_eq!(until(Duration::from_secs(60), look).await.unwrap(), 1);
        let late = until(Duration::ZERO, look).await.unwrap_err();
        assert_eq!(format!("{late:#}"), "not within 0 s: 2 of 1 seen");
    }

    #[tokio::test]
    async fn a_count_that_stops_growing_is_an_error_with_its_reason() {
        let looks = AtomicUsize::new(0);
        let count = || looks.fetch_add(1, Ordering::Relaxed);
        for_count("nodes beat", 2, Duration::from_secs(60), count, String::new).await.unwrap();
        let stuck = for_count("nodes beat", 2, Duration::ZERO, || 0, || "all were refused".to_owned()).await;
        assert_eq!(stuck.unwrap_err().to_string(), "0 of 2 nodes beat, and no more for 0 s; all were refused");
    }
}
