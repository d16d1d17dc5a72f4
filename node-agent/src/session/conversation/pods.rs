//! Pods in the conversation of one node: runtime updates, orders and reports.

use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use tokio::time::Instant;

use super::{Conversation, Reaction, wrap};
use crate::connection::{SessionFailure, quoted};
use crate::pods::{PodUpdates, PodsFate, StaleOrders};

impl Conversation {
    /// Takes the runtime's updates. If all pods were lost, the cluster must learn what runs now, and the orders must be
    /// received again on another stream.
    pub(in crate::session) fn pods_updated(&mut self, updates: PodUpdates, now: Instant) -> PodsFate {
        let fate = self.pods.take_updates(updates, now);
        if fate == PodsFate::Lost {
            self.status.demand();
        }
        fate
    }

    /// When a pod has to be killed next, attached or not.
    pub(in crate::session) fn pods_deadline(&self) -> Option<Instant> {
        self.pods.deadline()
    }

    pub(in crate::session) fn pods_turn(&mut self, now: Instant) {
        self.pods.turn(now);
    }

    /// Leaves a replica that lags behind and gave older orders. On the next stream the hello names the revision this
    /// node has; the replica would not repeat orders that were ignored.
    pub(super) fn pods_ordered(&mut self, orders: v1::PodOrders, now: Instant) -> Reaction {
        // A node that must register anew ignores orders for its former incarnation.
        if self.replica().is_none() {
            return Reaction::Stay;
        }
        match self.pods.apply_orders(orders, now) {
            Ok(()) => Reaction::Stay,
            Err(StaleOrders) => Reaction::Leave(SessionFailure::StaleOrders { node: self.node.clone() }),
        }
    }

    /// A status may have been refused because of the pods that the cluster now knows have stopped.
    pub(super) fn pods_taken(&mut self, taken: v1::PodsTaken, now: Instant) -> Reaction {
        if !taken.refused.is_empty() {
            self.pods.refused(taken.sequence, now, &self.terms);
            return Reaction::Complain(SessionFailure::PodsRefused {
                node: self.node.clone(),
                reason: quoted(&taken.refused),
            });
        }
        if self.pods.taken(taken.sequence) {
            self.status.retry_now(now);
        }
        Reaction::Stay
    }

    /// A pod report is not a beat: it does not report the node's health.
    pub(super) fn report_pods(&mut self, now: Instant) -> Option<v1::AgentMessage> {
        let report = self.pods.report(self.sequence + 1, now, &self.terms)?;
        self.sequence += 1;
        Some(wrap(Up::Pods(report)))
    }
}
