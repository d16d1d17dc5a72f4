//! The task of a carrier: waits, passes what happens to the roster, and does what it says.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::attachment::{Attachment, Occurrence};
use crate::failure::Failure;
use crate::link::{Link, Together};
use crate::pods::Inbox;

use super::roster::{Reaction, Roster};
use super::{CarrierState, Reports};

pub(super) struct Driver {
    roster: Roster,
    attachment: Attachment<Together>,
    reports: Arc<Reports>,
    /// News of the nodes' pods.
    inbox: Arc<Inbox>,
    stopping: CancellationToken,
    published: watch::Sender<CarrierState>,
    last_error: Option<Failure>,
}

impl Driver {
    pub(super) fn new(
        roster: Roster,
        attachment: Attachment<Together>,
        reports: Arc<Reports>,
        inbox: Arc<Inbox>,
        stopping: CancellationToken,
        published: watch::Sender<CarrierState>,
    ) -> Self {
        Self { roster, attachment, reports, inbox, stopping, published, last_error: None }
    }

    pub(super) async fn run(mut self) {
        let stopping = self.stopping.clone();
        while !stopping.is_cancelled() {
            // Before anything else is said or heard, so that nothing is said of pods that is not so any more.
            self.roster.pods_news(self.inbox.take(), Instant::now());
            let (turn_at, doubt_at) = (self.roster.deadline(), self.roster.doubt_at());
            let pods_at = self.roster.pods_deadline();
            tokio::select! {
                occurrence = self.attachment.next(turn_at, doubt_at) => self.happened(occurrence),
                changed = self.reports.take() => self.roster.status_changed(changed, Instant::now()),
                () = self.inbox.arrived() => {}
                () = sleep_until(pods_at.unwrap_or(turn_at)), if pods_at.is_some() => {
                    self.roster.pods_turn(Instant::now());
                }
                () = stopping.cancelled() => {}
            }
            self.attachment.doubt(self.roster.is_doubtful(), self.backoff_cap());
            self.publish();
        }
        let last_words = self.roster.releases();
        self.attachment.close(last_words).await;
        self.roster.detached(Instant::now());
        self.publish();
    }

    fn happened(&mut self, occurrence: Occurrence<Together>) {
        match occurrence {
            Occurrence::Heard(Ok(reply)) => self.heard(reply),
            Occurrence::Heard(Err(failure)) => self.leave(failure),
            Occurrence::Opened(Ok((link, first))) => self.opened(link, first),
            Occurrence::Opened(Err(failure)) => self.rebuffed(failure),
            Occurrence::Turn => {
                if let Some(message) = self.roster.turn(Instant::now()) {
                    self.attachment.say(message);
                }
            }
            Occurrence::Doubt => self.doubt(),
            Occurrence::Knock => {
                let roster = &self.roster;
                self.attachment.knock(&roster.terms(), |moving| roster.hello(moving));
            }
        }
    }

    fn heard(&mut self, reply: v1::CarrierReply) {
        match self.roster.heard(reply, Instant::now()) {
            Reaction::Stay => {}
            Reaction::Complain(failure) => self.note(failure),
            Reaction::Move => self.attachment.relocate(self.backoff_cap()),
        }
    }

    fn opened(&mut self, link: Box<Link<Together>>, first: v1::CarrierReply) {
        match self.roster.attached(first, &link.door_name, Instant::now()) {
            Ok(()) => {
                self.attachment.settle(link);
                self.last_error = None;
            }
            Err(failure) => self.rebuffed(failure),
        }
    }

    fn doubt(&mut self) {
        if let Some(failure) = self.roster.doubt(self.attachment.door_name(), Instant::now()) {
            self.note(failure);
        }
    }

    fn rebuffed(&mut self, failure: Failure) {
        self.attachment.rebuffed(&failure, self.backoff_cap());
        self.note(failure);
    }

    fn leave(&mut self, failure: Failure) {
        self.attachment.lose(&failure, self.backoff_cap());
        self.roster.detached(Instant::now());
        self.note(failure);
    }

    fn backoff_cap(&self) -> Duration {
        self.roster.terms().backoff_cap
    }

    /// Verdicts are logged once; accidents are everyday.
    fn note(&mut self, failure: Failure) {
        if failure.is_verdict() && self.last_error.as_ref() != Some(&failure) {
            tracing::warn!(%failure, "carrier not attached");
        } else {
            tracing::debug!(%failure, "trouble with a carrier");
        }
        self.last_error = Some(failure);
    }

    fn publish(&self) {
        let state = CarrierState { last_error: self.last_error.clone(), ..self.roster.state() };
        self.published.send_if_modified(|published| {
            let modified = *published != state;
            *published = state;
            modified
        });
    }
}
