//! How a workload follows orders.

use std::time::Duration;

use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::pod_order::Action;
use serde_json::Value;
use tokio::time::Instant;

use super::{LAST_GRACE_MAX, Life, PODS_MAX, Pod, StaleOrders, Workload};
use crate::pods::{Note, Phase, PodName, PodStatus, PodUid};

impl Workload {
    pub(crate) fn obey(&mut self, orders: v1::PodOrders, now: Instant) -> Result<(), StaleOrders> {
        if orders.revision < self.floor {
            return Err(StaleOrders);
        }
        if orders.revision > self.revision {
            self.revision = orders.revision;
            self.note(Note::Orders { fleet: self.fleet.clone(), revision: self.revision });
        }
        for order in orders.orders {
            self.obey_one(order, now);
        }
        if orders.complete {
            self.complete = true;
            self.abandon_what_was_not_ordered(now);
        }
        Ok(())
    }

    fn obey_one(&mut self, order: v1::PodOrder, now: Instant) {
        let Some(uid) = PodUid::from_wire(&order.uid) else {
            return tracing::warn!(namespace = order.namespace, name = order.name, "an order without a uid is ignored");
        };
        match order.action() {
            Action::Run => self.run(uid, order),
            Action::Stop => self.stop(uid, order, now),
            Action::Forget => self.abandon(uid, Duration::ZERO, now),
            // What this version does not know is none of its business.
            Action::Unspecified => {}
        }
    }

    fn run(&mut self, uid: PodUid, order: v1::PodOrder) {
        let name = PodName { namespace: order.namespace, name: order.name };
        if self.address(uid, &name) {
            return;
        }
        match self.ended.get(uid).cloned() {
            Some(status) => self.say_ended(uid, name, status),
            None => self.start(uid, name, order.manifest),
        }
    }

    fn stop(&mut self, uid: PodUid, order: v1::PodOrder, now: Instant) {
        let name = PodName { namespace: order.namespace, name: order.name };
        if !self.address(uid, &name) {
            let status = self.ended.get(uid).cloned();
            return self.say_ended(uid, name, status.unwrap_or_else(never_ran));
        }
        if self.pods.get(&uid).is_some_and(|pod| pod.life == Life::Waiting) {
            return self.end(uid, never_ran());
        }
        self.halt(uid, Duration::from_secs(order.grace_seconds.into()), now);
    }

    /// If the pod is known here: this stream has spoken of it, and is to be told what nobody was told before.
    fn address(&mut self, uid: PodUid, name: &PodName) -> bool {
        let Some(pod) = self.pods.get_mut(&uid) else { return false };
        pod.ordered = true;
        pod.name = Some(name.clone());
        if !std::mem::replace(&mut pod.is_reported, true) || pod.life == Life::Ended {
            self.reporting.owe(uid);
        }
        true
    }

    /// Nothing runs twice under one name: it waits for whatever had the name before.
    fn start(&mut self, uid: PodUid, name: PodName, manifest: Bytes) {
        let last_grace = grace_of(&manifest).min(LAST_GRACE_MAX);
        let obstacle = self.obstacle(&name);
        let (reason, message) = obstacle.unwrap_or_default();
        let status = PodStatus::new(Phase::Pending, reason, message);
        let pod = Pod { status, last_grace, manifest, ..Pod::new(Some(name), Life::Waiting) };
        if self.enter(uid, pod) && obstacle.is_none() {
            self.begin(uid);
        }
    }

    /// Why a pod of this name cannot be started now, in a word and a sentence.
    fn obstacle(&self, name: &PodName) -> Option<(&'static str, &'static str)> {
        match self.runtime {
            None => Some(("NoRuntime", "this machine runs no pods")),
            Some(_) if self.has_running(name) => {
                Some(("NameInUse", "another pod of this name has not ended on this node yet"))
            }
            Some(_) => None,
        }
    }

    /// It is asked for although it ended, or never began: whoever asks must hear so.
    fn say_ended(&mut self, uid: PodUid, name: PodName, status: PodStatus) {
        let pod = Pod { status: status.clone(), ..Pod::new(Some(name), Life::Ended) };
        if self.enter(uid, pod) {
            self.remember(uid, status);
        }
    }

    /// Beyond the bound it is as if nothing had been said; the next stream says it again.
    fn enter(&mut self, uid: PodUid, pod: Pod) -> bool {
        if self.pods.len() >= PODS_MAX {
            tracing::warn!(%uid, "an order is ignored: {PODS_MAX} pods are all that a node can have");
            return false;
        }
        self.pods.insert(uid, Pod { ordered: true, ..pod });
        self.reporting.owe(uid);
        true
    }

    fn abandon_what_was_not_ordered(&mut self, now: Instant) {
        let rest: Vec<_> = self.pods.iter().filter(|(_, pod)| !pod.ordered).map(|(uid, _)| *uid).collect();
        for uid in rest {
            self.abandon(uid, Duration::ZERO, now);
        }
    }
}

fn never_ran() -> PodStatus {
    PodStatus::new(Phase::Failed, "NotRunning", "nothing of it ran on this node when it was to stop")
}

/// What the pod itself says about how long it may take to end.
fn grace_of(manifest: &[u8]) -> Duration {
    let manifest: Option<Value> = serde_json::from_slice(manifest).ok();
    let grace = manifest.as_ref().and_then(|pod| pod["spec"]["terminationGracePeriodSeconds"].as_u64());
    grace.map_or(LAST_GRACE_MAX, Duration::from_secs)
}
