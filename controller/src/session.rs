//! The sessions of agents: who is attached to this replica, and what passes between it and the rest.
//!
//! ```text
//!   agents ----- alone ---+                       +--> beat: one word in the own pulse table
//!   aggregators  carrier -+--- binding (a node) --+--> claimant --> the leader's court: one session per node
//!                         |                       +--> admission, report: writes through the leader
//!                       bell <--- following (the state's news), moving (this replica's trouble)
//! ```
//! A stream is bound to its nodes once, by certificate, state and claim; from then on a beat touches nothing that is
//! shared but its own word. Whoever has news for a stream rings its bell, and the stream reads off the state what it
//! means; so a hundred thousand streams can be told something without a queue anywhere.

pub mod beat;
mod claim;
pub mod figures;
pub mod heartbeats;
mod stream;
mod wake;
mod write;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::node::Slot;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_pulse::table::Beat;
use muster_raft::replica::Replica;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::hearing::Hearing;
use crate::hearing::contact::Contact;
use crate::listener::Term;
use crate::pulse_service::Claims;

use self::beat::Beats;
use self::claim::arbiter::Court;
use self::claim::claimant::{Claimant, Exchange};
use self::figures::{Refused, SessionFigures};
use self::stream::caller::Caller;
use self::stream::node::Alone;
use self::stream::refusal::Refusal;
use self::wake::entry::Signal;
use self::wake::lagging::Lagging;
use self::wake::registry::{Registry, SHARDS, Stream};
use self::write::budget::Budgets;
use self::write::catch_up::Currency;

/// Messages on their way to one agent. Boxed, because the queue's memory is there even while it is empty.
pub(crate) const DOWN_QUEUE: usize = 8;
/// How long a stream may stay silent before it says who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// How long an agent that does not read is waited for to be told why its stream ends.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(5);

/// All sessions of this replica. Clones share them.
#[derive(Clone)]
pub struct Sessions(Arc<Shared>);

struct Shared {
    replica: Replica,
    hearing: Hearing,
    contact: Contact,
    court: Arc<Court>,
    claimant: Claimant,
    exchange: Mutex<Option<Exchange>>,
    registry: Arc<Registry>,
    figures: Arc<SessionFigures>,
    beats: Beats,
    budgets: Budgets,
    lagging: Lagging,
    currency: Currency,
    stopping: AtomicBool,
}

/// Who opened a stream, before it said anything.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) fleet: Arc<str>,
    pub(crate) remote: SocketAddr,
    /// The hash of its public key.
    pub(crate) key: Fingerprint,
    pub(crate) term: Term,
}

// === impl Sessions ===

impl Sessions {
    pub fn new(replica: Replica, hearing: Hearing, contact: Contact) -> Self {
        let registry = Arc::<Registry>::default();
        let figures = Arc::<SessionFigures>::default();
        let court = Arc::new(Court::new(replica.clone(), hearing.clone()));
        let (claimant, exchange) = Claimant::new(replica.clone(), Arc::clone(&court), Arc::clone(&registry));
        let beats = Beats::new(hearing.clone(), Arc::clone(&figures));
        let currency = Currency::new(replica.clone());
        Self(Arc::new(Shared {
            replica,
            hearing,
            contact,
            court,
            claimant,
            exchange: Mutex::new(Some(exchange)),
            registry,
            figures,
            beats,
            budgets: Budgets::default(),
            lagging: Lagging::default(),
            currency,
            stopping: AtomicBool::new(false),
        }))
    }

    /// Claims sessions, passes on the state's news and sends agents away when they should go, until `stop`; then all
    /// streams end. To be run once.
    pub async fn run(self, stop: CancellationToken) {
        let exchange = self.0.exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(exchange) = exchange else { return };
        let duties = async {
            tokio::join!(
                exchange.run(),
                self.0.currency.run(),
                wake::following::nodes(&self),
                wake::following::terms(&self),
                wake::relocate::run(&self)
            );
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = duties => {}
        }
        self.0.stopping.store(true, Ordering::SeqCst);
        self.ring_at_once(Signal::Stop);
    }

    /// The leader's side of claims, for the peers' door.
    pub fn claims(&self) -> Arc<dyn Claims> {
        Arc::clone(&self.0.court) as _
    }

    pub fn figures(&self) -> &Arc<SessionFigures> {
        &self.0.figures
    }

