//! The pending writes of an aggregator's nodes: one [`PendingWrites`] per handle, several writes under way at a time.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::pending;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use muster_proto::v1::server_message::Message as Down;
use tokio::time::{Instant, sleep_until};

use crate::session::stream::pending::{PendingWrites, WriteEnd, WriteRequest};
use crate::session::write::admission::Admitted;

use super::AggregatorStream;

/// Writes under way on one stream.
const RUNNING_MAX: usize = 256;

pub(super) type Running = BoxFuture<'static, (u32, WriteEnd)>;

/// The writes of one stream. Its nodes bound their number.
#[derive(Default)]
pub(super) struct HandleWrites {
    /// The handles whose writes are not idle.
    pending: HashMap<u32, PendingWrites>,
    running: FuturesUnordered<Running>,
    /// Handles with a write that is due, in the order they came.
    due: VecDeque<u32>,
    /// Handles whose node has written too often, and when it may write again.
    delayed: BTreeSet<(Instant, u32)>,
}

/// A write that ended.
pub(super) struct Ended {
    pub(super) handle: u32,
    pub(super) end: WriteEnd,
    /// The handle still stands for the node that the write was begun for.
    pub(super) is_current: bool,
}

// === impl HandleWrites ===

impl HandleWrites {
    /// The caller has checked that `handle` stands for a node.
    pub(super) fn add(&mut self, handle: u32, request: WriteRequest, is_bound: bool) {
        let pending = self.pending.entry(handle).or_default();
        let was_due = pending.is_due();
        pending.add(request, is_bound);
        if !was_due && pending.is_due() {
            self.due.push_back(handle);
        }
        self.forget_idle(handle);
    }

    /// The node behind `handle` is bound: the welcome answers the registration that waits.
    pub(super) fn welcome(&mut self, handle: u32) {
        self.change(handle, PendingWrites::welcome);
    }

    /// `handle` no longer stands for what it stood for.
    pub(super) fn clear(&mut self, handle: u32) {
        self.change(handle, PendingWrites::clear);
    }

    /// Begins the writes that are due. `may` says until when a node that wrote too often has to wait; `begin` returns
    /// `None` if there is nothing to write after all.
    pub(super) fn begin(
        &mut self,
        mut may: impl FnMut(u32) -> Result<(), Instant>,
        mut begin: impl FnMut(u32, &mut PendingWrites) -> Option<Running>,
    ) {
        while self.running.len() < RUNNING_MAX
            && let Some(handle) = self.due.pop_front()
        {
            let Some(pending) = self.pending.get_mut(&handle).filter(|pending| pending.is_due()) else { continue };
            if let Err(at) = may(handle) {
                self.delayed.insert((at, handle));
            } else if let Some(running) = begin(handle, pending) {
                self.running.push(running);
            } else {
                self.clear(handle);
            }
        }
    }

    /// Whether there is a write to wait for.
    pub(super) fn is_under_way(&self) -> bool {
        !self.running.is_empty() || !self.delayed.is_empty()
    }

    /// Waits for a write to end, or for a delayed one to be due; for ever if there is none.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        let delayed_until = self.delayed.first().map(|(at, _)| *at);
        tokio::select! {
            Some((handle, end)) = self.running.next() => Some(Ended { handle, end, is_current: self.end(handle) }),
            () = due(delayed_until) => {
                self.recall(Instant::now());
                None
            }
        }
    }

    fn end(&mut self, handle: u32) -> bool {
        let Some(pending) = self.pending.get_mut(&handle) else { return false };
        let is_current = pending.end();
        if pending.is_due() {
            self.due.push_back(handle);
        }
        self.forget_idle(handle);
        is_current
    }

    fn recall(&mut self, now: Instant) {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, handle)) = self.delayed.pop_first()
        {
            self.due.push_back(handle);
        }
    }

    fn change(&mut self, handle: u32, change: fn(&mut PendingWrites)) {
        if let Some(pending) = self.pending.get_mut(&handle) {
            change(pending);
            self.forget_idle(handle);
        }
    }

    fn forget_idle(&mut self, handle: u32) {
        if self.pending.get(&handle).is_some_and(PendingWrites::is_idle) {
            self.pending.remove(&handle);
        }
    }
}

// === impl AggregatorStream ===

impl AggregatorStream {
    pub(super) fn write(&mut self, handle: u32, request: WriteRequest) {
        if let Some(entry) = self.handles.get(handle) {
            self.writes.add(handle, request, entry.incarnation().is_some());
            self.begin_writes();
        }
    }

    pub(super) fn begin_writes(&mut self) {
        let (context, handles, caller) = (&self.context, &self.handles, &self.caller);
        let may = |handle| handles.get(handle).map_or(Ok(()), |entry| context.writes.spend(&entry.node));
        self.writes.begin(may, |handle, pending| {
            let entry = handles.get(handle)?;
            let write = pending.begin(entry.incarnation())?;
            let running = write.run(entry.node.clone(), caller.clone(), context.admission.clone());
            Some(running.map(move |end| (handle, end)).boxed())
        });
    }

