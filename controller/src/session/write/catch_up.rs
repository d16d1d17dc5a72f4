//! Catching up with the leader before an agent is told something that cannot be taken back.
//!
//! An agent whose process has just begun remembers neither its earlier orders nor what it has stopped for good; only
//! the log does. So a replica that may merely lag behind neither tells it to register anew nor gives it orders. Many
//! agents come at once, and one question to the leader serves all that came before it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use muster_raft::replica::Replica;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::session::wake::entry::Entry;

/// The time limit for catching up with the leader.
const CATCHING_UP_LIMIT: Duration = Duration::from_secs(5);
/// The pause before a replica that could not catch up tries again for the sake of waiting orders.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Callers that wait for the next question to the leader; further ones wait for room.
const WAITING_MAX: usize = 65_536;
/// Sessions whose orders are allowed before other tasks have a turn.
const ALLOWED_AT_ONCE: usize = 1_024;

type Answer = oneshot::Sender<Result<(), NotCaughtUp>>;

/// Why this replica does not know whether it is up to date.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotCaughtUp(String);

/// The catching up of this replica. Clones share the questions to the leader.
#[derive(Clone)]
pub(crate) struct CatchUp(Arc<SharedCatchUp>);

struct SharedCatchUp {
    replica: Replica,
    asks: mpsc::Sender<Answer>,
    asked: Mutex<Option<mpsc::Receiver<Answer>>>,
    /// Sessions whose agents get orders once this replica has caught up: at most one element per session.
    without_orders: Mutex<Vec<Weak<Entry>>>,
    is_added: Notify,
}

// === impl CatchUp ===

impl CatchUp {
    pub(crate) fn new(replica: Replica) -> Self {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        let asked = Mutex::new(Some(asked));
        Self(Arc::new(SharedCatchUp {
            replica,
            asks,
            asked,
            without_orders: Mutex::default(),
            is_added: Notify::new(),
        }))
    }

    /// Answers callers and allows orders, for ever. To be run once.
    pub(crate) async fn run(&self) {
        let asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(asked) = asked else { return };
        tokio::join!(self.answer(asked), self.allow_waiting());
    }

    async fn answer(&self, mut asked: mpsc::Receiver<Answer>) {
        let mut waiting = Vec::new();
        while asked.recv_many(&mut waiting, WAITING_MAX).await > 0 {
            let caught_up = self.0.replica.read_barrier(Instant::now() + CATCHING_UP_LIMIT).await;
            let caught_up = caught_up.map_err(|error| NotCaughtUp(error.to_string()));
            // A caller that no longer waits need not know.
            waiting.drain(..).for_each(|answer| drop(answer.send(caught_up.clone())));
        }
    }

    async fn allow_waiting(&self) {
        loop {
            self.0.is_added.notified().await;
            let waiting = std::mem::take(&mut *self.0.without_orders());
            while waiting.iter().any(|entry| entry.strong_count() > 0) && self.catch_up().await.is_err() {
                // Agents that come and go meanwhile are not remembered.
                self.0.without_orders().retain(|entry| entry.strong_count() > 0);
                sleep(RETRY_PAUSE).await;
            }
            let revision = self.0.replica.current().state.revision();
            for part in waiting.chunks(ALLOWED_AT_ONCE) {
                part.iter().filter_map(Weak::upgrade).for_each(|entry| entry.allow_orders(revision));
                yield_now().await;
            }
        }
    }

    /// Completes when this replica has applied everything that was committed when it was called.
    pub(crate) async fn catch_up(&self) -> Result<(), NotCaughtUp> {
        let stopped = || NotCaughtUp("this replica is stopping".to_owned());
        let (answer, answered) = oneshot::channel();
        self.0.asks.send(answer).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Lets the agent behind `entry` have orders once this replica has caught up.
    pub(crate) fn allow_orders(&self, entry: &Arc<Entry>) {
        self.0.without_orders().push(Arc::downgrade(entry));
        self.0.is_added.notify_one();
    }
}

// === impl SharedCatchUp ===

impl SharedCatchUp {
    fn without_orders(&self) -> MutexGuard<'_, Vec<Weak<Entry>>> {
        self.without_orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
