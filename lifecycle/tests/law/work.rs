//! Helpers for pods, workloads and addresses, and for the leader that looks after them.

use muster_lifecycle::addressing::AddressRequest;
use muster_lifecycle::command::{Command, Operation};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{NodeDraft, NodeStatus};
use muster_lifecycle::pod::{Phase, Pod, PodDraft, PodKey, PodReport, PodTemplate};
use muster_lifecycle::state::Applied;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;
use muster_lifecycle::todo::{self, Todo};
use muster_lifecycle::workload::{Workload, WorkloadDraft, WorkloadKey};

use crate::fixture::*;
use crate::fleet::*;
use crate::tolerations::tolerations;

/// How many operations a leader finds in one look.
const MOST: usize = 100;

// === pods ===

pub(crate) fn pod_key(name: &str) -> PodKey {
    PodKey::new("default", name)
}

pub(crate) fn pod(name: &str) -> PodDraft {
    let template = PodTemplate { has_containers: true, ..PodTemplate::default() };
    PodDraft { key: pod_key(name), template, ..PodDraft::default() }
}

pub(crate) fn pod_on(name: &str, node: &str) -> PodDraft {
    PodDraft { node: Some(Text::from(node)), ..pod(name) }
}

pub(crate) fn tolerating(text: &str, mut draft: PodDraft) -> PodDraft {
    draft.template.tolerations = Some(tolerations(text));
    draft
}

pub(crate) fn create_pod(draft: PodDraft) -> Operation {
    Operation::CreatePod { draft: Box::new(draft), uid: Uid(900) }
}

pub(crate) fn apply_pod(draft: PodDraft) -> Operation {
    Operation::ApplyPod { draft: Box::new(draft), uid: Uid(901), precondition: ANY }
}

pub(crate) fn delete_pod(name: &str, grace: Option<u32>) -> Operation {
    Operation::DeletePod { key: pod_key(name), grace, precondition: ANY }
}

impl Cluster {
    pub(crate) fn run_pod(&mut self, draft: PodDraft) {
        let uid = self.next_uid();
        self.done(Operation::CreatePod { draft: Box::new(draft), uid });
    }

    pub(crate) fn the_pod(&self, name: &str) -> &Pod {
        self.state.pods().get(&pod_key(name)).expect("the pod is there")
    }

    pub(crate) fn has_pod(&self, name: &str) -> bool {
        self.state.pods().contains(&pod_key(name))
    }

    pub(crate) fn pod_uid(&self, name: &str) -> Uid {
        self.the_pod(name).meta.uid
    }

    pub(crate) fn pod_tolerations(&self, name: &str) -> Vec<String> {
        self.the_pod(name).spec.tolerations.iter().map(ToString::to_string).collect()
    }

    /// `Ready=True DisruptionTarget=True`.
    pub(crate) fn pod_conditions(&self, name: &str) -> String {
        let status = NodeStatus { conditions: self.the_pod(name).status.conditions.clone(), ..NodeStatus::default() };
        conditions(&status)
    }

    /// When the pod leaves, in seconds.
    pub(crate) fn leaves_at(&self, name: &str) -> Option<u64> {
        self.state.leaves_at(&pod_key(name)).map(|ClusterTime(at)| at / 1000)
    }

    pub(crate) fn seconds_now(&self) -> u64 {
        self.now().cluster.0 / 1000
    }
}

// === what a node says of its pods ===

impl Cluster {
    pub(crate) fn pod_report(&self, name: &str, phase: Phase, ready: bool) -> PodReport {
        let uid = self.pod_uid(name);
        let (reason, message) = (Text::default(), Text::default());
        PodReport { key: pod_key(name), uid, phase, ready, restarts: 0, reason, message, stopped: false }
    }

    /// Submits reports of the agent of this node, in its present life.
    pub(crate) fn says(&mut self, node: &str, reports: Vec<PodReport>) -> Applied {
        let incarnation = self.node(node).incarnation;
        self.agent(Operation::ReportPods { node: Text::from(node), incarnation, reports })
    }

