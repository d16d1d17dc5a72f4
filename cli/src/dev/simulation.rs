//! The simulated nodes of `muster dev`: agents without a machine, each with its own certificate and its own TLS
//! connection to whichever replica it attaches to.
//!
//! They run in this process, so that they outlive any replica, as machines do.

use std::path::Path;

use anyhow::Context as _;
use muster_node_agent::pods::RunJournal;
use muster_node_agent::simulated::{self, Behaviour, ConnectPace, NodeBehaviour, RunningPod, SimulatedNode};
use muster_pki::{FleetFolder, tls};
use serde_json::{Value, json};

use super::control::FleetRequest;

/// How many nodes the machine can carry: each takes a connection here and one at a replica.
pub(super) const NODES_MAX: u32 = 5_000;
pub(super) const ZONES_MAX: u32 = 100;

const REGION: &str = "dev";
const CONNECTING_AT_ONCE: usize = 32;
/// The journal of the pods that really ran on the simulated machines.
const RUNS_FILE: &str = "runs.jsonl";
const RUNS_BYTES_MAX: u64 = 64 << 20;
/// How many of the affected nodes an answer names.
const NAMED_MAX: usize = 10;

/// How many nodes, in how many zones, with how many demo pods at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) zones: u32,
    /// Per node.
    pub(super) demo_pods: u32,
}

// === impl Size ===

impl Size {
    pub(super) fn all_demo_pods(self) -> u64 {
        u64::from(self.nodes) * u64::from(self.demo_pods)
    }
}

pub(super) struct Simulation {
    fleet: simulated::SimulatedFleet,
}

// === impl Simulation ===

impl Simulation {
    /// `dir` is where the machines note which pods really run on them.
    pub(super) fn start(fleet: &FleetFolder, size: Size, dir: &Path) -> anyhow::Result<Self> {
        let nodes = places(size).map(|place| place.node(fleet)).collect::<anyhow::Result<Vec<_>>>()?;
        let endpoints: Vec<String> = fleet.replicas().iter().map(|plan| plan.agent.to_string()).collect();
        let pace = ConnectPace { connecting_at_once: CONNECTING_AT_ONCE };
        let journal = dir.join(RUNS_FILE);
        let journal = RunJournal::in_file(&journal, RUNS_BYTES_MAX)
            .with_context(|| format!("cannot write {}", journal.display()))?;
        let fleet = simulated::SimulatedFleet::start_recorded(nodes, &endpoints, pace, Some(&journal))
            .context("cannot start the simulated nodes")?;
        Ok(Self { fleet })
    }

    pub(super) async fn stop(self) {
        self.fleet.stop().await;
    }

    /// The answer to a request, as one line.
    pub(super) fn answer(&self, request: &FleetRequest) -> Result<String, String> {
        match request {
            FleetRequest::Status => Ok(Value::from_iter(self.fleet.status().iter().map(describe)).to_string()),
            FleetRequest::Apply { behaviour, target } => {
                let names = self.fleet.apply(*behaviour, target).map_err(|error| error.to_string())?;
                Ok(format!("{behaviour}: {}", listed(&names)))
            }
        }
    }
}

/// The zone of a simulated node.
struct Place {
    name: String,
    zone: String,
}

impl Place {
    fn node(self, fleet: &FleetFolder) -> anyhow::Result<SimulatedNode> {
        let issued = fleet.issue_node(&self.name)?;
        let authority = fleet.client_authority().certificate_pem();
        let tls = tls::agent(authority, &issued.certificate, &issued.key)?;
        Ok(SimulatedNode { name: self.name, region: REGION.into(), zone: self.zone, tls })
    }
}

/// Nodes go round the zones, so that their sizes differ by one at most.
fn places(Size { nodes, zones, .. }: Size) -> impl Iterator<Item = Place> {
    let width = nodes.div_ceil(zones.max(1)).to_string().len();
    (0..nodes).map(move |index| {
        let zone = zone_name(index % zones.max(1));
        let number = index / zones.max(1) + 1;
        Place { name: format!("node-{zone}-{number:0width$}"), zone }
    })
}

fn zone_name(index: u32) -> String {
    match u8::try_from(index) {
        Ok(letter @ 0..26) => char::from(b'a' + letter).to_string(),
        Ok(_) | Err(_) => format!("z{}", index + 1),
    }
}

fn describe(node: &NodeBehaviour) -> Value {
    json!({
        "name": node.name,
        "zone": node.zone,
        "behaviour": state(node.behaviour),
        "attachedTo": node.attached_to,
        "pods": node.pods.iter().map(describe_pod).collect::<Value>(),
    })
}

fn describe_pod(pod: &RunningPod) -> Value {
    json!({ "namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "stopping": pod.stopping })
}

/// A state is named after the command that caused it; a node without a command is healthy.
fn state(behaviour: Behaviour) -> &'static str {
    match behaviour {
        Behaviour::Resume => "healthy",
        Behaviour::Silence
        | Behaviour::Kill
        | Behaviour::Flap
        | Behaviour::Pressure
        | Behaviour::Slow
        | Behaviour::Stuck => behaviour.as_str(),
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "no node".into(),
        1 => shown,
        count if count <= NAMED_MAX => format!("{count} nodes ({shown})"),
        count => format!("{count} nodes ({shown}, ...)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(nodes: u32, zones: u32) -> Size {
        Size { nodes, zones, demo_pods: 2 }
    }

    #[test]
    fn nodes_are_assigned_to_zones_in_turn() {
        let names: Vec<String> = places(size(5, 2)).map(|place| place.name).collect();
        assert_eq!(names, ["node-a-1", "node-b-1", "node-a-2", "node-b-2", "node-a-3"]);
        let last = places(size(100, 3)).last().map(|place| place.name);
        assert_eq!(last.as_deref(), Some("node-a-34"));
    }

    #[test]
    fn the_demo_has_two_pods_per_node() {
        assert_eq!([size(15, 3), size(0, 3)].map(Size::all_demo_pods), [30, 0]);
    }

    #[test]
    fn zones_have_names_beyond_the_alphabet() {
        assert_eq!([0, 25, 26].map(zone_name), ["a", "z", "z27"]);
    }

    #[test]
    fn a_node_without_misbehaviour_is_shown_as_healthy() {
        assert_eq!([Behaviour::Resume, Behaviour::Kill, Behaviour::Flap].map(state), ["healthy", "kill", "flap"]);
    }

    #[test]
    fn a_simulated_machine_lists_its_pods() {
        let pod = RunningPod { namespace: "web".into(), name: "a".into(), uid: "u".into(), stopping: true };
        let node = NodeBehaviour {
            name: "n".into(),
            zone: "dev/a".into(),
            behaviour: Behaviour::Stuck,
            attached_to: None,
            pods: vec![pod],
        };
        let told = describe(&node);
        assert_eq!(told["behaviour"], "stuck");
        assert_eq!(told["pods"], json!([{"namespace": "web", "name": "a", "uid": "u", "stopping": true}]));
    }

    #[test]
    fn a_long_list_of_nodes_is_truncated() {
        let names = |count: usize| (0..count).map(|index| format!("n{index}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(0)), "no node");
        assert_eq!(listed(&names(1)), "n0");
        assert_eq!(listed(&names(2)), "2 nodes (n0, n1)");
        assert!(listed(&names(11)).ends_with("n9, ...)"));
    }
}
