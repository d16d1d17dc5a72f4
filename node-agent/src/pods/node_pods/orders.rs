//! Orders for the pods of a node, and how they are followed.

use std::time::Duration;

use bytes::Bytes;
use muster_proto::v1;
use muster_proto::v1::pod_order::Action;
use serde_json::Value;
use tokio::time::Instant;

use super::{LAST_GRACE_MAX, NodePods, PODS_MAX, Pod, PodStage, StaleOrders};
use crate::pods::{DurableNote, LocalPodStatus, PodName, PodPhase, PodUid};

impl NodePods {
    pub(crate) fn apply_orders(&mut self, orders: v1::PodOrders, now: Instant) -> Result<(), StaleOrders> {
        if orders.revision < self.floor {
            return Err(StaleOrders);
        }
        self.continues = true;
        if orders.revision > self.revision {
            self.revision = orders.revision;
            self.note(DurableNote::Orders { fleet: self.fleet.clone(), revision: self.revision });
        }
        for order in orders.orders {
            self.apply_order(order, now);
        }
        if orders.complete {
            self.complete = true;
            self.abandon_what_was_not_ordered(now);
        }
        Ok(())
    }

    fn apply_order(&mut self, order: v1::PodOrder, now: Instant) {
        let Some(uid) = PodUid::from_wire(&order.uid) else {
            return tracing::warn!(namespace = order.namespace, name = order.name, "pod order without a uid ignored");
        };
        match order.action() {
            Action::Run => self.run(uid, order),
            Action::Stop => self.stop(uid, order, now),
            Action::Forget => self.abandon(uid, Duration::ZERO, now),
            // Actions of later versions are ignored.
            Action::Unspecified => {}
        }
    }

    fn run(&mut self, uid: PodUid, order: v1::PodOrder) {
        let name = PodName { namespace: order.namespace, name: order.name };
        if self.mark_ordered(uid, &name) {
            return;
        }
        match self.ended.get(uid).cloned() {
            Some(status) => self.report_ended(uid, name, status),
            None => self.start(uid, name, order.manifest),
        }
    }

    fn stop(&mut self, uid: PodUid, order: v1::PodOrder, now: Instant) {
        let name = PodName { namespace: order.namespace, name: order.name };
        let grace = Duration::from_secs(order.grace_seconds.into());
        if !self.mark_ordered(uid, &name) {
            return self.stop_unknown(uid, name, grace, now);
        }
        if self.pods.get(&uid).is_some_and(|pod| pod.life == PodStage::Waiting) {
            return self.end(uid, never_ran());
        }
        self.stop_within(uid, grace, now);
    }

    /// A pod without a record has ended or never ran, unless the record was lost and the runtime finds its processes.
    fn stop_unknown(&mut self, uid: PodUid, name: PodName, grace: Duration, now: Instant) {
        if let Some(status) = self.ended.get(uid).cloned() {
            return self.report_ended(uid, name, status);
        }
        let is_searched = self.runtime.as_ref().is_some_and(|runtime| runtime.stop_unrecorded(&name, uid, grace));
        match is_searched {
            true => {
                let life = PodStage::Stopping { kill_at: Some(now + grace) };
                let status = LocalPodStatus::new(PodPhase::Unknown, "NoRecord", "its processes are searched for");
                self.enter(uid, Pod { status, ..Pod::new(Some(name), life) });
            }
            false => self.report_ended(uid, name, never_ran()),
        }
    }

    /// True if the pod is known here. Then this stream has named it, and it is reported if it was not before.
    fn mark_ordered(&mut self, uid: PodUid, name: &PodName) -> bool {
        let Some(pod) = self.pods.get_mut(&uid) else { return false };
        pod.ordered = true;
        pod.name = Some(name.clone());
        if !std::mem::replace(&mut pod.is_reported, true) || pod.life == PodStage::Ended {
            self.reports.add(uid);
        }
        true
    }

    /// Starts the pod, or lets it wait for the pod that had its name before.
    fn start(&mut self, uid: PodUid, name: PodName, manifest: Bytes) {
        let last_grace = grace_of(&manifest).min(LAST_GRACE_MAX);
        let obstacle = self.obstacle(&name);
        let (reason, message) = obstacle.unwrap_or_default();
        let status = LocalPodStatus::new(PodPhase::Pending, reason, message);
        let pod = Pod { status, last_grace, manifest, ..Pod::new(Some(name), PodStage::Waiting) };
        if self.enter(uid, pod) && obstacle.is_none() {
            self.begin(uid);
        }
    }

    /// Why a pod of this name cannot start now: reason and message.
    fn obstacle(&self, name: &PodName) -> Option<(&'static str, &'static str)> {
        match self.runtime {
            None => Some(("NoRuntime", "this machine runs no pods")),
            Some(_) if self.has_running(name) => {
                Some(("NameInUse", "another pod of this name has not ended on this node yet"))
            }
            Some(_) => None,
        }
    }

    /// Reports a pod that was ordered although it ended or never ran.
    fn report_ended(&mut self, uid: PodUid, name: PodName, status: LocalPodStatus) {
        let pod = Pod { status: status.clone(), ..Pod::new(Some(name), PodStage::Ended) };
        if self.enter(uid, pod) {
            self.remember(uid, status);
        }
    }

    /// Beyond the bound the order is ignored; the next stream repeats it.
    fn enter(&mut self, uid: PodUid, pod: Pod) -> bool {
        if self.pods.len() >= PODS_MAX {
            tracing::warn!(%uid, "pod order ignored: the node has the maximum of {PODS_MAX} pods");
            return false;
        }
        self.pods.insert(uid, Pod { ordered: true, ..pod });
        self.reports.add(uid);
        true
    }

    fn abandon_what_was_not_ordered(&mut self, now: Instant) {
        let rest: Vec<_> = self.pods.iter().filter(|(_, pod)| !pod.ordered).map(|(uid, _)| *uid).collect();
        for uid in rest {
            self.abandon(uid, Duration::ZERO, now);
        }
    }
}

fn never_ran() -> LocalPodStatus {
    LocalPodStatus::new(PodPhase::Failed, "NotRunning", "nothing of it ran on this node when it was told to stop")
}

/// The grace period in the pod's own manifest.
fn grace_of(manifest: &[u8]) -> Duration {
    let manifest: Option<Value> = serde_json::from_slice(manifest).ok();
    let grace = manifest.as_ref().and_then(|pod| pod["spec"]["terminationGracePeriodSeconds"].as_u64());
    grace.map_or(LAST_GRACE_MAX, Duration::from_secs)
}
