//! Runs of pods on the simulated machines, noted by the machines themselves.
//!
//! A machine runs a pod from its first report that it runs until it reports that it has stopped. A machine whose Node
//! was deleted while it lived learns of it from its replica, and its pods stop within their grace after that. A machine
//! that an operator gave up (a lost Node deleted, or tainted out-of-service) is taken to be off, as the operator says.

use std::time::Duration;

use muster_lifecycle::agent_bound::LAST_GRACE_MAX;
use muster_lifecycle::command::{AgentOperation, Command, Operation};
use muster_lifecycle::garbage;
use muster_lifecycle::invariant::runs::{PodRun, RunHistory};
use muster_lifecycle::node::{ConditionStatus, Node};
use muster_lifecycle::pod::Phase;

use super::machine::Home;
use super::{MachineIndex, Millis, Witness, World};

/// A machine whose Node is gone, and which still runs pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// Its agent does not know it yet.
    Unknown,
    /// Its pods were told to stop, and have by then.
    Stopping { until: Millis },
}

impl<W: Witness> World<W> {
    /// What the machines really ran.
    pub fn runs(&self) -> &RunHistory {
        &self.runs
    }

    pub(super) fn note_runs(&mut self, commands: &[Command]) {
        for command in commands {
            let Operation::Agent(AgentOperation::ReportPods { node, reports, .. }) = &command.operation else {
                continue;
            };
            for report in reports {
                let (machine, uid) = (node.to_string(), report.uid.to_string());
                match report.phase {
                    _ if report.stopped => self.runs.ended(&machine, &uid, self.now),
                    Phase::Running => {
                        let (node, pod, began) = (machine.clone(), report.key.to_string(), self.now);
                        self.runs.began(PodRun { machine, node, pod, uid, began, ended: None });
                    }
                    Phase::Pending | Phase::Succeeded | Phase::Failed | Phase::Unknown => {}
                }
            }
        }
    }

    /// An operator says that the machine is off.
    pub(super) fn note_given_up(&mut self, node: &Node) {
        if garbage::is_out_of_service(node) {
            self.runs.lost_all(&node.meta.name, self.now);
        }
    }

    pub(super) fn depart(&mut self, place: MachineIndex, node: &Node) {
        let ready = node.status.ready().map(|ready| ready.status);
        match ready {
            Some(ConditionStatus::True | ConditionStatus::False) => {
                self.departures.insert(place, Departure::Unknown);
                self.follow_departures();
            }
            Some(ConditionStatus::Unknown) | None => self.runs.lost_all(&node.meta.name, self.now),
        }
    }

    /// The agent registers once its pods have stopped.
    pub(super) fn end_departure(&mut self, place: MachineIndex) {
        if self.departures.remove(&place).is_some() {
            self.runs.lost_all(&self.machines[place].spec.name.clone(), self.now);
        }
    }

    pub(super) fn follow_departures(&mut self) {
        for (place, departure) in self.departures.clone() {
            match departure {
                Departure::Unknown if self.is_told(place) => {
                    let until = self.now.saturating_add(self.last_grace(place));
                    self.departures.insert(place, Departure::Stopping { until });
                }
                Departure::Stopping { until } if until <= self.now => {
                    self.departures.remove(&place);
                    self.runs.lost_all(&self.machines[place].spec.name.clone(), until);
                }
                Departure::Unknown | Departure::Stopping { .. } => {}
            }
        }
    }

    /// Whether the machine has an agent and a replica that tells it what happened.
    fn is_told(&self, place: MachineIndex) -> bool {
        let machine = &self.machines[place];
        match machine.home {
            Home::Attached(home) => {
                !machine.is_silenced() && self.replicas[home].is_awake() && self.is_in_contact(home)
            }
            Home::Adrift { .. } => false,
        }
    }

    fn last_grace(&self, place: MachineIndex) -> Millis {
        let name = &self.machines[place].spec.name;
        let tenants = self.state.tenants(name).into_iter().flat_map(|tenants| tenants.keys());
        let graces = tenants.filter_map(|key| self.state.pods().get(key)).map(|pod| pod.spec.grace);
        let longest = graces.max().map_or(0, |seconds| Duration::from_secs(seconds.into()).as_millis());
        Millis::try_from(longest).unwrap_or(Millis::MAX).min(LAST_GRACE_MAX.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_lifecycle::command::{OperatorOperation, Precondition};
    use muster_lifecycle::invariant::runs::RunViolation;
    use muster_lifecycle::kind::WorkloadKind;
    use muster_lifecycle::policy::Policy;
    use muster_lifecycle::text::Text;
    use muster_lifecycle::workload::WorkloadKey;

    use super::super::{Driver, InitialReady, MachineSpec, NAMESPACE, PodSpec};
    use super::*;

    const DELETED: Millis = 60_000;

    fn machine(name: &str) -> MachineSpec {
        MachineSpec {
            name: name.into(),
            labels: Default::default(),
            taints: Vec::new(),
            ready: InitialReady::Says(ConditionStatus::True),
            heartbeat: Some(10_000),
            status: Some(300_000),
            created: -3_600_000,
        }
    }

    /// web-0 of a StatefulSet on the last of four machines.
    fn world() -> World<()> {
        let key = |name: &str| WorkloadKey {
            kind: WorkloadKind::StatefulSet,
            namespace: NAMESPACE.into(),
            name: name.into(),
        };
        let web = PodSpec { node: Some("d".into()), owner: Some(key("web")), ..PodSpec::default() };
        let pods = BTreeMap::from([(Text::from("web-0"), web)]);
        let machines = ["a", "b", "c", "d"].map(machine).to_vec();
        World::with_pods(Policy::default(), machines, &pods, Driver::Judge, ()).unwrap()
    }

    fn delete(world: &mut World<()>, name: &str) {
        let precondition = Precondition::default();
        world.operate(OperatorOperation::DeleteNode { name: name.into(), precondition });
    }

    /// Its agent is attached to a follower that stands still in that moment: it notices that after a while, and then
    /// the pod has its grace.
    #[test]
    fn gc_3_web_0_starts_elsewhere_only_after_the_old_one_has_stopped_although_its_replica_froze() {
        let mut world = world();
        let place = world.machine("d").unwrap();
        world.machines[place].home = Home::Attached(2);
        world.run_to(DELETED);
        assert_ne!(world.leader(), Some(2));
        world.stall(2, DELETED + 600_000);
        delete(&mut world, "d");
        world.run_to(DELETED + 400_000);
        world.runs().check().unwrap();
        let [old, new] = world.runs().runs() else { panic!("{:?}", world.runs()) };
        assert!(old.ended.is_some_and(|ended| ended > DELETED + 40_000 && ended <= new.began), "{old:?} {new:?}");
    }

    /// The checker can fail: the agent of the deleted node is cut off from every replica and learns nothing.
    #[test]
    fn i_12_a_pod_that_runs_on_beside_its_successor_is_found() {
        let mut world = world();
        let place = world.machine("d").unwrap();
        world.run_to(DELETED);
        world.silence(place);
        delete(&mut world, "d");
        world.run_to(DELETED + 400_000);
        assert!(matches!(world.runs().check(), Err(RunViolation::NameTwice { .. })), "{:?}", world.runs());
    }
}
