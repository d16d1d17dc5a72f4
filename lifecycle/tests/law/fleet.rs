//! Helpers for what leaders and agents do, on top of those for operators.

use muster_lifecycle::command::{Command, Operation, Origin, Sighting};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Condition, ConditionStatus, Incarnation, NodeDraft, NodeStatus};
use muster_lifecycle::oversight::{self, EvictionStep};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::{Applied, State, StateBuilder};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::zone::ZoneKey;
use muster_lifecycle::zone::ZoneRecord;

use crate::fixture::*;

pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready:NoExecute";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable:NoExecute";

// === leaders ===

impl Cluster {
    pub(crate) fn lead(&mut self, operation: Operation) -> Applied {
        let command = self.leads(operation);
        self.submit(command)
    }

    pub(crate) fn leads(&self, operation: Operation) -> Command {
        Command { origin: Origin::Controller { term: self.term() }, request: None, operation }
    }

    /// The outcome of the leader's proposal, in one line.
    pub(crate) fn led(&mut self, operation: Operation) -> String {
        told(&self.lead(operation).outcomes[0])
    }

    pub(crate) fn refuses_leader(&mut self, operation: Operation) -> Rejection {
        let command = self.leads(operation);
        self.refused(command)
    }

    pub(crate) fn assess(&mut self) -> String {
        self.led(Operation::AssessZones)
    }

    pub(crate) fn evict(&mut self, name: &str) -> String {
        let operation = self.eviction(name);
        self.led(operation)
    }

    pub(crate) fn eviction(&self, name: &str) -> Operation {
        Operation::EvictNode { name: Text::from(name), incarnation: self.node(name).incarnation }
    }

    pub(crate) fn silence(&mut self, name: &str) -> Applied {
        let operation = self.silent(name, None);
        self.lead(operation)
    }

    /// The command that marks the node, as it is now, as silent.
    pub(crate) fn silent(&self, name: &str, heard: Option<Sighting>) -> Operation {
        let node = self.node(name);
        let from = node.status.ready().map(|ready| ready.status);
        let decided = self.now().cluster;
        Operation::MarkSilent { name: Text::from(name), incarnation: node.incarnation, from, heard, decided }
    }

    /// Assesses and evicts as a leader would at this moment. Returns the name of the evicted node, if any.
    pub(crate) fn pursue(&mut self, zone: &str) -> Option<String> {
        if oversight::assessment_is_due(&self.state, self.now().cluster) {
            self.assess();
        }
        match oversight::eviction_step(&self.state, &key(zone), self.now().cluster) {
            EvictionStep::Evict { name, incarnation } => {
                assert_eq!(self.led(Operation::EvictNode { name: name.clone(), incarnation }), "changed");
                Some(name.to_string())
            }
            EvictionStep::WaitUntil(_) | EvictionStep::Idle => None,
        }
    }

    /// Another replica leads, with nothing but the records.
    pub(crate) fn fail_over(&mut self) {
        self.elections += 1;
        self.state = rebuilt(&self.state);
    }
}

pub(crate) fn rebuilt(state: &State) -> State {
    let mut builder = StateBuilder::new();
    state.records().for_each(|(key, value)| builder.push(&key, &value).expect("own records can be read"));
    builder.finish().expect("own records are complete")
}

pub(crate) fn sighting(seconds: u64, through: u64) -> Option<Sighting> {
    Some(Sighting { at: ClusterTime(seconds * 1000), through: ReplicaId(through) })
}

// === agents ===

impl Cluster {
    /// Submits an operation of the node's own agent.
    pub(crate) fn agent(&mut self, operation: Operation) -> Applied {
        self.submit(by_agent(operation))
    }

    pub(crate) fn agent_told(&mut self, operation: Operation) -> String {
        told(&self.agent(operation).outcomes[0])
    }

    pub(crate) fn report(&mut self, name: &str, conditions: &str) -> Applied {
        let operation = self.report_of(name, status(conditions));
        self.agent(operation)
    }

