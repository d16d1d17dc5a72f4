//! Task of an aggregator: waits for events, hands them to the conversation, and does what it answers.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::connection::{AggregatorStream, Attachment, AttachmentEvent, Link, SessionFailure};
use crate::pods::PodInbox;

use super::conversation::{Conversation, Reaction};
use super::{AggregatorState, StatusChanges};

pub(super) struct Driver {
    conversation: Conversation,
    attachment: Attachment<AggregatorStream>,
    reports: Arc<StatusChanges>,
    /// Updates about the nodes' pods.
    inbox: Arc<PodInbox>,
    stopping: CancellationToken,
    published: watch::Sender<AggregatorState>,
    last_error: Option<SessionFailure>,
}

impl Driver {
    pub(super) fn new(
        conversation: Conversation,
        attachment: Attachment<AggregatorStream>,
        reports: Arc<StatusChanges>,
        inbox: Arc<PodInbox>,
        stopping: CancellationToken,
        published: watch::Sender<AggregatorState>,
    ) -> Self {
        Self { conversation, attachment, reports, inbox, stopping, published, last_error: None }
    }

    pub(super) async fn run(mut self) {
        let stopping = self.stopping.clone();
        while !stopping.is_cancelled() {
            // Runs before anything else is sent or received, so that no outdated state of a pod is sent.
            self.conversation.pods_updated(self.inbox.take(), Instant::now());
            let (turn_at, doubt_at) = (self.conversation.deadline(), self.conversation.doubt_at());
            let pods_at = self.conversation.pods_deadline();
            tokio::select! {
                event = self.attachment.next(turn_at, doubt_at) => self.handle(event),
                changed = self.reports.take() => self.conversation.status_changed(changed, Instant::now()),
                () = self.inbox.arrived() => {}
                () = sleep_until(pods_at.unwrap_or(turn_at)), if pods_at.is_some() => {
                    self.conversation.pods_turn(Instant::now());
                }
                () = stopping.cancelled() => {}
            }
            self.attachment.doubt(self.conversation.is_doubtful(), self.backoff_cap());
            self.publish();
        }
        let last_words = self.conversation.releases();
        self.attachment.close(last_words).await;
        self.conversation.detached(Instant::now());
        self.publish();
    }

    fn handle(&mut self, event: AttachmentEvent<AggregatorStream>) {
        match event {
            AttachmentEvent::Heard(Ok(reply)) => self.heard(reply),
            AttachmentEvent::Heard(Err(failure)) => self.leave(failure),
            AttachmentEvent::Opened(Ok((link, first))) => self.opened(link, first),
            AttachmentEvent::Opened(Err(failure)) => self.attempt_failed(failure),
            AttachmentEvent::Turn => {
                if let Some(message) = self.conversation.turn(Instant::now()) {
                    self.attachment.send(message);
                }
            }
            AttachmentEvent::Doubt => self.doubt(),
            AttachmentEvent::DialDue => {
                let conversation = &self.conversation;
                self.attachment.dial_next(&conversation.terms(), |moving| conversation.hello(moving));
            }
        }
    }

    fn heard(&mut self, reply: v1::AggregatorReply) {
        match self.conversation.heard(reply, Instant::now()) {
            Reaction::Stay => {}
            Reaction::Complain(failure) => self.note(failure),
            Reaction::Move => self.attachment.relocate(self.backoff_cap()),
        }
    }

    fn opened(&mut self, link: Box<Link<AggregatorStream>>, first: v1::AggregatorReply) {
        match self.conversation.attached(first, &link.endpoint_name, Instant::now()) {
            Ok(()) => {
                self.attachment.attach(link);
                self.last_error = None;
            }
            Err(failure) => self.attempt_failed(failure),
        }
    }

    fn doubt(&mut self) {
        if let Some(failure) = self.conversation.doubt(self.attachment.endpoint_name(), Instant::now()) {
            self.note(failure);
        }
    }

    fn attempt_failed(&mut self, failure: SessionFailure) {
        self.attachment.attempt_failed(&failure, self.backoff_cap());
        self.note(failure);
    }

    fn leave(&mut self, failure: SessionFailure) {
        self.attachment.lose(&failure, self.backoff_cap());
        self.conversation.detached(Instant::now());
        self.note(failure);
    }

    fn backoff_cap(&self) -> Duration {
        self.conversation.terms().backoff_cap
    }

    /// Logs a refusal once; passing faults are frequent and logged for debugging only.
    fn note(&mut self, failure: SessionFailure) {
        if failure.is_refusal() && self.last_error.as_ref() != Some(&failure) {
            tracing::warn!(%failure, "aggregator not attached");
        } else {
            tracing::debug!(%failure, "aggregator session failure");
        }
        self.last_error = Some(failure);
    }

    fn publish(&self) {
        let state = AggregatorState { last_error: self.last_error.clone(), ..self.conversation.state() };
        self.published.send_if_modified(|published| {
            let modified = *published != state;
            *published = state;
            modified
        });
    }
}
