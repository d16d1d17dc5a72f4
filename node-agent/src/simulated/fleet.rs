//! Many simulated nodes and what each of them plays. Commands take effect at once; the sessions do the rest.

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
use super::runtime::{Manner, RunningPod};
use super::target::{Target, is_zone, share};
use crate::door::{Door, SetupError};
use crate::session::{Presence, Session, SessionConfig, SessionHandle, SessionState};

/// How many existing names an error lists.
const NAMES_SHOWN: usize = 10;
/// A flapping node is silent, and then present, for so many times the grace: long enough to be noticed each time.
const FLAP_GRACES: f64 = 1.5;
const STOPPING_AT_ONCE: usize = 64;

pub struct SimulatedNode {
    pub name: String,
    pub region: String,
    pub zone: String,
    /// With the node's own certificate.
    pub tls: Arc<ClientConfig>,
}

/// How hard the fleet may press on the replicas while it comes up, and whenever it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub connecting_at_once: usize,
}

/// Dropping it cuts every connection.
pub struct Fleet {
    nodes: Mutex<BTreeMap<String, Player>>,
}

struct Player {
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
    /// What it runs, as only the machine itself can know.
    pub pods: Vec<RunningPod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FleetError {
    #[error("there is no simulated node {name:?}; there are: {known}")]
    UnknownNode { name: String, known: String },
    #[error("there is no simulated zone {zone:?}; there are: {known}")]
    UnknownZone { zone: String, known: String },
    #[error("{0} % is more than all: give a percentage from 0 to 100")]
    Percent(u8),
}

// === impl Fleet ===

impl Fleet {
    /// Starts a session for each node. Must be called on a tokio runtime.
    pub fn start(nodes: Vec<SimulatedNode>, endpoints: &[String], pace: Pace) -> Result<Self, SetupError> {
        let doors = Door::list(endpoints)?;
        let gate = Arc::new(Semaphore::new(pace.connecting_at_once.clamp(1, Semaphore::MAX_PERMITS)));
        let mut players = BTreeMap::new();
        for (number, node) in (0..).zip(nodes) {
            let name = node.name.clone();
            let player = Player::start(node, number, Arc::clone(&doors), Arc::clone(&gate));
            if players.insert(name.clone(), player).is_some() {
                return Err(SetupError::Twice(name));
            }
        }
        Ok(Self { nodes: Mutex::new(players) })
    }

    /// Makes the nodes behave so, and names them.
    pub fn apply(&self, behaviour: Behaviour, target: &Target) -> Result<Vec<String>, FleetError> {
        let mut nodes = self.lock();
        let names = select(&nodes, target)?;
        for name in &names {
            if let Some(player) = nodes.get_mut(name) {
                player.play(behaviour);
            }
        }
        Ok(names)
    }

    pub fn status(&self) -> Vec<NodeBehaviour> {
        let describe = |(name, player): (&String, &Player)| NodeBehaviour {
            name: name.clone(),
            zone: player.place(),
            behaviour: player.behaviour,
            attached_to: player.session.state().attached_to,
            pods: player.machine.pods().running(),
        };
        self.lock().iter().map(describe).collect()
    }

    /// What one node's session knows, newest wins.
    pub fn events(&self, name: &str) -> Option<watch::Receiver<SessionState>> {
        self.lock().get(name).map(|player| player.session.events())
    }

    /// Every node says goodbye, some at a time.
    pub async fn stop(self) {
        let players = self.nodes.into_inner().unwrap_or_else(PoisonError::into_inner);
        let farewells = players.into_values().map(|player| async move {
            drop(player.flapping);
            player.session.finish().await;
        });
        futures::stream::iter(farewells).buffer_unordered(STOPPING_AT_ONCE).collect::<()>().await;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Player>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn select(nodes: &BTreeMap<String, Player>, target: &Target) -> Result<Vec<String>, FleetError> {
    match target {
        Target::Node(name) if nodes.contains_key(name) => Ok(vec![name.clone()]),
        Target::Node(name) => {
            let known = shown(nodes.keys().cloned());
            Err(FleetError::UnknownNode { name: name.clone(), known })
        }
        Target::Zone { zone, percent } => {
            let there = |player: &Player| is_zone(zone, &player.region, &player.zone);
            let names: Vec<_> = nodes.iter().filter(|(_, player)| there(player)).map(|(name, _)| name).collect();
            if names.is_empty() {
                let zones: BTreeSet<_> = nodes.values().map(Player::place).collect();
                return Err(FleetError::UnknownZone { zone: zone.clone(), known: shown(zones.into_iter()) });
            }
            first(&names, *percent)
        }
        Target::All { percent } => first(&nodes.keys().collect::<Vec<_>>(), *percent),
    }
}

fn first(names: &[&String], percent: Option<u8>) -> Result<Vec<String>, FleetError> {
    if let Some(percent) = percent.filter(|percent| *percent > 100) {
        return Err(FleetError::Percent(percent));
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

// === impl Player ===

impl Player {
    fn start(node: SimulatedNode, number: u32, doors: Arc<[Door]>, gate: Arc<Semaphore>) -> Self {
        let SimulatedNode { name, region, zone, tls } = node;
        let machine = Arc::new(SimulatedMachine::new(&name, &region, &zone, number));
        let config = SessionConfig {
            node: name,
            endpoints: Vec::new(),
            tls,
            instance: rand::random(),
            version: concat!("simulated/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let session = Session::begin(config, doors, Arc::clone(&machine) as _, Some(gate));
        Self { region, zone, machine, session: Arc::new(session), behaviour: Behaviour::Resume, flapping: None }
    }

    fn place(&self) -> String {
        format!("{}/{}", self.region, self.zone)
    }

    /// Whatever it played before is over.
    fn play(&mut self, behaviour: Behaviour) {
        self.flapping = None;
        self.behaviour = behaviour;
        self.machine.set_disk_pressure(behaviour == Behaviour::Pressure);
        match behaviour {
            Behaviour::Resume | Behaviour::Pressure | Behaviour::Flap => self.appear(Manner::Prompt),
            Behaviour::Slow => self.appear(Manner::Slow),
            Behaviour::Stuck => self.appear(Manner::Stuck),
            Behaviour::Silence => self.session.pretend(Presence::Silent),
            Behaviour::Kill => {
                // The agent first: it must not find its pods gone and live to tell.
                self.session.pretend(Presence::Dead);
                self.machine.pods().behave(Manner::Off);
            }
        }
        self.session.report();
        if behaviour == Behaviour::Flap {
            self.flapping = Some(AbortOnDropHandle::new(tokio::spawn(flap(Arc::clone(&self.session)))));
        }
    }

    fn appear(&self, manner: Manner) {
        self.machine.pods().behave(manner);
        self.session.pretend(Presence::Live);
    }
}

async fn flap(session: Arc<SessionHandle>) {
    for presence in [Presence::Silent, Presence::Live].into_iter().cycle() {
        session.pretend(presence);
        sleep(session.state().terms.grace.mul_f64(FLAP_GRACES)).await;
    }
}

// === impl Pace ===

impl Default for Pace {
    /// A thousand nodes on two cores come up well at this.
    fn default() -> Self {
        Self { connecting_at_once: 64 }
    }
}
