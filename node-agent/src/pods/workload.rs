//! The pods of one node: what is to run, what does, and what the fleet knows of it. No waiting; the time is an argument.
//!
//! ```text
//!   RUN --> Running --STOP, FORGET, not ordered--> Stopping --grace over: killed--> Stopping --news--> Ended
//!    |  ^      \____________________________ ended by itself: news ___________________________________^  |
//!    v  | its name is free                                           reported, taken: only the uid is kept
//!   Waiting
//! ```
//!
//! A uid that ended here is never started again. Nothing ends by being forgotten: what was told to end counts as running
//! until the runtime says that nothing of it is left, and until then nothing else is started under its name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use muster_proto::v1;
use tokio::time::Instant;

use super::ended::Ended;
use super::reporting::Reporting;
use super::{Gathered, News, Note, Phase, PodName, PodNews, PodSpec, PodStatus, PodUid, Runtime};
use crate::terms::Terms;

mod insight;
mod orders;
#[cfg(test)]
mod tests;

/// More than a node can be given, and as many as may be said to run.
const PODS_MAX: usize = 2048;
/// A report stays well below what a message may hold.
const REPORT_BYTES: usize = 128 << 10;
/// What a pod's state takes beside its texts, generously.
const STATE_BYTES: usize = 64;
/// What runs for a former life of the node keeps it from its next, so it is not waited for longer than this.
const LAST_GRACE_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Workload {
    /// None: this machine runs no pods.
    runtime: Option<Arc<dyn Runtime>>,
    pods: BTreeMap<PodUid, Pod>,
    ended: Ended,
    reporting: Reporting,
    /// The fleet that gave the orders; empty until one did.
    fleet: String,
    /// The highest revision of the orders that were followed.
    revision: u64,
    /// What it was when this stream began: a replica that gives older orders has yet to learn what others know.
    floor: u64,
    /// This stream has said everything that should run.
    complete: bool,
}

struct Pod {
    /// None: an earlier process of the agent left it, and nobody knows any more.
    name: Option<PodName>,
    /// False: nobody is to be told about it, since nobody ordered it, or not any more.
    is_reported: bool,
    status: PodStatus,
    life: Life,
    /// How long it may take to end when its node's life is over.
    last_grace: Duration,
    /// This stream has spoken of it.
    ordered: bool,
    /// What to start it with, until it is.
    manifest: Bytes,
}

#[derive(Clone, Copy, PartialEq)]
enum Life {
    /// Not started, for want of a runtime, or because another of its name still runs.
    Waiting,
    Running,
    /// Killed, if no time is given.
    Stopping {
        kill_at: Option<Instant>,
    },
    Ended,
}

/// What became of the pods while nobody looked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    /// Everything vanished: the orders have to be asked for again.
    Lost,
}

/// Orders older than those of another stream; they were ignored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StaleOrders;

pub use insight::PodInsight;

// === impl Workload ===

impl Workload {
    pub(crate) fn new(runtime: Option<Arc<dyn Runtime>>, news: News, now: Instant) -> Self {
        if let Some(runtime) = &runtime {
            runtime.report_to(news);
        }
        let recalled = runtime.as_ref().map(|runtime| runtime.recall()).unwrap_or_default();
        let mut ended = Ended::default();
        recalled.ended.into_iter().for_each(|(uid, status)| ended.remember(uid, status));
        Self {
            runtime,
            pods: BTreeMap::new(),
            ended,
            reporting: Reporting::new(now),
            fleet: recalled.fleet,
            revision: recalled.revision,
            floor: recalled.revision,
            complete: false,
        }
    }

    /// A fleet took the node in. False: the last orders came from another one, whose revisions mean nothing to it. They
    /// are forgotten, but this fleet was told of them and has to be greeted anew.
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

