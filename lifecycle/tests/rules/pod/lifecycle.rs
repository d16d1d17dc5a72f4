//! Pods: creation, changes, deletion, placement, and the reports of their node.

use muster_lifecycle::command::{AgentOperation, Command, LeaderOperation, OperatorOperation, Precondition};
use muster_lifecycle::meta::{OwnerReference, Revision, Uid};
use muster_lifecycle::node::Incarnation;
use muster_lifecycle::pod::{GRACE_DEFAULT, GRACE_MAX, PODS_PER_NODE_MAX, Phase, PodDraft, PodKey, PodReport};
use muster_lifecycle::record::RECORD_BYTES_MAX;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;
use crate::fixture::tolerations::tolerations;

const NOT_READY_300: &str = "node.kubernetes.io/not-ready:NoExecute for 300s";
const UNREACHABLE_300: &str = "node.kubernetes.io/unreachable:NoExecute for 300s";

fn with_host() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(host("a"));
    cluster
}

fn set_timeout(value: &str) -> OperatorOperation {
    OperatorOperation::SetPolicy { changes: vec![(Text::from("pod-eviction-timeout"), Text::from(value))] }
}

// === made ===

#[test]
fn a_pod_without_a_node_waits_for_one() {
    let mut cluster = with_host();
    cluster.run_pod(pod("web"));
    let made = cluster.the_pod("web").clone();
    assert_eq!(
        (made.status.phase, made.spec.binding.is_none(), made.spec.grace),
        (Phase::Pending, true, GRACE_DEFAULT)
    );
    assert_eq!(cluster.state.waiting_pods().collect::<Vec<_>>(), [&pod_key("web")]);
    assert_eq!(cluster.place(), ["web on a"]);
    let bound = cluster.the_pod("web").spec.binding.clone().unwrap();
    assert_eq!((bound.node.as_str(), bound.incarnation, bound.at), ("a", Incarnation(1), cluster.now()));
    assert_eq!((cluster.pod_conditions("web").as_str(), cluster.state.waiting_pods().len()), ("PodScheduled=True", 0));
}

#[test]
fn a_pod_that_names_its_node_is_bound_to_the_current_incarnation() {
    let mut cluster = with_host();
    cluster.done(cordon("a", true));
    cluster.run_pod(pod_on("web", "a"));
    assert!(cluster.the_pod("web").is_bound_to("a", cluster.node("a").incarnation), "a cordon is for the scheduler");
    assert_eq!(cluster.state.tenants("a").map(|tenants| tenants.len()), Some(1));
}

#[test]
fn te_11_a_pod_gets_default_tolerations_with_the_current_setting() {
    let mut cluster = Cluster::default();
    let cases: [(&str, &[&str]); 4] = [
        ("", &[NOT_READY_300, UNREACHABLE_300]),
        (
            "node.kubernetes.io/not-ready:NoExecute@5",
            &["node.kubernetes.io/not-ready:NoExecute for 5s", UNREACHABLE_300],
        ),
        ("*:NoExecute", &["*:NoExecute"]),
        ("*:NoSchedule", &["*:NoSchedule", NOT_READY_300, UNREACHABLE_300]),
    ];
    for (index, (given, expected)) in cases.into_iter().enumerate() {
        let name = format!("p{index}");
        cluster.run_pod(tolerating(given, pod(&name)));
        assert_eq!(cluster.pod_tolerations(&name), expected, "{given}");
    }
    cluster.done(set_timeout("60s"));
    cluster.run_pod(pod("late"));
    assert_eq!(cluster.pod_tolerations("late")[1], "node.kubernetes.io/unreachable:NoExecute for 60s");
    assert_eq!(cluster.pod_tolerations("p0"), [NOT_READY_300, UNREACHABLE_300], "existing pods keep theirs");
}

