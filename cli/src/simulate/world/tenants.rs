//! Pods on their machines: machines run them, stop those that were deleted, and report both.
//!
//! A machine that is there does both at once. A machine that was away first reports which pods have stopped, then its
//! own status, and then which pods are well again: the rules accept no other order (I-12).

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::command::{AgentOperation, Command, Origin};
use muster_lifecycle::pod::{Phase, Pod, PodReport};
use muster_lifecycle::record::Stored;
use muster_lifecycle::text::Text;

use super::{MachineIndex, Witness, World};

impl<W: Witness> World<W> {
    /// Notes the machines that have something to do now.
    pub(super) fn note_errand(&mut self, change: &Change) {
        let Some(Object::Pod(after)) = &change.after else { return };
        let before = match &change.before {
            Some(Object::Pod(before)) => Some(before.as_ref()),
            Some(Object::Node(_) | Object::Event(_) | Object::Workload(_)) | None => None,
        };
        let is_news = before.and_then(Pod::node) != after.node()
            || before.is_some_and(Pod::is_terminating) != after.is_terminating();
        let place = after.node().filter(|_| is_news).and_then(|node| self.machine(node));
        self.errands.extend(place);
    }

    /// Starts the pods that were bound and stops those that were deleted, on machines that are there.
    pub(super) fn run_errands(&mut self) {
        if self.errands.is_empty() || !self.can_write() {
            return;
        }
        let places = std::mem::take(&mut self.errands);
        let says = |place: MachineIndex| [self.says_of_stopped(place), self.says_of_new(place)];
        let there = places.into_iter().filter(|place| self.machines[*place].is_there());
        let reports: Vec<Command> = there.flat_map(says).flatten().collect();
        if !reports.is_empty() {
            self.apply(reports);
        }
    }

    pub(super) fn says_of_stopped(&self, place: MachineIndex) -> Option<Command> {
        self.says(place, |pod| pod.is_terminating().then(|| stopped(pod)))
    }

    fn says_of_new(&self, place: MachineIndex) -> Option<Command> {
        self.says(place, |pod| (pod.is_active() && pod.status.phase == Phase::Pending).then(|| running(pod)))
    }

    /// PD-5: only the machine itself reports that they are ready again.
    pub(super) fn says_of_well(&self, place: MachineIndex) -> Option<Command> {
        let is_to_be_said = |pod: &Pod| pod.is_active() && !(pod.status.phase == Phase::Running && pod.is_ready());
        self.says(place, |pod| is_to_be_said(pod).then(|| running(pod)))
    }

    fn says(&self, place: MachineIndex, of: impl Fn(&Pod) -> Option<PodReport>) -> Option<Command> {
        let machine = &self.machines[place];
        let (_, incarnation) = machine.node?;
        let node = machine.spec.name.clone();
        let tenants = self.state.tenants(&node)?.keys().filter_map(|key| self.state.pods().get(key));
        let own = tenants.filter(|pod| pod.is_bound_to(&node, incarnation));
        let reports: Vec<PodReport> = own.filter_map(|pod| of(pod)).collect();
        if reports.is_empty() {
            return None;
        }
        let operation = AgentOperation::ReportPods { node: node.clone(), incarnation, reports };
        Some(Command { origin: Origin::Node { name: node }, request: None, operation: operation.into() })
    }
}

fn running(pod: &Pod) -> PodReport {
    report(pod, Phase::Running)
}

fn stopped(pod: &Pod) -> PodReport {
    PodReport { stopped: true, ready: false, ..report(pod, Phase::Succeeded) }
}

fn report(pod: &Pod, phase: Phase) -> PodReport {
    PodReport {
        key: pod.key(),
        uid: pod.meta.uid,
        phase,
        ready: true,
        restarts: 0,
        reason: Text::default(),
        message: Text::default(),
        stopped: false,
    }
}
