//! PD-1 to PD-5 and I-12: how pods' readiness follows their node's, and what keeps a node from being ready again.

use muster_lifecycle::command::AgentOperation;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{ConditionStatus, NodeDraft, READY};
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

/// Node `a` with a pod that is ready and one that has not said anything yet, beside node `b` with a ready pod.
fn serving() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster.create(host("b"));
    for (pod, node) in [("web", "a"), ("mute", "a"), ("other", "b")] {
        cluster.run_pod(pod_on(pod, node));
    }
    cluster.starts("web");
    cluster.starts("other");
    cluster
}

fn readiness(cluster: &Cluster, pod: &str) -> Option<ConditionStatus> {
    cluster.the_pod(pod).status.condition(READY).map(|ready| ready.status)
}

#[test]
fn pd_1_a_node_that_reports_not_ready_leaves_its_pods_as_reported() {
    let mut cluster = serving();
    cluster.report("a", "Ready=False");
    assert_eq!(readiness(&cluster, "web"), Some(ConditionStatus::True));
    cluster.silence("a");
    assert_eq!(
        readiness(&cluster, "web"),
        Some(ConditionStatus::True),
        "the node was not ready before: nothing changes"
    );
}

#[test]
fn pd_2_the_pods_of_a_silent_node_are_not_ready() {
    let mut cluster = serving();
    let before = cluster.the_pod("web").status.condition(READY).cloned().unwrap();
    let applied = cluster.silence("a");
    let after = cluster.the_pod("web").status.condition(READY).cloned().unwrap();
    assert_eq!((after.status, after.last_transition), (ConditionStatus::False, Some(cluster.now())));
    assert_eq!((after.reason, after.message), (before.reason, before.message), "only its status changes");
    assert_eq!(readiness(&cluster, "mute"), None, "nothing was said of its readiness");
    assert_eq!(readiness(&cluster, "other"), Some(ConditionStatus::True), "another node's");
    let told = events(&applied);
    assert_eq!((told.len(), told[1].as_str()), (2, "NodeNotReady: Node is not ready"), "{told:?}");
    assert_eq!(cluster.state.pod_tally().ready, 1);
}

/// Upstream remembers in memory the nodes whose pods it could not mark. Here there is nothing to remember.
#[test]
fn pd_3_better_than_upstream_node_and_pods_are_marked_in_one_entry() {
    let mut cluster = serving();
    let applied = cluster.silence("a");
    for key in [
        RecordKey::Node { name: Text::from("a") },
        RecordKey::Pod { namespace: Text::from("default"), name: Text::from("web") },
    ] {
        assert!(applied.touched.contains(&key), "{key}");
    }
    cluster.fail_over();
    assert_eq!(readiness(&cluster, "web"), Some(ConditionStatus::False));
}

#[test]
fn pd_4_a_pod_bound_to_a_node_that_is_not_ready_is_not_ready() {
    let cases = [
        ("Ready=Unknown", Some(ConditionStatus::False)),
        ("Ready=False", Some(ConditionStatus::False)),
        ("Ready=True", None),
    ];
    for (said, expected) in cases {
        let mut cluster = Cluster::default();
        cluster.create(NodeDraft { status: Some(status(said)), ..draft("a") });
        cluster.run_pod(pod_on("web", "a"));
        assert_eq!(readiness(&cluster, "web"), expected, "{said}");
    }
}

#[test]
fn pd_5_a_pod_is_ready_again_only_by_a_report_of_its_node() {
    let mut cluster = serving();
    cluster.silence("a");
    assert_eq!(cluster.returns("a", None), "changed");
    assert_eq!(
        readiness(&cluster, "web"),
        Some(ConditionStatus::False),
        "the node is back without a report on the pod"
    );
    cluster.starts("web");
    assert_eq!(readiness(&cluster, "web"), Some(ConditionStatus::True));
}

// === I-12 ===

/// A node that is silent, with `web` deleted meanwhile.
fn deleted_in_absence() -> Cluster {
    let mut cluster = serving();
    cluster.silence("a");
    cluster.done(delete_pod("web", None));
    assert!(cluster.the_pod("web").ending.is_some_and(|ending| ending.in_absence));
    cluster
}