    /// Of all pods of which anything runs.
    pub(crate) fn running(&self) -> v1::Running {
        let running = self.pods.iter().filter(|(_, pod)| pod.runs());
        v1::Running { uids: running.map(|(uid, _)| uid.to_wire()).collect() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.pods.values().any(Pod::runs)
    }

    /// A replica took the node in: it will order everything anew, and may think anything of the pods until it is told.
    pub(crate) fn begin_stream(&mut self) {
        self.floor = self.revision;
        self.complete = false;
        self.pods.values_mut().for_each(|pod| pod.ordered = false);
        self.report_all();
    }

    pub(crate) fn report_all(&mut self) {
        self.reporting.begin(self.pods.iter().filter(|(_, pod)| pod.is_reported).map(|(uid, _)| *uid));
    }

    /// The node's life is over: what runs for it ends, and there is nobody to report to.
    pub(crate) fn end_life(&mut self, now: Instant) {
        let ending: Vec<_> = self.pods.iter().map(|(uid, pod)| (*uid, pod.last_grace)).collect();
        for (uid, grace) in ending {
            self.abandon(uid, grace, now);
        }
    }

    pub(crate) fn hear(&mut self, news: Gathered, now: Instant) -> Fate {
        if news.lost {
            self.pods.clear();
            self.reporting.begin([]);
        }
        for news in news.pods.into_values() {
            self.hear_of(news, now);
        }
        if news.lost { Fate::Lost } else { Fate::Kept }
    }

    fn hear_of(&mut self, news: PodNews, now: Instant) {
        let PodNews { uid, status, stopped } = news;
        match self.pods.get_mut(&uid) {
            _ if stopped => self.end(uid, status.clipped()),
            Some(pod) => {
                let status = status.clipped();
                if pod.runs() && pod.status != status {
                    pod.status = status;
                    self.owe(uid);
                }
            }
            None if self.ended.get(uid).is_none() => self.found(uid, status.clipped(), now),
            None => {}
        }
    }

    /// Something runs that nobody ordered from this process: it is kept for as long as somebody may still order it.
    fn found(&mut self, uid: PodUid, status: PodStatus, now: Instant) {
        let name = self.runtime.as_ref().and_then(|runtime| runtime.name_of(uid));
        self.pods.insert(uid, Pod { status, is_reported: false, ..Pod::new(name, Life::Running) });
        if self.complete || self.pods.len() > PODS_MAX {
            self.halt(uid, Duration::ZERO, now);
        }
    }

    /// When something has to be killed next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pods.values().filter_map(Pod::kill_at).min()
    }

    /// Kills what did not end within its grace.
    pub(crate) fn turn(&mut self, now: Instant) {
        let late = |pod: &Pod| pod.kill_at().is_some_and(|at| at <= now);
        let late: Vec<_> = self.pods.iter().filter(|(_, pod)| late(pod)).map(|(uid, _)| *uid).collect();
        for uid in late {
            self.halt(uid, Duration::ZERO, now);
        }
    }

    /// When there is something to report.
    pub(crate) fn report_due(&self) -> Option<Instant> {
        self.reporting.due()
    }

    pub(crate) fn report(&mut self, sequence: u64, now: Instant, terms: &Terms) -> Option<v1::PodsReport> {
        let (pods, mut bytes) = (&self.pods, 0);
        let fit = |uid| {
            let is_first = bytes == 0;
            bytes += pods.get(&uid).map_or(STATE_BYTES, Pod::state_bytes);
            is_first || bytes <= REPORT_BYTES
        };
        let said = self.reporting.say(sequence, now, terms, fit);
        let state = |uid: PodUid| pods.get(&uid).and_then(|pod| pod.state(uid));
        let pods: Vec<_> = said.into_iter().filter_map(state).collect();
        (!pods.is_empty()).then_some(v1::PodsReport { sequence, pods })
    }

    /// Whether the fleet learnt that pods have stopped.
    pub(crate) fn taken(&mut self, sequence: u64) -> bool {
        let mut stops = false;
        for uid in self.reporting.taken(sequence) {
            if self.pods.get(&uid).is_some_and(|pod| pod.life == Life::Ended) {
                self.pods.remove(&uid);
                stops = true;
            }
        }
        stops
    }

    pub(crate) fn refused(&mut self, sequence: u64, now: Instant, terms: &Terms) {
        self.reporting.refused(sequence, now, terms);
    }

    /// Nobody wants it any more, nor to hear of it.
    fn abandon(&mut self, uid: PodUid, grace: Duration, now: Instant) {
        self.reporting.forget(uid);
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        pod.is_reported = false;
        match pod.life {
            Life::Running | Life::Stopping { .. } => self.halt(uid, grace, now),
            Life::Waiting | Life::Ended => {
                self.pods.remove(&uid);
            }
        }
    }