#[test]
fn te_11_a_manifest_applied_again_changes_nothing_even_if_the_default_changed() {
    let mut cluster = Cluster::default();
    let manifest = tolerating("dedicated=db:NoSchedule", pod("web"));
    cluster.run_pod(manifest.clone());
    let before = cluster.pod_tolerations("web");
    cluster.done(set_timeout("60s"));
    assert_eq!(cluster.told(apply_pod(manifest)), "unchanged");
    assert_eq!(cluster.pod_tolerations("web"), before);
}

#[test]
fn an_invalid_pod_is_refused_with_its_field() {
    type Wrong = (&'static str, fn(&mut PodDraft), &'static str);
    let cases: [Wrong; 17] = [
        ("no containers", |pod| pod.template.has_containers = false, "spec.containers: is required: at least one"),
        (
            "any key but a value",
            |pod| pod.template.tolerations = Some(tolerations("*=v:NoExecute")),
            "spec.tolerations[0].operator: must be Exists when the key is empty",
        ),
        (
            "only the second is wrong",
            |pod| pod.template.tolerations = Some(tolerations("a *=")),
            "spec.tolerations[1].operator: must be Exists",
        ),
        (
            "seconds of no effect",
            |pod| pod.template.tolerations = Some(tolerations("a:NoSchedule@5")),
            "spec.tolerations[0].effect: must be NoExecute",
        ),
        (
            "no number",
            |pod| pod.template.tolerations = Some(tolerations("a>many:NoSchedule")),
            "spec.tolerations[0].value: must be a whole number",
        ),
        (
            "negative grace",
            |pod| pod.template.grace = Some(-1),
            "spec.terminationGracePeriodSeconds: -1 is negative: write seconds, 0 or more",
        ),
        (
            "endless grace",
            |pod| pod.template.grace = Some(GRACE_MAX + 1),
            "spec.terminationGracePeriodSeconds: 604801 is too long: at most 604800",
        ),
        ("priority", |pod| pod.template.priority = Some(-2_000_001_001), "spec.priority: -2000001001 is not between"),
        ("selector", |pod| pod.template.node_selector = Some(pairs("-k=v")), "spec.nodeSelector: "),
        (
            "a negative request",
            |pod| pod.template.requests = resources("cpu=-1"),
            "spec.containers.resources.requests[cpu]: \"-1\" is negative",
        ),
        (
            "a fraction of a device",
            |pod| pod.template.requests = resources("example.com/gpu=500m"),
            "spec.containers.resources.requests[example.com/gpu]: ",
        ),
        ("unknown node", |pod| pod.node = Some(Text::from("nowhere")), "spec.nodeName: node \"nowhere\" not found"),
        ("name", |pod| pod.key.name = Text::from("Web_1"), "metadata.name: "),
        ("namespace", |pod| pod.key.namespace = Text::from("a.b"), "metadata.namespace: "),
        (
            "finalizers",
            |pod| pod.finalizers = Some(Box::new([Text::from("f")])),
            "metadata.finalizers: are not supported",
        ),
        ("labels", |pod| pod.labels = Some(pairs("-k=v")), "metadata.labels: "),
        (
            "too heavy",
            |pod| pod.template.unmodelled = Some(Text::from("x".repeat(RECORD_BYTES_MAX))),
            "limit reached: bytes of pod \"web\"",
        ),
    ];
    let mut cluster = with_host();
    for (case, spoil, message) in cases {
        let mut draft = pod("web");
        spoil(&mut draft);
        let told = cluster.rejected(create_pod(draft.clone())).to_string();
        assert!(told.starts_with(message), "{case}: {told}");
        assert_eq!(cluster.rejected(apply_pod(draft)).to_string(), told, "{case}: create and apply agree");
    }
    assert!(cluster.state.pods().is_empty());
}

