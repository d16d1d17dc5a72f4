//! The task of a session: waits, passes what happens to the conversation, and does what it says.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::attachment::{Attachment, Occurrence};
use crate::failure::Failure;
use crate::link::{Alone, Link};
use crate::pods::{Fate, Inbox};

use super::conversation::{Conversation, Reaction, Turn};
use super::insight::{Inquiry, Insight, Vitals};
use super::presence::{Presence, Wishes};
use super::state::SessionState;

pub(super) struct Driver {
    conversation: Conversation,
    attachment: Attachment<Alone>,
    wished: watch::Receiver<Wishes>,
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    inquired: mpsc::Receiver<Inquiry>,
    /// News of the node's pods.
    inbox: Arc<Inbox>,
    published: watch::Sender<SessionState>,
    vitals: Vitals,
    obeyed: Wishes,
    last_error: Option<Failure>,
}

impl Driver {
    pub(super) fn new(
        conversation: Conversation,
        attachment: Attachment<Alone>,
        wished: watch::Receiver<Wishes>,
        (asked, inquired): (mpsc::Receiver<oneshot::Sender<()>>, mpsc::Receiver<Inquiry>),
        inbox: Arc<Inbox>,
        published: watch::Sender<SessionState>,
    ) -> Self {
        Self {
            conversation,
            attachment,
            wished,
            asked,
            inquired,
            inbox,
            published,
            vitals: Vitals::default(),
            obeyed: Wishes::default(),
            last_error: None,
        }
    }

    pub(super) async fn run(mut self) {
        while !self.obeyed.stopping {
            if self.obeyed.presence == Presence::Live {
                self.live().await;
            } else if self.wished.changed().await.is_err() {
                return;
            }
            self.obey();
            self.publish();
        }
        self.attachment.close([Conversation::goodbye()]).await;
        self.conversation.detached();
        self.publish();
    }

    async fn live(&mut self) {
        self.take_news();
        let (turn_at, doubt_at) = (self.conversation.deadline(), self.conversation.doubt_at());
        let pods_at = self.conversation.pods_deadline();
        tokio::select! {
            occurrence = self.attachment.next(turn_at, doubt_at) => self.happened(occurrence),
            Some(answer) = self.asked.recv() => self.conversation.acknowledge(answer, Instant::now()),
            Some(inquiry) = self.inquired.recv() => self.answer(inquiry),
            _ = self.wished.changed() => {}
            () = self.inbox.arrived() => {}
            () = sleep_until(pods_at.unwrap_or(turn_at)), if pods_at.is_some() => {
                self.conversation.pods_turn(Instant::now());
            }
        }
        self.attachment.doubt(self.conversation.is_doubtful(), self.backoff_cap());
    }

    fn answer(&self, inquiry: Inquiry) {
        let door = Some(self.attachment.door_name()).filter(|door| !door.is_empty()).map(str::to_owned);
        // Whoever gave up in this moment needs no answer.
        let _ = inquiry.send(Insight { door, vitals: self.vitals, pods: self.conversation.pods() });
    }

    /// Before anything else is said or heard, so that nothing is said of pods that is not so any more.
    fn take_news(&mut self) {
        for news in self.inbox.take().into_values() {
            if self.conversation.pods_news(news, Instant::now()) == Fate::Lost {
                self.attachment.cut();
                self.conversation.detached();
            }
        }
    }

    fn happened(&mut self, occurrence: Occurrence<Alone>) {
        match occurrence {
            Occurrence::Heard(Ok(message)) => self.heard(message),
            Occurrence::Heard(Err(failure)) => self.leave(failure),
            Occurrence::Opened(Ok((link, first))) => self.opened(link, first),
            Occurrence::Opened(Err(failure)) => self.rebuffed(failure),
            Occurrence::Turn => self.turn(),
            Occurrence::Doubt => self.doubt(),
            Occurrence::Knock => {
                let conversation = &self.conversation;
                self.attachment.knock(&conversation.terms(), |moving| conversation.hello(moving));
            }
        }
    }

    fn heard(&mut self, message: v1::ServerMessage) {
        self.vitals.heard(&message, Instant::now());
        let before = self.conversation.replica();
        match self.conversation.heard(message, self.attachment.door_name(), Instant::now()) {
            Reaction::Stay => {}
            Reaction::Complain(failure) => self.note(failure),
            Reaction::Move => self.attachment.relocate(self.backoff_cap()),
            Reaction::Leave(failure) => self.leave(failure),
        }
        if before.is_none() && self.conversation.replica().is_some() {
            self.last_error = None;
        }
    }

    fn opened(&mut self, link: Box<Link<Alone>>, first: v1::ServerMessage) {
        if let Err(failure) = self.conversation.accepts(&first, &link.door_name) {
            return self.rebuffed(failure);
        }
        self.attachment.settle(link);
        self.conversation.detached();
        self.heard(first);
    }

    fn turn(&mut self) {
        match self.conversation.turn(self.attachment.door_name(), Instant::now()) {
            Turn::Say(message) => {
                self.vitals.said(&message, Instant::now());
                self.attachment.say(message);
            }
            Turn::Leave(failure) => self.leave(failure),
            Turn::Nothing => {}
        }
    }

    fn doubt(&mut self) {
        if let Some(failure) = self.conversation.doubt(self.attachment.door_name(), Instant::now()) {
            self.note(failure);
        }
    }

    fn rebuffed(&mut self, failure: Failure) {
        self.vitals.failures += 1;
        self.attachment.rebuffed(&failure, self.backoff_cap());
        self.note(failure);
    }

    fn leave(&mut self, failure: Failure) {
        self.vitals.failures += 1;
        self.attachment.lose(&failure, self.backoff_cap());
        self.conversation.detached();
        self.note(failure);
    }

    fn backoff_cap(&self) -> Duration {
        self.conversation.terms().backoff_cap
    }

    /// Verdicts are logged once; accidents are everyday.
    fn note(&mut self, failure: Failure) {
        let node = self.conversation.node();
        if failure.is_verdict() && self.last_error.as_ref() != Some(&failure) {
            tracing::warn!(node, %failure, "not attached");
        } else {
            tracing::debug!(node, %failure, "trouble with a session");
        }
        self.last_error = Some(failure);
    }

    fn obey(&mut self) {
        let wishes = *self.wished.borrow_and_update();
        if wishes.reports != self.obeyed.reports {
            self.conversation.status_changed();
        }
        if wishes.renewals != self.obeyed.renewals {
            self.attachment.renew(self.backoff_cap());
        }
        if wishes.presence != self.obeyed.presence {
            self.appear(wishes.presence);
        }
        self.obeyed = wishes;
    }

    fn appear(&mut self, presence: Presence) {
        match presence {
            // Whatever the fleet made of the absence, it must hear how things are.
            Presence::Live => self.conversation.status_demanded(),
            Presence::Silent => self.attachment.give_up_attempt(),
            Presence::Dead => {
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
        };
        self.published.send_if_modified(|published| {
            let modified = *published != state;
            *published = state;
            modified
        });
    }
}