    /// The pod's node says that it runs and is ready.
    pub(crate) fn starts(&mut self, name: &str) {
        let report = self.pod_report(name, Phase::Running, true);
        self.said_by_own_node(name, report);
    }

    pub(crate) fn ends(&mut self, name: &str, phase: Phase) {
        let report = PodReport { stopped: true, ..self.pod_report(name, phase, false) };
        self.said_by_own_node(name, report);
    }

    /// The pod's node confirms that nothing of it runs any more.
    pub(crate) fn stops(&mut self, name: &str) {
        let report = PodReport { stopped: true, ..self.pod_report(name, Phase::Failed, false) };
        self.said_by_own_node(name, report);
    }

    fn said_by_own_node(&mut self, name: &str, report: PodReport) {
        let node = self.the_pod(name).node().expect("it has a node").clone();
        assert_eq!(told(&self.says(&node, vec![report]).outcomes[0]), "changed");
    }

    /// The node says that it is ready, and what it runs.
    pub(crate) fn returns(&mut self, name: &str, running: Option<Vec<Uid>>) -> String {
        let incarnation = self.node(name).incarnation;
        let status = Box::new(status("Ready=True"));
        self.agent_told(Operation::ReportStatus { name: Text::from(name), incarnation, status, running })
    }
}

pub(crate) fn registers(draft: NodeDraft, running: Option<Vec<Uid>>) -> Operation {
    Operation::RegisterNode { draft: Box::new(draft), uid: Uid(77), running }
}

/// A node that is ready and has room for a few pods.
pub(crate) fn host(name: &str) -> NodeDraft {
    let mut draft = in_zone(name, "z", "Ready=True");
    let room = resources("cpu=4 memory=8Gi pods=10");
    let status = draft.status.take().unwrap_or_default();
    NodeDraft { status: Some(NodeStatus { capacity: room.clone(), allocatable: room, ..status }), ..draft }
}

// === workloads ===

pub(crate) fn workload_key(kind: WorkloadKind, name: &str) -> WorkloadKey {
    WorkloadKey { kind, namespace: Text::from("default"), name: Text::from(name) }
}

pub(crate) fn workload(kind: WorkloadKind, name: &str, replicas: i64) -> WorkloadDraft {
    let labels = pairs(&format!("app={name}"));
    WorkloadDraft {
        key: workload_key(kind, name),
        labels: None,
        annotations: None,
        finalizers: None,
        owners: None,
        replicas: Some(replicas),
        selector: labels.clone(),
        pod_labels: labels,
        pod_annotations: Default::default(),
        template: pod("any").template,
        unmodelled: None,
    }
}

pub(crate) fn create_workload(draft: WorkloadDraft) -> Operation {
    Operation::CreateWorkload { draft: Box::new(draft), uid: Uid(800) }
}

pub(crate) fn apply_workload(draft: WorkloadDraft) -> Operation {
    Operation::ApplyWorkload { draft: Box::new(draft), uid: Uid(801), precondition: ANY }
}

pub(crate) fn delete_workload(kind: WorkloadKind, name: &str) -> Operation {
    Operation::DeleteWorkload { key: workload_key(kind, name), precondition: ANY }
}

impl Cluster {
    pub(crate) fn run_workload(&mut self, draft: WorkloadDraft) {
        let uid = self.next_uid();
        self.done(Operation::CreateWorkload { draft: Box::new(draft), uid });
    }

    pub(crate) fn the_workload(&self, kind: WorkloadKind, name: &str) -> &Workload {
        self.state.workloads().get(&workload_key(kind, name)).expect("the workload is there")
    }

    /// Names of pods that are not on their way out.
    pub(crate) fn active_pods(&self) -> Vec<String> {
        self.state.pods().iter().filter(|pod| pod.is_active()).map(|pod| pod.meta.name.to_string()).collect()
    }
}

// === what a leader finds to do ===

impl Cluster {
    pub(crate) fn evict_pods(&mut self) -> Vec<String> {
        let todo = todo::pod_evictions(&self.state, self.now().cluster, MOST, |_| false);
        self.perform(todo)
    }

    pub(crate) fn collect(&mut self) -> Vec<String> {
        let todo = todo::pod_garbage(&self.state, self.now().cluster, MOST);
        self.perform(todo)
    }

