//! Agents' streams: one node per stream, or many nodes of an aggregator on one.
//!
//! Both kinds follow one protocol. A stream says hello, its nodes are [bound](binding), everything said of a node
//! counts as a beat, and what is to be written goes through [`pending`]. They differ in what they hold: a node's stream
//! one node, an aggregator's stream one per handle.

pub(crate) mod aggregator;
pub(crate) mod binding;
pub(crate) mod caller;
pub(crate) mod node;
mod orders;
mod outbound;
pub(crate) mod pace;
mod pending;
pub(crate) mod refusal;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1;
use muster_raft::feed::Published;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::session::figures::{RefusalReason, SessionFigures};
use crate::session::wake::entry::{Signal, Signals};
use crate::session::wake::registry::Stream;
use crate::session::wake::relocate::Relocation;
use crate::session::write::AgentWrites;
use crate::session::write::admission::Admission;

use self::binding::Binder;
use self::caller::Caller;
use self::pace::terms;
use self::refusal::SessionRefusal;

/// How long a stream may stay silent before its hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long a stream that ends waits for an agent that does not read, to tell it why.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(5);

/// The channel for a stream's messages. Boxed, because the queue's memory is there even while it is empty.
pub(crate) type Sender<T> = mpsc::Sender<Result<Box<T>, Status>>;

/// The parts of the replica that a stream speaks to.
pub(crate) struct StreamContext {
    pub(crate) writes: AgentWrites,
    pub(crate) admission: Admission,
    pub(crate) binder: Arc<Binder>,
    pub(crate) relocation: Relocation,
    pub(crate) figures: Arc<SessionFigures>,
}

/// The messages that are the same for all streams.
#[derive(Default)]
struct Notices {
    relocate: Option<v1::Move>,
    terms: Option<v1::Terms>,
}

// === impl StreamContext ===

impl StreamContext {
    fn current(&self) -> Arc<Published> {
        self.writes.replica().current()
    }

    /// An agent that has a session elsewhere must not leave it for a replica that is no better off.
    fn require_contact_to_move(&self, caller: &Caller) -> Result<(), SessionRefusal> {
        if caller.moving && !self.relocation.is_in_contact() {
            let text = "this replica has no contact to the leader either; stay where you are and try another";
            return Err(SessionRefusal::unavailable(text));
        }
        Ok(())
    }

    fn notices(&self, signals: Signals) -> Notices {
        let reason = if signals.has(Signal::Relocate) { self.relocation.reason() } else { None };
        let relocate = reason.map(|why| v1::Move { why });
        if relocate.is_some() {
            self.figures.moved();
        }
        let terms = signals.has(Signal::Pace).then(|| terms(&self.current().state));
        Notices { relocate, terms }
    }

    /// Counts the refusal and tells the agent, unless it does not read.
    async fn tell_refusal<T>(&self, refusal: SessionRefusal, down: &mpsc::Sender<Result<T, Status>>) {
        self.figures.refuse(refusal.reason);
        let _ = timeout(FAREWELL_PATIENCE, down.send(Err(*refusal.status))).await;
    }
}

/// To be checked once the stream is open, so that a stream that misses the flag does not miss the signal.
fn require_open(stream: &Stream) -> Result<(), SessionRefusal> {
    if stream.is_closed() { Err(SessionRefusal::stopping()) } else { Ok(()) }
}

fn require_not_stopped(signals: Signals) -> Result<(), SessionRefusal> {
    if signals.has(Signal::Stop) { Err(SessionRefusal::stopping()) } else { Ok(()) }
}

/// `None` if the stream ended before its first message.
async fn first_message<T>(up: &mut Streaming<T>) -> Result<Option<T>, SessionRefusal> {
    let first = timeout(HELLO_PATIENCE, up.message()).await.map_err(|_| {
        let text = format!("no hello within {} s", HELLO_PATIENCE.as_secs());
        SessionRefusal::new(RefusalReason::Silence, Status::deadline_exceeded(text))
    })?;
    heard(first)
}

/// The message on a stream; `None` once it has ended. A broken connection is an end, too: only a message can be
/// refused.
fn heard<T>(message: Result<Option<T>, Status>) -> Result<Option<T>, SessionRefusal> {
    match message {
        // An error of the transport has a source; one of decoding has none.
        Err(status) if status.source().is_some() => Ok(None),
        Err(status) => Err(SessionRefusal::new(RefusalReason::Message, status)),
        Ok(message) => Ok(message),
    }
}
