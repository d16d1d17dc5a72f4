//! TC-1 to TC-3, NE-1 to NE-3, NE-7, NE-8 and LB-1: consequences of a node's own state, in the entry that changed it.

use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Stamp;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

const PREFIX: &str = "node.kubernetes.io/";

/// The keys of the NoSchedule taints without their common prefix, sorted.
fn kept_away_by(cluster: &Cluster) -> String {
    let taints = cluster.taints("a");
    let keys = taints.iter().filter_map(|taint| taint.strip_prefix(PREFIX)?.strip_suffix(":NoSchedule"));
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys.join(" ")
}

fn time_of(cluster: &Cluster, taint: &str) -> Option<Stamp> {
    let taints = &cluster.node("a").spec.taints;
    taints.iter().find(|own| own.to_string() == taint).expect("the taint is there").added
}

fn tainted(conditions: &str, taints: &str) -> Cluster {
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", conditions);
    cluster.done(taint("a", taints, "", false));
    cluster
}

#[test]
fn tc_1_conditions_and_the_cordon_keep_pods_away() {
    let cases = [
        ("", false, "not-ready"),
        ("Ready=True", false, ""),
        ("Ready=False", false, "not-ready"),
        ("Ready=Unknown", false, "unreachable"),
        ("Ready=True", true, "unschedulable"),
        ("Ready=True MemoryPressure=True", false, "memory-pressure"),
        ("Ready=True DiskPressure=True", false, "disk-pressure"),
        ("Ready=True PIDPressure=True", false, "pid-pressure"),
        ("Ready=True NetworkUnavailable=True", false, "network-unavailable"),
        ("Ready=True MemoryPressure=Unknown DiskPressure=False", false, ""),
        (
            "Ready=Unknown DiskPressure=True MemoryPressure=True",
            true,
            "disk-pressure memory-pressure unreachable unschedulable",
        ),
        ("Ready=True Custom=True", false, ""),
    ];
    for (conditions, unschedulable, expected) in cases {
        let mut reported = Cluster::with_node("a");
        reported.report("a", conditions);
        reported.run(cordon("a", unschedulable));
        let mut born = Cluster::default();
        let unschedulable = Some(unschedulable);
        born.create(NodeDraft { unschedulable, status: Some(status(conditions)), ..draft("a") });
        for cluster in [reported, born] {
            assert_eq!(kept_away_by(&cluster), expected, "{conditions}");
        }
    }
}

#[test]
fn tc_2_users_cannot_add_or_remove_managed_taints_and_other_taints_stay() {
    let mut cluster = Cluster::with_node("a");
    cluster.done(taint("a", "mine=1:NoSchedule", "", false));
    let before = cluster.taints("a");
    let managed = "node.kubernetes.io/not-ready";
    assert_eq!(cluster.told(taint("a", "", &format!("{managed}:NoSchedule-"), false)), "unchanged");
    assert_eq!(cluster.told(taint("a", "node.kubernetes.io/disk-pressure:NoSchedule", "", false)), "unchanged");
    assert_eq!(cluster.taints("a"), before);
    assert_eq!(cluster.told(taint("a", &format!("{managed}:PreferNoSchedule"), "", false)), "changed");
    cluster.report("a", "Ready=True");
    assert_eq!(cluster.taints("a"), ["mine=1:NoSchedule", "node.kubernetes.io/not-ready:PreferNoSchedule"]);
}

#[test]
fn tc_2_a_manifest_without_managed_taints_can_be_applied_repeatedly() {
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", "Ready=Unknown DiskPressure=True");
    let revision = cluster.node("a").meta.revision;
    for _ in 0..2 {
        assert_eq!(cluster.told(replace(draft("a"))), "unchanged");
    }
    assert_eq!(cluster.node("a").meta.revision, revision);
}

#[test]
fn tc_3_a_swap_is_one_change_and_the_new_taint_has_its_own_time() {
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", "Ready=False");
    cluster.wait(10);
    let applied = cluster.report("a", "Ready=Unknown");
    assert_eq!(applied.changes.len(), 1, "there is no change without either taint");
    assert_eq!(time_of(&cluster, "node.kubernetes.io/unreachable:NoSchedule"), Some(stamp(13)));
}

