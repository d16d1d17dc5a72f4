//! Pods of one node: what should run, what runs, and what the cluster knows of it. It never waits; the time is an
//! argument.
//!
//! ```text
//!   RUN --> Running --STOP, FORGET, not ordered--> Stopping --grace over: killed--> Stopping --update--> Ended
//!    |  ^      \____________________________ ended by itself: update _______________________________^  |
//!    v  | its name is free                                           reported, accepted: only the uid is kept
//!   Waiting
//! ```
//!
//! A uid that ended here never starts again. A forgotten pod has not ended: a pod that was told to stop counts as
//! running until the runtime reports that nothing of it is left, and until then its name is not used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_lifecycle::agent_bound;
use muster_proto::v1;
use tokio::time::Instant;

use super::ended::EndedPods;
use super::reports::PodReports;
use super::{
    DurableNote, LocalPodStatus, PodName, PodPhase, PodToStart, PodUid, PodUpdate, PodUpdateSender, PodUpdates, Runtime,
};
use crate::connection::SessionTerms;

mod orders;
mod snapshot;
#[cfg(test)]
mod tests;

/// More than a node can be given, and the most that a message can name as running.
const PODS_MAX: usize = 2048;
/// A report stays well below the largest message.
const REPORT_BYTES: usize = 128 << 10;
/// Generous size of a pod's state without its texts.
const STATE_BYTES: usize = 64;
/// Pods of a former incarnation delay the next one, so they get at most this grace.
const LAST_GRACE_MAX: Duration = Duration::from_millis(agent_bound::LAST_GRACE_MAX.0);
/// How long killed pods may take to end before the next incarnation begins beside them.
const KILL_ALLOWANCE: Duration = Duration::from_millis(agent_bound::KILL_ALLOWANCE.0);

pub(crate) struct NodePods {
    /// None: this machine runs no pods.
    runtime: Option<Arc<dyn Runtime>>,
    pods: BTreeMap<PodUid, Pod>,
    ended: EndedPods,
    reports: PodReports,
    /// The fleet that gave the orders; empty until one did.
    fleet: String,
    /// The highest revision of the orders that were followed.
    revision: u64,
    /// The revision when this stream began. A replica that gives older orders lags behind the others.
    floor: u64,
    /// This stream has ordered everything that should run.
    complete: bool,
    /// When the node's incarnation ended, if it has not been welcomed as another one since.
    incarnation_ended: Option<Instant>,
    /// This process had orders in its last session, and did not lose that to another instance.
    continues: bool,
}

struct Pod {
    /// None: an earlier process of the agent left this pod, and its name is unknown.
    name: Option<PodName>,
    /// False: it is not reported, because no stream ordered it, or the cluster has forgotten it.
    is_reported: bool,
    status: LocalPodStatus,
    life: PodStage,
    /// Its grace when the node's incarnation ends.
    last_grace: Duration,
    /// This stream has named it.
    ordered: bool,
    /// Its manifest until it starts.
    manifest: Bytes,
}

#[derive(Clone, Copy, PartialEq)]
enum PodStage {
    /// Not started: there is no runtime, or another pod of its name still runs.
    Waiting,
    Running,
    /// Killed already, if no time is given.
    Stopping {
        kill_at: Option<Instant>,
    },
    Ended,
}

/// Whether updates kept the pods or lost them all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodsFate {
    Kept,
    /// All pods are gone without an end: the orders must be received again.
    Lost,
}

/// Orders older than those of another stream; they were ignored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StaleOrders;

pub use snapshot::PodSnapshot;

// === impl NodePods ===

impl NodePods {
    pub(crate) fn new(runtime: Option<Arc<dyn Runtime>>, updates: PodUpdateSender, now: Instant) -> Self {
        if let Some(runtime) = &runtime {
            runtime.report_to(updates);
        }
        let recalled = runtime.as_ref().map(|runtime| runtime.recall()).unwrap_or_default();
        let mut ended = EndedPods::default();
        recalled.ended.into_iter().for_each(|(uid, status)| ended.remember(uid, status));
        Self {
            runtime,
            pods: BTreeMap::new(),
            ended,
            reports: PodReports::new(now),
            fleet: recalled.fleet,
            revision: recalled.revision,
            floor: recalled.revision,
            complete: false,
            incarnation_ended: None,
            continues: false,
        }
    }

    /// A fleet accepted the node. False: the last orders came from another fleet, whose revisions mean nothing here.
    /// They are forgotten now, but the hello named them, so the node must say hello again.
    pub(crate) fn belongs_to(&mut self, fleet: &str) -> bool {
        let stranger = !self.fleet.is_empty() && self.fleet != fleet && self.revision != 0;
        if self.fleet != fleet {
            (self.fleet, self.revision, self.floor) = (fleet.to_owned(), 0, 0);
        }
        !stranger
    }

    pub(crate) fn orders_revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn continues(&self) -> bool {
        self.continues
    }

    /// Another instance has the session.
    pub(crate) fn displaced(&mut self) {
        self.continues = false;
    }

