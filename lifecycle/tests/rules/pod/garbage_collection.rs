//! GC-1 to GC-5 and OOS-1: the pods that are removed without a confirmation of their node.

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::command::{AgentOperation, Command, LeaderOperation, OperatorOperation};
use muster_lifecycle::garbage::{ORPHAN_QUARANTINE, TERMINATED_KEPT};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Incarnation, NodeDraft};
use muster_lifecycle::pod::{DISRUPTION_TARGET, PODS_PER_NODE_MAX, Phase, PodReport};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::Applied;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::todo;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fn hosting(pods: &[&str]) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    pods.iter().for_each(|pod| cluster.run_pod(pod_on(pod, "a")));
    cluster
}

fn collect(cluster: &Cluster, name: &str) -> LeaderOperation {
    LeaderOperation::CollectPod { key: pod_key(name), uid: cluster.pod_uid(name) }
}

/// A cluster with three more ended pods than are kept: `p-00000` and so on, made in this order.
fn crowded() -> Cluster {
    let mut cluster = Cluster::default();
    let count = TERMINATED_KEPT + 3;
    let nodes = count.div_ceil(PODS_PER_NODE_MAX);
    cluster.populate("a", nodes, 0);
    let make = |index: usize| {
        let draft = pod_on(&format!("p-{index:05}"), &format!("a-{:02}", index / PODS_PER_NODE_MAX));
        let operation = OperatorOperation::CreatePod { draft: Box::new(draft), uid: Uid(1000 + index as u128) };
        Command { origin: alice(), request: None, operation: operation.into() }
    };
    // By name, not by age, so that the two can be told apart.
    cluster.submit_all((2..count).map(make).collect());
    cluster.submit_all((0..2).map(make).collect());
    let reports = (0..nodes).map(|node| {
        let pods = (0..count).skip(node * PODS_PER_NODE_MAX).take(PODS_PER_NODE_MAX);
        let reports = pods.map(|index| ended(&cluster, &format!("p-{index:05}"), index == 9000)).collect();
        let incarnation = Incarnation(node as u64 + 1);
        by_agent(AgentOperation::ReportPods { node: Text::from(format!("a-{node:02}")), incarnation, reports })
    });
    let reports = reports.collect();
    cluster.submit_all(reports);
    cluster
}

fn ended(cluster: &Cluster, name: &str, evicted: bool) -> PodReport {
    let (phase, reason) = if evicted { (Phase::Failed, "Evicted") } else { (Phase::Succeeded, "") };
    PodReport { reason: Text::from(reason), stopped: true, ..cluster.pod_report(name, phase, false) }
}

#[test]
fn gc_1_excess_ended_pods_are_removed_evicted_ones_first_then_the_oldest() {
    let mut cluster = crowded();
    assert_eq!(cluster.state.finished_pods().len(), TERMINATED_KEPT + 3);
    let spared = cluster.refuses_leader(collect(&cluster, "p-00000"));
    assert_eq!(spared, Rejection::NotGarbage { name: Text::from("default/p-00000") }, "the youngest");
    assert_eq!(cluster.collect(), ["p-09000", "p-00002", "p-00003"]);
    assert_eq!(cluster.state.finished_pods().len(), TERMINATED_KEPT);
    assert!(cluster.collect().is_empty());
}

#[test]
fn gc_2_deleted_pods_of_an_out_of_service_node_are_removed() {
    let cases = [
        ("Ready=Unknown", "out-of-service:NoExecute", true),
        ("Ready=False", "out-of-service=nodeshutdown:NoSchedule", true),
        ("DiskPressure=False", "out-of-service:PreferNoSchedule", true),
        ("Ready=True", "out-of-service:NoExecute", false),
        ("Ready=Unknown", "other:NoExecute", false),
    ];
    for (said, added, is_garbage) in cases {
        let mut cluster = Cluster::default();
        cluster.create(NodeDraft { status: Some(status(said)), ..draft("a") });
        cluster.run_pod(pod_on("web", "a"));
        cluster.run_pod(pod_on("kept", "a"));
        cluster.done(taint("a", &format!("node.kubernetes.io/{added}"), "", false));
        assert!(cluster.collect().is_empty(), "they were not deleted");
        cluster.done(delete_pod("web", None));
        let expected: &[&str] = if is_garbage { &["web"] } else { &[] };
        assert_eq!(cluster.collect(), expected, "{said} {added}");
        assert!(cluster.has_pod("kept"));
    }
}

