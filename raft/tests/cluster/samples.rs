//! One command of every kind of every role. The kinds come from the enums, and each `match` is exhaustive, so that a
//! new operation does not compile before it has a sample here.

use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::command::{
    AgentOperation, AgentOperationKind, Command, LeaderOperation, LeaderOperationKind, OperatorOperation,
    OperatorOperationKind, Origin, Precondition, ReplicaOperation, ReplicaOperationKind, RequestId,
};
use muster_lifecycle::credential::SignedKey;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::{Pairs, Uid};
use muster_lifecycle::node::{Incarnation, NodeDraft, NodeStatus};
use muster_lifecycle::pod::{PodDraft, PodKey, PodTemplate};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord};
use muster_lifecycle::taint::{Effect, Taint};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Period, WallTime};
use muster_lifecycle::workload::{WorkloadDraft, WorkloadKey};

/// An id that belongs to no replica of a test.
const NO_REPLICA: ReplicaId = ReplicaId(99);

/// Every operation of operators, about objects whose names end in `suffix`.
pub(crate) fn of_operators(suffix: &str) -> Vec<Command> {
    let operations = OperatorOperationKind::ALL.iter().map(|kind| operator(*kind, suffix));
    operations.map(super::harness::command).collect()
}

/// Every operation of agents, each in the name of a node of its own.
pub(crate) fn of_agents(suffix: &str) -> Vec<Command> {
    let operations = AgentOperationKind::ALL.iter().map(|kind| agent(*kind, suffix));
    let command = |operation: AgentOperation| {
        let origin = Origin::Node { name: operation.node_name().into() };
        Command { origin, request: None, operation: operation.into() }
    };
    operations.map(command).collect()
}

/// Every operation of the leader, made in `term`.
pub(crate) fn of_the_leader(term: u64) -> Vec<Command> {
    let origin = Origin::Controller { term };
    let operations = LeaderOperationKind::ALL.iter().map(|kind| leader(*kind));
    operations.map(|operation| Command { origin: origin.clone(), request: None, operation: operation.into() }).collect()
}

/// The operations of replicas: one that a follower may pass on, and those that only the leader makes.
pub(crate) struct OfReplicas {
    pub(crate) forwarded: Vec<Command>,
    pub(crate) of_the_leader: Vec<Command>,
}

pub(crate) fn of_replicas(announced: &ReplicaRecord) -> OfReplicas {
    let mut all = OfReplicas { forwarded: Vec::new(), of_the_leader: Vec::new() };
    for kind in ReplicaOperationKind::ALL {
        let (operation, to) = match kind {
            ReplicaOperationKind::AnnounceReplica => {
                (ReplicaOperation::AnnounceReplica { replica: announced.clone() }, &mut all.forwarded)
            }
            ReplicaOperationKind::RetireReplica => {
                (ReplicaOperation::RetireReplica { id: NO_REPLICA }, &mut all.of_the_leader)
            }
        };
        to.push(Command { origin: Origin::Replica { id: announced.id }, request: None, operation: operation.into() });
    }
    all
}

/// The same command from every origin that is not its own.
pub(crate) fn under_other_names(command: &Command) -> Vec<Command> {
    let own = std::mem::discriminant(&command.origin);
    let origins = [
        Origin::Operator { user: "mallory".into() },
        Origin::Controller { term: 1 },
        Origin::Replica { id: ReplicaId(1) },
        Origin::Node { name: "mallory".into() },
    ];
    let request = Some(RequestId { client: rand::random(), sequence: 1 });
    let others = origins.into_iter().filter(|origin| std::mem::discriminant(origin) != own);
    others.map(|origin| Command { origin, request, operation: command.operation.clone() }).collect()
}

fn operator(kind: OperatorOperationKind, suffix: &str) -> OperatorOperation {
    let label: &str = kind.into();
    let name = Text::from(format!("{label}-{suffix}"));
    let (uid, precondition) = (Uid(rand::random()), Precondition::default());
    let draft = || Box::new(NodeDraft { name: name.clone(), ..NodeDraft::default() });
    let changes = vec![("rack".into(), Some("r1".into()))];
    match kind {
        OperatorOperationKind::CreateNode => OperatorOperation::CreateNode { draft: draft(), uid },
        OperatorOperationKind::ApplyNode => OperatorOperation::ApplyNode { draft: draft(), uid, precondition },
        OperatorOperationKind::ReplaceNode => OperatorOperation::ReplaceNode { draft: draft(), precondition },
        OperatorOperationKind::ReplaceNodeStatus => {
            OperatorOperation::ReplaceNodeStatus { name, status: Box::new(NodeStatus::default()), precondition }
        }
        OperatorOperationKind::LabelNode => {
            OperatorOperation::LabelNode { name, changes, overwrite: true, precondition }
        }
        OperatorOperationKind::AnnotateNode => {
            OperatorOperation::AnnotateNode { name, changes, overwrite: true, precondition }
        }
        OperatorOperationKind::TaintNode => {
            let taint = Taint { key: "rack".into(), value: "r1".into(), effect: Effect::NoSchedule, added: None };
            OperatorOperation::TaintNode { name, add: vec![taint], remove: vec![], overwrite: true, precondition }
        }
        OperatorOperationKind::CordonNode => OperatorOperation::CordonNode { name, unschedulable: true, precondition },
        OperatorOperationKind::DeleteNode => OperatorOperation::DeleteNode { name, precondition },
        OperatorOperationKind::RevokeNode => OperatorOperation::RevokeNode { name },
        OperatorOperationKind::CreatePod => OperatorOperation::CreatePod { draft: pod(&name), uid },
        OperatorOperationKind::ApplyPod => OperatorOperation::ApplyPod { draft: pod(&name), uid, precondition },
        OperatorOperationKind::DeletePod => {
            OperatorOperation::DeletePod { key: pod_key(&name), grace: None, precondition }
        }
        OperatorOperationKind::CreateWorkload => OperatorOperation::CreateWorkload { draft: workload(&name), uid },
        OperatorOperationKind::ApplyWorkload => {
            OperatorOperation::ApplyWorkload { draft: workload(&name), uid, precondition }
        }
        OperatorOperationKind::DeleteWorkload => {
            OperatorOperation::DeleteWorkload { key: workload_key(&name), precondition }
        }
        OperatorOperationKind::SetPolicy => {
            OperatorOperation::SetPolicy { changes: vec![("node-eviction-rate".into(), "0.2".into())] }
        }
        OperatorOperationKind::SetAggregator => OperatorOperation::SetAggregator { name, nodes: vec!["rack-*".into()] },
        OperatorOperationKind::CreateToken => {
            OperatorOperation::CreateToken { id: "abcdef".into(), hash: print(), node: None, ttl_ms: 60_000 }
        }
        OperatorOperationKind::RevokeToken => OperatorOperation::RevokeToken { id: "abcdef".into() },
    }
}