    /// The uids of all pods of which anything runs.
    pub(crate) fn running(&self) -> v1::Running {
        let running = self.pods.iter().filter(|(_, pod)| pod.runs());
        v1::Running { uids: running.map(|(uid, _)| uid.to_wire()).collect() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.pods.values().any(Pod::runs)
    }

    /// From when on the next incarnation may be registered although pods of the former one run: they were killed long
    /// before and do not die. None: nothing runs.
    pub(crate) fn clear_from(&self, now: Instant) -> Option<Instant> {
        let ended = self.incarnation_ended.unwrap_or(now);
        (!self.is_idle()).then(|| ended + LAST_GRACE_MAX + KILL_ALLOWANCE)
    }

    /// A replica accepted the node: it orders everything anew, and every pod is reported to it.
    pub(crate) fn begin_stream(&mut self) {
        self.floor = self.revision;
        self.complete = false;
        self.incarnation_ended = None;
        self.pods.values_mut().for_each(|pod| pod.ordered = false);
        self.report_all();
    }

    pub(crate) fn report_all(&mut self) {
        self.reports.begin(self.pods.iter().filter(|(_, pod)| pod.is_reported).map(|(uid, _)| *uid));
    }

    /// The node's incarnation is over: its pods stop and are not reported.
    pub(crate) fn end_incarnation(&mut self, now: Instant) {
        self.incarnation_ended.get_or_insert(now);
        let ending: Vec<_> = self.pods.iter().map(|(uid, pod)| (*uid, pod.last_grace)).collect();
        for (uid, grace) in ending {
            self.abandon(uid, grace, now);
        }
    }

    pub(crate) fn take_updates(&mut self, updates: PodUpdates, now: Instant) -> PodsFate {
        if updates.lost {
            self.pods.clear();
            self.reports.begin([]);
        }
        for updates in updates.pods.into_values() {
            self.take_update(updates, now);
        }
        if updates.lost { PodsFate::Lost } else { PodsFate::Kept }
    }

    fn take_update(&mut self, updates: PodUpdate, now: Instant) {
        let PodUpdate { uid, status, stopped } = updates;
        match self.pods.get_mut(&uid) {
            _ if stopped => self.end(uid, status.clipped()),
            Some(pod) => {
                let status = status.clipped();
                if pod.runs() && pod.status != status {
                    pod.status = status;
                    self.queue_report(uid);
                }
            }
            None if self.ended.get(uid).is_none() => self.found(uid, status.clipped(), now),
            None => {}
        }
    }

    /// A pod runs that was not ordered from this process. It is kept for as long as an order for it may still come.
    fn found(&mut self, uid: PodUid, status: LocalPodStatus, now: Instant) {
        let name = self.runtime.as_ref().and_then(|runtime| runtime.name_of(uid));
        self.pods.insert(uid, Pod { status, is_reported: false, ..Pod::new(name, PodStage::Running) });
        if self.complete || self.pods.len() > PODS_MAX {
            self.stop_within(uid, Duration::ZERO, now);
        }
    }

    /// When a pod has to be killed next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pods.values().filter_map(Pod::kill_at).min()
    }

    /// Kills pods that did not end within their grace.
    pub(crate) fn turn(&mut self, now: Instant) {
        let late = |pod: &Pod| pod.kill_at().is_some_and(|at| at <= now);
        let late: Vec<_> = self.pods.iter().filter(|(_, pod)| late(pod)).map(|(uid, _)| *uid).collect();
        for uid in late {
            self.stop_within(uid, Duration::ZERO, now);
        }
    }

    /// When the next report is due.
    pub(crate) fn report_due(&self) -> Option<Instant> {
        self.reports.due()
    }

    pub(crate) fn report(&mut self, sequence: u64, now: Instant, terms: &SessionTerms) -> Option<v1::PodsReport> {
        let (pods, mut bytes) = (&self.pods, 0);
        let fit = |uid| {
            let is_first = bytes == 0;
            bytes += pods.get(&uid).map_or(STATE_BYTES, Pod::state_bytes);
            is_first || bytes <= REPORT_BYTES
        };
        let said = self.reports.next_report(sequence, now, terms, fit);
        let state = |uid: PodUid| pods.get(&uid).and_then(|pod| pod.state(uid));
        let pods: Vec<_> = said.into_iter().filter_map(state).collect();
        (!pods.is_empty()).then_some(v1::PodsReport { sequence, pods })
    }

    /// The cluster accepted a report. True if it learned that pods have stopped.
    pub(crate) fn taken(&mut self, sequence: u64) -> bool {
        let mut stops = false;
        for uid in self.reports.taken(sequence) {
            if self.pods.get(&uid).is_some_and(|pod| pod.life == PodStage::Ended) {
                self.pods.remove(&uid);
                stops = true;
            }
        }
        stops
    }

    pub(crate) fn refused(&mut self, sequence: u64, now: Instant, terms: &SessionTerms) {
        self.reports.refused(sequence, now, terms);
    }