/// Otherwise an accepted pod, or a workload's template, could not be made with the defaults on top.
#[test]
fn the_limit_of_tolerations_leaves_room_for_default_ones() {
    let mut cluster = Cluster::default();
    let many = |count: usize| {
        let text: String = (0..count).map(|index| format!("k{index}:NoSchedule ")).collect();
        tolerating(&text, pod("web"))
    };
    let refused = cluster.rejected(create_pod(many(249))).to_string();
    assert_eq!(refused, "spec.tolerations: 249 are too many: at most 248");
    assert_eq!(cluster.told(create_pod(many(248))), "created");
    assert_eq!(cluster.the_pod("web").spec.tolerations.len(), 250);
}

#[test]
fn a_taken_name_already_exists_and_namespaces_keep_names_apart() {
    let mut cluster = Cluster::default();
    cluster.run_pod(pod("web"));
    assert_eq!(cluster.rejected(create_pod(pod("web"))).to_string(), "pod \"default/web\" already exists");
    let elsewhere = PodDraft { key: PodKey::new("other", "web"), ..pod("web") };
    assert_eq!(cluster.told(create_pod(elsewhere)), "created");
    assert_eq!(cluster.state.pods().len(), 2);
}

// === changed ===

#[test]
fn an_immutable_field_of_a_pod_is_named() {
    type Change = (fn(&mut PodDraft), &'static str);
    let owner = OwnerReference {
        api_version: Text::from("apps/v1"),
        kind: Text::from("ReplicaSet"),
        name: Text::from("web"),
        uid: Uid(5),
        controller: true,
        block_owner_deletion: true,
    };
    let cases: [Change; 7] = [
        (|pod| pod.node = Some(Text::from("b")), "spec.nodeName"),
        (|pod| pod.template.priority = Some(1), "spec.priority"),
        (|pod| pod.template.grace = Some(1), "spec.terminationGracePeriodSeconds"),
        (|pod| pod.template.node_selector = Some(pairs("disk=ssd")), "spec.nodeSelector"),
        (|pod| pod.template.host_network = true, "spec.hostNetwork"),
        (|pod| pod.template.requests = resources("cpu=1"), "spec.containers[*].resources.requests"),
        (|pod| pod.template.unmodelled = Some(Text::from("{}")), "spec"),
    ];
    let mut cluster = with_host();
    cluster.create(host("b"));
    cluster.run_pod(pod_on("web", "a"));
    let why = "cannot be changed: of a pod that exists only labels, annotations and tolerations can change";
    for (change, field) in cases {
        let mut draft = pod_on("web", "a");
        change(&mut draft);
        assert_eq!(cluster.rejected(apply_pod(draft)).to_string(), format!("{field}: {why}"));
    }
    let adopted = PodDraft { owners: Some(Box::new([owner])), ..pod_on("web", "a") };
    assert_eq!(cluster.rejected(apply_pod(adopted)).to_string(), format!("metadata.ownerReferences: {why}"));
    cluster.run_pod(pod("waiting"));
    let bound = cluster.rejected(apply_pod(pod_on("waiting", "b"))).to_string();
    assert_eq!(bound, format!("spec.nodeName: {why}"), "binding is for the scheduler");
}

#[test]
fn an_apply_merges_labels_and_keeps_fields_it_does_not_name() {
    let mut cluster = with_host();
    let labelled = |labels: &str| PodDraft { labels: Some(pairs(labels)), ..pod_on("web", "a") };
    assert_eq!(cluster.told(apply_pod(labelled("a=1 b=1"))), "created");
    assert_eq!(cluster.told(apply_pod(labelled("b=2 c=3"))), "changed");
    assert_eq!(cluster.the_pod("web").meta.labels, pairs("a=1 b=2 c=3"));
    assert_eq!(cluster.told(apply_pod(pod("web"))), "unchanged", "neither node nor labels nor tolerations are named");
    let expecting = Precondition { revision: Some(Revision(1)), uid: None };
    let apply = OperatorOperation::ApplyPod { draft: Box::new(pod("new")), uid: Uid(1), precondition: expecting };
    assert_eq!(cluster.rejected(apply).to_string(), "pod \"default/new\" not found");
}

#[test]
fn t_4_tolerations_may_be_added_or_given_other_seconds_but_not_removed() {
    let mut cluster = Cluster::default();
    cluster.run_pod(tolerating("t:NoExecute@60", pod("web")));
    let cases = [
        ("t:NoExecute@60 u:NoExecute", "changed"),
        ("t:NoExecute@5 u:NoExecute", "changed"),
        ("u:NoExecute t:NoExecute@5", "changed"),
        (
            "u:NoExecute",
            "spec.tolerations: \"t:NoExecute for 5s\" cannot be removed: of a pod that exists tolerations can only be added",
        ),
        ("u:NoExecute t=v:NoExecute@5", "spec.tolerations: \"t:NoExecute for 5s\" cannot be removed"),
    ];
    for (given, expected) in cases {
        let told = cluster.told(apply_pod(tolerating(given, pod("web"))));
        assert!(told.starts_with(expected), "{given}: {told}");
    }
    let kept = ["u:NoExecute", "t:NoExecute for 5s", NOT_READY_300, UNREACHABLE_300];
    assert_eq!(cluster.pod_tolerations("web"), kept, "a manifest need not repeat default tolerations");
}

// === deleted ===

#[test]
fn a_deleted_pod_is_removed_when_its_node_reports_it_stopped() {
    let mut cluster = with_host();
    cluster.run_pod(pod_on("web", "a"));
    let applied = cluster.run(delete_pod("web", None));
    assert_eq!(told(&applied.outcomes[0]), "deleted");
    assert_eq!(events(&applied), ["Killing: pod default/web was deleted by alice and has 30s to stop"]);
    let ending = cluster.the_pod("web").ending.unwrap();
    assert_eq!(
        (ending.grace, ending.in_absence, cluster.the_pod("web").meta.deleted),
        (30, false, Some(cluster.now()))
    );
    let since = cluster.the_pod("web").meta.deleted;
    assert_eq!(cluster.told(delete_pod("web", None)), "unchanged");
    assert_eq!(cluster.told(delete_pod("web", Some(60))), "unchanged", "a grace only gets shorter");
    assert_eq!(cluster.told(delete_pod("web", Some(5))), "deleted");
    assert_eq!(
        (cluster.the_pod("web").ending.map(|ending| ending.grace), cluster.the_pod("web").meta.deleted),
        (Some(5), since)
    );
    cluster.stops("web");
    assert!(!cluster.has_pod("web") && cluster.state.tenants("a").is_none());
}

#[test]
fn which_pods_are_removed_at_once_when_deleted() {
    type Meanwhile = fn(&mut Cluster);
    let cases: [(&str, PodDraft, Meanwhile, Option<u32>, bool); 5] = [
        ("without a node", pod("web"), |_| {}, None, true),
        ("ended", pod_on("web", "a"), |cluster| cluster.ends("web", Phase::Succeeded), None, true),
        ("no grace", pod_on("web", "a"), |cluster| cluster.starts("web"), Some(0), true),
        ("running", pod_on("web", "a"), |cluster| cluster.starts("web"), None, false),
        ("pending on its node", pod_on("web", "a"), |_| {}, None, false),
    ];
    for (case, draft, meanwhile, grace, is_gone) in cases {
        let mut cluster = with_host();
        cluster.run_pod(draft);
        meanwhile(&mut cluster);
        assert_eq!(cluster.told(delete_pod("web", grace)), "deleted", "{case}");
        assert_eq!(cluster.has_pod("web"), !is_gone, "{case}");
    }
}

#[test]
fn a_delete_with_another_uid_is_refused() {
    let mut cluster = with_host();
    cluster.run_pod(pod_on("web", "a"));
    let uid = cluster.pod_uid("web");
    let other = Precondition { revision: None, uid: Some(Uid(uid.0 + 1)) };
    let delete = OperatorOperation::DeletePod { key: pod_key("web"), grace: None, precondition: other };
    assert!(cluster.rejected(delete).to_string().starts_with("conflict on pod \"default/web\": the pod with uid"));
    assert_eq!(cluster.rejected(delete_pod("none", None)).to_string(), "pod \"default/none\" not found");
    let endless = cluster.rejected(delete_pod("web", Some(700_000))).to_string();
    assert_eq!(endless, "gracePeriodSeconds: 700000 is too long: at most 604800");
}

// === what its node says ===

#[test]
fn a_node_reports_its_own_pods_only_and_only_in_its_current_incarnation() {
    let mut cluster = with_host();
    cluster.create(host("b"));
    cluster.run_pod(pod_on("web", "a"));
    let report = cluster.pod_report("web", Phase::Running, true);
    let misses = [
        ("a", PodReport { uid: Uid(4711), ..report.clone() }),
        ("a", PodReport { key: pod_key("none"), ..report.clone() }),
        ("a", PodReport { key: PodKey::new("other", "web"), ..report.clone() }),
    ];
    for (node, report) in misses {
        assert_eq!(told(&cluster.says(node, vec![report.clone()]).outcomes[0]), "unchanged", "{node}: {report:?}");
        assert_eq!(cluster.the_pod("web").status.phase, Phase::Pending);
    }
    let late = AgentOperation::ReportPods {
        node: Text::from("a"),
        incarnation: Incarnation(9),
        reports: vec![report.clone()],
    };
    assert!(cluster.refused(by_agent(late)).to_string().starts_with("node \"a\" is incarnation 1"));
    assert_eq!(told(&cluster.says("a", vec![report.clone()]).outcomes[0]), "changed");
    assert_eq!(told(&cluster.says("a", vec![report]).outcomes[0]), "unchanged", "the same again is no write");
    assert_eq!(cluster.pod_conditions("web"), "PodScheduled=True Ready=True");
}

#[test]
fn an_ended_pod_does_not_run_again() {
    let mut cluster = with_host();
    cluster.run_pod(pod_on("web", "a"));
    cluster.starts("web");
    let started = cluster.the_pod("web").status.started;
    let failed =
        PodReport { restarts: 7, reason: Text::from("Error"), ..cluster.pod_report("web", Phase::Failed, true) };
    cluster.says("a", vec![failed.clone()]);
    assert_eq!(cluster.the_pod("web").status.phase, Phase::Running, "some of it still runs");
    cluster.says("a", vec![PodReport { stopped: true, ..failed }]);
    let again = cluster.pod_report("web", Phase::Running, true);
    cluster.says("a", vec![again]);
    let pod = cluster.the_pod("web").clone();
    assert_eq!((pod.status.phase, pod.status.restarts, pod.status.started), (Phase::Failed, 7, started));
    assert!(!pod.is_ready(), "nothing of it serves");
    let tally = cluster.state.pod_tally();
    assert_eq!((tally.failed, tally.running, tally.ready), (1, 0, 0));
}

#[test]
fn a_report_that_a_pod_stopped_removes_it_only_if_it_was_deleted() {
    let mut cluster = with_host();
    cluster.run_pod(pod_on("web", "a"));
    cluster.stops("web");
    assert_eq!(cluster.the_pod("web").status.phase, Phase::Failed, "it was not deleted: its end is kept");
    let long = PodReport { message: Text::from("x".repeat(5000)), ..cluster.pod_report("web", Phase::Failed, false) };
    cluster.says("a", vec![long.clone()]);
    assert_eq!(cluster.the_pod("web").status.message.len(), 1024, "a long message is truncated");
    let flood =
        AgentOperation::ReportPods { node: Text::from("a"), incarnation: Incarnation(1), reports: vec![long; 2049] };
    assert_eq!(cluster.refused(by_agent(flood)).to_string(), "limit reached: pods in one report (at most 2048)");
}

// === placed ===

#[test]
fn a_binding_is_checked_again_when_it_is_applied() {
    type Meanwhile = fn(&mut Cluster);
    let full: Meanwhile = |cluster| (0..10).for_each(|index| cluster.run_pod(pod_on(&format!("p{index}"), "a")));
    let cases: [(&str, Meanwhile, &str); 7] = [
        (
            "cordoned",
            |cluster| drop(cluster.run(cordon("a", true))),
            "node \"a\" does not take pod \"default/web\": cordoned",
        ),
        ("lost", |cluster| drop(cluster.silence("a")), "node \"a\" does not take pod \"default/web\": unreachable"),
        ("full", full, "node \"a\" does not take pod \"default/web\": too many pods"),
        ("gone", |cluster| drop(cluster.run(delete("a"))), "node \"a\" not found"),
        (
            "another",
            |cluster| drop((cluster.run(delete("a")), cluster.create(host("a")))),
            "node \"a\" is incarnation 2, this was meant for 1",
        ),
        ("placed", |cluster| drop(cluster.place()), "pod \"default/web\" does not wait for a node"),
        ("pod gone", |cluster| drop(cluster.run(delete_pod("web", None))), "pod \"default/web\" not found"),
    ];
    for (case, meanwhile, message) in cases {
        let mut cluster = with_host();
        cluster.run_pod(pod("web"));
        let (key, uid, node) = (pod_key("web"), cluster.pod_uid("web"), Text::from("a"));
        let bind = LeaderOperation::BindPod { key, uid, node, incarnation: Incarnation(1) };
        meanwhile(&mut cluster);
        let told = cluster.refuses_leader(bind).to_string();
        assert!(told.starts_with(message), "{case}: {told}");
    }
}

#[test]
fn an_unplaced_pod_gets_one_event_and_not_one_per_new_node() {
    let mut cluster = with_host();
    cluster.done(cordon("a", true));
    cluster.run_pod(pod("web"));
    assert_eq!(cluster.place(), ["web: 0/1 nodes: 1 cordoned"]);
    let last = cluster.state.events().iter().next_back().unwrap().clone();
    assert_eq!((last.reason(), last.message().as_str()), ("FailedScheduling", "0/1 nodes: 1 cordoned"));
    assert!(cluster.place().is_empty(), "the same again");
    cluster.create(draft("b"));
    assert!(cluster.place().is_empty(), "another reason, but too soon");
    cluster.wait(10);
    assert_eq!(cluster.place(), ["web: 0/2 nodes: 1 not ready, 1 cordoned"]);
    cluster.done(cordon("a", false));
    assert_eq!(cluster.place(), ["web on a"]);
    assert_eq!(cluster.pod_conditions("web"), "PodScheduled=True");
}

/// A node that names no limit has the default one. A leader that did not know would propose it for ever.
#[test]
fn a_node_with_the_most_pods_allowed_gets_no_more() {
    let mut cluster = Cluster::default();
    cluster.create(in_zone("a", "z", "Ready=True"));
    let pods = (0..PODS_PER_NODE_MAX).map(|index| {
        let draft = Box::new(pod_on(&format!("p{index}"), "a"));
        Command {
            origin: alice(),
            request: None,
            operation: OperatorOperation::CreatePod { draft, uid: Uid(10_000 + index as u128) }.into(),
        }
    });
    cluster.submit_all(pods.collect());
    assert_eq!(cluster.state.tenants("a").map(|tenants| tenants.len()), Some(PODS_PER_NODE_MAX));
    let refused = cluster.rejected(create_pod(pod_on("web", "a"))).to_string();
    assert_eq!(refused, "limit reached: pods on node \"a\" (at most 1024)");
    // A pod that has ended takes nothing, but is still there.
    cluster.ends("p0", Phase::Failed);
    cluster.run_pod(pod("web"));
    assert_eq!(cluster.place(), ["web: 0/1 nodes: 1 too many pods"]);
    cluster.create(in_zone("b", "z", "Ready=True"));
    assert_eq!(cluster.place(), ["web on b"]);
}
