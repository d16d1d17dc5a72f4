//! Turns on the machine: however many tests run at once, only so many clusters do.
//!
//! Most tests wait on real time, so more of them run than there are cores. But a cluster that gets no time in which
//! to send heartbeats fails for that alone.

use std::sync::{Condvar, Mutex, PoisonError};

/// Clusters at once: as many as there are cores to carry them.
const CLUSTERS_MAX: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to run a cluster, until it is dropped.
#[derive(Debug)]
pub struct Turn(());

impl Turn {
    /// Waits for a turn.
    pub fn take() -> Self {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running =
            ENDED.wait_while(running, |running| *running >= CLUSTERS_MAX).unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
