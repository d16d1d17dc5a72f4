//! One of each operation, made from the lists of their kinds, so that none is forgotten.

use muster_lifecycle::command::{
    AgentOperation, AgentOperationKind, LeaderOperation, LeaderOperationKind, Operation, OperatorOperation,
    OperatorOperationKind, ReplicaOperation, ReplicaOperationKind,
};
use muster_lifecycle::credential::{Distrust, SignedKey};
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord, ReplicaTrouble};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, WallTime};

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

const UID: Uid = Uid(1);
const INCARNATION: Incarnation = Incarnation(1);
const SIGNED: SignedKey = SignedKey { key: Fingerprint([2; 32]), issued: WallTime(1), expires: WallTime(2) };

/// All about node `a` where they are about a node.
pub(crate) fn every_operation() -> Vec<Operation> {
    let operator = OperatorOperationKind::ALL.iter().map(|kind| by_operator(*kind).into());
    let leader = LeaderOperationKind::ALL.iter().map(|kind| by_leader(*kind).into());
    let agent = AgentOperationKind::ALL.iter().map(|kind| by_agent(*kind).into());
    let replica = ReplicaOperationKind::ALL.iter().map(|kind| by_replica(*kind).into());
    operator.chain(leader).chain(agent).chain(replica).collect()
}

fn by_operator(kind: OperatorOperationKind) -> OperatorOperation {
    use OperatorOperationKind as Kind;
    let set = WorkloadKind::ReplicaSet;
    let (name, changes) = (Text::from("a"), Vec::new());
    let (id, hash) = (Text::from("tokentoken"), Fingerprint([1; 32]));
    match kind {
        Kind::CreateNode => create(draft("a")),
        Kind::ApplyNode => OperatorOperation::ApplyNode { draft: Box::new(draft("a")), uid: UID, precondition: ANY },
        Kind::ReplaceNode => replace(draft("a")),
        Kind::ReplaceNodeStatus => replace_status("a", status("Ready=True")),
        Kind::LabelNode => label("a", "k=v", false),
        Kind::AnnotateNode => OperatorOperation::AnnotateNode { name, changes, overwrite: false, precondition: ANY },
        Kind::TaintNode => taint("a", "t:NoSchedule", "", false),
        Kind::CordonNode => cordon("a", true),
        Kind::DeleteNode => delete("a"),
        Kind::RevokeNode => OperatorOperation::RevokeNode { name },
        Kind::CreatePod => create_pod(pod("p")),
        Kind::ApplyPod => apply_pod(pod("p")),
        Kind::DeletePod => delete_pod("p", None),
        Kind::CreateWorkload => create_workload(workload(set, "w", 1)),
        Kind::ApplyWorkload => apply_workload(workload(set, "w", 1)),
        Kind::DeleteWorkload => delete_workload(set, "w"),
        Kind::SetPolicy => OperatorOperation::SetPolicy { changes: Vec::new() },
        Kind::SetAggregator => OperatorOperation::SetAggregator { name: Text::from("g"), nodes: vec![Text::from("*")] },
        Kind::CreateToken => OperatorOperation::CreateToken { id, hash, node: None, ttl_ms: 3_600_000 },
        Kind::RevokeToken => OperatorOperation::RevokeToken { id },
        Kind::FinalizeUpgrade => OperatorOperation::FinalizeUpgrade { version: Text::from("1") },
        Kind::RehearseNote => OperatorOperation::RehearseNote { aggregator: Text::from("g"), note: Text::from("n") },
    }
}

fn by_leader(kind: LeaderOperationKind) -> LeaderOperation {
    use LeaderOperationKind as Kind;
    let (name, names) = (Text::from("a"), vec![Text::from("a")]);
    let (key, uid, incarnation, why) = (pod_key("p"), UID, INCARNATION, Text::from("why"));
    match kind {
        Kind::MarkSilent => {
            LeaderOperation::MarkSilent { name, incarnation, from: None, heard: None, decided: ClusterTime(0) }
        }
        Kind::NoteQuarantine => LeaderOperation::NoteQuarantine { name, incarnation, reason: why },
        Kind::AssessZones => LeaderOperation::AssessZones,
        Kind::EvictNode => LeaderOperation::EvictNode { name, incarnation },
        Kind::LiftEvictions => LeaderOperation::LiftEvictions { names },
        Kind::EvictPod => LeaderOperation::EvictPod { key, uid },
        Kind::CollectPod => LeaderOperation::CollectPod { key, uid },
        Kind::BindPod => LeaderOperation::BindPod { key, uid, node: name, incarnation },
        Kind::NoteUnplaced => LeaderOperation::NoteUnplaced { key, uid, why },
        Kind::StaffWorkload => {
            let key = workload_key(WorkloadKind::ReplicaSet, "w");
            LeaderOperation::StaffWorkload { key, uid, nodes: Vec::new() }
        }
        Kind::FoundPolicy => LeaderOperation::FoundPolicy { policy: Box::new(Policy::default()) },
        Kind::FoundAddressing => plan("10.0.0.0/16", "", REST),
        Kind::AssignCidrs => LeaderOperation::AssignCidrs { names },
        Kind::ForgetCredentials => LeaderOperation::ForgetCredentials { names },
        Kind::RaiseLevel => LeaderOperation::RaiseLevel { to: Level(2), version: Text::from("1") },
    }
}

fn by_agent(kind: AgentOperationKind) -> AgentOperation {
    use AgentOperationKind as Kind;
    let (node, incarnation, running) = (Text::from("a"), INCARNATION, None);
    let (token, secret, signed) = (Text::from("tokentoken"), Fingerprint([1; 32]), SIGNED);
    match kind {
        Kind::RegisterNode => AgentOperation::RegisterNode { draft: Box::new(draft("a")), uid: UID, running },
        Kind::ReportStatus => {
            let status = Box::new(status("Ready=True"));
            AgentOperation::ReportStatus { name: node, incarnation, status, running }
        }
        Kind::ReportPods => AgentOperation::ReportPods { node, incarnation, reports: Vec::new() },
        Kind::EnrolNode => AgentOperation::EnrolNode { node, token, secret, signed },
        Kind::RenewCredential => AgentOperation::RenewCredential { node, from: secret, signed, late: false },
        Kind::ConfirmCredential => AgentOperation::ConfirmCredential { node, key: secret },
        Kind::NoteRefusal => {
            let why = Box::new(Distrust::ExpiredToken { id: token });
            AgentOperation::NoteRefusal { node, remote: "10.0.0.1:7".parse().expect("an address"), why }
        }
    }
}

fn by_replica(kind: ReplicaOperationKind) -> ReplicaOperation {
    let replica = ReplicaRecord::new(ReplicaId(1), UID, Text::from("1"), LevelRange::SHIPPED);
    match kind {
        ReplicaOperationKind::AnnounceReplica => ReplicaOperation::AnnounceReplica { replica },
        ReplicaOperationKind::RetireReplica => ReplicaOperation::RetireReplica { id: ReplicaId(2) },
        ReplicaOperationKind::ReportReplica => {
            ReplicaOperation::ReportReplica { id: ReplicaId(2), trouble: ReplicaTrouble::WentBack }
        }
    }
}
