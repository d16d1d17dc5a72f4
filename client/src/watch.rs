//! A watch that outlives the replica it was opened on.
//!
//! Revisions number every change of the cluster, so a watch that knows the last one it delivered can go on at any
//! replica. It asks another replica for the changes after it and drops those it has seen already, so it never has a gap
//! or a duplicate. A replica that no longer holds the revision says "gone". Only when no replica holds it is the watch
//! over, and the caller has to list again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use muster_proto::v1::WatchEvent;
use muster_proto::v1::watch_event::Type;
use thiserror::Error;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use crate::Query;
use crate::endpoint::Endpoints;
use crate::error::{self, Error, Why};
use crate::retry::{self, Backoff, Diary, Failed, Patience};

#[derive(Debug, Error)]
pub enum WatchError {
    #[error("the changes after revision {after} are no longer held by any replica: list again and watch from there")]
    Gone { after: u64 },
    #[error(transparent)]
    Failed(#[from] Error),
}

/// A stream of changes; see [`Watch::next`].
pub struct Watch {
    endpoints: Arc<Endpoints>,
    timeout: Duration,
    query: Query,
    initial: std::vec::IntoIter<Bytes>,
    /// Everything up to this revision was delivered, or did not concern this watch.
    delivered: u64,
    /// The replica to try next, and how many were tried since the last pause.
    cursor: usize,
    tried: usize,
    opening: Option<Opening>,
    stream: Option<Open>,
    trouble: Option<Trouble>,
}

/// An attempt under way. Kept here and not in `next`, so that a caller that polls with a short time-out does not start
/// over for ever.
struct Opening {
    index: usize,
    attempt: BoxFuture<'static, Result<Streaming<WatchEvent>, Failed>>,
}

struct Open {
    events: Streaming<WatchEvent>,
    index: usize,
    since: Instant,
}

/// The failures since the last event arrived.
struct Trouble {
    deadline: Instant,
    backoff: Backoff,
    gone: BTreeSet<usize>,
    diary: Diary,
}

/// A stream that lasted this long worked, even if it carried no event.
const WORKING: Duration = Duration::from_secs(5);

// === impl Watch ===

impl Watch {
    pub(crate) fn new(
        endpoints: Arc<Endpoints>,
        timeout: Duration,
        query: Query,
        initial: Vec<Bytes>,
        revision: u64,
    ) -> Self {
        let cursor = endpoints.order().next().unwrap_or(0);
        Self {
            endpoints,
            timeout,
            query,
            initial: initial.into_iter(),
            delivered: revision,
            cursor,
            tried: 0,
            opening: None,
            stream: None,
            trouble: None,
        }
    }

    /// Everything up to this revision has been delivered.
    pub fn revision(&self) -> u64 {
        self.delivered
    }

