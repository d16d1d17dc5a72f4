//! One node's session as the rest of the replica sees it, and the wakeup of its stream.
//!
//! A part with news wakes the stream; the stream looks at the state when it gets to it. So news coalesce by themselves,
//! cost no queue, and can be given to a hundred thousand streams without waiting for one.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Instant;

use futures::task::AtomicWaker;
use muster_lifecycle::meta::Revision;
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use tonic::Status;

use crate::session::figures::RefusalReason;

/// The handle of the one node on a stream of its own.
pub(crate) const SOLE: u32 = 0;

/// News for a whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The beat interval or the grace has changed.
    Pace = 1,
    /// The agent should attach to another replica.
    Relocate = 2,
    /// The nodes that an aggregator may carry may have changed.
    Scope = 4,
    /// This replica stops.
    Stop = 8,
}

/// The signals that a stream has not taken yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signals(u8);

/// Wakes one stream, and says why.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    signals: AtomicU8,
    /// Nodes of the stream that have to be examined. At most one element per node.
    touched: Mutex<BTreeSet<u32>>,
    is_woken: AtomicBool,
    /// One waker is enough: only the stream itself waits, and it does so at every beat.
    listener: AtomicWaker,
}

/// A node that is bound to a stream of this replica.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) node: Text,
    pub(crate) slot: Slot,
    pub(crate) instance: u64,
    pub(crate) remote: SocketAddr,
    number: u64,
    since: Instant,
    wakeup: Arc<Wakeup>,
    handle: u32,
    ending: OnceLock<Ending>,
    /// The lowest revision of a state from which orders about pods may be given. The highest possible value if from
    /// none.
    orders_from: AtomicU64,
    /// Its agent may have orders. False while another agent may turn out to have the session (I-14).
    is_settled: AtomicBool,
}

/// Why a node's session must not go on here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The same agent continues elsewhere.
    Continued { at: ReplicaId },
    /// Another instance took over: this one was silent, or it was the younger one when a new leader had to decide.
    Displaced { at: ReplicaId },
    /// The session was accepted while no leader could be asked, and another instance had claimed it first.
    Held(String),
}

// === impl Wakeup ===

impl Wakeup {
    pub(crate) fn signal(&self, signal: Signal) {
        self.signals.fetch_or(signal as u8, Ordering::Relaxed);
        self.wake();
    }

    /// Marks the node behind `handle` for examination.
    pub(crate) fn touch(&self, handle: u32) {
        self.touched().insert(handle);
        self.wake();
    }

    /// Completes if the stream was woken since the last time. Of several callers only the newest is woken.
    pub(crate) async fn woken(&self) {
        poll_fn(|context| {
            self.listener.register(context.waker());
            if self.is_woken.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn wake(&self) {
        self.is_woken.swap(true, Ordering::AcqRel);
        self.listener.wake();
    }

    pub(crate) fn signals(&self) -> Signals {
        Signals(self.signals.swap(0, Ordering::Relaxed))
    }

    /// At most `max` of the nodes to examine; if there are more, the stream stays woken.
    pub(crate) fn take_touched(&self, max: usize) -> Vec<u32> {
        let mut touched = self.touched();
        let taken: Vec<u32> = std::iter::from_fn(|| touched.pop_first()).take(max).collect();
        if !touched.is_empty() {
            self.wake();
        }
        taken
    }

    fn touched(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Signals ===

impl Signals {
    pub(crate) fn has(self, signal: Signal) -> bool {
        self.0 & signal as u8 != 0
    }
}

// === impl Entry ===

impl Entry {
    /// `number` is the number of its claim.
    pub(crate) fn new(
        (node, slot): (Text, Slot),
        (instance, remote): (u64, SocketAddr),
        number: u64,
        (wakeup, handle): (Arc<Wakeup>, u32),
    ) -> Self {
        Self {
            node,
            slot,
            instance,
            remote,
            number,
            since: Instant::now(),
            wakeup,
            handle,
            ending: OnceLock::new(),
            orders_from: AtomicU64::new(u64::MAX),
            is_settled: AtomicBool::new(true),
        }
    }

    /// The same session of a newcomer: its agent gets no orders before it is settled.
    pub(crate) fn unsettled(self) -> Self {
        Self { is_settled: AtomicBool::new(false), ..self }
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    pub(crate) fn settle(&self) {
        if !self.is_settled.swap(true, Ordering::AcqRel) {
            self.touch();
        }
    }

    /// Wakes the stream, because the node changed in a way that concerns its agent.
    pub(crate) fn touch(&self) {
        self.wakeup.touch(self.handle);
    }

    /// Orders may be given from a state of at least this revision.
    pub(crate) fn allow_orders(&self, from: Revision) {
        self.orders_from.store(from.0, Ordering::Release);
        self.touch();
    }

    pub(crate) fn orders_from(&self) -> Revision {
        Revision(self.orders_from.load(Ordering::Acquire))
    }

    /// Ends the session. The first reason counts.
    pub(crate) fn end(&self, ending: Ending) {
        if self.ending.set(ending).is_ok() {
            self.touch();
        }
    }

    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.get()
    }

    pub(crate) fn claim(&self) -> v1::SessionClaim {
        let held_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let newcomer = !self.is_settled();
        v1::SessionClaim { held_ms, newcomer, ..claim(self.slot, (self.instance, self.remote), self.number) }
    }
}

/// The claim of a session that begins.
pub(crate) fn claim(slot: Slot, (instance, remote): (u64, SocketAddr), number: u64) -> v1::SessionClaim {
    let Slot { index, generation } = slot;
    let remote = remote.to_string();
    v1::SessionClaim { slot: index, generation, instance, remote, number, held_ms: 0, newcomer: false }
}

// === impl Ending ===

impl Ending {
    pub(crate) fn reason(&self) -> RefusalReason {
        match self {
            Self::Continued { .. } => RefusalReason::Continued,
            Self::Displaced { .. } | Self::Held(_) => RefusalReason::Held,
        }
    }

    pub(crate) fn text(&self, node: &str) -> String {
        match self {
            Self::Continued { at } => format!("continued at replica {at}"),
            Self::Displaced { at } => held(node, &format!("another instance, now at replica {at}")),
            Self::Held(by) => held(node, by),
        }
    }

    pub(crate) fn status(&self, node: &str) -> Status {
        let text = self.text(node);
        match self {
            Self::Continued { .. } => Status::aborted(text),
            Self::Displaced { .. } | Self::Held(_) => Status::already_exists(text),
        }
    }
}

/// `by` is the leader's description of the instance that has the session.
pub(crate) fn held(node: &str, by: &str) -> String {
    format!("node {node:?} has a session by {by}; two agents under one name: stop one")
}