    pub(crate) fn report_of(&self, name: &str, status: NodeStatus) -> Operation {
        let incarnation = self.state.node(name).map_or(Incarnation(1), |node| node.incarnation);
        Operation::ReportStatus { name: Text::from(name), incarnation, status: Box::new(status), running: None }
    }
}

pub(crate) fn by_agent(operation: Operation) -> Command {
    let name = Text::from(operation.object_name().unwrap_or("nobody"));
    Command { origin: Origin::Node { name }, request: None, operation }
}

pub(crate) fn register(draft: NodeDraft) -> Operation {
    Operation::RegisterNode { draft: Box::new(draft), uid: Uid(77), running: None }
}

/// `Ready=True DiskPressure=False`, as an agent with a clock of its own says it.
pub(crate) fn status(text: &str) -> NodeStatus {
    let theirs = Some(stamp(1_000_000));
    let condition = |(kind, status): (&str, &str)| Condition {
        kind: Text::from(kind),
        status: status.parse().expect("a status"),
        last_heartbeat: theirs,
        last_transition: theirs,
        reason: Text::from("Reported"),
        message: Text::default(),
    };
    let conditions = text.split_whitespace().filter_map(|word| word.split_once('=')).map(condition).collect();
    NodeStatus { conditions, ..NodeStatus::default() }
}

/// The reverse of [`status`]: `Ready=True DiskPressure=False`.
pub(crate) fn conditions(status: &NodeStatus) -> String {
    let shown = status.conditions.iter().map(|condition| format!("{}={}", condition.kind, condition.status));
    shown.collect::<Vec<_>>().join(" ")
}

pub(crate) fn ready_of(cluster: &Cluster, name: &str) -> Option<ConditionStatus> {
    cluster.node(name).status.ready().map(|ready| ready.status)
}

// === zones ===

impl Cluster {
    /// Nodes `a-00`, `a-01`... of zone `a`, the lost ones first, all in one entry.
    pub(crate) fn populate(&mut self, zone: &str, ready: usize, lost: usize) {
        let commands = (0..lost + ready)
            .map(|index| {
                let said = if index < lost { "Ready=Unknown" } else { "Ready=True" };
                let uid = self.next_uid();
                let draft = Box::new(in_zone(&format!("{zone}-{index:02}"), zone, said));
                Command { origin: alice(), request: None, operation: Operation::CreateNode { draft, uid } }
            })
            .collect();
        let applied = self.submit_all(commands);
        assert!(applied.outcomes.iter().all(|outcome| told(outcome) == "created"));
    }

    pub(crate) fn zone(&self, zone: &str) -> &ZoneRecord {
        self.state.zones().get(&key(zone)).expect("the zone was assessed")
    }

    /// `PartialDisruption 0.01`.
    pub(crate) fn zone_told(&self, zone: &str) -> String {
        let zone = self.zone(zone).zone;
        format!("{} {}", zone.state, zone.rate)
    }

    pub(crate) fn queue(&self, zone: &str) -> Vec<String> {
        let queue = self.state.queue(&key(zone)).into_iter().flat_map(|queue| queue.iter());
        queue.map(|(name, _)| name.to_string()).collect()
    }

    pub(crate) fn absent(&self) -> Vec<String> {
        self.state.absent().iter().map(|name| name.to_string()).collect()
    }

    /// All NoExecute taints of the node, the lifecycle's and others'.
    pub(crate) fn no_execute(&self, name: &str) -> Vec<String> {
        self.taints(name).into_iter().filter(|taint| taint.ends_with(":NoExecute")).collect()
    }
}

pub(crate) fn key(zone: &str) -> ZoneKey {
    ZoneKey { region: Text::from("r1"), zone: Text::from(zone) }
}

pub(crate) fn in_zone(name: &str, zone: &str, conditions: &str) -> NodeDraft {
    let labels = format!("topology.kubernetes.io/region=r1 topology.kubernetes.io/zone={zone}");
    NodeDraft { labels: Some(pairs(&labels)), status: Some(status(conditions)), ..draft(name) }
}