#[test]
fn gc_3_the_pods_of_a_lost_node_are_removed_in_the_entry_that_deletes_it() {
    let mut cluster = hosting(&["web", "done"]);
    cluster.starts("web");
    cluster.ends("done", Phase::Succeeded);
    cluster.silence("a");
    let applied = cluster.run(delete("a"));
    assert!(!cluster.has_pod("web") && !cluster.has_pod("done"));
    let taken = events(&applied);
    assert!(taken.contains(&"PodCollected: pod default/web was taken away: its node is gone".to_owned()), "{taken:?}");
}

#[test]
fn gc_3_the_agent_of_a_live_node_gets_two_minutes_to_stop_its_pods() {
    let mut cluster = hosting(&["web", "done", "going"]);
    cluster.ends("done", Phase::Failed);
    cluster.done(delete_pod("going", Some(5)));
    let early = cluster.the_pod("going").meta.deleted;
    cluster.done(delete("a"));
    let deleted = cluster.seconds_now();
    assert!(!cluster.has_pod("done"), "what has ended needs no confirmation");
    assert_eq!(cluster.the_pod("going").meta.deleted, early, "its own deadline stays");
    let refused = cluster.refuses_leader(collect(&cluster, "web"));
    assert_eq!(refused, Rejection::NotGarbage { name: Text::from("default/web") });
    let look = todo::pod_garbage(&cluster.state, cluster.now().cluster, ClusterTime(0), 10);
    let first = ORPHAN_QUARANTINE.after(stamp(deleted).cluster);
    assert_eq!((look.operations.len(), look.look_again_at), (0, Some(first)));
    cluster.wait(deleted + ORPHAN_QUARANTINE.0 / 1000 - cluster.seconds_now());
    assert_eq!(cluster.collect(), ["going", "web"]);
}

#[test]
fn gc_3_a_new_incarnation_frees_pods_that_it_does_not_run() {
    let mut cluster = hosting(&["web", "other"]);
    let web = cluster.pod_uid("web");
    cluster.done(delete("a"));
    let anew = NodeDraft { labels: None, status: Some(status("Ready=False")), ..draft("a") };
    assert_eq!(cluster.agent_told(registers(anew.clone(), None)), "created");
    assert!(cluster.has_pod("web") && cluster.has_pod("other"), "it said nothing about what runs");
    assert_eq!(cluster.agent_told(registers(anew, Some(vec![web]))), "unchanged");
    assert!(cluster.has_pod("web") && !cluster.has_pod("other"));
    cluster.wait(ORPHAN_QUARANTINE.0 / 1000);
    assert!(cluster.collect().is_empty(), "its agent says that it runs");
    assert!(matches!(cluster.refuses_leader(collect(&cluster, "web")), Rejection::NotGarbage { .. }));
    let incarnation = cluster.node("a").incarnation;
    let reports = |running| {
        let (name, status) = (Text::from("a"), Box::new(status("Ready=True")));
        AgentOperation::ReportStatus { name, incarnation, status, running: Some(running) }
    };
    assert!(cluster.agent_told(reports(vec![web])).contains("cannot be ready yet"));
    assert!(cluster.has_pod("web"), "a rejection changes nothing");
    assert_eq!(cluster.agent_told(reports(Vec::new())), "changed");
    assert!(!cluster.has_pod("web"), "its agent says that it has stopped");
}

