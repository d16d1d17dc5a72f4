//! The writes of an aggregator's nodes: several at a time, but one per node, and of those that wait only the newest.
//!
//! They wait as they came: what a newer one replaces was never parsed.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::future::pending;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use muster_proto::v1;
use tokio::time::{Instant, sleep_until};

use crate::session::stream::refusal::Refusal;
use crate::session::write::admission::Admitted;
use crate::session::write::pods::PodsReported;
use crate::session::write::reconcile::Reconciled;
use crate::session::write::report::Reported;

/// Writes under way on one stream.
const RUNNING_MAX: usize = 256;

#[derive(Debug)]
pub(crate) enum Job {
    Register(v1::Register),
    Reconcile(v1::Register),
    Report(v1::StatusReport),
    Pods(v1::PodsReport),
}

pub(crate) enum Done {
    Registered(Result<Admitted, Refusal>),
    Reconciled(Reconciled),
    Reported(Reported),
    PodsReported(PodsReported),
}

pub(crate) type Running = BoxFuture<'static, (u32, Done)>;

/// At most one job of each kind waits per handle, so this is bounded by the nodes of the stream.
#[derive(Default)]
pub(crate) struct Jobs {
    running: FuturesUnordered<Running>,
    busy: HashSet<u32>,
    waiting: HashMap<u32, Job>,
    /// What bound nodes said of their machines.
    waiting_words: HashMap<u32, v1::Register>,
    waiting_pods: HashMap<u32, v1::PodsReport>,
    /// Handles with a waiting job and none under way, in the order they came.
    due: VecDeque<u32>,
    /// Handles with a waiting job whose node has written too often, and when it may write again.
    delayed: BTreeSet<(Instant, u32)>,
}

// === impl Jobs ===

impl Jobs {
    /// The caller has checked that `handle` stands for a node.
    pub(crate) fn add(&mut self, handle: u32, job: Job) {
        // A registration says how the node is, too.
        let registers = matches!(self.waiting.get(&handle), Some(Job::Register(_)));
        if registers && matches!(job, Job::Report(_)) {
            return;
        }
        let was_waiting = self.has_waiting(handle);
        self.waiting.insert(handle, job);
        if !was_waiting && !self.busy.contains(&handle) {
            self.due.push_back(handle);
        }
    }

    /// The caller has checked that `handle` stands for a node that is bound.
    pub(crate) fn add_words(&mut self, handle: u32, register: v1::Register) {
        let was_waiting = self.has_waiting(handle);
        self.waiting_words.insert(handle, register);
        if !was_waiting && !self.busy.contains(&handle) {
            self.due.push_back(handle);
        }
    }

    /// The caller has checked that `handle` stands for a node.
    pub(crate) fn add_pods(&mut self, handle: u32, report: v1::PodsReport) {
        let was_waiting = self.has_waiting(handle);
        self.waiting_pods.insert(handle, report);
        if !was_waiting && !self.busy.contains(&handle) {
            self.due.push_back(handle);
        }
    }

    fn has_waiting(&self, handle: u32) -> bool {
        let Self { waiting, waiting_words, waiting_pods, .. } = self;
        waiting.contains_key(&handle) || waiting_words.contains_key(&handle) || waiting_pods.contains_key(&handle)
    }

    fn take_waiting(&mut self, handle: u32) -> Option<Job> {
        let words = self.waiting_words.remove(&handle).map(Job::Reconcile);
        let job = words.or_else(|| self.waiting.remove(&handle));
        job.or_else(|| self.waiting_pods.remove(&handle).map(Job::Pods))
    }

    /// `handle` no longer stands for what it stood for.
    pub(crate) fn forget(&mut self, handle: u32) {
        self.waiting.remove(&handle);
        self.waiting_words.remove(&handle);
        self.waiting_pods.remove(&handle);
    }

    /// Begins what is due. `may` says until when a node has to wait that wrote too often, and `begin` says no to what
    /// has become pointless.
    pub(crate) fn begin(
        &mut self,
        mut may: impl FnMut(u32) -> Result<(), Instant>,
        mut begin: impl FnMut(u32, Job) -> Option<Running>,
    ) {
        while self.running.len() < RUNNING_MAX
            && let Some(handle) = self.due.pop_front()
        {
            if self.busy.contains(&handle) || !self.has_waiting(handle) {
                continue;
            }
            if let Err(at) = may(handle) {
                self.delayed.insert((at, handle));
                continue;
            }
            if let Some(running) = self.take_waiting(handle).and_then(|job| begin(handle, job)) {
                self.busy.insert(handle);
                self.running.push(running);
            } else if self.has_waiting(handle) {
                self.due.push_back(handle);
            }
        }
    }