    /// Stops a pod that is no longer wanted, and reports nothing more about it.
    fn abandon(&mut self, uid: PodUid, grace: Duration, now: Instant) {
        self.reports.forget(uid);
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        pod.is_reported = false;
        match pod.life {
            PodStage::Running | PodStage::Stopping { .. } => self.stop_within(uid, grace, now),
            PodStage::Waiting | PodStage::Ended => {
                self.pods.remove(&uid);
            }
        }
    }

    /// Stops a running pod within the grace, unless it must end sooner already.
    fn stop_within(&mut self, uid: PodUid, grace: Duration, now: Instant) {
        let kill_at = (!grace.is_zero()).then(|| now + grace);
        let (Some(pod), Some(runtime)) = (self.pods.get_mut(&uid), &self.runtime) else { return };
        if !pod.would_end_sooner(kill_at) {
            return;
        }
        pod.life = PodStage::Stopping { kill_at };
        match kill_at {
            Some(_) => runtime.stop(uid, grace),
            None => runtime.kill(uid),
        }
    }

    /// Nothing of the pod runs, and nothing of it will run again.
    fn end(&mut self, uid: PodUid, status: LocalPodStatus) {
        let status = status.ended();
        let name = self.pods.get(&uid).and_then(|pod| pod.name.clone());
        match self.pods.get_mut(&uid) {
            Some(pod) if pod.life == PodStage::Ended => return,
            Some(pod) if pod.is_reported => {
                (pod.life, pod.status) = (PodStage::Ended, status.clone());
                self.reports.add(uid);
            }
            Some(_) | None => {
                self.pods.remove(&uid);
            }
        }
        self.remember(uid, status);
        if let Some(name) = name {
            self.start_next(&name);
        }
    }

    /// Starts one of the pods that waited for this name; the others wait for that one.
    fn start_next(&mut self, name: &PodName) {
        if self.has_running(name) {
            return;
        }
        let waits = |pod: &Pod| pod.life == PodStage::Waiting && pod.name.as_ref() == Some(name);
        let next = self.pods.iter().find(|(_, pod)| waits(pod)).map(|(uid, _)| *uid);
        next.into_iter().for_each(|uid| self.begin(uid));
    }

    fn has_running(&self, name: &PodName) -> bool {
        self.pods.values().any(|pod| pod.runs() && pod.name.as_ref() == Some(name))
    }

    fn begin(&mut self, uid: PodUid) {
        let (Some(pod), Some(runtime)) = (self.pods.get_mut(&uid), &self.runtime) else { return };
        let Some(PodName { namespace, name }) = pod.name.clone() else { return };
        (pod.life, pod.status) = (PodStage::Running, LocalPodStatus::new(PodPhase::Pending, "", ""));
        runtime.start(PodToStart { namespace, name, uid, manifest: std::mem::take(&mut pod.manifest) });
        self.queue_report(uid);
    }

    fn remember(&mut self, uid: PodUid, status: LocalPodStatus) {
        self.ended.remember(uid, status.clone());
        self.note(DurableNote::Ended { uid, status });
    }

    fn note(&self, note: DurableNote) {
        if let Some(runtime) = &self.runtime {
            runtime.note(note);
        }
    }

    fn queue_report(&mut self, uid: PodUid) {
        if self.pods.get(&uid).is_some_and(|pod| pod.is_reported) {
            self.reports.add(uid);
        }
    }
}

// === impl Pod ===

impl Pod {
    fn new(name: Option<PodName>, life: PodStage) -> Self {
        let status = LocalPodStatus::new(PodPhase::Pending, "", "");
        let (last_grace, manifest) = (LAST_GRACE_MAX, Bytes::new());
        Self { name, is_reported: true, status, life, last_grace, ordered: false, manifest }
    }

    fn runs(&self) -> bool {
        matches!(self.life, PodStage::Running | PodStage::Stopping { .. })
    }

    fn kill_at(&self) -> Option<Instant> {
        match self.life {
            PodStage::Stopping { kill_at } => kill_at,
            PodStage::Waiting | PodStage::Running | PodStage::Ended => None,
        }
    }

    /// Whether a kill at that time (none: now) would end it sooner.
    fn would_end_sooner(&self, kill_at: Option<Instant>) -> bool {
        match self.life {
            PodStage::Running => true,
            PodStage::Stopping { kill_at: Some(known) } => kill_at.is_none_or(|at| at < known),
            PodStage::Stopping { kill_at: None } | PodStage::Waiting | PodStage::Ended => false,
        }
    }

    fn state(&self, uid: PodUid) -> Option<v1::PodState> {
        let PodName { namespace, name } = self.name.as_ref().filter(|_| self.is_reported)?;
        let LocalPodStatus { phase, ready, restarts, reason, message } = &self.status;
        Some(v1::PodState {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_wire(),
            phase: phase.as_str().to_owned(),
            ready: *ready,
            restarts: *restarts,
            reason: reason.clone(),
            message: message.clone(),
            stopped: self.life == PodStage::Ended,
        })
    }

    fn state_bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |name| name.namespace.len() + name.name.len());
        STATE_BYTES + name + self.status.reason.len() + self.status.message.len()
    }
}