#[test]
fn i_12_a_node_is_not_ready_before_pods_deleted_in_its_absence_have_stopped() {
    let mut cluster = deleted_in_absence();
    let refusal = "node \"a\" cannot be ready yet: 1 pods that were deleted in its absence, or belong to a former life of \
                   it, are not confirmed stopped (default/web)";
    for running in [None, Some(vec![]), Some(vec![cluster.pod_uid("web")])] {
        let report = AgentOperation::ReportStatus {
            name: Text::from("a"),
            incarnation: cluster.node("a").incarnation,
            status: Box::new(status("Ready=True")),
            running,
        };
        assert_eq!(cluster.refused(by_agent(report)).to_string(), refusal);
    }
    assert_eq!(
        cluster.rejected(replace_status("a", ready(ConditionStatus::True))).to_string(),
        refusal,
        "nor by an operator"
    );
    cluster.report("a", "Ready=False");
    assert_eq!(ready_of(&cluster, "a"), Some(ConditionStatus::False), "it may report any other condition");
    cluster.stops("web");
    assert_eq!(cluster.returns("a", Some(vec![cluster.pod_uid("mute")])), "changed");
}

#[test]
fn i_12_a_node_that_runs_pods_not_bound_to_it_is_not_ready() {
    let mut cluster = serving();
    let (web, mute, other) = (cluster.pod_uid("web"), cluster.pod_uid("mute"), cluster.pod_uid("other"));
    cluster.silence("a");
    cluster.done(delete_pod("web", Some(0)));
    let cases = [
        (vec![mute, web], "uid 00000000-0000-0000-0000-000000000003"),
        (vec![other], "uid 00000000-0000-0000-0000-000000000005"),
        (vec![Uid(7), Uid(8), Uid(9), Uid(10)], "uid 00000000-0000-0000-0000-000000000009)"),
    ];
    for (running, shown) in cases {
        let told = cluster.returns("a", Some(running.clone()));
        assert!(told.contains("cannot be ready yet") && told.contains(shown), "{running:?}: {told}");
        assert!(!told.contains("00000000000a"), "three are enough to find them by: {told}");
    }
    assert_eq!(cluster.returns("a", Some(vec![mute])), "changed");
}

#[test]
fn i_12_pods_deleted_while_the_node_was_present_do_not_delay_it() {
    let mut cluster = serving();
    cluster.done(delete_pod("web", None));
    cluster.report("a", "Ready=False");
    assert_eq!(cluster.returns("a", None), "changed", "its agent was told");
    assert!(cluster.the_pod("web").is_terminating());
}

/// The agent was cut off a moment before, and may not have been told.
#[test]
fn i_12_pods_deleted_before_the_silence_was_noticed_delay_the_node_too() {
    let mut cluster = serving();
    cluster.done(delete_pod("web", None));
    cluster.silence("a");
    assert!(cluster.returns("a", None).contains("cannot be ready yet: 1 pods"));
    cluster.stops("web");
    assert_eq!(cluster.returns("a", None), "changed");
}

#[test]
fn i_12_a_new_incarnation_is_not_ready_while_pods_of_the_former_one_run() {
    let mut cluster = serving();
    let web = cluster.pod_uid("web");
    cluster.done(delete("a"));
    assert!(cluster.the_pod("web").is_terminating(), "its agent lives and is asked to stop it");
    let anew = |conditions: &str| NodeDraft { labels: None, status: Some(status(conditions)), ..draft("a") };
    let refused = cluster.refused(by_agent(registers(anew("Ready=True"), Some(vec![web]))));
    assert!(matches!(refused, Rejection::StillRunning { count: 1, .. }), "{refused}");
    assert_eq!(cluster.agent_told(registers(anew("Ready=False"), Some(vec![web]))), "created");
    assert!(cluster.has_pod("web") && !cluster.has_pod("mute"), "what it does not run any more is gone");
    assert_eq!(cluster.agent_told(registers(anew("Ready=True"), Some(vec![]))), "changed");
    assert!(!cluster.has_pod("web") && cluster.has_pod("other"));
}
