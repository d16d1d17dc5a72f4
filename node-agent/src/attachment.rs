//! Where an agent is attached, and the search for the next place: shared by sessions and carriers.
//!
//! At most one link is held and one attempt is under way. An agent that was told to move, or that doubts its replica,
//! keeps its link until the attempt has succeeded; if nobody takes it in, it stays where it is and goes on trying. A
//! doubt may pass, and then the search is over. One whose certificate is new does the same, at its own door first.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::link::{Attempt, Call, Link, Opener};
use crate::pursuit::Pursuit;
use crate::terms::Terms;

/// Draws from 0 to 1.
pub(crate) type Dice = fn() -> f64;

pub(crate) struct Attachment<C: Call> {
    opener: Opener,
    pursuit: Pursuit,
    link: Option<Box<Link<C>>>,
    attempt: Option<Attempt<C>>,
    /// The door of the last attempt.
    tried: usize,
    /// The replica told us to move.
    moving: bool,
    /// The replica does not seem to listen.
    doubtful: bool,
    /// The link was opened with a certificate that has been renewed since.
    outdated: bool,
    dice: Dice,
}

pub(crate) enum Occurrence<C: Call> {
    /// The link said something, or ended.
    Heard(Result<C::Down, Failure>),
    /// An attempt ended: with a link and its first message, or in vain.
    Opened(Result<(Box<Link<C>>, C::Down), Failure>),
    /// It is time to say something, and there is room for it.
    Turn,
    /// The link has been silent for long.
    Doubt,
    /// It is time to try a door.
    Knock,
}

impl<C: Call> Attachment<C> {
    pub(crate) fn new(opener: Opener, seed: u64, dice: Dice) -> Self {
        let pursuit = Pursuit::new(opener.doors.len(), seed, Instant::now());
        let (link, attempt) = (None, None);
        Self { opener, pursuit, link, attempt, tried: 0, moving: false, doubtful: false, outdated: false, dice }
    }

    /// Waits for whatever comes first. Nothing is lost when the future is dropped.
    ///
    /// A doubt does not wait for room on the link: one that takes nothing any more is the very reason for it.
    pub(crate) async fn next(&mut self, turn_at: Instant, doubt_at: Option<Instant>) -> Occurrence<C> {
        let knock_at = self.wants_attempt().then(|| self.pursuit.not_before());
        let Self { link, attempt, outdated, .. } = self;
        let (ear, mouth) = match link {
            Some(link) => link.split(),
            None => return outcome_or_knock(attempt, knock_at).await,
        };
        tokio::select! {
            // The replica ended it because the session goes on with the new certificate: what it says there is on its way.
            heard = ear.hear() => match heard {
                Err(_) if *outdated && attempt.is_some() => outcome_or_knock(attempt, None).await,
                heard @ (Ok(_) | Err(_)) => Occurrence::Heard(heard),
            },
            () = mouth.turn(turn_at) => Occurrence::Turn,
            () = sleep_until(doubt_at.unwrap_or(turn_at)), if doubt_at.is_some() => Occurrence::Doubt,
            occurrence = outcome_or_knock(attempt, knock_at) => occurrence,
        }
    }

    /// Tries the next door with the hello that `hello` makes, which is told whether this is a move.
    pub(crate) fn knock(&mut self, terms: &Terms, hello: impl FnOnce(bool) -> C::Up) {
        // Only whoever is not content with its replica looks for another one.
        let left = self.link.as_ref().map(|link| link.door).filter(|_| self.moving || self.doubtful);
        self.tried = self.pursuit.door(left, Instant::now());
        self.attempt = Some(self.opener.attempt(self.tried, hello(self.link.is_some()), terms.patience()));
    }

    /// An attempt was in vain.
    pub(crate) fn rebuffed(&mut self, failure: &Failure, cap: Duration) {
        self.attempt = None;
        self.pursuit.failed(self.tried, failure, cap, (self.dice)(), Instant::now());
    }

    /// From now on this link is the one; the former is closed.
    pub(crate) fn settle(&mut self, link: Box<Link<C>>) {
        self.stay();
        if let Some(former) = &self.link {
            self.pursuit.shun(former.door, Instant::now());
        }
        self.pursuit.settled(link.door);
        self.link = Some(link);
    }

    /// The link is of no more use.
    pub(crate) fn lose(&mut self, failure: &Failure, cap: Duration) {
        // An attempt under way says that it moves from a link that is gone, which the other side may hold against it.
        self.stay();
        let Some(link) = self.link.take() else { return };
        self.pursuit.lasted(link.lifetime(), cap);
        self.pursuit.failed(link.door, failure, cap, (self.dice)(), Instant::now());
    }

    pub(crate) fn relocate(&mut self, cap: Duration) {
        self.begin_search(cap);
        self.moving = true;
    }

    /// There is a new certificate: from now on nothing is opened with the old one, and the link is replaced.
    pub(crate) fn renew(&mut self, cap: Duration) {
        // It may have shown the old one.
        self.attempt = None;
        if self.link.is_some() {
            self.begin_search(cap);
            self.outdated = true;
        }
    }

    /// Looks for another place for as long as this one is in doubt.
    pub(crate) fn doubt(&mut self, doubtful: bool, cap: Duration) {
        if doubtful {
            self.begin_search(cap);
        }
        self.doubtful = doubtful;
        if self.link.is_some() && !self.searches() {
            self.attempt = None;
        }
    }

    pub(crate) fn say(&self, message: C::Up) {
        if let Some(link) = &self.link {
            link.say(message);
        }
    }

    pub(crate) fn door_name(&self) -> &str {
        self.link.as_ref().map_or("", |link| &link.door_name)
    }

    /// Stops trying; the link stays.
    pub(crate) fn give_up_attempt(&mut self) {
        self.attempt = None;
    }

    /// Drops everything at once, as a machine does that loses power.
    pub(crate) fn cut(&mut self) {
        self.link = None;
        self.stay();
    }

    /// An orderly end.
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

    /// Former failures do not delay a search that begins after a time of peace.
    fn begin_search(&mut self, cap: Duration) {
        if let Some(link) = self.link.as_ref().filter(|_| !self.searches()) {
            self.pursuit.lasted(link.lifetime(), cap);
        }
    }

    fn stay(&mut self) {
        self.attempt = None;
        self.moving = false;
        self.doubtful = false;
        self.outdated = false;
    }
}

async fn outcome_or_knock<C: Call>(attempt: &mut Option<Attempt<C>>, knock_at: Option<Instant>) -> Occurrence<C> {
    match (attempt, knock_at) {
        (Some(attempt), _) => Occurrence::Opened(attempt.await),
        (None, Some(at)) => {
            sleep_until(at).await;
            Occurrence::Knock
        }
        (None, None) => pending().await,
    }
}