    /// Ends what runs within the grace, unless it has to end sooner anyway.
    fn halt(&mut self, uid: PodUid, grace: Duration, now: Instant) {
        let kill_at = (!grace.is_zero()).then(|| now + grace);
        let (Some(pod), Some(runtime)) = (self.pods.get_mut(&uid), &self.runtime) else { return };
        if !pod.would_end_sooner(kill_at) {
            return;
        }
        pod.life = Life::Stopping { kill_at };
        match kill_at {
            Some(_) => runtime.stop(uid, grace),
            None => runtime.kill(uid),
        }
    }

    /// Nothing of it runs, and nothing of it will.
    fn end(&mut self, uid: PodUid, status: PodStatus) {
        let status = status.ended();
        let name = self.pods.get(&uid).and_then(|pod| pod.name.clone());
        match self.pods.get_mut(&uid) {
            Some(pod) if pod.life == Life::Ended => return,
            Some(pod) if pod.is_reported => {
                (pod.life, pod.status) = (Life::Ended, status.clone());
                self.reporting.owe(uid);
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

    /// Of those that waited for this name one is started: the others wait for that one.
    fn start_next(&mut self, name: &PodName) {
        if self.has_running(name) {
            return;
        }
        let waits = |pod: &Pod| pod.life == Life::Waiting && pod.name.as_ref() == Some(name);
        let next = self.pods.iter().find(|(_, pod)| waits(pod)).map(|(uid, _)| *uid);
        next.into_iter().for_each(|uid| self.begin(uid));
    }

    fn has_running(&self, name: &PodName) -> bool {
        self.pods.values().any(|pod| pod.runs() && pod.name.as_ref() == Some(name))
    }

    fn begin(&mut self, uid: PodUid) {
        let (Some(pod), Some(runtime)) = (self.pods.get_mut(&uid), &self.runtime) else { return };
        let Some(PodName { namespace, name }) = pod.name.clone() else { return };
        (pod.life, pod.status) = (Life::Running, PodStatus::new(Phase::Pending, "", ""));
        runtime.start(PodSpec { namespace, name, uid, manifest: std::mem::take(&mut pod.manifest) });
        self.owe(uid);
    }

    fn remember(&mut self, uid: PodUid, status: PodStatus) {
        self.ended.remember(uid, status.clone());
        self.note(Note::Ended { uid, status });
    }

    fn note(&self, note: Note) {
        if let Some(runtime) = &self.runtime {
            runtime.note(note);
        }
    }

    fn owe(&mut self, uid: PodUid) {
        if self.pods.get(&uid).is_some_and(|pod| pod.is_reported) {
            self.reporting.owe(uid);
        }
    }
}

// === impl Pod ===

impl Pod {
    fn new(name: Option<PodName>, life: Life) -> Self {
        let status = PodStatus::new(Phase::Pending, "", "");
        let (last_grace, manifest) = (LAST_GRACE_MAX, Bytes::new());
        Self { name, is_reported: true, status, life, last_grace, ordered: false, manifest }
    }

    fn runs(&self) -> bool {
        matches!(self.life, Life::Running | Life::Stopping { .. })
    }

    fn kill_at(&self) -> Option<Instant> {
        match self.life {
            Life::Stopping { kill_at } => kill_at,
            Life::Waiting | Life::Running | Life::Ended => None,
        }
    }

    /// Whether being killed then, or now, would make a difference.
    fn would_end_sooner(&self, kill_at: Option<Instant>) -> bool {
        match self.life {
            Life::Running => true,
            Life::Stopping { kill_at: Some(known) } => kill_at.is_none_or(|at| at < known),
            Life::Stopping { kill_at: None } | Life::Waiting | Life::Ended => false,
        }
    }

    fn state(&self, uid: PodUid) -> Option<v1::PodState> {
        let PodName { namespace, name } = self.name.as_ref().filter(|_| self.is_reported)?;
        let PodStatus { phase, ready, restarts, reason, message } = &self.status;
        Some(v1::PodState {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_wire(),
            phase: phase.as_str().to_owned(),
            ready: *ready,
            restarts: *restarts,
            reason: reason.clone(),
            message: message.clone(),
            stopped: self.life == Life::Ended,
        })
    }

    fn state_bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |name| name.namespace.len() + name.name.len());
        STATE_BYTES + name + self.status.reason.len() + self.status.message.len()
    }
}
