//! Status reports: what an agent's report changes of its node, and what it does not.

use muster_lifecycle::change::Object;
use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::event::EventType;
use muster_lifecycle::kind::Kind;
use muster_lifecycle::node::{ConditionStatus, Incarnation, NodeDraft, NodeInfo, NodeStatus};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

fn reporting(text: &str) -> Cluster {
    let mut cluster = Cluster::with_node("a");
    cluster.report("a", text);
    cluster
}

#[test]
fn s_1_a_status_that_differs_only_in_its_times_is_not_written() {
    let mut cluster = reporting("Ready=True DiskPressure=False");
    let (revision, objects) = (cluster.state.revision(), cluster.state.objects_digest());
    let mut later = status("Ready=True DiskPressure=False");
    for condition in &mut later.conditions {
        condition.last_heartbeat = Some(stamp(2_000_000));
        condition.last_transition = Some(stamp(2_000_000));
    }
    let mut reordered = later.clone();
    reordered.conditions.reverse();
    for again in [later, reordered] {
        let operation = cluster.report_of("a", again);
        assert_eq!(cluster.agent_told(operation), "unchanged");
    }
    assert_eq!((cluster.state.revision(), cluster.state.objects_digest()), (revision, objects));
}

#[test]
fn s_5_times_are_the_clusters_and_a_transition_is_a_change_of_status() {
    let mut cluster = reporting("Ready=True");
    let times = |cluster: &Cluster| {
        let ready = cluster.node("a").status.ready().expect("it has one");
        (ready.last_heartbeat, ready.last_transition)
    };
    assert_eq!(times(&cluster), (Some(stamp(2)), Some(stamp(2))), "the clock of the node is not used");
    let mut reworded = status("Ready=True");
    reworded.conditions[0].message = Text::from("still here");
    let operation = cluster.report_of("a", reworded);
    assert_eq!(cluster.agent_told(operation), "changed");
    assert_eq!(times(&cluster), (Some(stamp(3)), Some(stamp(2))));
    cluster.report("a", "Ready=False");
    assert_eq!(times(&cluster), (Some(stamp(4)), Some(stamp(4))));
}

#[test]
fn s_8_conditions_that_are_not_reported_stay_in_place() {
    let mut cluster = reporting("NetworkUnavailable=True Custom=True Ready=True");
    cluster.report("a", "DiskPressure=False Ready=False");
    let expected = "NetworkUnavailable=True Custom=True Ready=False DiskPressure=False";
    assert_eq!(conditions(&cluster.node("a").status), expected);
}

#[test]
fn the_rest_of_the_status_is_stored_as_reported() {
    let mut cluster = reporting("Ready=True");
    let full = NodeStatus {
        capacity: resources("cpu=4"),
        addresses: Box::new([address("Hostname", "a")]),
        ..status("Ready=True")
    };
    for (report, effect) in [(full.clone(), "changed"), (full, "unchanged"), (status("Ready=True"), "changed")] {
        let operation = cluster.report_of("a", report);
        assert_eq!(cluster.agent_told(operation), effect);
    }
    assert!(cluster.node("a").status.capacity.is_empty());
}

#[test]
fn s_6_and_s_7_changes_of_conditions_have_the_kubelets_events() {
    let cases = [
        ("", "Ready=True", "NodeReady"),
        ("", "Ready=False", "NodeNotReady"),
        ("Ready=True", "Ready=False", "NodeNotReady"),
        ("Ready=False", "Ready=True", "NodeReady"),
        ("Ready=Unknown", "Ready=True", "NodeReady"),
        ("Ready=True", "Ready=Unknown", ""),
        ("Ready=True", "Ready=True", ""),
        ("Ready=True", "Ready=True MemoryPressure=False", ""),
        ("MemoryPressure=False", "MemoryPressure=True", "NodeHasInsufficientMemory"),
        ("MemoryPressure=True", "MemoryPressure=False", "NodeHasSufficientMemory"),
        ("DiskPressure=False", "DiskPressure=True", "NodeHasDiskPressure"),
        ("DiskPressure=Unknown", "DiskPressure=False", "NodeHasNoDiskPressure"),
        ("PIDPressure=False", "PIDPressure=True", "NodeHasInsufficientPID"),
        ("PIDPressure=True", "PIDPressure=False", "NodeHasSufficientPID"),
        ("NetworkUnavailable=False", "NetworkUnavailable=True", ""),
    ];
    for (before, after, reason) in cases {
        let mut cluster = Cluster::default();
        cluster.create(NodeDraft { status: Some(status(before)), ..draft("a") });
        let told = events(&cluster.report("a", after)).join(" ");
        let expected =
            if reason.is_empty() { String::new() } else { format!("{reason}: Node a status is now: {reason}") };
        assert_eq!(told, expected, "from {before:?} to {after:?}");
    }
}

