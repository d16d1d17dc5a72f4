//! One node's session with the fleet, for a real agent or a simulated one.
//!
//! ```text
//!   Detached --hello--> RegistrationWanted --register--> Welcomed --register once, beats, statuses, pods--> ...
//!      ^        \________________________________________^  |  |
//!      |                                                    |  Removed: stop what runs, then register anew
//!      +------- lost, refused: next door, back-off ---------+  Move, silence: another door first, then let go
//! ```
//!
//! The session looks after itself; its owner says when the status changed and watches [`SessionState`].

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use xxhash_rust::xxh3::xxh3_64;

use crate::attachment::Attachment;
use crate::door::{Door, SetupError};
use crate::link::Opener;
use crate::machine::Machine;
use crate::pods::{Inbox, Workload};

use conversation::Conversation;
use driver::Driver;
use insight::Inquiry;
pub use insight::{Insight, Vitals};
pub(crate) use presence::Presence;
use presence::Wishes;
pub use state::SessionState;

mod acknowledgement;
mod conversation;
mod driver;
mod insight;
mod presence;
mod state;

/// Acknowledgements that were asked for and not yet passed to the session.
const ASKS_WAITING: usize = 16;
/// Few look into a session at once.
const INQUIRIES_WAITING: usize = 4;
/// The number of the one node of a session, where nodes have numbers.
const SOLE: u32 = 0;
/// A session that was asked to stop and has not by then is cut off.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The node's name, as in the client certificate.
    pub node: String,
    /// The agents' doors of the replicas, as HOST:PORT.
    pub endpoints: Vec<String>,
    /// With the node's certificate, and the CA that signs the replicas'.
    pub tls: Arc<ClientConfig>,
    /// Drawn at random when the process starts. Two of them under one name are two machines.
    pub instance: u64,
    pub version: String,
}

/// Starts sessions; a running one is a [`SessionHandle`].
#[derive(Debug)]
pub struct Session;

/// A running session. Dropping it closes the connection without a word, as the death of the machine would.
#[derive(Debug)]
pub struct SessionHandle {
    wishes: watch::Sender<Wishes>,
    asks: mpsc::Sender<oneshot::Sender<()>>,
    inquiries: mpsc::Sender<Inquiry>,
    state: watch::Receiver<SessionState>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAcknowledged {
    #[error("no replica in contact with the leader acknowledged this node within {0:?}: the fleet may think it lost")]
    InTime(Duration),
    #[error("too many acknowledgements are being waited for: wait for one of them before asking again")]
    Busy,
}

// === impl Session ===

impl Session {
    /// Checks the configuration and begins to connect. Must be called on a tokio runtime.
    pub fn start(config: SessionConfig, machine: Arc<dyn Machine>) -> Result<SessionHandle, SetupError> {
        let doors = Door::list(&config.endpoints)?;
        Ok(Self::begin(config, doors, machine, None))
    }

    /// The same with doors that were checked before; `gate` bounds how many sessions connect at once.
    pub(crate) fn begin(
        config: SessionConfig,
        doors: Arc<[Door]>,
        machine: Arc<dyn Machine>,
        gate: Option<Arc<Semaphore>>,
    ) -> SessionHandle {
        let opener = Opener { doors, tls: TlsConnector::from(config.tls), gate };
        let attachment = Attachment::new(opener, xxh3_64(config.node.as_bytes()), rand::random);
        let SessionConfig { node, instance, version, .. } = config;
        let (inbox, now) = (Arc::new(Inbox::default()), Instant::now());
        let pods = Workload::new(machine.runtime(), inbox.news(SOLE), now);
        let conversation = Conversation::new(node, instance, version, machine, pods, rand::random, now);
        let (wishes, wished) = watch::channel(Wishes::default());
        let (asks, asked) = mpsc::channel(ASKS_WAITING);
        let (inquiries, inquired) = mpsc::channel(INQUIRIES_WAITING);
        let (published, state) = watch::channel(SessionState::default());
        let driver = Driver::new(conversation, attachment, wished, (asked, inquired), inbox, published);
        SessionHandle { wishes, asks, inquiries, state, _task: AbortOnDropHandle::new(tokio::spawn(driver.run())) }
    }
}

// === impl SessionHandle ===

impl SessionHandle {
    /// The machine's status may have changed: it is posted now, unless it has not.
    pub fn report(&self) {
        self.wishes.send_modify(|wishes| wishes.reports += 1);
    }

    /// The certificate is a new one: the session goes on with it on a new stream, and the present one stays until then.
    pub fn reattach(&self) {
        self.wishes.send_modify(|wishes| wishes.renewals += 1);
    }

    /// Asks for an acknowledgement: that a replica in contact with the leader hears this node now.
    pub async fn acknowledged(&self, within: Duration) -> Result<(), NotAcknowledged> {
        let (waiter, answer) = oneshot::channel();
        self.asks.try_send(waiter).map_err(|_| NotAcknowledged::Busy)?;
        match timeout(within, answer).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(NotAcknowledged::Busy),
            Err(_) => Err(NotAcknowledged::InTime(within)),
        }
    }

    /// Looks into the session; nothing if it does not answer within `patience`.
    pub async fn inspect(&self, patience: Duration) -> Option<Insight> {
        let (inquiry, answer) = oneshot::channel();
        self.inquiries.try_send(inquiry).ok()?;
        timeout(patience, answer).await.ok()?.ok()
    }

    /// What the session knows, newest wins.
    pub fn events(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }

    pub fn state(&self) -> SessionState {
        self.state.borrow().clone()
    }

    /// Says goodbye and closes: the session is released at once, the node stays.
    pub async fn stop(self) {
        self.finish().await;
    }

    /// The same for a shared handle: once it is done, nothing happens any more.
    pub(crate) async fn finish(&self) {
        self.wishes.send_modify(|wishes| wishes.stopping = true);
        let mut state = self.state.clone();
        // The task's last act is to let go of the state.
        let ended = async { while state.changed().await.is_ok() {} };
        let _ = timeout(STOP_PATIENCE, ended).await;
    }

    pub(crate) fn pretend(&self, presence: Presence) {
        self.wishes.send_modify(|wishes| wishes.presence = presence);
    }
}