    /// Another sign of life than a beat: somebody wrote the status of the node in `slot`.
    pub fn saw(&self, slot: Slot) -> Beat {
        self.0.hearing.beat(slot)
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.0.replica
    }

    /// Serves a node's own stream in a task of its own.
    pub(crate) fn serve_alone(
        &self,
        node: &str,
        opened: Opened,
        up: Streaming<v1::AgentMessage>,
    ) -> mpsc::Receiver<Result<Box<v1::ServerMessage>, Status>> {
        let (down, told) = mpsc::channel(DOWN_QUEUE);
        let alone = Alone::new(self.clone(), node, opened, up, down);
        tokio::spawn(Box::new(alone).serve());
        told
    }

    /// Serves an aggregator's stream in a task of its own.
    pub(crate) fn serve_carrier(
        &self,
        aggregator: String,
        opened: Opened,
        up: Streaming<v1::CarrierMessage>,
    ) -> mpsc::Receiver<Result<Box<v1::CarrierReply>, Status>> {
        let (down, told) = mpsc::channel(DOWN_QUEUE);
        tokio::spawn(stream::aggregator::serve(self.clone(), aggregator, opened, up, down));
        told
    }

    /// Somebody was turned away before it had a stream.
    pub(crate) fn refuse_identity(&self) {
        self.0.figures.refuse(Refused::Identity);
    }

    fn hearing(&self) -> &Hearing {
        &self.0.hearing
    }

    fn contact(&self) -> &Contact {
        &self.0.contact
    }

    fn claimant(&self) -> &Claimant {
        &self.0.claimant
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.0.registry
    }

    fn beats(&self) -> &Beats {
        &self.0.beats
    }

    /// Spends what one write of `node` costs, or says when it may write again.
    fn spend(&self, node: &Text) -> Result<(), Instant> {
        self.0.budgets.spend(node, Instant::now()).inspect_err(|_| self.0.figures.delay())
    }

    fn in_contact(&self) -> bool {
        self.0.contact.lost_for().is_none()
    }

    fn open(&self) -> Stream {
        self.0.registry.open()
    }

    /// To be asked once the stream is open, so that one that misses the flag does not miss the bell.
    fn require_open(&self) -> Result<(), Refusal> {
        if self.0.stopping.load(Ordering::SeqCst) { Err(Refusal::stopping()) } else { Ok(()) }
    }

    /// An agent that has a session elsewhere must not leave it for a replica that is no better off.
    fn require_contact_to_move(&self, caller: &Caller) -> Result<(), Refusal> {
        if caller.moving && !self.in_contact() {
            let text = "this replica has no contact to the leader either; stay where you are and try another";
            return Err(Refusal::unavailable(text));
        }
        Ok(())
    }

    fn ring_at_once(&self, signal: Signal) {
        let streams = (0..SHARDS).flat_map(|shard| self.registry().streams_of_shard(shard));
        streams.for_each(|bell| bell.ring(signal));
    }

    fn opened(&self) {
        self.0.figures.opened();
        self.0.hearing.sessions().fetch_add(1, Ordering::Relaxed);
    }

    fn closed(&self) {
        self.0.figures.closed();
        self.0.hearing.sessions().fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Opened ===

impl Opened {
    /// Which instance it is, it has yet to say.
    fn caller(self) -> Caller {
        Caller { fleet: self.fleet, remote: self.remote, instance: 0, moving: false, orders_revision: 0 }
    }
}

/// What was heard on a stream; nothing more once it has ended. That a connection broke is an end, too: only what was
/// said can be refused.
fn heard<T>(message: Result<Option<T>, Status>) -> Result<Option<T>, Refusal> {
    match message {
        // What the transport says has a cause; what cannot be decoded is a cause of its own.
        Err(status) if status.source().is_some() => Ok(None),
        Err(status) => Err(Refusal::new(Refused::Message, status)),
        Ok(message) => Ok(message),
    }
}

fn no_hello() -> Refusal {
    let text = format!("no hello within {} s", HELLO_PATIENCE.as_secs());
    Refusal::new(Refused::Silence, Status::deadline_exceeded(text))
}

/// Whoever does not listen is not waited for long.
async fn tell_refusal<T>(figures: &SessionFigures, refusal: Refusal, down: &mpsc::Sender<Result<T, Status>>) {
    figures.refuse(refusal.reason);
    let _ = timeout(FAREWELL_PATIENCE, down.send(Err(*refusal.status))).await;
}
