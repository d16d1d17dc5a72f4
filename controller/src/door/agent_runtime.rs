//! Extra threads for the agents' listener.
//!
//! A hundred thousand agents that come back at once keep every thread busy that serves them. Consensus, digests and
//! verdicts run on other threads, which the kernel schedules as well: a busy replica must not look dead.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// The threads and their tasks. Dropping it ends every task that runs on them.
#[derive(Debug)]
pub(crate) struct AgentRuntime(Option<Runtime>);

// === impl AgentRuntime ===

impl AgentRuntime {
    pub(crate) fn start() -> io::Result<Self> {
        let threads = Builder::new_multi_thread().enable_all().thread_name("muster-agents").build()?;
        Ok(Self(Some(threads)))
    }

    /// A handle for spawning tasks on these threads.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |threads| threads.handle().clone())
    }
}

impl Drop for AgentRuntime {
    fn drop(&mut self) {
        // A task drops it, and a task must not wait for threads.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_on_the_runtimes_own_threads() {
        let runtime = AgentRuntime::start().unwrap();
        let name = runtime.handle().spawn(async { std::thread::current().name().map(str::to_owned) }).await.unwrap();
        assert_eq!(name.as_deref(), Some("muster-agents"));
    }
}
