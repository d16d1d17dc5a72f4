//! Attachment of an agent to a replica, and the search for the next one. Node sessions and aggregator sessions share
//! it.
//!
//! The agent holds at most one link and has at most one attempt under way. An agent that was told to move, or that
//! doubts its replica, keeps its link until the attempt has succeeded. If no replica accepts it, it stays where it is
//! and goes on trying. A doubt may pass; then the search ends. An agent with a renewed certificate does the same and
//! dials its present endpoint first.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::failure::SessionFailure;
use super::link::{Attempt, Link, Opener, StreamKind};
use super::search::ReplicaSearch;
use super::terms::SessionTerms;

/// Draws a random number from 0 to 1.
pub(crate) type Dice = fn() -> f64;

pub(crate) struct Attachment<C: StreamKind> {
    opener: Opener,
    search: ReplicaSearch,
    link: Option<Box<Link<C>>>,
    attempt: Option<Attempt<C>>,
    /// The endpoint of the last attempt.
    tried: usize,
    /// The replica told this agent to move.
    moving: bool,
    /// The replica has been silent for too long.
    doubtful: bool,
    /// The link was opened with a certificate that has been renewed since.
    outdated: bool,
    dice: Dice,
}

pub(crate) enum AttachmentEvent<C: StreamKind> {
    /// A message arrived on the link, or the link ended.
    Heard(Result<C::Down, SessionFailure>),
    /// An attempt ended: with a link and its first message, or with a failure.
    Opened(Result<(Box<Link<C>>, C::Down), SessionFailure>),
    /// Something is due to be sent, and the link has room for it.
    Turn,
    /// The link has been silent for too long.
    Doubt,
    /// An endpoint is due to be dialled.
    DialDue,
}

impl<C: StreamKind> Attachment<C> {
    pub(crate) fn new(opener: Opener, seed: u64, dice: Dice) -> Self {
        let search = ReplicaSearch::new(opener.endpoints.len(), seed, Instant::now());
        let (link, attempt) = (None, None);
        Self { opener, search, link, attempt, tried: 0, moving: false, doubtful: false, outdated: false, dice }
    }

    /// Waits for the first event. Nothing is lost when the future is dropped.
    ///
    /// A doubt does not wait for room on the link: a link without room is one reason for the doubt.
    pub(crate) async fn next(&mut self, turn_at: Instant, doubt_at: Option<Instant>) -> AttachmentEvent<C> {
        let dial_at = self.wants_attempt().then(|| self.search.not_before());
        let Self { link, attempt, outdated, .. } = self;
        let (receiver, sender) = match link {
            Some(link) => link.split(),
            None => return outcome_or_dial(attempt, dial_at).await,
        };
        tokio::select! {
            // The replica ended the link because the session goes on with the new certificate; its first message is on
            // its way.
            heard = receiver.receive() => match heard {
                Err(_) if *outdated && attempt.is_some() => outcome_or_dial(attempt, None).await,
                heard @ (Ok(_) | Err(_)) => AttachmentEvent::Heard(heard),
            },
            () = sender.turn(turn_at) => AttachmentEvent::Turn,
            () = sleep_until(doubt_at.unwrap_or(turn_at)), if doubt_at.is_some() => AttachmentEvent::Doubt,
            event = outcome_or_dial(attempt, dial_at) => event,
        }
    }

    /// Dials the next endpoint. `hello` makes the first message and is told whether this is a move.
    pub(crate) fn dial_next(&mut self, terms: &SessionTerms, hello: impl FnOnce(bool) -> C::Up) {
        // Only an agent that must leave its replica avoids its present endpoint.
        let left = self.link.as_ref().map(|link| link.endpoint).filter(|_| self.moving || self.doubtful);
        self.tried = self.search.endpoint(left, Instant::now());
        self.attempt = Some(self.opener.attempt(self.tried, hello(self.link.is_some()), terms.connect_timeouts()));
    }

    /// An attempt failed.
    pub(crate) fn attempt_failed(&mut self, failure: &SessionFailure, cap: Duration) {
        self.attempt = None;
        self.search.failed(self.tried, failure, cap, (self.dice)(), Instant::now());
    }

    /// Takes this link into use and closes the former one.
    pub(crate) fn attach(&mut self, link: Box<Link<C>>) {
        self.stay();
        if let Some(former) = &self.link {
            self.search.try_last(former.endpoint, Instant::now());
        }
        self.search.attached(link.endpoint);
        self.link = Some(link);
    }

    /// Drops a link that ended or can no longer be used.
    pub(crate) fn lose(&mut self, failure: &SessionFailure, cap: Duration) {
        // An attempt under way claims to move from a link that is gone; the other side may refuse it for that.
        self.stay();
        let Some(link) = self.link.take() else { return };
        self.search.lasted(link.lifetime(), cap);
        self.search.failed(link.endpoint, failure, cap, (self.dice)(), Instant::now());
    }

    pub(crate) fn relocate(&mut self, cap: Duration) {
        self.begin_search(cap);
        self.moving = true;
    }

    /// There is a new certificate: every new link uses it, and the present link is replaced.
    pub(crate) fn renew(&mut self, cap: Duration) {
        // This attempt may have shown the old certificate.
        self.attempt = None;
        if self.link.is_some() {
            self.begin_search(cap);
            self.outdated = true;
        }
    }

    /// Searches for another replica for as long as this one is in doubt.
    pub(crate) fn doubt(&mut self, doubtful: bool, cap: Duration) {
        if doubtful {
            self.begin_search(cap);
        }
        self.doubtful = doubtful;
        if self.link.is_some() && !self.searches() {
            self.attempt = None;
        }
    }

    pub(crate) fn send(&self, message: C::Up) {
        if let Some(link) = &self.link {
            link.send(message);
        }
    }

    pub(crate) fn endpoint_name(&self) -> &str {
        self.link.as_ref().map_or("", |link| &link.endpoint_name)
    }

    /// Stops the attempt under way; the link stays.
    pub(crate) fn give_up_attempt(&mut self) {
        self.attempt = None;
    }

    /// Drops link and attempt at once, as a machine does that loses power.
    pub(crate) fn cut(&mut self) {
        self.link = None;
        self.stay();
    }

    /// Sends the last messages and closes the link in an orderly way.
    pub(crate) async fn close(&mut self, last_words: impl IntoIterator<Item = C::Up>) {
        self.attempt = None;
        if let Some(link) = self.link.take() {
            link.close(last_words).await;
        }
    }

    fn wants_attempt(&self) -> bool {
        self.attempt.is_none() && (self.link.is_none() || self.searches())
    }

    fn searches(&self) -> bool {
        self.moving || self.doubtful || self.outdated
    }

    /// Resets the back-off if the link lasted: former failures do not delay a new search.
    fn begin_search(&mut self, cap: Duration) {
        if let Some(link) = self.link.as_ref().filter(|_| !self.searches()) {
            self.search.lasted(link.lifetime(), cap);
        }
    }

    fn stay(&mut self) {
        self.attempt = None;
        self.moving = false;
        self.doubtful = false;
        self.outdated = false;
    }
}

async fn outcome_or_dial<C: StreamKind>(
    attempt: &mut Option<Attempt<C>>,
    dial_at: Option<Instant>,
) -> AttachmentEvent<C> {
    match (attempt, dial_at) {
        (Some(attempt), _) => AttachmentEvent::Opened(attempt.await),
        (None, Some(at)) => {
            sleep_until(at).await;
            AttachmentEvent::DialDue
        }
        (None, None) => pending().await,
    }
}
