//! Fleet of simulated nodes and the behaviour of each. Commands take effect at once; the sessions do the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use rustls::ClientConfig;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::behaviour::Behaviour;
use super::machine::SimulatedMachine;
use super::runtime::{PodManner, RunningPod};
use super::target::{NodeTarget, is_zone, share};
use crate::connection::{Endpoint, SessionSetupError};
use crate::pods::{RunJournal, RunRecorder};
use crate::session::{AgentMode, Session, SessionConfig, SessionHandle, SessionState};

/// How many known names an error lists.
const NAMES_SHOWN: usize = 10;
/// A flapping node is silent, then live, for so many times the grace: long enough to be noticed each time.
const FLAP_GRACES: f64 = 1.5;
const STOPPING_AT_ONCE: usize = 64;

pub struct SimulatedNode {
    pub name: String,
    pub region: String,
    pub zone: String,
    /// With the node's own certificate.
    pub tls: Arc<ClientConfig>,
}

/// Limit on concurrent connects, when the fleet starts and whenever it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectPace {
    pub connecting_at_once: usize,
}

/// A running fleet. Dropping it cuts every connection.
pub struct SimulatedFleet {
    nodes: Mutex<BTreeMap<String, SimulatedAgent>>,
}

struct SimulatedAgent {
    region: String,
    zone: String,
    machine: Arc<SimulatedMachine>,
    session: Arc<SessionHandle>,
    behaviour: Behaviour,
    flapping: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeBehaviour {
    pub name: String,
    /// As `region/zone`.
    pub zone: String,
    pub behaviour: Behaviour,
    /// The replica that holds the node's session, as far as the node knows.
    pub attached_to: Option<u64>,
    /// The pods that run on the machine, whatever the cluster thinks.
    pub pods: Vec<RunningPod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SimulatedFleetError {
    #[error("there is no simulated node {name:?}; there are: {known}")]
    UnknownNode { name: String, known: String },
    #[error("there is no simulated zone {zone:?}; there are: {known}")]
    UnknownZone { zone: String, known: String },
    #[error("{0} % is too much: give a percentage from 0 to 100")]
    Percent(u8),
}

// === impl SimulatedFleet ===

impl SimulatedFleet {
    /// Starts a session for each node. Must be called on a tokio runtime.
    pub fn start(
        nodes: Vec<SimulatedNode>,
        endpoints: &[String],
        pace: ConnectPace,
    ) -> Result<Self, SessionSetupError> {
        Self::start_recorded(nodes, endpoints, pace, None)
    }

    /// The same; the machines note in the journal which pods really run on them.
    pub fn start_recorded(
        nodes: Vec<SimulatedNode>,
        endpoints: &[String],
        pace: ConnectPace,
        journal: Option<&Arc<RunJournal>>,
    ) -> Result<Self, SessionSetupError> {
        let endpoints = Endpoint::list(endpoints)?;
        let gate = Arc::new(Semaphore::new(pace.connecting_at_once.clamp(1, Semaphore::MAX_PERMITS)));
        let mut agents = BTreeMap::new();
        for (number, node) in (0..).zip(nodes) {
            let name = node.name.clone();
            let recorder = journal.map(|journal| journal.recorder(&name, &name));
            let agent = SimulatedAgent::start(node, number, recorder, (Arc::clone(&endpoints), Arc::clone(&gate)));
            if agents.insert(name.clone(), agent).is_some() {
                return Err(SessionSetupError::Twice(name));
            }
        }
        Ok(Self { nodes: Mutex::new(agents) })
    }

    /// Sets the behaviour of the target's nodes and returns their names.
    pub fn apply(&self, behaviour: Behaviour, target: &NodeTarget) -> Result<Vec<String>, SimulatedFleetError> {
        let mut nodes = self.lock();
        let names = select(&nodes, target)?;
        for name in &names {
            if let Some(agent) = nodes.get_mut(name) {
                agent.behave(behaviour);
            }
        }
        Ok(names)
    }

    pub fn status(&self) -> Vec<NodeBehaviour> {
        let describe = |(name, agent): (&String, &SimulatedAgent)| NodeBehaviour {
            name: name.clone(),
            zone: agent.place(),
            behaviour: agent.behaviour,
            attached_to: agent.session.state().attached_to,
            pods: agent.machine.pods().running(),
        };
        self.lock().iter().map(describe).collect()
    }

    /// The state of one node's session; a slow reader sees only the newest.
    pub fn events(&self, name: &str) -> Option<watch::Receiver<SessionState>> {
        self.lock().get(name).map(|agent| agent.session.events())
    }

    /// Stops every session with a goodbye, some at a time.
    pub async fn stop(self) {
        let agents = self.nodes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let farewells = agents.into_values().map(|agent| async move {
            drop(agent.flapping);
            agent.session.finish().await;
        });
        futures::stream::iter(farewells).buffer_unordered(STOPPING_AT_ONCE).collect::<()>().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SimulatedAgent>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn select(nodes: &BTreeMap<String, SimulatedAgent>, target: &NodeTarget) -> Result<Vec<String>, SimulatedFleetError> {
    match target {
        NodeTarget::Node(name) if nodes.contains_key(name) => Ok(vec![name.clone()]),
        NodeTarget::Node(name) => {
            let known = shown(nodes.keys().cloned());
            Err(SimulatedFleetError::UnknownNode { name: name.clone(), known })
        }
        NodeTarget::Zone { zone, percent } => {
            let there = |agent: &SimulatedAgent| is_zone(zone, &agent.region, &agent.zone);
            let names: Vec<_> = nodes.iter().filter(|(_, agent)| there(agent)).map(|(name, _)| name).collect();
            if names.is_empty() {
                let zones: BTreeSet<_> = nodes.values().map(SimulatedAgent::place).collect();
                return Err(SimulatedFleetError::UnknownZone { zone: zone.clone(), known: shown(zones.into_iter()) });
            }
            first(&names, *percent)
        }
        NodeTarget::All { percent } => first(&nodes.keys().collect::<Vec<_>>(), *percent),
    }
}

fn first(names: &[&String], percent: Option<u8>) -> Result<Vec<String>, SimulatedFleetError> {
    if let Some(percent) = percent.filter(|percent| *percent > 100) {
        return Err(SimulatedFleetError::Percent(percent));
    }
    Ok(names.iter().take(share(names.len(), percent)).map(|name| (*name).clone()).collect())
}

fn shown(mut names: impl ExactSizeIterator<Item = String>) -> String {
    let shown: Vec<_> = names.by_ref().take(NAMES_SHOWN).collect();
    match names.len() {
        0 if shown.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

// === impl SimulatedAgent ===

impl SimulatedAgent {
    fn start(
        node: SimulatedNode,
        number: u32,
        recorder: Option<RunRecorder>,
        (endpoints, gate): (Arc<[Endpoint]>, Arc<Semaphore>),
    ) -> Self {
        let SimulatedNode { name, region, zone, tls } = node;
        let machine = Arc::new(SimulatedMachine::new(&name, &region, &zone, number));
        if let Some(recorder) = recorder {
            // An earlier fleet may have ended with its process.
            recorder.lost_all();
            machine.record(recorder);
        }
        let config = SessionConfig {
            node: name,
            endpoints: Vec::new(),
            tls,
            instance: rand::random(),
            version: concat!("simulated/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let session = Session::begin(config, endpoints, Arc::clone(&machine) as _, Some(gate));
        Self { region, zone, machine, session: Arc::new(session), behaviour: Behaviour::Resume, flapping: None }
    }

    fn place(&self) -> String {
        format!("{}/{}", self.region, self.zone)
    }

    /// Ends the former behaviour and starts this one.
    fn behave(&mut self, behaviour: Behaviour) {
        self.flapping = None;
        self.behaviour = behaviour;
        self.machine.set_disk_pressure(behaviour == Behaviour::Pressure);
        match behaviour {
            Behaviour::Resume | Behaviour::Pressure | Behaviour::Flap => self.go_live(PodManner::Prompt),
            Behaviour::Slow => self.go_live(PodManner::Slow),
            Behaviour::Stuck => self.go_live(PodManner::Stuck),
            Behaviour::Silence => self.session.simulate(AgentMode::Silent),
            Behaviour::Kill => {
                // The agent dies first: it must not see its pods gone and report that.
                self.session.simulate(AgentMode::Dead);
                self.machine.pods().behave(PodManner::Off);
            }
        }
        self.session.report();
        if behaviour == Behaviour::Flap {
            self.flapping = Some(AbortOnDropHandle::new(tokio::spawn(flap(Arc::clone(&self.session)))));
        }
    }

    fn go_live(&self, manner: PodManner) {
        self.machine.pods().behave(manner);
        self.session.simulate(AgentMode::Live);
    }
}

async fn flap(session: Arc<SessionHandle>) {
    for mode in [AgentMode::Silent, AgentMode::Live].into_iter().cycle() {
        session.simulate(mode);
        sleep(session.state().terms.grace.mul_f64(FLAP_GRACES)).await;
    }
}

// === impl ConnectPace ===

impl Default for ConnectPace {
    /// A thousand nodes start well at this pace on two cores.
    fn default() -> Self {
        Self { connecting_at_once: 64 }
    }
}
