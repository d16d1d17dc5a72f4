//! One node's session as the rest of the replica sees it, and the bell by which its stream is woken.
//!
//! Whoever has news rings; the stream looks at the state when it gets to it. So news coalesce by themselves, cost no
//! queue, and can be given to a hundred thousand streams without waiting for one.

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

use crate::session::figures::Refused;

/// The handle of the one node on a stream of its own.
pub(crate) const SOLE: u32 = 0;

/// News for a whole stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// How to beat has changed.
    Terms = 1,
    /// The stream should attach elsewhere.
    Move = 2,
    /// Which nodes an aggregator may carry may have changed.
    Scope = 4,
    /// This replica stops.
    Stop = 8,
}

/// What has been rung for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Signals(u8);

/// Wakes one stream.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    signals: AtomicU8,
    /// Nodes of the stream that have to be looked at. At most one element per node.
    touched: Mutex<BTreeSet<u32>>,
    is_rung: AtomicBool,
    /// One place is enough: only the stream itself listens, and it does so at every beat.
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
    bell: Arc<Bell>,
    handle: u32,
    ending: OnceLock<Ending>,
    /// From which revision on the state may be read for orders about pods; the highest if from none.
    orders_from: AtomicU64,
}

/// Why a node's session must not go on here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The same agent continues elsewhere.
    Continued { at: ReplicaId },
    /// Another instance took over: this one had been silent, or was younger when a new leader had to decide.
    Displaced { at: ReplicaId },
    /// It was accepted while no leader could be asked, and another instance was first.
    Held(String),
}

// === impl Bell ===

impl Bell {
    pub(crate) fn ring(&self, signal: Signal) {
        self.signals.fetch_or(signal as u8, Ordering::Relaxed);
        self.wake();
    }

    /// The node behind `handle` has to be looked at.
    pub(crate) fn touch(&self, handle: u32) {
        self.touched().insert(handle);
        self.wake();
    }

    /// Completes when somebody has rung since the last time. Only the newest of several that wait is woken.
    pub(crate) async fn rung(&self) {
        poll_fn(|context| {
            self.listener.register(context.waker());
            if self.is_rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn wake(&self) {
        self.is_rung.swap(true, Ordering::AcqRel);
        self.listener.wake();
    }

    pub(crate) fn signals(&self) -> Signals {
        Signals(self.signals.swap(0, Ordering::Relaxed))
    }

    /// At most `max` of the nodes to look at; if there are more, the bell stays rung.
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
    /// `number` is that of its claim.
    pub(crate) fn new(
        (node, slot): (Text, Slot),
        (instance, remote): (u64, SocketAddr),
        number: u64,
        (bell, handle): (Arc<Bell>, u32),
    ) -> Self {
        Self {
            node,
            slot,
            instance,
            remote,
            number,
            since: Instant::now(),
            bell,
            handle,
            ending: OnceLock::new(),
            orders_from: AtomicU64::new(u64::MAX),
        }
    }

    /// Its node changed in a way that its agent should hear of.
    pub(crate) fn touch(&self) {
        self.bell.touch(self.handle);
    }

    /// Orders may be given from a state of at least this revision.
    pub(crate) fn allow_orders(&self, from: Revision) {
        self.orders_from.store(from.0, Ordering::Release);
        self.touch();
    }

    pub(crate) fn orders_from(&self) -> Revision {
        Revision(self.orders_from.load(Ordering::Acquire))
    }

    /// The first reason counts.
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
        v1::SessionClaim { held_ms, ..claim(self.slot, (self.instance, self.remote), self.number) }
    }
}

/// The claim of a session that begins.
pub(crate) fn claim(slot: Slot, (instance, remote): (u64, SocketAddr), number: u64) -> v1::SessionClaim {
    let Slot { index, generation } = slot;
    v1::SessionClaim { slot: index, generation, instance, remote: remote.to_string(), number, held_ms: 0 }
}

// === impl Ending ===

impl Ending {
    pub(crate) fn reason(&self) -> Refused {
        match self {
            Self::Continued { .. } => Refused::Continued,
            Self::Displaced { .. } | Self::Held(_) => Refused::Held,
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

/// `by` is the leader's description of who has the session.
pub(crate) fn held(node: &str, by: &str) -> String {
    format!("node {node:?} has a session by {by}; two agents under one name: stop one")
}