fn agent(kind: AgentOperationKind, suffix: &str) -> AgentOperation {
    let label: &str = kind.into();
    let node = Text::from(format!("{label}-{suffix}"));
    let incarnation = Incarnation(1);
    let signed = SignedKey { key: print(), issued: WallTime(0), expires: WallTime(1_000) };
    match kind {
        AgentOperationKind::RegisterNode => {
            let draft = NodeDraft { name: node, ..NodeDraft::default() };
            AgentOperation::RegisterNode { draft: Box::new(draft), uid: Uid(rand::random()), running: None }
        }
        AgentOperationKind::ReportStatus => {
            let status = Box::new(NodeStatus::default());
            AgentOperation::ReportStatus { name: node, incarnation, status, running: None }
        }
        AgentOperationKind::ReportPods => AgentOperation::ReportPods { node, incarnation, reports: vec![] },
        AgentOperationKind::EnrolNode => {
            AgentOperation::EnrolNode { node, token: "abcdef".into(), secret: print(), signed }
        }
        AgentOperationKind::RenewCredential => {
            AgentOperation::RenewCredential { node, from: print(), signed, late: false }
        }
        AgentOperationKind::ConfirmCredential => AgentOperation::ConfirmCredential { node, key: print() },
        AgentOperationKind::NoteRefusal => AgentOperation::NoteRefusal { node, why: "a test".into() },
    }
}

fn leader(kind: LeaderOperationKind) -> LeaderOperation {
    let (name, incarnation, uid) = (Text::from("absent"), Incarnation(1), Uid(1));
    let key = pod_key("absent");
    match kind {
        LeaderOperationKind::MarkSilent => {
            let decided = ClusterTime(1);
            LeaderOperation::MarkSilent { name, incarnation, from: None, heard: None, decided }
        }
        LeaderOperationKind::NoteQuarantine => {
            LeaderOperation::NoteQuarantine { name, incarnation, reason: "a test".into() }
        }
        LeaderOperationKind::AssessZones => LeaderOperation::AssessZones,
        LeaderOperationKind::EvictNode => LeaderOperation::EvictNode { name, incarnation },
        LeaderOperationKind::LiftEvictions => LeaderOperation::LiftEvictions { names: vec![name] },
        LeaderOperationKind::EvictPod => LeaderOperation::EvictPod { key, uid },
        LeaderOperationKind::CollectPod => LeaderOperation::CollectPod { key, uid },
        LeaderOperationKind::BindPod => LeaderOperation::BindPod { key, uid, node: name, incarnation },
        LeaderOperationKind::NoteUnplaced => LeaderOperation::NoteUnplaced { key, uid, why: "a test".into() },
        LeaderOperationKind::StaffWorkload => {
            LeaderOperation::StaffWorkload { key: workload_key("absent"), uid, nodes: vec![] }
        }
        LeaderOperationKind::FoundPolicy => LeaderOperation::FoundPolicy { policy: Box::new(Policy::default()) },
        LeaderOperationKind::FoundAddressing => {
            let (pools, reserved) = (Box::new([]), Box::new([]));
            let plan = Addressing { pools, reserved, quarantine: Period(0), held_until: None };
            LeaderOperation::FoundAddressing { plan: Box::new(plan) }
        }
        LeaderOperationKind::AssignCidrs => LeaderOperation::AssignCidrs { names: vec![name] },
        LeaderOperationKind::ForgetCredentials => LeaderOperation::ForgetCredentials { names: vec![name] },
    }
}

fn pod_key(name: &str) -> PodKey {
    PodKey::new("default", name)
}

fn pod(name: &str) -> Box<PodDraft> {
    Box::new(PodDraft { key: pod_key(name), ..PodDraft::default() })
}

fn workload_key(name: &str) -> WorkloadKey {
    WorkloadKey { kind: WorkloadKind::ReplicaSet, namespace: "default".into(), name: name.into() }
}

fn workload(name: &str) -> Box<WorkloadDraft> {
    Box::new(WorkloadDraft {
        key: workload_key(name),
        labels: None,
        annotations: None,
        finalizers: None,
        owners: None,
        replicas: Some(1),
        selector: Pairs::default(),
        pod_labels: Pairs::default(),
        pod_annotations: Pairs::default(),
        template: PodTemplate::default(),
        unmodelled: None,
    })
}

fn print() -> Fingerprint {
    Fingerprint([7; 32])
}
