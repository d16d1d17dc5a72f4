//! Waiting for a condition: by looking again, never by a pause of a fixed length.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Far longer than anything here takes; only a failure waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// Looks until `condition` gives something, for as long as [`PATIENCE`].
pub fn eventually<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, condition)
}

pub fn eventually_within<T>(patience: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(start.elapsed() < patience, "waited {patience:?} in vain: {what}");
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Waits in an async test until `condition` holds.
pub async fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(within(PATIENCE, condition).await, "waited {PATIENCE:?} in vain: {what}");
}

/// Whether `condition` holds at some moment within `patience`.
pub async fn within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let looking = async {
        while !condition() {
            sleep(LOOK_PAUSE).await;
        }
    };
    timeout(patience, looking).await.is_ok()
}

/// As [`eventually`], in an async test. If the condition never holds, the failure tells what was there instead.
pub async fn soon<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut last = "nothing yet".to_owned();
    let looking = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(seen) => last = seen,
            }
            sleep(LOOK_PAUSE).await;
        }
    };
    let found = timeout(PATIENCE, looking).await.ok();
    found.unwrap_or_else(|| panic!("waited {PATIENCE:?} in vain: {what}; instead: {last}"))
}
