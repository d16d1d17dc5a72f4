//! How long something is waited for. What is done for every node takes longer the more of them there are, so patience grows
//! with the fleet: a fixed one would fail large runs that are only slow, or let small ones hang.

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::sleep;

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Nodes were seen to be registered four times as fast, so a million that does not come within this does not come.
const PER_NODE: Duration = Duration::from_millis(1);

/// The patience that is had with anybody, and more for so many nodes.
pub fn with(least: Duration, nodes: usize) -> Duration {
    least + PER_NODE * u32::try_from(nodes).unwrap_or(u32::MAX)
}

/// Looks until it is so. An error says what is missing: one that passes is a busy replica or a change of leaders, and only
/// the last one is told.
pub async fn until<T, Look: Future<Output = Result<T>>>(patience: Duration, look: impl Fn() -> Look) -> Result<T> {
    let start = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(missing) if start.elapsed() > patience => {
                return Err(missing.context(format!("not within {} s", patience.as_secs())));
            }
            Err(_) => sleep(LOOK_AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::ensure;

    use super::*;

    #[test]
    fn patience_grows_with_the_fleet() {
        let least = Duration::from_secs(300);
        for (nodes, seconds) in [(0, 300), (3_000, 303), (1_000_000, 1_300)] {
            assert_eq!(with(least, nodes).as_secs(), seconds, "{nodes}");
        }
    }

    #[tokio::test]
    async fn errors_that_pass_are_forgiven_and_the_last_is_told() {
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
}