/// The agent runs a pod that cannot be killed: only an operator can free its name.
#[test]
fn gc_3_a_pod_that_a_live_agent_runs_goes_when_its_node_is_lost_and_deleted_or_out_of_service() {
    for out_of_service in [false, true] {
        let mut cluster = hosting(&["web"]);
        let web = cluster.pod_uid("web");
        cluster.done(delete("a"));
        let anew = NodeDraft { labels: None, status: Some(status("Ready=False")), ..draft("a") };
        assert_eq!(cluster.agent_told(registers(anew, Some(vec![web]))), "created");
        cluster.silence("a");
        cluster.wait(10 * ORPHAN_QUARANTINE.0 / 1000);
        assert!(cluster.collect().is_empty(), "an agent that is away may run it still");
        match out_of_service {
            true => {
                cluster.done(taint("a", &format!("{OUT_OF_SERVICE}:NoExecute"), "", false));
                assert_eq!(cluster.collect(), ["web"]);
            }
            false => drop(cluster.done(delete("a"))),
        }
        assert!(!cluster.has_pod("web"));
    }
}

#[test]
fn gc_3_deleting_a_live_node_again_begins_the_quarantine_of_former_pods_again() {
    let mut cluster = hosting(&["web"]);
    let web = cluster.pod_uid("web");
    cluster.done(delete("a"));
    let anew = NodeDraft { labels: None, status: Some(status("Ready=False")), ..draft("a") };
    assert_eq!(cluster.agent_told(registers(anew, Some(vec![web]))), "created");
    cluster.wait(ORPHAN_QUARANTINE.0 / 1000);
    cluster.done(delete("a"));
    assert!(cluster.collect().is_empty());
    cluster.wait(ORPHAN_QUARANTINE.0 / 1000);
    assert_eq!(cluster.collect(), ["web"]);
}

/// I-03: the agent may be attached to a replica that the leader does not hear.
#[test]
fn gc_3_the_quarantine_begins_again_when_a_blindness_ends() {
    let mut cluster = hosting(&["web", "gone"]);
    cluster.create(host("b"));
    cluster.run_pod(pod_on("off", "b"));
    cluster.done(delete("a"));
    cluster.silence("b");
    cluster.done(taint("b", &format!("{OUT_OF_SERVICE}:NoExecute"), "", false));
    cluster.done(delete_pod("off", None));
    cluster.wait(ORPHAN_QUARANTINE.0 / 1000);
    let now = cluster.now().cluster;
    let look = |blind_until| todo::pod_garbage(&cluster.state, now, blind_until, 10);
    let blind = look(now);
    let off = LeaderOperation::CollectPod { key: pod_key("off"), uid: cluster.pod_uid("off") };
    assert_eq!(blind.operations, [off], "an operator's word does not depend on what the leader hears");
    assert_eq!(blind.look_again_at, Some(ORPHAN_QUARANTINE.after(now)));
    let lately = ClusterTime(now.0 - 1000);
    assert_eq!(look(lately).look_again_at, Some(ORPHAN_QUARANTINE.after(lately)));
    assert_eq!(look(ClusterTime(now.0 - ORPHAN_QUARANTINE.0)).operations.len(), 3);
}

#[test]
fn gc_4_a_pod_that_never_had_a_node_is_removed_when_it_is_deleted() {
    let mut cluster = Cluster::default();
    cluster.run_pod(pod("web"));
    let applied = cluster.run(delete_pod("web", None));
    assert_eq!(events(&applied), ["Killing: pod default/web was deleted by alice and is gone"]);
    assert_eq!((cluster.has_pod("web"), cluster.state.pod_tally().terminating), (false, 0));
}

fn seen_of(applied: &Applied, name: &str) -> Vec<String> {
    let shown = |object: &Object| match object {
        Object::Pod(pod) if pod.meta.name == *name => {
            let target = pod.status.condition(DISRUPTION_TARGET).map(|target| target.reason.to_string());
            Some(format!("{} {}", pod.status.phase, target.unwrap_or_default()))
        }
        Object::Pod(_) | Object::Node(_) | Object::Event(_) | Object::Workload(_) => None,
    };
    let of = |object: &Option<Object>| object.as_ref().and_then(shown).unwrap_or_default();
    let about = |change: &&Change| change.object().and_then(shown).is_some();
    applied
        .changes
        .iter()
        .filter(about)
        .map(|change| format!("{} > {}", of(&change.before), of(&change.after)))
        .collect()
}

