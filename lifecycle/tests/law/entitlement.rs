//! Entitlement: each origin against each operation.

use muster_lifecycle::command::{Command, Entitled, Operation, Origin};
use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;

use crate::fixture::*;
use crate::fleet::*;
use crate::trust::{confirm, create_token, enrol, renew, revoke, revoke_token};
use crate::work::*;

/// One of each operation, all about node `a` where they are about one.
fn every_operation() -> Vec<(Operation, Entitled)> {
    let name = || Text::from("a");
    let incarnation = Incarnation(1);
    let replica = ReplicaRecord { id: ReplicaId(1), store: Uid(1), version: Text::from("1"), retired: false };
    let annotate = Operation::AnnotateNode { name: name(), changes: Vec::new(), overwrite: false, precondition: ANY };
    let apply = Operation::ApplyNode { draft: Box::new(draft("a")), uid: Uid(1), precondition: ANY };
    let anyone = [
        create(draft("a")),
        apply,
        replace(draft("a")),
        replace_status("a", status("Ready=True")),
        label("a", "k=v", false),
        annotate,
        taint("a", "t:NoSchedule", "", false),
        cordon("a", true),
        delete("a"),
        Operation::AnnounceReplica { replica },
        Operation::RetireReplica { id: ReplicaId(2) },
        Operation::SetPolicy { changes: Vec::new() },
        Operation::SetAggregator { name: Text::from("g"), nodes: vec![Text::from("*")] },
        create_pod(pod("p")),
        apply_pod(pod("p")),
        delete_pod("p", None),
        create_workload(workload(WorkloadKind::ReplicaSet, "w", 1)),
        apply_workload(workload(WorkloadKind::ReplicaSet, "w", 1)),
        delete_workload(WorkloadKind::ReplicaSet, "w"),
        create_token("tokentoken", None),
        revoke_token("tokentoken"),
        revoke("a"),
    ];
    let uid = Uid(1);
    let leader = [
        Operation::MarkSilent { name: name(), incarnation, from: None, heard: None, decided: ClusterTime(0) },
        Operation::AssessZones,
        Operation::EvictNode { name: name(), incarnation },
        Operation::LiftEvictions { names: Vec::new() },
        Operation::FoundPolicy { policy: Box::new(Policy::default()) },
        Operation::NoteQuarantine { name: name(), incarnation, reason: Text::from("why") },
        Operation::EvictPod { key: pod_key("p"), uid },
        Operation::CollectPod { key: pod_key("p"), uid },
        Operation::BindPod { key: pod_key("p"), uid, node: name(), incarnation },
        Operation::NoteUnplaced { key: pod_key("p"), uid, why: Text::from("why") },
        Operation::StaffWorkload { key: workload_key(WorkloadKind::ReplicaSet, "w"), uid, nodes: Vec::new() },
        plan("10.0.0.0/16", "", REST),
        Operation::AssignCidrs { names: vec![name()] },
        Operation::ForgetCredentials { names: vec![name()] },
    ];
    let agent = [
        register(draft("a")),
        Operation::ReportStatus { name: name(), incarnation, status: Box::new(status("Ready=True")), running: None },
        Operation::ReportPods { node: name(), incarnation, reports: Vec::new() },
        enrol("a", "tokentoken", 1),
        renew("a", 1, 2),
        confirm("a", 1),
        Operation::NoteRefusal { node: name(), why: Text::from("why") },
    ];
    let of = |entitled: Entitled| move |operation| (operation, entitled);
    let anyone = anyone.into_iter().map(of(Entitled::Anyone));
    anyone
        .chain(leader.into_iter().map(of(Entitled::Controller)))
        .chain(agent.into_iter().map(of(Entitled::Agent)))
        .collect()
}

#[test]
fn each_origin_may_ask_for_its_own_and_nothing_else() {
    let own = Origin::Node { name: Text::from("a") };
    let other = Origin::Node { name: Text::from("b") };
    let leader = Origin::Controller { term: TERM };
    let origins = [
        (alice(), "alice", [true, false, false]),
        (leader, "the controller", [true, true, false]),
        (Origin::Replica { id: ReplicaId(2) }, "replica 2", [true, false, false]),
        (own, "its agent", [false, false, true]),
        (other, "its agent", [false, false, false]),
    ];
    for (operation, class) in every_operation() {
        assert_eq!(operation.entitled(), class, "{}", operation.label());
        for (origin, shown, [anyone, controller, agent]) in &origins {
            let allowed = match class {
                Entitled::Anyone => *anyone,
                Entitled::Controller => *controller,
                Entitled::Agent => *agent,
            };
            let command = Command { origin: origin.clone(), request: None, operation: operation.clone() };
            let mut cluster = Cluster::with_node("a");
            if allowed {
                let told = told(&cluster.submit(command).outcomes[0]);
                assert!(!told.contains("is not for"), "{told}");
            } else {
                let refused = cluster.refused(command);
                if class == Entitled::Agent && matches!(origin, Origin::Node { .. }) {
                    assert_eq!(refused, of_another("a", "b"));
                } else {
                    let what = Text::from(operation.label());
                    assert_eq!(refused, Rejection::NotEntitled { what, origin: Text::from(*shown) });
                }
            }
        }
    }
}

fn of_another(other: &str, own: &str) -> Rejection {
    let rule = format!("{other:?} is not {own:?}: a node speaks for itself alone (NR-1)");
    Rejection::Forbidden(Invalid::new("metadata.name", rule))
}

#[test]
fn the_refusal_says_what_was_not_for_whom() {
    let refused = Cluster::default().rejected(Operation::AssessZones).to_string();
    assert_eq!(refused, "assess-zones is not for alice to do");
}

#[test]
fn labels_are_different_for_every_operation() {
    let mut labels: Vec<&str> = every_operation().iter().map(|(operation, _)| operation.label()).collect();
    let count = labels.len();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!((labels.len(), count), (43, 43));
}
