//! Taints and labels that follow from a node's own state (TC-1, TC-2, TC-4, NE-1 to NE-3, NE-7, NE-8, LB-1).

use muster_lifecycle::condition_taint::*;
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::taint::{Taint, TaintSelector};

use crate::fixture::conditions::*;

const NOT_READY: &str = "node.kubernetes.io/not-ready:NoExecute";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable:NoExecute";

fn taints(texts: &[&str]) -> Vec<Taint> {
    texts.iter().map(|text| text.parse().expect("a taint")).collect()
}

fn action(status: &str, present: &[&str]) -> NoExecuteAction {
    no_execute_action(&conditions(status), &taints(present))
}

/// The difference as `+key` and `-key`, of NoSchedule taints.
fn difference(status: &str, unschedulable: bool, present: &[&str]) -> Vec<String> {
    let found = no_schedule_difference(&conditions(status), unschedulable, &taints(present), stamp(at(7)));
    let short =
        |text: String| text.strip_suffix(":NoSchedule").expect("only NoSchedule").replace("node.kubernetes.io/", "");
    let added = found.add.iter().map(|taint| format!("+{}", short(taint.to_string())));
    let removed = found.remove.iter().map(|selector: &TaintSelector| format!("-{}", short(selector.to_string())));
    added.chain(removed).collect()
}

#[test]
fn tc_1_each_condition_has_its_taint() {
    let cases: [(&str, bool, &[&str]); 10] = [
        ("Ready=True", false, &[]),
        ("Ready=False", false, &["not-ready"]),
        ("Ready=Unknown", false, &["unreachable"]),
        ("Ready=True MemoryPressure=True", false, &["memory-pressure"]),
        ("Ready=True DiskPressure=True", false, &["disk-pressure"]),
        ("Ready=True PIDPressure=True", false, &["pid-pressure"]),
        ("Ready=True NetworkUnavailable=True", false, &["network-unavailable"]),
        ("Ready=True", true, &["unschedulable"]),
        ("Ready=False DiskPressure=True", true, &["disk-pressure", "not-ready", "unschedulable"]),
        (
            "Ready=Unknown MemoryPressure=Unknown DiskPressure=Unknown PIDPressure=Unknown NetworkUnavailable=Unknown",
            false,
            &["unreachable"],
        ),
    ];
    for (status, unschedulable, expected) in cases {
        let wanted = wanted_no_schedule(&conditions(status), unschedulable);
        let wanted: Vec<&str> =
            wanted.into_keys().map(|key| key.strip_prefix("node.kubernetes.io/").unwrap()).collect();
        assert_eq!(wanted, expected, "{status}");
    }
}

#[test]
fn tc_1_better_than_upstream_a_node_that_never_reported_ready_keeps_not_ready() {
    for status in ["", "DiskPressure=False"] {
        assert_eq!(difference(status, false, &["node.kubernetes.io/not-ready:NoSchedule"]), [""; 0], "{status}");
        assert_eq!(difference(status, false, &[]), ["+not-ready"], "{status}");
    }
}

#[test]
fn tc_2_managed_no_schedule_taints_follow_and_all_others_stay() {
    let cases: [(&str, &[&str], &[&str]); 5] = [
        ("Ready=True", &["node.kubernetes.io/not-ready:NoSchedule"], &["-not-ready"]),
        ("Ready=Unknown", &["node.kubernetes.io/not-ready:NoSchedule"], &["+unreachable", "-not-ready"]),
        ("Ready=True", &["node.kubernetes.io/unschedulable:NoSchedule"], &["-unschedulable"]),
        ("Ready=False", &["node.kubernetes.io/not-ready=by-hand:NoSchedule"], &[]),
        (
            "Ready=True",
            &[
                "node.kubernetes.io/not-ready:NoExecute",
                "node.kubernetes.io/disk-pressure:PreferNoSchedule",
                "node.kubernetes.io/out-of-service:NoSchedule",
                "dedicated=db:NoSchedule",
            ],
            &[],
        ),
    ];
    for (status, present, expected) in cases {
        assert_eq!(difference(status, false, present), expected, "{status} {present:?}");
    }
}

#[test]
fn tc_2_an_added_taint_has_its_time_and_is_then_no_difference() {
    let status = conditions("Ready=False DiskPressure=True");
    let found = no_schedule_difference(&status, true, &[], stamp(at(7)));
    assert!(found.add.iter().all(|taint| taint.added == Some(stamp(at(7)))));
    assert!(!found.is_empty() && no_schedule_difference(&status, true, &found.add, stamp(at(8))).is_empty());
}