#[test]
fn gc_5_watchers_see_a_pod_fail_before_it_is_removed() {
    let mut cluster = hosting(&["web", "done"]);
    cluster.starts("web");
    cluster.ends("done", Phase::Succeeded);
    cluster.silence("a");
    let applied = cluster.run(delete("a"));
    let failed = "Failed DeletionByPodGC";
    assert_eq!(seen_of(&applied, "web"), [format!("Running  > {failed}"), format!("{failed} > ")]);
    assert_eq!(seen_of(&applied, "done"), ["Succeeded  > "], "an ended pod keeps its phase");
}

#[test]
fn a_pod_is_collected_only_if_it_is_garbage_of_that_uid() {
    let mut cluster = hosting(&["web"]);
    assert!(matches!(cluster.refuses_leader(collect(&cluster, "web")), Rejection::NotGarbage { .. }), "it runs");
    let meant = LeaderOperation::CollectPod { key: pod_key("web"), uid: Uid(4711) };
    assert!(matches!(cluster.refuses_leader(meant), Rejection::OtherUid { .. }));
    let none = LeaderOperation::CollectPod { key: pod_key("none"), uid: Uid(1) };
    assert!(matches!(cluster.refuses_leader(none), Rejection::NotFound { .. }));
}

/// An operator vouches that the machine is off, and everything on it goes at once.
#[test]
fn oos_1_out_of_service_frees_names_at_once_and_stays_until_it_is_removed() {
    let mut cluster = hosting(&[]);
    cluster.create(host("b"));
    cluster.done(cordon("b", true));
    cluster.run_workload(workload(WorkloadKind::StatefulSet, "db", 1));
    cluster.tend();
    cluster.done(cordon("b", false));
    let first = cluster.pod_uid("db-0");
    cluster.silence("a");
    cluster.done(taint("a", &format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute"), "", false));
    assert_eq!(cluster.evict_pods(), ["db-0"], "no pod tolerates it by default");
    assert_eq!(cluster.collect(), ["db-0"]);
    cluster.tend();
    assert_eq!(cluster.the_pod("db-0").node().map(Text::as_str), Some("b"));
    assert_ne!(cluster.pod_uid("db-0"), first);
    assert_eq!(
        cluster.no_execute("a"),
        [format!("{OUT_OF_SERVICE}=nodeshutdown:NoExecute")],
        "an operator's to remove"
    );
}

/// A machine that says itself that it is not ready has an agent that lives.
#[test]
fn gc_3_deleting_a_live_node_keeps_its_pods_names_whatever_it_reported() {
    let mut cluster = hosting(&["web"]);
    cluster.starts("web");
    cluster.report("a", "Ready=False");
    cluster.done(delete("a"));
    assert!(cluster.the_pod("web").is_terminating(), "its agent gets time to stop it");
    let mut cluster = hosting(&["web"]);
    cluster.silence("a");
    cluster.done(delete("a"));
    assert!(!cluster.has_pod("web"), "no agent would confirm it");
}

/// The agent hears of both only when the node is gone.
#[test]
fn gc_3_a_pod_that_was_already_stopping_keeps_its_name_as_long_as_the_others() {
    let mut cluster = hosting(&["web"]);
    cluster.starts("web");
    cluster.done(delete_pod("web", Some(600)));
    cluster.wait(60);
    cluster.done(delete("a"));
    assert!(matches!(cluster.refuses_leader(collect(&cluster, "web")), Rejection::NotGarbage { .. }));
    cluster.wait(ORPHAN_QUARANTINE.0 / 1000);
    assert_eq!(cluster.collect(), ["web"]);
}
