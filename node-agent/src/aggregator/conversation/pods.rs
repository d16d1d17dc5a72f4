//! Pods in the conversation of an aggregator: runtime updates, orders and reports.

use std::collections::BTreeMap;

use muster_proto::v1;
use tokio::time::Instant;

use super::{BindingState, Conversation, Reaction};
use crate::connection::{SessionFailure, quoted};
use crate::pods::{PodUpdates, PodsFate, StaleOrders};

impl Conversation {
    /// Takes the runtimes' updates. A node that lost all pods reports what runs now, and is bound anew to receive its
    /// orders again.
    pub(in crate::aggregator) fn pods_updated(&mut self, updates: BTreeMap<u32, PodUpdates>, now: Instant) {
        for (handle, updates) in updates {
            if self.node_mut(handle).pods.take_updates(updates, now) == PodsFate::Lost {
                self.node_mut(handle).status.demand();
                self.bind_anew(handle, now);
            }
            self.pods_changed(handle, now);
        }
    }

    /// When a pod has to be killed next, attached or not.
    pub(in crate::aggregator) fn pods_deadline(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    pub(in crate::aggregator) fn pods_turn(&mut self, now: Instant) {
        while let Some((_, handle)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.node_mut(handle).pods.turn(now);
            self.pods_changed(handle, now);
        }
    }

    /// Binds the node anew if the replica lags behind and gave older orders. The binding names the revision this node
    /// has; the replica would not repeat orders that were ignored.
    pub(super) fn pods_ordered(&mut self, handle: u32, orders: v1::PodOrders, now: Instant) -> Reaction {
        // A node that is not bound ignores orders of its former binding.
        if !matches!(self.node(handle).binding, BindingState::Bound) {
            return Reaction::Stay;
        }
        let applied = self.node_mut(handle).pods.apply_orders(orders, now);
        self.pods_changed(handle, now);
        match applied {
            Ok(()) => Reaction::Stay,
            Err(StaleOrders) => {
                self.bind_anew(handle, now);
                Reaction::Complain(SessionFailure::StaleOrders { node: self.node(handle).name.clone() })
            }
        }
    }

    /// A status may have been refused because of the pods that the cluster now knows have stopped.
    pub(super) fn pods_taken(&mut self, handle: u32, taken: &v1::PodsTaken, now: Instant) -> Reaction {
        let terms = self.terms;
        let node = self.node_mut(handle);
        if !taken.refused.is_empty() {
            node.pods.refused(taken.sequence, now, &terms);
            let (node, reason) = (node.name.clone(), quoted(&taken.refused));
            return Reaction::Complain(SessionFailure::PodsRefused { node, reason });
        }
        if node.pods.taken(taken.sequence) {
            node.status.retry_now(now);
        }
        self.queue_pods_if_due(handle, now);
        self.queue_status_if_due(handle, now);
        Reaction::Stay
    }

    pub(super) fn end_incarnation(&mut self, handle: u32, now: Instant) {
        self.node_mut(handle).pods.end_incarnation(now);
        self.pods_changed(handle, now);
    }

    pub(super) fn queue_pods_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.binding, BindingState::Bound) && node.pods.report_due().is_some_and(|due| due <= now) {
            self.outbound.pods.insert(handle);
        }
    }

    /// Must be called whenever a node's pods have changed.
    fn pods_changed(&mut self, handle: u32, now: Instant) {
        self.set_alarm(handle);
        self.register_if_clear(handle, now);
        self.queue_pods_if_due(handle, now);
    }

    fn set_alarm(&mut self, handle: u32) {
        let node = self.node_mut(handle);
        let alarm = node.pods.deadline();
        let before = std::mem::replace(&mut node.alarm, alarm);
        if let Some(at) = before {
            self.alarms.remove(&(at, handle));
        }
        if let Some(at) = alarm {
            self.alarms.insert((at, handle));
        }
    }

    pub(super) fn register_if_clear(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        let is_clear = node.pods.clear_from(now).is_none_or(|clear| clear <= now);
        if matches!(node.binding, BindingState::Clearing) && is_clear {
            self.set_binding(handle, BindingState::Unbound { since: now });
            self.outbound.registrations.insert(handle);
        }
    }

    fn bind_anew(&mut self, handle: u32, now: Instant) {
        if matches!(self.node(handle).binding, BindingState::Bound) {
            self.outbound.forget(handle);
            self.set_binding(handle, BindingState::Unbound { since: now });
            self.outbound.bindings.insert(handle);
        }
    }
}