#[test]
fn nh_11_a_silent_node_is_ready_again_only_by_its_own_report() {
    let mut cluster = reporting("Ready=True");
    cluster.silence("a");
    assert_eq!(ready_of(&cluster, "a"), Some(ConditionStatus::Unknown));
    let applied = cluster.report("a", "Ready=True");
    assert_eq!(events(&applied), ["NodeReady: Node a status is now: NodeReady"]);
    assert!(cluster.taints("a").is_empty() && cluster.state.queues().next().is_none());
}

#[test]
fn a_late_report_of_an_earlier_incarnation_is_rejected() {
    let mut cluster = reporting("Ready=True");
    let late = cluster.report_of("a", status("Ready=False"));
    cluster.done(delete("a"));
    assert_eq!(
        cluster.refused(by_agent(late.clone())),
        Rejection::NotFound { kind: Kind::Node, name: Text::from("a") }
    );
    cluster.create(draft("a"));
    let other = Rejection::OtherIncarnation { name: Text::from("a"), expected: Incarnation(1), actual: Incarnation(2) };
    assert_eq!(cluster.refused(by_agent(late)), other);
    let message = "node \"a\" is incarnation 2, this was meant for 1: it was deleted and created anew";
    assert_eq!(other.to_string(), message);
}

#[test]
fn an_invalid_status_changes_nothing() {
    let mut cluster = reporting("Ready=True");
    let twice = NodeStatus {
        addresses: Box::new([address("Hostname", "a"), address("Hostname", "a")]),
        ..status("Ready=False")
    };
    let cases = [
        (twice, "status.addresses[1]: Hostname \"a\" is there twice"),
        (status("Ready=True Ready=False"), "status.conditions[1].type: \"Ready\" is there twice"),
        (
            NodeStatus { capacity: resources("pods=-1"), ..status("Ready=True") },
            "status.capacity[pods]: \"-1\" is negative",
        ),
    ];
    for (status, message) in cases {
        let operation = cluster.report_of("a", status);
        assert_eq!(cluster.refused(by_agent(operation)).to_string(), message);
    }
}

/// No writer of a status knows cluster time, and queues are ordered by it.
#[test]
fn an_operators_status_gets_the_clusters_times_too() {
    let mut cluster = Cluster::with_node("a");
    cluster.wait(10);
    let write = |cluster: &mut Cluster, conditions: &str| {
        cluster.told(OperatorOperation::ReplaceNodeStatus {
            name: Text::from("a"),
            status: Box::new(status(conditions)),
            precondition: ANY,
        })
    };
    assert_eq!(write(&mut cluster, "Ready=False"), "changed");
    let transition = cluster.node("a").status.ready().and_then(|ready| ready.last_transition).expect("a time");
    assert_eq!((transition.cluster, transition.wall), (stamp(12).cluster, stamp(1_000_000).wall));
    assert_eq!(write(&mut cluster, "Ready=False"), "unchanged");
    cluster.done(replace_status("a", ready(ConditionStatus::True)));
    let transition = cluster.node("a").status.ready().and_then(|ready| ready.last_transition);
    assert_eq!(transition, Some(stamp(14)), "a change without a time happened now");
}

#[test]
fn rg_7_a_changed_boot_id_has_one_event() {
    let booted = |boot_id: &str| {
        let info = NodeInfo { boot_id: Text::from(boot_id), ..NodeInfo::default() };
        NodeStatus { info: Some(Box::new(info)), ..status("Ready=True") }
    };
    let mut cluster = reporting("Ready=True");
    let rebooted = ["Rebooted: Node a has been rebooted, boot id: two"];
    let table: [(&str, &[&str]); 6] =
        [("one", &[]), ("one", &[]), ("two", &rebooted), ("two", &[]), ("", &[]), ("two", &[])];
    for (boot_id, expected) in table {
        let operation = cluster.report_of("a", booted(boot_id));
        let applied = cluster.agent(operation);
        assert_eq!(events(&applied), expected, "{boot_id:?}");
    }
    let again = NodeDraft { status: Some(booted("three")), ..draft("a") };
    let applied = cluster.agent(register(again));
    assert_eq!(
        events(&applied),
        ["Rebooted: Node a has been rebooted, boot id: three"],
        "a registration writes it too"
    );
    let warning = applied.changes.iter().filter_map(|change| match &change.after {
        Some(Object::Event(event)) => Some((event.headline().event_type, event.headline().source)),
        Some(_) | None => None,
    });
    assert_eq!(warning.collect::<Vec<_>>(), [(EventType::Warning, "kubelet")]);
}
