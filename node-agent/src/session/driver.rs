//! Task of a session: waits for events, hands them to the conversation, and does what it answers.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::connection::{Attachment, AttachmentEvent, Link, NodeStream, SessionFailure};
use crate::pods::{PodInbox, PodsFate};

use super::conversation::{Conversation, Reaction, Turn};
use super::requests::{AgentMode, OwnerRequests};
use super::snapshot::{SessionCounters, SessionSnapshot, SnapshotRequest};
use super::state::SessionState;

pub(super) struct Driver {
    conversation: Conversation,
    attachment: Attachment<NodeStream>,
    requested: watch::Receiver<OwnerRequests>,
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    inquired: mpsc::Receiver<SnapshotRequest>,
    /// Updates about the node's pods.
    inbox: Arc<PodInbox>,
    published: watch::Sender<SessionState>,
    counters: SessionCounters,
    applied: OwnerRequests,
    last_error: Option<SessionFailure>,
}

impl Driver {
    pub(super) fn new(
        conversation: Conversation,
        attachment: Attachment<NodeStream>,
        requested: watch::Receiver<OwnerRequests>,
        (asked, inquired): (mpsc::Receiver<oneshot::Sender<()>>, mpsc::Receiver<SnapshotRequest>),
        inbox: Arc<PodInbox>,
        published: watch::Sender<SessionState>,
    ) -> Self {
        Self {
            conversation,
            attachment,
            requested,
            asked,
            inquired,
            inbox,
            published,
            counters: SessionCounters::default(),
            applied: OwnerRequests::default(),
            last_error: None,
        }
    }

    pub(super) async fn run(mut self) {
        while !self.applied.stopping {
            if self.applied.mode == AgentMode::Live {
                self.live().await;
            } else if self.requested.changed().await.is_err() {
                return;
            }
            self.apply_requests();
            self.publish();
        }
        self.attachment.close([Conversation::goodbye()]).await;
        self.conversation.detached();
        self.publish();
    }

    async fn live(&mut self) {
        self.take_updates();
        let (turn_at, doubt_at) = (self.conversation.deadline(), self.conversation.doubt_at());
        let pods_at = self.conversation.pods_deadline();
        tokio::select! {
            event = self.attachment.next(turn_at, doubt_at) => self.handle(event),
            Some(answer) = self.asked.recv() => self.conversation.acknowledge(answer, Instant::now()),
            Some(inquiry) = self.inquired.recv() => self.answer(inquiry),
            _ = self.requested.changed() => {}
            () = self.inbox.arrived() => {}
            () = sleep_until(pods_at.unwrap_or(turn_at)), if pods_at.is_some() => {
                self.conversation.pods_turn(Instant::now());
            }
        }
        self.attachment.doubt(self.conversation.is_doubtful(), self.backoff_cap());
    }

    fn answer(&self, inquiry: SnapshotRequest) {
        let endpoint = Some(self.attachment.endpoint_name()).filter(|endpoint| !endpoint.is_empty()).map(str::to_owned);
        // A caller that has just given up needs no answer.
        let _ = inquiry.send(SessionSnapshot { endpoint, counters: self.counters, pods: self.conversation.pods() });
    }

    /// Runs before anything else is sent or received, so that no outdated state of a pod is sent.
    fn take_updates(&mut self) {
        for news in self.inbox.take().into_values() {
            if self.conversation.pods_updated(news, Instant::now()) == PodsFate::Lost {
                self.attachment.cut();
                self.conversation.detached();
            }
        }
    }

    fn handle(&mut self, event: AttachmentEvent<NodeStream>) {
        match event {
            AttachmentEvent::Heard(Ok(message)) => self.heard(message),
            AttachmentEvent::Heard(Err(failure)) => self.leave(failure),
            AttachmentEvent::Opened(Ok((link, first))) => self.opened(link, first),
            AttachmentEvent::Opened(Err(failure)) => self.attempt_failed(failure),
            AttachmentEvent::Turn => self.turn(),
            AttachmentEvent::Doubt => self.doubt(),
            AttachmentEvent::DialDue => {
                let conversation = &self.conversation;
                self.attachment.dial_next(&conversation.terms(), |moving| conversation.hello(moving));
            }
        }
    }

