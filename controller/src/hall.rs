//! Threads of their own for the crowd at the agents' door.
//!
//! A hundred thousand agents that come back at once keep every thread busy that serves them. Consensus, digests and
//! verdicts run on other threads, to which the kernel gives their turn: being busy must not look like being dead.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Dropping it ends all that runs there.
#[derive(Debug)]
pub struct Hall(Option<Runtime>);

// === impl Hall ===

impl Hall {
    pub fn open() -> io::Result<Self> {
        let threads = Builder::new_multi_thread().enable_all().thread_name("muster-agents").build()?;
        Ok(Self(Some(threads)))
    }

    /// Where to spawn what is to run there.
    pub fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |threads| threads.handle().clone())
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        // It is dropped by a task, which must not wait for threads.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_spawned_there_runs_on_threads_of_its_own() {
        let hall = Hall::open().unwrap();
        let name = hall.handle().spawn(async { std::thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("muster-agents"));
    }
}