    pub(crate) fn staff(&mut self) -> Vec<String> {
        let todo = todo::staffing(&self.state, MOST);
        self.perform(todo)
    }

    pub(crate) fn place(&mut self) -> Vec<String> {
        let todo = todo::placements(&self.state, self.now().cluster, MOST, |_| false);
        self.perform(todo)
    }

    pub(crate) fn assign_cidrs(&mut self) -> Vec<String> {
        let todo = todo::cidr_assignments(&self.state, self.now().cluster, MOST);
        self.perform(todo)
    }

    /// Does everything that a leader finds, until nothing is left to do.
    pub(crate) fn tend(&mut self) {
        for _ in 0..20 {
            let rounds = [Self::staff, Self::place, Self::evict_pods, Self::collect, Self::assign_cidrs];
            if rounds.into_iter().all(|round| round(self).is_empty()) {
                return;
            }
        }
        panic!("the leader finds something to do for ever");
    }

    /// Does all operations in one entry, and returns the subject of each. An operation that a leader finds can be
    /// done.
    fn perform(&mut self, todo: Todo) -> Vec<String> {
        if todo.operations.is_empty() {
            return Vec::new();
        }
        let shown: Vec<String> = todo.operations.iter().map(subject).collect();
        // A look at rested blocks may wake them and still find none for every family.
        let is_only_a_look = matches!(todo.operations[0], Operation::AssignCidrs { .. });
        let commands: Vec<Command> = todo.operations.into_iter().map(|operation| self.leads(operation)).collect();
        for (outcome, shown) in self.submit_all(commands).outcomes.iter().zip(&shown) {
            let told = told(outcome);
            let is_done = ["changed", "deleted"].contains(&told.as_str()) || is_only_a_look && told == "unchanged";
            assert!(is_done, "{shown}: {told}");
        }
        shown
    }
}

fn subject(operation: &Operation) -> String {
    if let Operation::EvictPod { key, .. } | Operation::CollectPod { key, .. } = operation {
        return key.name.to_string();
    }
    if let Operation::BindPod { key, node, .. } = operation {
        return format!("{} on {node}", key.name);
    }
    if let Operation::NoteUnplaced { key, why, .. } = operation {
        return format!("{}: {why}", key.name);
    }
    if let Operation::StaffWorkload { key, .. } = operation {
        return key.name.to_string();
    }
    if let Operation::AssignCidrs { names } = operation {
        return names.iter().map(Text::as_str).collect::<Vec<_>>().join(" ");
    }
    operation.label().to_owned()
}

// === addresses ===

/// A plan with blocks of 256 addresses, which rest for this long.
pub(crate) fn plan(ranges: &str, services: &str, rest: Period) -> Operation {
    let nets = |text: &str| text.split_whitespace().map(|net| net.parse().expect("a range")).collect();
    let request = AddressRequest {
        cluster_cidrs: nets(ranges),
        service_ranges: nets(services),
        quarantine: Some(rest),
        ..AddressRequest::default()
    };
    Operation::FoundAddressing { plan: Box::new(request.plan().expect("a plan")) }
}

impl Cluster {
    /// A cluster that gives out blocks of this range.
    pub(crate) fn addressed(ranges: &str) -> Self {
        let mut cluster = Self::default();
        assert_eq!(cluster.led(plan(ranges, "", REST)), "created");
        cluster
    }

    pub(crate) fn cidrs(&self, name: &str) -> Vec<String> {
        self.node(name).spec.pod_cidrs.iter().map(ToString::to_string).collect()
    }

    /// How many blocks of each family are free.
    pub(crate) fn free(&self) -> Vec<u64> {
        self.state.free_blocks().collect()
    }
}

/// How long blocks rest in these tests.
pub(crate) const REST: Period = Period::from_secs(60);

pub(crate) fn with_cidrs(name: &str, cidrs: &str) -> NodeDraft {
    let cidrs = cidrs.split_whitespace().map(|cidr| cidr.parse().expect("a range")).collect();
    NodeDraft { pod_cidrs: Some(cidrs), ..draft(name) }
}
