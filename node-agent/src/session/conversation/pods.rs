//! What the conversation makes of the node's pods.

use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use tokio::time::Instant;

use super::{Conversation, Reaction, wrap};
use crate::failure::{Failure, quoted};
use crate::pods::{Fate, Gathered, StaleOrders};

impl Conversation {
    /// What the runtime has to say. If everything was lost, the fleet has to hear what runs now, and the orders have to
    /// be heard again on another stream.
    pub(in crate::session) fn pods_news(&mut self, news: Gathered, now: Instant) -> Fate {
        let fate = self.pods.hear(news, now);
        if fate == Fate::Lost {
            self.status.demand();
        }
        fate
    }

    /// When a pod has to be killed next, whether or not anybody is there to be told.
    pub(in crate::session) fn pods_deadline(&self) -> Option<Instant> {
        self.pods.deadline()
    }

    pub(in crate::session) fn pods_turn(&mut self, now: Instant) {
        self.pods.turn(now);
    }

    /// A replica that lags behind is left, and asked for its orders again, now that it can be told what it lacks:
    /// what it said first, and was ignored, it would not repeat.
    pub(super) fn pods_ordered(&mut self, orders: v1::PodOrders, now: Instant) -> Reaction {
        // A node that is to register anew has no use for the last words to its former life.
        if self.replica().is_none() {
            return Reaction::Stay;
        }
        match self.pods.obey(orders, now) {
            Ok(()) => Reaction::Stay,
            Err(StaleOrders) => Reaction::Leave(Failure::StaleOrders { node: self.node.clone() }),
        }
    }

    /// A status may have been refused for the very pods of which the fleet now knows that they have stopped.
    pub(super) fn pods_taken(&mut self, taken: v1::PodsTaken, now: Instant) -> Reaction {
        if !taken.refused.is_empty() {
            self.pods.refused(taken.sequence, now, &self.terms);
            return Reaction::Complain(Failure::PodsRefused {
                node: self.node.clone(),
                reason: quoted(&taken.refused),
            });
        }
        if self.pods.taken(taken.sequence) {
            self.status.retry_now(now);
        }
        Reaction::Stay
    }

    /// A report on pods is no beat: it says nothing of the node.
    pub(super) fn report_pods(&mut self, now: Instant) -> Option<v1::AgentMessage> {
        let report = self.pods.report(self.sequence + 1, now, &self.terms)?;
        self.sequence += 1;
        Some(wrap(Up::Pods(report)))
    }
}
