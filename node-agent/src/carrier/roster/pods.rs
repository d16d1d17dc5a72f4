//! What the roster makes of its nodes' pods.

use std::collections::BTreeMap;

use muster_proto::v1;
use tokio::time::Instant;

use super::{Reaction, Roster, Standing};
use crate::failure::{Failure, quoted};
use crate::pods::{Fate, Gathered, StaleOrders};

impl Roster {
    /// What the runtimes have to say. A node that lost everything says what runs now, and is bound anew to be told what
    /// should.
    pub(in crate::carrier) fn pods_news(&mut self, news: BTreeMap<u32, Gathered>, now: Instant) {
        for (handle, news) in news {
            if self.node_mut(handle).pods.hear(news, now) == Fate::Lost {
                self.node_mut(handle).status.demand();
                self.bind_anew(handle, now);
            }
            self.pods_changed(handle, now);
        }
    }

    /// When a pod has to be killed next, whether or not anybody is there to be told.
    pub(in crate::carrier) fn pods_deadline(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    pub(in crate::carrier) fn pods_turn(&mut self, now: Instant) {
        while let Some((_, handle)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.node_mut(handle).pods.turn(now);
            self.pods_changed(handle, now);
        }
    }

    /// A replica that lags behind is asked for its orders again, now that it can be told what it lacks: what it said
    /// first, and was ignored, it would not repeat.
    pub(super) fn pods_ordered(&mut self, handle: u32, orders: v1::PodOrders, now: Instant) -> Reaction {
        // A node that is not bound has been let go of: these are the last words of its former binding.
        if !matches!(self.node(handle).standing, Standing::Bound) {
            return Reaction::Stay;
        }
        let obeyed = self.node_mut(handle).pods.obey(orders, now);
        self.pods_changed(handle, now);
        match obeyed {
            Ok(()) => Reaction::Stay,
            Err(StaleOrders) => {
                self.bind_anew(handle, now);
                Reaction::Complain(Failure::StaleOrders { node: self.node(handle).name.clone() })
            }
        }
    }

    /// A status may have been refused for the very pods of which the fleet now knows that they have stopped.
    pub(super) fn pods_taken(&mut self, handle: u32, taken: &v1::PodsTaken, now: Instant) -> Reaction {
        let terms = self.terms;
        let node = self.node_mut(handle);
        if !taken.refused.is_empty() {
            node.pods.refused(taken.sequence, now, &terms);
            let (node, reason) = (node.name.clone(), quoted(&taken.refused));
            return Reaction::Complain(Failure::PodsRefused { node, reason });
        }
        if node.pods.taken(taken.sequence) {
            node.status.retry_now(now);
        }
        self.owe_pods_if_due(handle, now);
        self.owe_status_if_due(handle, now);
        Reaction::Stay
    }

    pub(super) fn end_life(&mut self, handle: u32, now: Instant) {
        self.node_mut(handle).pods.end_life(now);
        self.pods_changed(handle, now);
    }

    pub(super) fn owe_pods_if_due(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.standing, Standing::Bound) && node.pods.report_due().is_some_and(|due| due <= now) {
            self.owed.pods.insert(handle);
        }
    }

    /// To be called whenever a node's pods have changed.
    fn pods_changed(&mut self, handle: u32, now: Instant) {
        self.set_alarm(handle);
        self.register_if_clear(handle, now);
        self.owe_pods_if_due(handle, now);
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

    fn register_if_clear(&mut self, handle: u32, now: Instant) {
        let node = self.node(handle);
        if matches!(node.standing, Standing::Clearing) && node.pods.is_idle() {
            self.stand(handle, Standing::Unbound { since: now });
            self.owed.registrations.insert(handle);
        }
    }

    fn bind_anew(&mut self, handle: u32, now: Instant) {
        if matches!(self.node(handle).standing, Standing::Bound) {
            self.owed.forget(handle);
            self.stand(handle, Standing::Unbound { since: now });
            self.owed.bindings.insert(handle);
        }
    }
}