#[test]
fn ne_1_and_ne_2_not_ready_and_unreachable_replace_each_other_and_keep_the_time() {
    for (first, taint, second, swapped) in [
        ("Ready=Unknown", UNREACHABLE, "Ready=False", NOT_READY),
        ("Ready=False", NOT_READY, "Ready=Unknown", UNREACHABLE),
    ] {
        let mut cluster = tainted(first, taint);
        assert_eq!(cluster.no_execute("a"), [taint]);
        let since = time_of(&cluster, taint);
        cluster.wait(100);
        let applied = cluster.report("a", second);
        assert_eq!((cluster.no_execute("a"), time_of(&cluster, swapped)), (vec![swapped.to_owned()], since));
        let nodes =
            applied.changes.iter().filter(|change| matches!(&change.after, Some(object) if object.meta().name == "a"));
        assert_eq!(nodes.count(), 1, "in one step");
        assert!(cluster.state.queues().next().is_none(), "without a token");
    }
}

#[test]
fn ne_3_a_ready_node_loses_both_taints_and_leaves_the_queue() {
    for (before, taint) in [("Ready=Unknown", UNREACHABLE), ("Ready=False", NOT_READY)] {
        let mut cluster = tainted(before, taint);
        assert_eq!(cluster.absent(), ["a"]);
        cluster.report("a", "Ready=True");
        assert!(cluster.taints("a").is_empty() && cluster.absent().is_empty());
    }
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", "Ready=False");
    assert_eq!(cluster.state.queues().count(), 1);
    cluster.report("a", "Ready=True");
    assert_eq!(cluster.state.queues().count(), 0);
}

#[test]
fn ne_7_of_two_lifecycle_taints_one_stays_whatever_the_condition() {
    let both = format!("{NOT_READY} {UNREACHABLE}");
    let cases: [(&str, &[&str]); 4] =
        [("", &[NOT_READY]), ("Ready=False", &[NOT_READY]), ("Ready=Unknown", &[UNREACHABLE]), ("Ready=True", &[])];
    for (conditions, kept) in cases {
        assert_eq!(tainted(conditions, &both).no_execute("a"), kept, "{conditions:?}");
    }
}

#[test]
fn ne_8_no_execute_taints_of_users_are_not_changed() {
    let mut cluster = tainted("Ready=False", "maintenance:NoExecute node.kubernetes.io/out-of-service=x:NoExecute");
    let own = cluster.no_execute("a");
    for conditions in ["Ready=Unknown", "Ready=True", "Ready=False"] {
        cluster.report("a", conditions);
        assert_eq!(cluster.no_execute("a"), own);
    }
    assert_eq!((own.len(), cluster.absent().len()), (2, 0));
}

#[test]
fn lb_1_the_beta_labels_follow_after_every_command() {
    let labels = "kubernetes.io/os=linux kubernetes.io/arch=arm64";
    let mirrored = pairs(&format!("{labels} beta.kubernetes.io/os=linux beta.kubernetes.io/arch=arm64"));
    let mut created = Cluster::default();
    created.create(NodeDraft { labels: Some(pairs(labels)), ..draft("a") });
    let mut labelled = Cluster::with_node("a");
    labelled.done(label("a", labels, false));
    let mut replaced = Cluster::with_node("a");
    replaced.done(replace(NodeDraft { labels: Some(pairs(labels)), ..draft("a") }));
    for cluster in [&mut created, &mut labelled, &mut replaced] {
        assert_eq!(cluster.node("a").meta.labels, mirrored);
        assert_eq!(cluster.told(label("a", "beta.kubernetes.io/os=windows", true)), "unchanged");
        assert_eq!(cluster.told(label("a", "beta.kubernetes.io/arch-", false)), "unchanged");
    }
    let mut alone = Cluster::with_node("a");
    alone.done(label("a", "beta.kubernetes.io/os=linux", false));
    assert_eq!(alone.node("a").meta.labels, pairs("beta.kubernetes.io/os=linux"));
}

#[test]
fn a_change_and_its_consequences_are_one_revision() {
    let mut cluster = Cluster::with_node("a");
    let revision = cluster.state.revision().0;
    let name = Text::from("a");
    cluster.done(OperatorOperation::CordonNode { name, unschedulable: true, precondition: ANY });
    assert_eq!(kept_away_by(&cluster), "not-ready unschedulable");
    assert_eq!(cluster.state.revision().0, revision + 2, "the node and its event");
}
