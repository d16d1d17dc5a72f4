//! Turns on the machine: however many tests run at once, only so many clusters do.
//!
//! Most tests wait on real time, so more of them run than there are cores; but a cluster that gets no time in which to
//! send heartbeats fails for that alone.

use futures::executor::block_on;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Clusters at once: as many as there are cores to carry them.
static TURNS: Semaphore = Semaphore::const_new(2);

/// The right to run a cluster, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: SemaphorePermit<'static>,
}

impl Turn {
    /// Waits for it without holding up what else the task does: a test may run two clusters side by side.
    pub async fn wait() -> Self {
        Self { _permit: TURNS.acquire().await.expect("it is never closed") }
    }

    /// Waits for it on this thread.
    pub fn take() -> Self {
        block_on(Self::wait())
    }
}