    /// The next change. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<WatchEvent, WatchError> {
        if let Some(object) = self.initial.next() {
            return Ok(WatchEvent { r#type: Type::Added.into(), revision: self.delivered, object });
        }
        loop {
            let Some(open) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            match open.events.message().await {
                Ok(Some(event)) => {
                    self.trouble = None;
                    if let Some(event) = self.accept(event) {
                        return Ok(event);
                    }
                }
                Ok(None) => self.lost(&Status::unavailable("the stream ended"))?,
                Err(status) => self.lost(&status)?,
            }
        }
    }

    /// The same as a `Stream`, which ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, WatchError>> + Send {
        futures::stream::unfold(Some(self), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(event) => Some((Ok(event), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    /// Moves on to the event's revision; bookmarks and events that were delivered before are not passed on.
    fn accept(&mut self, event: WatchEvent) -> Option<WatchEvent> {
        let is_new = event.revision > self.delivered;
        self.delivered = self.delivered.max(event.revision);
        match event.r#type() {
            Type::Added | Type::Modified | Type::Deleted => is_new.then_some(event),
            Type::Bookmark | Type::Unspecified => None,
        }
    }

    /// Notes why the stream broke, and lets `next` open another.
    fn lost(&mut self, status: &Status) -> Result<(), WatchError> {
        let Some(open) = self.stream.take() else { return Ok(()) };
        if open.since.elapsed() >= WORKING {
            self.trouble = None;
        }
        self.failed_on(open.index, status)
    }

    fn failed_on(&mut self, index: usize, status: &Status) -> Result<(), WatchError> {
        let from_the_replica = std::error::Error::source(status).is_none();
        if from_the_replica && status.code() == Code::OutOfRange {
            self.trouble().gone.insert(index);
        } else if from_the_replica && error::is_final(status.code()) {
            return Err(retry::refused(status, self.endpoints.address(index)).into());
        } else {
            if !from_the_replica {
                self.endpoints.forget(index);
            }
            self.note(index, error::why(status));
        }
        Ok(())
    }

    /// Finds a replica that continues after the delivered revision.
    async fn open(&mut self) -> Result<(), WatchError> {
        while self.stream.is_none() {
            let Some(opening) = &mut self.opening else {
                self.try_next().await?;
                continue;
            };
            let (index, result) = (opening.index, (&mut opening.attempt).await);
            self.opening = None;
            match result {
                Ok(events) => {
                    self.endpoints.remember(index);
                    self.tried = 0;
                    self.stream = Some(Open { events, index, since: Instant::now() });
                    self.breathe().await;
                }
                Err(Failed::Final(status)) => self.failed_on(index, &status)?,
                Err(Failed::Next(why)) => self.note(index, why),
            }
        }
        Ok(())
    }

    /// Turns to the next replica, after a pause if all were tried.
    async fn try_next(&mut self) -> Result<(), WatchError> {
        if self.tried == self.endpoints.len() {
            self.tried = 0;
            self.give_up_or_pause().await?;
        }
        let index = self.cursor;
        self.cursor = (index + 1) % self.endpoints.len();
        self.tried += 1;
        if self.trouble.as_ref().is_none_or(|trouble| !trouble.gone.contains(&index)) {
            self.opening = Some(Opening { index, attempt: self.attempt(index) });
        }
        Ok(())
    }

    fn attempt(&self, index: usize) -> BoxFuture<'static, Result<Streaming<WatchEvent>, Failed>> {
        let request = self.query.watch_request(self.delivered);
        let (endpoints, patience) = (Arc::clone(&self.endpoints), Patience::quick().within(self.timeout));
        Box::pin(async move {
            let mut call = |mut operator: retry::Operator, _| {
                let request = request.clone();
                async move { Ok(operator.watch(request).await?.into_inner()) }
            };
            endpoints.attempt(index, patience, &mut call).await
        })
    }

    /// Pauses, so that a replica that accepts watches and drops them at once is not asked in a tight loop.
    async fn breathe(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            let left = trouble.deadline.saturating_duration_since(Instant::now());
            trouble.backoff.pause(left).await;
        }
    }

    /// Called after a round without success. Replicas that are unreachable may still hold what others have dropped. So
    /// "gone" is believed when all say so, or when the rest stay away until the deadline.
    async fn give_up_or_pause(&mut self) -> Result<(), WatchError> {
        let (after, replicas) = (self.delivered, self.endpoints.len());
        let trouble = self.trouble();
        let left = trouble.deadline.saturating_duration_since(Instant::now());
        if trouble.gone.len() == replicas || (left.is_zero() && !trouble.gone.is_empty()) {
            return Err(WatchError::Gone { after });
        }
        if left.is_zero() {
            let diary = self.trouble.take().map(|trouble| trouble.diary);
            let diary = diary.unwrap_or_else(|| Diary::new(&self.endpoints, self.timeout));
            return Err(diary.exhausted().into());
        }
        trouble.backoff.pause(left).await;
        Ok(())
    }

    fn note(&mut self, index: usize, why: Why) {
        self.trouble().diary.note(index, why, false, false);
    }

    fn trouble(&mut self) -> &mut Trouble {
        let (endpoints, timeout) = (&self.endpoints, self.timeout);
        self.trouble.get_or_insert_with(|| Trouble {
            deadline: Instant::now() + timeout,
            backoff: Backoff::new(),
            gone: BTreeSet::new(),
            diary: Diary::new(endpoints, timeout),
        })
    }
}
