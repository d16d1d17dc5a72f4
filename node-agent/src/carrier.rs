//! Many nodes on one stream: the aggregator's side, for rack agents, edge gateways and load generators.
//!
//! Nodes are bound to small numbers once per stream, and then a beat is a number in a packed message. The beats of an
//! interval are spread over slices of it, so that neither side works in bursts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::attachment::Attachment;
use crate::door::{Door, SetupError};
use crate::failure::Failure;
use crate::link::Opener;
use crate::machine::Machine;
use crate::pods::Inbox;
use crate::terms::Terms;

use driver::Driver;
use roster::Roster;

mod driver;
mod roster;

/// Handles are smaller than this.
pub const NODES_MAX: usize = 1_000_000;
/// A carrier that was asked to stop and has not by then is cut off.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct CarrierConfig {
    /// The agents' doors of the replicas, as HOST:PORT.
    pub endpoints: Vec<String>,
    /// With the aggregator's certificate, and the CA that signs the replicas'.
    pub tls: Arc<ClientConfig>,
    /// Drawn at random when the process starts.
    pub instance: u64,
    pub version: String,
}

#[derive(Clone)]
pub struct CarriedNode {
    pub name: String,
    pub machine: Arc<dyn Machine>,
}

/// Starts carriers; a running one is a [`CarrierHandle`].
#[derive(Debug)]
pub struct Carrier;

/// A running carrier. Dropping it closes the connection without a word.
#[derive(Debug)]
pub struct CarrierHandle {
    handles: BTreeMap<String, u32>,
    reports: Arc<Reports>,
    stopping: CancellationToken,
    state: watch::Receiver<CarrierState>,
    task: AbortOnDropHandle<()>,
}

/// Only the newest is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarrierState {
    pub attached_to: Option<u64>,
    pub fleet: Option<Arc<str>>,
    /// Nodes that beat.
    pub bound: usize,
    /// Nodes whose registration is under way.
    pub registering: usize,
    /// Nodes that this aggregator may not carry.
    pub refused: usize,
    /// How often a Node was found removed.
    pub removals: u64,
    pub terms: Terms,
    pub last_error: Option<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not carried on this stream: start the carrier with it")]
pub struct NotCarried(pub String);

/// Nodes whose status may have changed: each at most once, however often it is said.
#[derive(Debug, Default)]
struct Reports {
    changed: Mutex<BTreeSet<u32>>,
    notify: Notify,
}

// === impl Carrier ===

impl Carrier {
    /// Checks the configuration and begins to connect. Must be called on a tokio runtime.
    pub fn start(config: CarrierConfig, nodes: Vec<CarriedNode>) -> Result<CarrierHandle, SetupError> {
        let doors = Door::list(&config.endpoints)?;
        let handles = number(&nodes)?;
        let opener = Opener { doors, tls: TlsConnector::from(config.tls), gate: None };
        let attachment = Attachment::new(opener, config.instance, rand::random);
        let inbox = Arc::new(Inbox::default());
        let roster = Roster::new(config.instance, config.version, nodes, &inbox, rand::random, Instant::now());
        let reports = Arc::new(Reports::default());
        let stopping = CancellationToken::new();
        let (published, state) = watch::channel(CarrierState::default());
        let driver = Driver::new(roster, attachment, Arc::clone(&reports), inbox, stopping.clone(), published);
        let task = AbortOnDropHandle::new(tokio::spawn(driver.run()));
        Ok(CarrierHandle { handles, reports, stopping, state, task })
    }
}

fn number(nodes: &[CarriedNode]) -> Result<BTreeMap<String, u32>, SetupError> {
    if nodes.len() > NODES_MAX {
        return Err(SetupError::TooManyNodes { count: nodes.len(), max: NODES_MAX });
    }
    let mut handles = BTreeMap::new();
    for (handle, node) in (0..).zip(nodes) {
        if handles.insert(node.name.clone(), handle).is_some() {
            return Err(SetupError::Twice(node.name.clone()));
        }
    }
    Ok(handles)
}

// === impl CarrierHandle ===

impl CarrierHandle {
    /// The node's status may have changed: it is posted now, unless it has not.
    pub fn report(&self, node: &str) -> Result<(), NotCarried> {
        let handle = self.handles.get(node).ok_or_else(|| NotCarried(node.to_owned()))?;
        self.reports.add(*handle);
        Ok(())
    }

    /// What the carrier knows, newest wins.
    pub fn events(&self) -> watch::Receiver<CarrierState> {
        self.state.clone()
    }

    pub fn state(&self) -> CarrierState {
        self.state.borrow().clone()
    }

    /// Releases the nodes and closes.
    pub async fn stop(self) {
        self.stopping.cancel();
        let _ = timeout(STOP_PATIENCE, self.task).await;
    }
}

// === impl Reports ===

impl Reports {
    fn add(&self, handle: u32) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
        self.notify.notify_one();
    }

    async fn take(&self) -> BTreeSet<u32> {
        self.notify.notified().await;
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl CarriedNode ===

impl std::fmt::Debug for CarriedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CarriedNode").field("name", &self.name).finish_non_exhaustive()
    }
}
