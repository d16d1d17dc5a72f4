//! NH-8, NH-9 and PD-1: `MarkSilent`, which the leader proposes when it no longer hears a node.

use muster_lifecycle::command::{LeaderOperation, Sighting};
use muster_lifecycle::health::{Excuse, NEVER_UPDATED, STATUS_UNKNOWN};
use muster_lifecycle::kind::Kind;
use muster_lifecycle::leader_view::{LeaderView, NextEviction};
use muster_lifecycle::node::{ConditionStatus, Incarnation, Node, NodeDraft};
use muster_lifecycle::oversight;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::session;
use muster_lifecycle::spared::Spared;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

fn with_conditions(text: &str) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.create(NodeDraft { status: Some(status(text)), ..draft("a") });
    cluster
}

#[test]
fn nh_8_the_conditions_of_a_silent_node_become_unknown() {
    let all_unknown = "Ready=Unknown MemoryPressure=Unknown DiskPressure=Unknown PIDPressure=Unknown";
    let cases = [
        ("", all_unknown),
        ("Ready=True", all_unknown),
        ("Ready=False", all_unknown),
        (
            "DiskPressure=True Ready=True",
            "DiskPressure=Unknown Ready=Unknown MemoryPressure=Unknown PIDPressure=Unknown",
        ),
        (
            "Ready=True NetworkUnavailable=False Custom=True",
            "Ready=Unknown NetworkUnavailable=False Custom=True MemoryPressure=Unknown DiskPressure=Unknown PIDPressure=Unknown",
        ),
    ];
    for (before, after) in cases {
        let mut cluster = with_conditions(before);
        cluster.silence("a");
        assert_eq!(conditions(&cluster.node("a").status), after, "{before}");
    }
}

#[test]
fn nh_8_reasons_and_times_are_those_of_the_verdict() {
    let mut cluster = with_conditions("Ready=True");
    let created = cluster.node("a").meta.created;
    cluster.wait(40);
    cluster.silence("a");
    let node = cluster.node("a");
    let (known, absent) = (&node.status.conditions[0], &node.status.conditions[1]);
    assert_eq!(
        (known.reason.as_str(), known.message.as_str()),
        (STATUS_UNKNOWN, "Kubelet stopped posting node status.")
    );
    assert_eq!((absent.reason.as_str(), absent.message.as_str()), (NEVER_UPDATED, "Kubelet never posted node status."));
    assert_eq!((known.last_transition, absent.last_transition), (Some(stamp(42)), Some(stamp(42))));
    assert_eq!(absent.last_heartbeat, Some(created));
    assert_eq!(known.last_heartbeat.map(|at| at.wall), Some(stamp(1_000_000).wall), "as it was posted");
}

#[test]
fn nh_9_conditions_that_are_unknown_already_do_not_change() {
    let mut cluster = with_conditions("Ready=Unknown DiskPressure=True");
    let revision = cluster.state.revision();
    let applied = cluster.silence("a");
    assert_eq!((told(&applied.outcomes[0]).as_str(), applied.changes.len()), ("unchanged", 0));
    assert_eq!(conditions(&cluster.node("a").status), "Ready=Unknown DiskPressure=True");
    assert_eq!(cluster.state.revision(), revision);
}

#[test]
fn pd_1_only_a_ready_node_that_falls_silent_has_an_event() {
    let cases = [
        (
            "Ready=True",
            sighting(3, 2),
            "NodeNotReady: Node a status is now: NodeNotReady; it was last heard 39s before, through replica 2",
        ),
        ("Ready=True", None, "NodeNotReady: Node a status is now: NodeNotReady; no replica remembers having heard it"),
        ("Ready=False", sighting(3, 2), ""),
        ("", None, ""),
    ];
    for (before, heard, event) in cases {
        let mut cluster = with_conditions(before);
        cluster.wait(40);
        let operation = cluster.silent("a", heard);
        let applied = cluster.lead(operation);
        assert_eq!(told(&applied.outcomes[0]), "changed");
        assert_eq!(events(&applied).join(" "), event, "{before}");
        assert_eq!(ready_of(&cluster, "a"), Some(ConditionStatus::Unknown));
    }
}

#[test]
fn the_no_schedule_taint_is_added_in_the_same_entry_and_the_eviction_waits() {
    let mut cluster = with_conditions("Ready=True");
    let applied = cluster.silence("a");
    assert_eq!(applied.changes.len(), 2, "the node once, and its event");
    assert_eq!(cluster.taints("a"), ["node.kubernetes.io/unreachable:NoSchedule"]);
    let queue = cluster.state.queue(&Default::default()).expect("a node waits in the default zone");
    assert_eq!(queue.queued_at("a"), Some(stamp(2).cluster));
}

