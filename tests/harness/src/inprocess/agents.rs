//! The simulated nodes of a test cluster, each with a certificate and a TLS connection of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_node_agent::pods::RunJournal;
use muster_node_agent::session::SessionState;
use muster_node_agent::simulated::{Behaviour, ConnectPace, NodeTarget, SimulatedFleet, SimulatedNode};

use super::InprocessCluster;
use crate::runs;

pub const REGION: &str = "test";

pub struct Agents {
    fleet: SimulatedFleet,
    journal: Arc<RunJournal>,
}

impl Agents {
    /// `per_zone` nodes in each zone, called `node-ZONE-01` and so on.
    pub fn start(cluster: &InprocessCluster, zones: &[&str], per_zone: usize) -> Self {
        let names = zones.iter().flat_map(|zone| (1..=per_zone).map(move |number| (zone, node_name(zone, number))));
        let nodes = names.map(|(zone, name)| {
            let tls = cluster.members.node_tls(&name);
            SimulatedNode { name, region: REGION.into(), zone: (*zone).into(), tls }
        });
        let (doors, pace, journal) = (cluster.members.agent_doors(), ConnectPace::default(), RunJournal::in_memory());
        let fleet = SimulatedFleet::start_recorded(nodes.collect(), &doors, pace, Some(&journal)).unwrap();
        Self { fleet, journal }
    }

    pub fn play(&self, behaviour: Behaviour, name: &str) {
        self.fleet.apply(behaviour, &NodeTarget::Node(name.to_owned())).unwrap();
    }

    /// The replica that each node is attached to.
    pub fn attached(&self) -> BTreeMap<String, Option<u64>> {
        self.fleet.status().into_iter().map(|node| (node.name, node.attached_to)).collect()
    }

    /// The nodes that are attached to this replica, by name.
    pub fn attached_to(&self, replica: u64) -> Vec<String> {
        let here = self.attached().into_iter().filter(|(_, attached)| *attached == Some(replica));
        here.map(|(name, _)| name).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.attached().into_keys().collect()
    }

    pub fn session(&self, name: &str) -> SessionState {
        self.fleet.events(name).expect("a simulated node").borrow().clone()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        runs::require_sound(&self.journal.history());
    }
}

pub fn node_name(zone: &str, number: usize) -> String {
    format!("node-{zone}-{number:02}")
}