    pub(super) fn written(&mut self, Ended { handle, end, is_current }: Ended) {
        match end {
            WriteEnd::Admitted(admitted) if is_current => self.bind_registered(handle, &admitted),
            // The handle was released in the meantime.
            WriteEnd::Admitted(admitted) => self.context.admission.release(&self.caller, &admitted),
            WriteEnd::Refused(_) | WriteEnd::Answered(_) | WriteEnd::Gone if !is_current => {}
            WriteEnd::Refused(refusal) => self.refuse(handle, &refusal),
            WriteEnd::Answered(answer) => self.carried(handle, answer),
            WriteEnd::Gone => self.stream.wakeup.touch(handle),
        }
    }

    fn bind_registered(&mut self, handle: u32, admitted: &Admitted) {
        match self.context.binder.bind(admitted, &self.caller, (&self.stream.wakeup, handle)) {
            Ok(binding) => {
                let welcome = binding.welcome(&self.context.current().state, &self.caller);
                self.handles.bind(handle, binding);
                self.writes.welcome(handle);
                self.carried(handle, Down::Welcome(welcome));
            }
            Err(refusal) => self.refuse(handle, &refusal),
        }
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_lifecycle::node::Incarnation;
    use muster_proto::v1;

    use super::*;
    use crate::session::stream::pending::Write;

    #[tokio::test]
    async fn one_write_per_node_runs_and_the_newest_report_wins() {
        let mut writes = HandleWrites::default();
        writes.add(7, a_report(1), true);
        assert_eq!(begun(&mut writes), [1]);
        writes.add(7, a_report(2), true);
        writes.add(7, a_report(3), true);
        assert_eq!(begun(&mut writes), [0; 0], "the first is still under way");
        assert!(matches!(writes.next().await, Some(Ended { handle: 7, is_current: true, .. })));
        assert_eq!(begun(&mut writes), [3]);
        writes.next().await;
        assert!(writes.next().now_or_never().is_none() && writes.pending.is_empty());
    }

    #[tokio::test]
    async fn running_writes_are_bounded_and_the_rest_wait_in_order() {
        let mut writes = HandleWrites::default();
        let all = RUNNING_MAX as u32 + 2;
        (0..all).for_each(|handle| writes.add(handle, a_report(handle.into()), true));
        assert_eq!(begun(&mut writes).len(), RUNNING_MAX);
        writes.next().await;
        writes.next().await;
        assert_eq!(begun(&mut writes), [u64::from(all) - 2, u64::from(all) - 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_writes_too_often_is_delayed_and_its_newest_report_kept() {
        let mut writes = HandleWrites::default();
        let later = Instant::now() + Duration::from_secs(1);
        writes.add(7, a_report(1), true);
        writes.add(8, a_report(1), true);
        let mut others = Vec::new();
        let may = |handle| if handle == 7 { Err(later) } else { Ok(()) };
        writes.begin(may, |handle, _| {
            others.push(handle);
            None
        });
        assert_eq!(others, [8]);
        writes.add(7, a_report(2), true);
        assert_eq!(begun(&mut writes), [0; 0], "not before its time");
        assert!(writes.next().await.is_none());
        assert_eq!(Instant::now(), later);
        assert_eq!(begun(&mut writes), [2]);
    }

    #[tokio::test]
    async fn cleared_writes_are_not_started() {
        let mut writes = HandleWrites::default();
        writes.add(7, a_report(1), true);
        writes.clear(7);
        assert_eq!(begun(&mut writes), [0; 0]);
        writes.add(7, a_report(2), true);
        assert_eq!(begun(&mut writes), [2]);
    }

    #[tokio::test]
    async fn a_write_of_a_node_that_left_its_handle_is_outdated_when_it_ends() {
        let mut writes = HandleWrites::default();
        writes.add(7, a_report(1), true);
        assert_eq!(begun(&mut writes), [1]);
        writes.clear(7);
        writes.add(7, a_report(2), true);
        assert_eq!(begun(&mut writes), [0; 0], "one at a time, whatever the handle stands for");
        assert!(matches!(writes.next().await, Some(Ended { handle: 7, is_current: false, .. })));
        assert_eq!(begun(&mut writes), [2]);
    }

    fn a_report(sequence: u64) -> WriteRequest {
        WriteRequest::Status(v1::StatusReport { sequence, ..v1::StatusReport::default() })
    }

    /// Begins the writes that are due and says which reports they were. Each write ends at once.
    fn begun(writes: &mut HandleWrites) -> Vec<u64> {
        let mut begun = Vec::new();
        writes.begin(
            |_| Ok(()),
            |handle, pending| {
                if let Some(Write::Status(_, report)) = pending.begin(Some(Incarnation(1))) {
                    begun.push(report.sequence);
                }
                Some(std::future::ready((handle, WriteEnd::Gone)).boxed())
            },
        );
        begun
    }
}