    /// Whether there is a job to wait for.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.running.is_empty() || !self.delayed.is_empty()
    }

    /// Waits for the next job to end, or for one that was delayed to be due; for ever if there is none.
    pub(crate) async fn next(&mut self) -> Option<(u32, Done)> {
        let delayed_until = self.delayed.first().map(|(at, _)| *at);
        tokio::select! {
            Some((handle, done)) = self.running.next() => {
                self.busy.remove(&handle);
                if self.has_waiting(handle) {
                    self.due.push_back(handle);
                }
                Some((handle, done))
            }
            () = due(delayed_until) => {
                self.recall(Instant::now());
                None
            }
        }
    }

    fn recall(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, handle)) = self.delayed.pop_first()
        {
            self.due.push_back(handle);
        }
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

pub(crate) fn registration(handle: u32, registering: BoxFuture<'static, Result<Admitted, Refusal>>) -> Running {
    registering.map(move |registered| (handle, Done::Registered(registered))).boxed()
}

pub(crate) fn reconciliation(handle: u32, reconciling: BoxFuture<'static, Reconciled>) -> Running {
    reconciling.map(move |reconciled| (handle, Done::Reconciled(reconciled))).boxed()
}

pub(crate) fn pods(handle: u32, reporting: BoxFuture<'static, PodsReported>) -> Running {
    reporting.map(move |reported| (handle, Done::PodsReported(reported))).boxed()
}

pub(crate) fn report(handle: u32, reporting: BoxFuture<'static, Reported>) -> Running {
    reporting.map(move |reported| (handle, Done::Reported(reported))).boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_write_per_node_is_under_way_and_the_newest_report_wins() {
        let mut jobs = Jobs::default();
        jobs.add(7, a_report(1));
        jobs.begin(always, |handle, _| Some(report(handle, std::future::ready(Reported::Gone).boxed())));
        jobs.add(7, a_report(2));
        jobs.add(7, a_report(3));
        jobs.begin(always, |_, _| panic!("the first is still under way"));
        assert!(matches!(jobs.next().await, Some((7, _))));
        assert_eq!(begun(&mut jobs), [3]);
        assert!(jobs.next().now_or_never().is_none(), "what was pointless is not under way");
    }

    #[tokio::test]
    async fn so_many_are_under_way_at_once_and_the_rest_waits_in_order() {
        let mut jobs = Jobs::default();
        let all = RUNNING_MAX as u32 + 2;
        (0..all).for_each(|handle| jobs.add(handle, a_report(handle.into())));
        let mut begun_now = 0;
        jobs.begin(always, |handle, _| {
            begun_now += 1;
            Some(report(handle, std::future::ready(Reported::Gone).boxed()))
        });
        assert_eq!(begun_now, RUNNING_MAX);
        jobs.next().await;
        assert_eq!(begun(&mut jobs), [u64::from(all) - 2, u64::from(all) - 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_writes_too_often_is_put_off_and_its_newest_report_kept() {
        let mut jobs = Jobs::default();
        let later = Instant::now() + Duration::from_secs(1);
        jobs.add(7, a_report(1));
        jobs.add(8, a_report(1));
        let mut others = Vec::new();
        let may = |handle| if handle == 7 { Err(later) } else { Ok(()) };
        jobs.begin(may, |handle, _| {
            others.push(handle);
            None
        });
        assert_eq!(others, [8]);
        jobs.add(7, a_report(2));
        assert_eq!(begun(&mut jobs), [0; 0], "not before its time");
        assert!(jobs.next().await.is_none());
        assert_eq!(Instant::now(), later);
        assert_eq!(begun(&mut jobs), [2]);
    }

    #[tokio::test]
    async fn what_was_forgotten_is_not_begun() {
        let mut jobs = Jobs::default();
        jobs.add(7, a_report(1));
        jobs.forget(7);
        assert_eq!(begun(&mut jobs), [0; 0]);
        jobs.add(7, a_report(2));
        assert_eq!(begun(&mut jobs), [2]);
    }

    fn always(_: u32) -> Result<(), Instant> {
        Ok(())
    }

    fn a_report(sequence: u64) -> Job {
        Job::Report(v1::StatusReport { sequence, ..v1::StatusReport::default() })
    }

    fn begun(jobs: &mut Jobs) -> Vec<u64> {
        let mut begun = Vec::new();
        jobs.begin(always, |_, job| {
            if let Job::Report(report) = job {
                begun.push(report.sequence);
            }
            None
        });
        begun
    }
}
