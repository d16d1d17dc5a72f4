//! The writes of an aggregator's nodes: several at a time, but one per node, and of those that wait only the newest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use muster_lifecycle::node::NodeDraft;

use crate::session::admission::Admitted;
use crate::session::refusal::Refusal;
use crate::session::report::{Report, Reported};

/// Writes under way on one stream.
const RUNNING_MAX: usize = 256;

#[derive(Debug)]
pub(super) enum Job {
    Register(Box<NodeDraft>),
    Report(Report),
}

pub(super) enum Done {
    Registered(Result<Admitted, Refusal>),
    Reported(Reported),
}

pub(super) type Running = BoxFuture<'static, (u32, Done)>;

/// At most one job waits per handle, so this is bounded by the nodes of the stream.
#[derive(Default)]
pub(super) struct Jobs {
    running: FuturesUnordered<Running>,
    busy: HashSet<u32>,
    waiting: HashMap<u32, Job>,
    /// Handles with a waiting job and none under way, in the order they came.
    due: VecDeque<u32>,
}

// === impl Jobs ===

impl Jobs {
    /// The caller has checked that `handle` stands for a node.
    pub(super) fn add(&mut self, handle: u32, job: Job) {
        // A registration says how the node is, too.
        let registers = matches!(self.waiting.get(&handle), Some(Job::Register(_)));
        if registers && matches!(job, Job::Report(_)) {
            return;
        }
        if self.waiting.insert(handle, job).is_none() && !self.busy.contains(&handle) {
            self.due.push_back(handle);
        }
    }

    /// Begins what is due. `begin` says no to what has become pointless.
    pub(super) fn begin(&mut self, mut begin: impl FnMut(u32, Job) -> Option<Running>) {
        while self.running.len() < RUNNING_MAX
            && let Some(handle) = self.due.pop_front()
        {
            let Some(job) = self.waiting.remove(&handle) else { continue };
            if let Some(running) = begin(handle, job) {
                self.busy.insert(handle);
                self.running.push(running);
            }
        }
    }

    /// Waits for the next job to end; for ever if none is under way.
    pub(super) async fn finished(&mut self) -> (u32, Done) {
        let Some((handle, done)) = self.running.next().await else { return pending().await };
        self.busy.remove(&handle);
        if self.waiting.contains_key(&handle) {
            self.due.push_back(handle);
        }
        (handle, done)
    }
}

pub(super) fn registration(handle: u32, registering: BoxFuture<'static, Result<Admitted, Refusal>>) -> Running {
    registering.map(move |registered| (handle, Done::Registered(registered))).boxed()
}

pub(super) fn report(handle: u32, reporting: BoxFuture<'static, Reported>) -> Running {
    reporting.map(move |reported| (handle, Done::Reported(reported))).boxed()
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::node::NodeStatus;

    use super::*;

    #[tokio::test]
    async fn one_write_per_node_is_under_way_and_the_newest_report_wins() {
        let mut jobs = Jobs::default();
        jobs.add(7, a_report(1));
        jobs.begin(|handle, _| Some(report(handle, std::future::ready(Reported::Gone).boxed())));
        jobs.add(7, a_report(2));
        jobs.add(7, a_report(3));
        jobs.begin(|_, _| panic!("the first is still under way"));
        assert_eq!(jobs.finished().await.0, 7);
        assert_eq!(begun(&mut jobs), [3]);
        assert!(jobs.finished().now_or_never().is_none(), "what was pointless is not under way");
    }

    #[tokio::test]
    async fn so_many_are_under_way_at_once_and_the_rest_waits_in_order() {
        let mut jobs = Jobs::default();
        let all = RUNNING_MAX as u32 + 2;
        (0..all).for_each(|handle| jobs.add(handle, a_report(handle.into())));
        let mut begun_now = 0;
        jobs.begin(|handle, _| {
            begun_now += 1;
            Some(report(handle, std::future::ready(Reported::Gone).boxed()))
        });
        assert_eq!(begun_now, RUNNING_MAX);
        jobs.finished().await;
        assert_eq!(begun(&mut jobs), [u64::from(all) - 2, u64::from(all) - 1]);
    }

    fn a_report(sequence: u64) -> Job {
        Job::Report(Report { sequence, status: Box::<NodeStatus>::default() })
    }

    fn begun(jobs: &mut Jobs) -> Vec<u64> {
        let mut begun = Vec::new();
        jobs.begin(|_, job| {
            if let Job::Report(report) = job {
                begun.push(report.sequence);
            }
            None
        });
        begun
    }
}