    fn heard(&mut self, message: v1::ServerMessage) {
        self.counters.heard(&message, Instant::now());
        let before = self.conversation.replica();
        match self.conversation.heard(message, self.attachment.endpoint_name(), Instant::now()) {
            Reaction::Stay => {}
            Reaction::Complain(failure) => self.note(failure),
            Reaction::Move => self.attachment.relocate(self.backoff_cap()),
            Reaction::Leave(failure) => self.leave(failure),
        }
        if before.is_none() && self.conversation.replica().is_some() {
            self.last_error = None;
        }
    }

    fn opened(&mut self, link: Box<Link<NodeStream>>, first: v1::ServerMessage) {
        if let Err(failure) = self.conversation.accepts(&first, &link.endpoint_name) {
            return self.attempt_failed(failure);
        }
        self.attachment.attach(link);
        self.conversation.detached();
        self.heard(first);
    }

    fn turn(&mut self) {
        match self.conversation.turn(self.attachment.endpoint_name(), Instant::now()) {
            Turn::Send(message) => {
                self.counters.said(&message, Instant::now());
                self.attachment.send(message);
            }
            Turn::Leave(failure) => self.leave(failure),
            Turn::Nothing => {}
        }
    }

    fn doubt(&mut self) {
        if let Some(failure) = self.conversation.doubt(self.attachment.endpoint_name(), Instant::now()) {
            self.note(failure);
        }
    }

    fn attempt_failed(&mut self, failure: SessionFailure) {
        self.counters.failures += 1;
        self.attachment.attempt_failed(&failure, self.backoff_cap());
        self.note(failure);
    }

    fn leave(&mut self, failure: SessionFailure) {
        self.counters.failures += 1;
        self.attachment.lose(&failure, self.backoff_cap());
        self.conversation.detached();
        self.note(failure);
    }

    fn backoff_cap(&self) -> Duration {
        self.conversation.terms().backoff_cap
    }

    /// Logs a refusal once; passing faults are frequent and logged for debugging only.
    fn note(&mut self, failure: SessionFailure) {
        if failure.is_displacement() {
            self.conversation.displaced();
        }
        let node = self.conversation.node();
        if failure.is_refusal() && self.last_error.as_ref() != Some(&failure) {
            tracing::warn!(node, %failure, "not attached");
        } else {
            tracing::debug!(node, %failure, "session failure");
        }
        self.last_error = Some(failure);
    }

    fn apply_requests(&mut self) {
        let requests = *self.requested.borrow_and_update();
        if requests.reports != self.applied.reports {
            self.conversation.status_changed();
        }
        if requests.renewals != self.applied.renewals {
            self.attachment.renew(self.backoff_cap());
        }
        if requests.mode != self.applied.mode {
            self.appear(requests.mode);
        }
        self.applied = requests;
    }

    fn appear(&mut self, mode: AgentMode) {
        match mode {
            // The cluster may have drawn conclusions from the absence, so it needs the full status.
            AgentMode::Live => self.conversation.status_demanded(),
            AgentMode::Silent => self.attachment.give_up_attempt(),
            AgentMode::Dead => {
                self.attachment.cut();
                self.conversation.detached();
            }
        }
    }

    fn publish(&self) {
        let state = SessionState {
            attached_to: self.conversation.replica(),
            fleet: self.conversation.fleet(),
            incarnation: self.conversation.incarnation(),
            removals: self.conversation.removals(),
            terms: self.conversation.terms(),
            last_error: self.last_error.clone(),
            lacking: self.conversation.lacking(),
        };
        self.published.send_if_modified(|published| {
            let modified = *published != state;
            *published = state;
            modified
        });
    }
}
