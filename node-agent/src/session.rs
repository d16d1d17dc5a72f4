//! Session of one node with the cluster, for a real agent or a simulated one.
//!
//! ```text
//!   Detached --hello--> RegistrationWanted --register--> Welcomed --register once, beats, statuses, pods--> ...
//!      ^        \________________________________________^  |  |
//!      |                                                    |  Removed: stop what runs, then register anew
//!      +------- lost, refused: back-off, next endpoint -----+  Move, silence: attach elsewhere first, then leave
//! ```
//!
//! The session runs by itself. Its owner announces changed statuses and watches [`SessionState`].

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use xxhash_rust::xxh3::xxh3_64;

use crate::connection::{Attachment, Endpoint, Opener, SessionSetupError};
use crate::machine::AgentMachine;
use crate::pods::{NodePods, PodInbox};

use conversation::Conversation;
use driver::Driver;
pub(crate) use requests::AgentMode;
use requests::OwnerRequests;
use snapshot::SnapshotRequest;
pub use snapshot::{SessionCounters, SessionSnapshot};
pub use state::SessionState;

mod acknowledgement;
mod conversation;
mod driver;
mod requests;
mod snapshot;
mod state;

/// Requests for an acknowledgement that the session has not yet taken up.
const ASKS_WAITING: usize = 16;
/// Requests for a snapshot that the session has not yet taken up.
const INQUIRIES_WAITING: usize = 4;
/// The number of a session's only node, where nodes are numbered.
const ONLY_NODE: u32 = 0;
/// A session that has not stopped by then is aborted.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The node's name, as in the client certificate.
    pub node: String,
    /// Endpoints of the replicas' agents' doors, as HOST:PORT.
    pub endpoints: Vec<String>,
    /// With the node's certificate, and the CA that signs the replicas' certificates.
    pub tls: Arc<ClientConfig>,
    /// Drawn at random when the process starts. Two instances under one name are two machines.
    pub instance: u64,
    pub version: String,
}

/// Starts sessions; a running one is a [`SessionHandle`].
#[derive(Debug)]
pub struct Session;

/// A running session. Dropping it closes the connection without a goodbye, as the death of the machine would.
#[derive(Debug)]
pub struct SessionHandle {
    requests: watch::Sender<OwnerRequests>,
    asks: mpsc::Sender<oneshot::Sender<()>>,
    inquiries: mpsc::Sender<SnapshotRequest>,
    state: watch::Receiver<SessionState>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAcknowledged {
    #[error("no replica in contact with the leader acknowledged this node within {0:?}: the fleet may mark it Unknown")]
    InTime(Duration),
    #[error("too many acknowledgements are being waited for: wait for one of them before asking again")]
    Busy,
}

// === impl Session ===

impl Session {
    /// Checks the configuration and begins to connect. Must be called on a tokio runtime.
    pub fn start(config: SessionConfig, machine: Arc<dyn AgentMachine>) -> Result<SessionHandle, SessionSetupError> {
        let endpoints = Endpoint::list(&config.endpoints)?;
        Ok(Self::begin(config, endpoints, machine, None))
    }

    /// The same with endpoints that were checked before; `gate` limits how many sessions connect at once.
    pub(crate) fn begin(
        config: SessionConfig,
        endpoints: Arc<[Endpoint]>,
        machine: Arc<dyn AgentMachine>,
        gate: Option<Arc<Semaphore>>,
    ) -> SessionHandle {
        let opener = Opener { endpoints, tls: TlsConnector::from(config.tls), gate };
        let attachment = Attachment::new(opener, xxh3_64(config.node.as_bytes()), rand::random);
        let SessionConfig { node, instance, version, .. } = config;
        let (inbox, now) = (Arc::new(PodInbox::default()), Instant::now());
        let pods = NodePods::new(machine.runtime(), inbox.sender(ONLY_NODE), now);
        let conversation = Conversation::new(node, instance, version, machine, pods, rand::random, now);
        let (requests, requested) = watch::channel(OwnerRequests::default());
        let (asks, asked) = mpsc::channel(ASKS_WAITING);
        let (inquiries, inquired) = mpsc::channel(INQUIRIES_WAITING);
        let (published, state) = watch::channel(SessionState::default());
        let driver = Driver::new(conversation, attachment, requested, (asked, inquired), inbox, published);
        SessionHandle { requests, asks, inquiries, state, _task: AbortOnDropHandle::new(tokio::spawn(driver.run())) }
    }
}

// === impl SessionHandle ===

impl SessionHandle {
    /// Announces that the machine's status may have changed. It is posted now if it has.
    pub fn report(&self) {
        self.requests.send_modify(|requests| requests.reports += 1);
    }

    /// Announces a new certificate: the session moves to a new stream with it and keeps the present one until then.
    pub fn reattach(&self) {
        self.requests.send_modify(|requests| requests.renewals += 1);
    }

    /// Asks for an acknowledgement: the statement that a replica in contact with the leader hears this node now.
    pub async fn acknowledged(&self, within: Duration) -> Result<(), NotAcknowledged> {
        let (waiter, answer) = oneshot::channel();
        self.asks.try_send(waiter).map_err(|_| NotAcknowledged::Busy)?;
        match timeout(within, answer).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(NotAcknowledged::Busy),
            Err(_) => Err(NotAcknowledged::InTime(within)),
        }
    }

    /// Asks the session for a snapshot; none if it does not answer within `limit`.
    pub async fn inspect(&self, limit: Duration) -> Option<SessionSnapshot> {
        let (inquiry, answer) = oneshot::channel();
        self.inquiries.try_send(inquiry).ok()?;
        timeout(limit, answer).await.ok()?.ok()
    }

    /// The session's state; a slow reader sees only the newest.
    pub fn events(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }

    pub fn state(&self) -> SessionState {
        self.state.borrow().clone()
    }

    /// Says goodbye and closes: the replica releases the session at once, and the node stays.
    pub async fn stop(self) {
        self.finish().await;
    }

    /// The same for a shared handle.
    pub(crate) async fn finish(&self) {
        self.requests.send_modify(|requests| requests.stopping = true);
        let mut state = self.state.clone();
        // The task drops the state's sender last.
        let ended = async { while state.changed().await.is_ok() {} };
        let _ = timeout(STOP_TIMEOUT, ended).await;
    }

    pub(crate) fn simulate(&self, mode: AgentMode) {
        self.requests.send_modify(|requests| requests.mode = mode);
    }
}