#[test]
fn a_verdict_that_was_overtaken_is_rejected() {
    let mut cluster = with_conditions("Ready=True");
    let judged = cluster.silent("a", None);
    cluster.report("a", "Ready=False");
    let moved = Rejection::ReadyMoved {
        name: Text::from("a"),
        expected: Some(ConditionStatus::True),
        actual: Some(ConditionStatus::False),
    };
    assert_eq!(cluster.refuses_leader(judged), moved);
    assert_eq!(moved.to_string(), "node \"a\" changed since this was decided: its Ready condition is False, not True");

    let judged = cluster.silent("a", None);
    cluster.done(delete("a"));
    assert_eq!(cluster.refuses_leader(judged.clone()), Rejection::NotFound { kind: Kind::Node, name: Text::from("a") });
    cluster.create(NodeDraft { status: Some(status("Ready=False")), ..draft("a") });
    let other = Rejection::OtherIncarnation { name: Text::from("a"), expected: Incarnation(1), actual: Incarnation(2) };
    assert_eq!(cluster.refuses_leader(judged), other);
}

#[test]
fn a_retried_verdict_happens_once() {
    let mut cluster = with_conditions("Ready=True");
    let verdict = cluster.silent("a", None);
    assert_eq!(cluster.led(verdict.clone()), "changed");
    assert!(matches!(cluster.refuses_leader(verdict), Rejection::ReadyMoved { .. }));
}

#[test]
fn a_quarantine_writes_an_event_and_changes_nothing_else() {
    let mut cluster = with_conditions("Ready=True");
    let digest = cluster.state.nodes().digest();
    let note = |incarnation, reason: &str| LeaderOperation::NoteQuarantine {
        name: Text::from("a"),
        incarnation: Incarnation(incarnation),
        reason: Text::from(reason),
    };
    let applied = cluster.lead(note(1, "it crashed 5 times"));
    let event = "NodeQuarantined: watching node a keeps failing (it crashed 5 times): it keeps its last known state \
                 until it changes or another replica leads";
    assert_eq!(events(&applied), [event]);
    assert_eq!(cluster.state.nodes().digest(), digest);
    let wordy = cluster.lead(note(1, &"x".repeat(100_000)));
    assert!(events(&wordy)[0].len() < 1000, "what is quoted is bounded");
    assert!(matches!(cluster.refuses_leader(note(2, "")), Rejection::OtherIncarnation { .. }));
}

/// Z-6: full disruption excuses every node, as blindness does, and the excuse that ends last counts.
#[test]
fn z_6_the_excuse_that_ends_last_counts() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 0, 1);
    cluster.assess();
    cluster.report("a-00", "Ready=True");
    cluster.assess();
    let recovered = cluster.now();
    let own = |seconds: u64| Some(Excuse { blind_until: ClusterTime(seconds * 1000), reattach_window: Period(0) });
    let reprieve = ClusterTime(recovered.cluster.0 + 40_000);
    for (excuse, end) in [(None, reprieve), (own(10), reprieve), (own(100), ClusterTime(100_000))] {
        let node = cluster.node("a-00");
        let evidence = oversight::evidence(&cluster.state, node, Some(ClusterTime(1)), excuse, cluster.now());
        assert_eq!(evidence.deadline(cluster.state.policy()), end);
    }
    let judged =
        |cluster: &Cluster| cluster.silent("a-00", Some(Sighting { at: ClusterTime(1), through: ReplicaId(1) }));
    cluster.wait(39);
    assert_eq!(cluster.refuses_leader(judged(&cluster)), Rejection::Spared, "the leader may not know of it yet");
    assert_eq!(cluster.led(judged(&cluster)), "changed", "a moment later it may be judged");
}

/// A log that stands still may commit a verdict, with its old stamp and in its old term, when the node has long been
/// heard again. No entry before it tells how late that is. It is taken back before it has consequences.
#[test]
fn a_verdict_that_a_log_commits_late_is_taken_back_by_the_node_and_evicts_nothing() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 4, 0);
    cluster.assess();
    let before = cluster.node("a-00").clone();
    assert_eq!(cluster.led(cluster.silent("a-00", None)), "changed");
    assert!(session::needs_status_report(&before, cluster.node("a-00")), "its session asks for a report at once");
    // The leader that takes over ten minutes later has heard it all along. Until it reports, it is passed over.
    cluster.fail_over();
    cluster.wait(600);
    let (now, mut spared) = (cluster.now().cluster, Spared::default());
    let heard = |_: &Node| Some(now);
    let view = LeaderView { now, is_blind: false, blind_until: ClusterTime(0), heard: &heard };
    let step = view.next_eviction(&cluster.state, &key("a"), &mut spared, &|_| 0);
    assert_eq!(step, NextEviction::Rest);
    cluster.report("a-00", "Ready=True");
    assert_eq!((ready_of(&cluster, "a-00"), cluster.queue("a").len()), (Some(ConditionStatus::True), 0));
}

/// A verdict that waits for its place in the log is about a node that may have been heard since.
#[test]
fn a_verdict_stamped_too_late_is_rejected() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 1, 0);
    let judged = cluster.silent("a-00", None);
    cluster.wait(4);
    assert_eq!(cluster.led(judged), "changed");
    cluster.report("a-00", "Ready=True");
    let judged = cluster.silent("a-00", None);
    cluster.wait(5);
    assert!(matches!(cluster.refuses_leader(judged), Rejection::Stale { .. }));
}
