//! Makes sure that this replica is up to date before it tells an agent something that cannot be taken back.
//!
//! An agent whose process has just begun remembers nothing: what it was ordered before, and what it has stopped for good,
//! only the log knows. So on the word of a replica that may merely lag behind it is neither told to register anew nor
//! given orders. Many agents come at once, and one question to the leader serves all that came before it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use muster_raft::replica::Replica;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::session::wake::entry::Entry;

/// How long to catch up with the leader.
const CATCHING_UP_LIMIT: Duration = Duration::from_secs(5);
/// Before a replica that could not catch up tries again for the sake of orders that it owes.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Questions that wait for the next one to the leader; whoever finds no room asks again.
const WAITING_MAX: usize = 65_536;
/// Others have a turn after so many.
const ALLOWED_AT_ONCE: usize = 1_024;

type Answer = oneshot::Sender<Result<(), Behind>>;

/// Why this replica does not know whether it is up to date.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Behind(pub(crate) String);

#[derive(Clone)]
pub(crate) struct Currency(Arc<Shared>);

struct Shared {
    replica: Replica,
    asks: mpsc::Sender<Answer>,
    asked: Mutex<Option<mpsc::Receiver<Answer>>>,
    /// Sessions whose agents get orders once this replica has caught up: at most one element per session.
    owed: Mutex<Vec<Weak<Entry>>>,
    owes: Notify,
}

// === impl Currency ===

impl Currency {
    pub(crate) fn new(replica: Replica) -> Self {
        let (asks, asked) = mpsc::channel(WAITING_MAX);
        let asked = Mutex::new(Some(asked));
        Self(Arc::new(Shared { replica, asks, asked, owed: Mutex::default(), owes: Notify::new() }))
    }

    /// Answers questions and lets agents have orders, for ever. To be run once.
    pub(crate) async fn run(&self) {
        let asked = self.0.asked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(asked) = asked else { return };
        tokio::join!(self.answer(asked), self.allow_owed());
    }

    async fn answer(&self, mut asked: mpsc::Receiver<Answer>) {
        let mut waiting = Vec::new();
        while asked.recv_many(&mut waiting, WAITING_MAX).await > 0 {
            let caught_up = self.0.replica.read_barrier(Instant::now() + CATCHING_UP_LIMIT).await;
            let caught_up = caught_up.map_err(|error| Behind(error.to_string()));
            // Whoever no longer waits need not know.
            waiting.drain(..).for_each(|answer| drop(answer.send(caught_up.clone())));
        }
    }

    async fn allow_owed(&self) {
        loop {
            self.0.owes.notified().await;
            let owed = std::mem::take(&mut *self.0.owed());
            while owed.iter().any(|entry| entry.strong_count() > 0) && self.catch_up().await.is_err() {
                // Agents that come and go meanwhile are not remembered.
                self.0.owed().retain(|entry| entry.strong_count() > 0);
                sleep(RETRY_PAUSE).await;
            }
            let revision = self.0.replica.current().state.revision();
            for part in owed.chunks(ALLOWED_AT_ONCE) {
                part.iter().filter_map(Weak::upgrade).for_each(|entry| entry.allow_orders(revision));
                yield_now().await;
            }
        }
    }

    /// Completes when this replica has applied everything that was committed when it was called.
    pub(crate) async fn catch_up(&self) -> Result<(), Behind> {
        let stopped = || Behind("this replica is stopping".to_owned());
        let (answer, answered) = oneshot::channel();
        self.0.asks.send(answer).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }

    /// Lets the agent behind `entry` have orders once this replica has caught up.
    pub(crate) fn allow_orders(&self, entry: &Arc<Entry>) {
        self.0.owed().push(Arc::downgrade(entry));
        self.0.owes.notify_one();
    }
}

// === impl Shared ===

impl Shared {
    fn owed(&self) -> MutexGuard<'_, Vec<Weak<Entry>>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