#[test]
fn tc_4_custom_conditions_ask_for_no_taint() {
    for status in ["KernelDeadlock=True", "FrequentKubeletRestart=Unknown", "ready=False", "Maintenance=True"] {
        assert_eq!(difference(&format!("Ready=True {status}"), false, &[]), [""; 0], "{status}");
        assert_eq!(action(&format!("Ready=True {status}"), &[]), NoExecuteAction::Clear(Vec::new()), "{status}");
    }
}

#[test]
fn ne_1_not_ready_swaps_at_once_or_waits_in_the_queue() {
    let swap = NoExecuteAction::Swap { from: Absence::Unreachable, to: Absence::NotReady };
    assert_eq!(action("Ready=False", &[UNREACHABLE]), swap);
    assert_eq!(action("Ready=False", &[]), NoExecuteAction::Enqueue(Absence::NotReady));
    assert_eq!(action("Ready=False", &[NOT_READY]), NoExecuteAction::Nothing);
}

#[test]
fn ne_2_unreachable_swaps_at_once_or_waits_in_the_queue() {
    let swap = NoExecuteAction::Swap { from: Absence::NotReady, to: Absence::Unreachable };
    assert_eq!(action("Ready=Unknown", &[NOT_READY]), swap);
    assert_eq!(action("Ready=Unknown", &[]), NoExecuteAction::Enqueue(Absence::Unreachable));
    assert_eq!(action("Ready=Unknown", &[UNREACHABLE]), NoExecuteAction::Nothing);
}

#[test]
fn ne_3_a_ready_node_loses_both_taints_and_leaves_the_queue() {
    let cases: [(&[&str], &[Absence]); 4] = [
        (&[], &[]),
        (&[NOT_READY], &[Absence::NotReady]),
        (&[UNREACHABLE], &[Absence::Unreachable]),
        (&[UNREACHABLE, NOT_READY], &[Absence::NotReady, Absence::Unreachable]),
    ];
    for (present, lifted) in cases {
        assert_eq!(action("Ready=True", present), NoExecuteAction::Clear(lifted.to_vec()), "{present:?}");
    }
}

#[test]
fn ne_7_of_both_taints_only_the_right_one_stays() {
    let both = [NOT_READY, UNREACHABLE];
    let to_unreachable = NoExecuteAction::Swap { from: Absence::NotReady, to: Absence::Unreachable };
    let to_not_ready = NoExecuteAction::Swap { from: Absence::Unreachable, to: Absence::NotReady };
    assert_eq!(action("Ready=Unknown", &both), to_unreachable);
    assert_eq!(action("Ready=False", &both), to_not_ready);
}

#[test]
fn ne_8_taints_of_users_are_neither_counted_nor_touched() {
    let foreign = ["maintenance:NoExecute", "node.kubernetes.io/out-of-service:NoExecute"];
    assert_eq!(action("Ready=True", &foreign), NoExecuteAction::Clear(Vec::new()));
    assert_eq!(action("Ready=Unknown", &foreign), NoExecuteAction::Enqueue(Absence::Unreachable));
    let no_schedule = ["node.kubernetes.io/unreachable:NoSchedule"];
    assert_eq!(action("Ready=Unknown", &no_schedule), NoExecuteAction::Enqueue(Absence::Unreachable));
}

#[test]
fn a_node_without_ready_is_neither_evicted_nor_cleared() {
    for present in [&[][..], &[NOT_READY], &[UNREACHABLE]] {
        assert_eq!(action("", present), NoExecuteAction::Nothing, "{present:?}");
    }
}

#[test]
fn each_kind_of_absence_has_its_taint() {
    for (absence, text) in [(Absence::NotReady, NOT_READY), (Absence::Unreachable, UNREACHABLE)] {
        let taint = absence.taint(stamp(at(3)));
        assert_eq!((taint.to_string().as_str(), taint.added), (text, Some(stamp(at(3)))));
        assert!(absence.selector().matches(&taint) && !absence.other().selector().matches(&taint));
    }
}

#[test]
fn lb_1_beta_labels_follow_the_stable_ones() {
    type Labels = &'static [(&'static str, &'static str)];
    let cases: [(Labels, Labels); 6] = [
        (&[], &[]),
        (&[("kubernetes.io/os", "linux")], &[("beta.kubernetes.io/os", "linux")]),
        (
            &[("kubernetes.io/arch", "arm64"), ("beta.kubernetes.io/arch", "amd64")],
            &[("beta.kubernetes.io/arch", "arm64")],
        ),
        (&[("kubernetes.io/os", "linux"), ("beta.kubernetes.io/os", "linux")], &[]),
        (&[("beta.kubernetes.io/os", "linux")], &[]),
        (
            &[("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "arm64")],
            &[("beta.kubernetes.io/os", "linux"), ("beta.kubernetes.io/arch", "arm64")],
        ),
    ];
    for (labels, expected) in cases {
        let found = label_corrections(&Pairs::from_iter(labels.iter().copied()));
        let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "{labels:?}");
    }
}
