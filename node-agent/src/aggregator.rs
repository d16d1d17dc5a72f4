//! Aggregator: many nodes on one stream, for rack agents, edge gateways and load generators.
//!
//! Each stream binds nodes to small numbers, their handles; a beat is then a number in a packed message. Beats are
//! spread over slices of the interval, so that neither side works in bursts.

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

use crate::connection::{Attachment, Endpoint, Opener, SessionFailure, SessionSetupError, SessionTerms};
use crate::machine::AgentMachine;
use crate::pods::PodInbox;

use conversation::Conversation;
use driver::Driver;

mod conversation;
mod driver;

/// Handles are smaller than this.
pub const NODES_MAX: usize = 1_000_000;
/// An aggregator that has not stopped by then is aborted.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct AggregatorConfig {
    /// Endpoints of the replicas' agents' doors, as HOST:PORT.
    pub endpoints: Vec<String>,
    /// With the aggregator's certificate, and the CA that signs the replicas' certificates.
    pub tls: Arc<ClientConfig>,
    /// Drawn at random when the process starts.
    pub instance: u64,
    pub version: String,
}

#[derive(Clone)]
pub struct AggregatedNode {
    pub name: String,
    pub machine: Arc<dyn AgentMachine>,
}

/// Starts aggregators; a running one is an [`AggregatorHandle`].
#[derive(Debug)]
pub struct AggregatorSession;

/// A running aggregator. Dropping it closes the connection without releasing the nodes.
#[derive(Debug)]
pub struct AggregatorHandle {
    handles: BTreeMap<String, u32>,
    reports: Arc<StatusChanges>,
    stopping: CancellationToken,
    state: watch::Receiver<AggregatorState>,
    task: AbortOnDropHandle<()>,
}

/// A slow reader sees only the newest state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AggregatorState {
    pub attached_to: Option<u64>,
    pub fleet: Option<Arc<str>>,
    /// Nodes that beat.
    pub bound: usize,
    /// Nodes whose registration is under way.
    pub registering: usize,
    /// Nodes that this aggregator may not bind.
    pub refused: usize,
    /// How often a Node was found removed.
    pub removals: u64,
    pub terms: SessionTerms,
    pub last_error: Option<SessionFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("node {0:?} is not on this stream: start the aggregator with it")]
pub struct NotAggregated(pub String);

/// Nodes whose status may have changed: each at most once, however often it is announced.
#[derive(Debug, Default)]
struct StatusChanges {
    changed: Mutex<BTreeSet<u32>>,
    notify: Notify,
}

// === impl AggregatorSession ===

impl AggregatorSession {
    /// Checks the configuration and begins to connect. Must be called on a tokio runtime.
    pub fn start(config: AggregatorConfig, nodes: Vec<AggregatedNode>) -> Result<AggregatorHandle, SessionSetupError> {
        let endpoints = Endpoint::list(&config.endpoints)?;
        let handles = number(&nodes)?;
        let opener = Opener { endpoints, tls: TlsConnector::from(config.tls), gate: None };
        let attachment = Attachment::new(opener, config.instance, rand::random);
        let inbox = Arc::new(PodInbox::default());
        let conversation =
            Conversation::new(config.instance, config.version, nodes, &inbox, rand::random, Instant::now());
        let reports = Arc::new(StatusChanges::default());
        let stopping = CancellationToken::new();
        let (published, state) = watch::channel(AggregatorState::default());
        let driver = Driver::new(conversation, attachment, Arc::clone(&reports), inbox, stopping.clone(), published);
        let task = AbortOnDropHandle::new(tokio::spawn(driver.run()));
        Ok(AggregatorHandle { handles, reports, stopping, state, task })
    }
}

fn number(nodes: &[AggregatedNode]) -> Result<BTreeMap<String, u32>, SessionSetupError> {
    if nodes.len() > NODES_MAX {
        return Err(SessionSetupError::TooManyNodes { count: nodes.len(), max: NODES_MAX });
    }
    let mut handles = BTreeMap::new();
    for (handle, node) in (0..).zip(nodes) {
        if handles.insert(node.name.clone(), handle).is_some() {
            return Err(SessionSetupError::Twice(node.name.clone()));
        }
    }
    Ok(handles)
}

// === impl AggregatorHandle ===

impl AggregatorHandle {
    /// Announces that the node's status may have changed. It is posted now if it has.
    pub fn report(&self, node: &str) -> Result<(), NotAggregated> {
        let handle = self.handles.get(node).ok_or_else(|| NotAggregated(node.to_owned()))?;
        self.reports.add(*handle);
        Ok(())
    }

    /// The aggregator's state; a slow reader sees only the newest.
    pub fn events(&self) -> watch::Receiver<AggregatorState> {
        self.state.clone()
    }

    pub fn state(&self) -> AggregatorState {
        self.state.borrow().clone()
    }

    /// Releases the nodes and closes.
    pub async fn stop(self) {
        self.stopping.cancel();
        let _ = timeout(STOP_TIMEOUT, self.task).await;
    }
}

// === impl StatusChanges ===

impl StatusChanges {
    fn add(&self, handle: u32) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(handle);
        self.notify.notify_one();
    }

    async fn take(&self) -> BTreeSet<u32> {
        self.notify.notified().await;
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl AggregatedNode ===

impl std::fmt::Debug for AggregatedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AggregatedNode").field("name", &self.name).finish_non_exhaustive()
    }
}
