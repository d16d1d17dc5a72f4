//! NH-1 to NH-11 and blindness: when a silent node is marked, and what becomes of its conditions.

use muster_lifecycle::health::{ConditionChange, Evidence, Excuse, Verdict, deadline, last_heard};
use muster_lifecycle::node::{Condition, ConditionStatus};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::time::Period;
use proptest::prelude::*;

use crate::fixture::conditions::*;

const CREATED: u64 = 100;

fn evidence(conditions: &[Condition], heard: Option<ClusterTime>, now: ClusterTime) -> Evidence<'_> {
    Evidence { conditions, created: stamp(at(CREATED)), heard, excuse: None, now: stamp(now) }
}

fn verdict(evidence: Evidence<'_>) -> Verdict {
    evidence.verdict(&Policy::default())
}

/// The conditions that a silent node's verdict changes, as `kind:from:reason`.
fn changed(verdict: Verdict) -> Vec<String> {
    let Verdict::Silent(changes) = verdict else { panic!("not silent: {verdict:?}") };
    let shown = |change: &ConditionChange| {
        let from = change.from.map_or("none", ConditionStatus::as_str);
        format!("{}:{from}:{}", change.to.kind, change.to.reason)
    };
    changes.iter().map(shown).collect()
}

fn just_after(moment: ClusterTime) -> ClusterTime {
    ClusterTime(moment.0 + 1)
}

#[test]
fn nh_1_a_change_names_the_status_that_was_stored_when_it_was_decided() {
    for (stored, named) in [("", "none"), ("Ready=True", "True"), ("Ready=False", "False")] {
        let conditions = conditions(stored);
        let changes = changed(verdict(evidence(&conditions, Some(at(500)), at(600))));
        assert_eq!(changes[0].split(':').nth(1), Some(named), "{stored}");
    }
}

/// Upstream remembers what it saw of a node. Muster remembers when any replica last heard it, and reads the rest off
/// the state. So each of upstream's cases is a moment and a grace.
#[test]
fn nh_4_each_of_upstreams_cases_has_its_deadline() {
    let cases = [
        ("a: a leader that knows nothing of the node begins now", "Ready=True", 500, 540),
        ("before b: no status ever", "", 500, 560),
        ("b: the first status", "Ready=True", 510, 550),
        ("c: the condition is gone", "DiskPressure=False", 510, 570),
        ("d: heard again", "Ready=True", 510, 550),
        ("d: heard again, and it turned", "Ready=False", 510, 550),
        ("e: not heard again", "Ready=True", 500, 540),
    ];
    for (case, status, heard, deadline) in cases {
        let conditions = conditions(status);
        for now in [at(heard), at(530)] {
            let evidence = evidence(&conditions, Some(at(heard)), now);
            assert_eq!(evidence.deadline(&Policy::default()), at(deadline), "{case}");
        }
    }
}

#[test]
fn nh_2_without_ready_the_startup_grace_counts_from_creation() {
    let end = at(CREATED + 60);
    for now in [at(CREATED), at(CREATED + 41), end] {
        assert_eq!(verdict(evidence(&[], None, now)), Verdict::WaitUntil(end), "{now:?}");
    }
    assert_eq!(changed(verdict(evidence(&[], None, just_after(end)))).len(), 4);
    let pressures_only = conditions("DiskPressure=False");
    assert_eq!(verdict(evidence(&pressures_only, None, end)), Verdict::WaitUntil(end));
}

#[test]
fn nh_2_without_ready_a_beating_node_lives_on_its_startup_grace() {
    let heard = at(500);
    assert_eq!(verdict(evidence(&[], Some(heard), at(560))), Verdict::Alive);
    assert_eq!(changed(verdict(evidence(&[], Some(heard), just_after(at(560))))).len(), 4);
}

#[test]
fn nh_3_with_ready_the_monitor_grace_counts_from_the_last_sign_of_life() {
    for status in ["Ready=True", "Ready=False", "Ready=Unknown"] {
        let conditions = conditions(status);
        assert_eq!(verdict(evidence(&conditions, Some(at(500)), at(540))), Verdict::Alive, "{status}");
        let late = verdict(evidence(&conditions, Some(at(500)), just_after(at(540))));
        assert!(matches!(late, Verdict::Silent(_)), "{status}");
    }
    let never_heard = conditions("Ready=True");
    assert_eq!(verdict(evidence(&never_heard, None, at(CREATED + 40))), Verdict::WaitUntil(at(CREATED + 40)));
}

#[test]
fn nh_6_the_deadline_itself_is_still_in_time() {
    let ready = conditions("Ready=True");
    for (now, alive) in [(ClusterTime(539_999), true), (at(540), true), (ClusterTime(540_001), false)] {
        assert_eq!(verdict(evidence(&ready, Some(at(500)), now)) == Verdict::Alive, alive, "{now:?}");
    }
}

#[test]
fn nh_5_either_signal_keeps_a_node_alive_and_an_older_one_changes_nothing() {
    let cases = [
        (None, None, None),
        (Some(at(5)), None, Some(at(5))),
        (None, Some(at(5)), Some(at(5))),
        (Some(at(5)), Some(at(7)), Some(at(7))),
        (Some(at(7)), Some(at(5)), Some(at(7))),
    ];
    for (lease, status, heard) in cases {
        assert_eq!(last_heard(lease, status), heard);
    }
}

#[test]
fn nh_8_absent_conditions_were_never_updated() {
    let now = at(CREATED + 61);
    let Verdict::Silent(changes) = verdict(evidence(&[], None, now)) else { panic!("should be silent") };
    let kinds: Vec<&str> = changes.iter().map(|change| change.to.kind.as_str()).collect();
    assert_eq!(kinds, ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]);
    for ConditionChange { from, to } in changes {
        assert_eq!((from, to.status), (None, ConditionStatus::Unknown));
        assert_eq!(
            (to.reason.as_str(), to.message.as_str()),
            ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
        );
        assert_eq!((to.last_heartbeat, to.last_transition), (Some(stamp(at(CREATED))), Some(stamp(now))));
    }
}

#[test]
fn nh_8_present_conditions_become_unknown_and_keep_their_heartbeat() {
    let now = at(600);
    let before = conditions("Ready=True MemoryPressure=False DiskPressure=True PIDPressure=False");
    let Verdict::Silent(changes) = verdict(evidence(&before, Some(at(500)), now)) else { panic!("should be silent") };
    assert_eq!(changes.len(), 4);
    for (ConditionChange { from, to }, before) in changes.into_iter().zip(before) {
        assert_eq!((from, to.status, &to.kind), (Some(before.status), ConditionStatus::Unknown, &before.kind));
        assert_eq!(
            (to.reason.as_str(), to.message.as_str()),
            ("NodeStatusUnknown", "Kubelet stopped posting node status.")
        );
        assert_eq!((to.last_heartbeat, to.last_transition), (before.last_heartbeat, Some(stamp(now))));
    }
}

#[test]
fn nh_8_the_changed_conditions_depend_on_the_stored_ones() {
    let cases = [
        (
            "Ready=False",
            vec![
                "Ready:False:NodeStatusUnknown",
                "MemoryPressure:none:NodeStatusNeverUpdated",
                "DiskPressure:none:NodeStatusNeverUpdated",
                "PIDPressure:none:NodeStatusNeverUpdated",
            ],
        ),
        (
            "NetworkUnavailable=True KernelDeadlock=False Ready=True MemoryPressure=Unknown DiskPressure=Unknown \
             PIDPressure=True",
            vec!["Ready:True:NodeStatusUnknown", "PIDPressure:True:NodeStatusUnknown"],
        ),
    ];
    for (before, expected) in cases {
        let conditions = conditions(before);
        assert_eq!(changed(verdict(evidence(&conditions, Some(at(500)), at(600)))), expected, "{before}");
    }
}

#[test]
fn nh_9_nothing_is_rewritten_once_ready_is_unknown() {
    for before in ["Ready=Unknown", "Ready=Unknown DiskPressure=True"] {
        let conditions = conditions(before);
        assert_eq!(verdict(evidence(&conditions, Some(at(500)), at(600))), Verdict::Silent(Vec::new()));
    }
}

#[test]
fn nh_11_beats_alone_leave_an_unknown_node_unknown() {
    let unknown = conditions("Ready=Unknown");
    assert_eq!(verdict(evidence(&unknown, Some(at(600)), at(600))), Verdict::Alive);
}

#[test]
fn a_deadline_is_the_later_of_grace_and_reattach_window() {
    let excuse = |blind_until, seconds| {
        Some(Excuse { blind_until: at(blind_until), reattach_window: Period::from_secs(seconds) })
    };
    let cases =
        [(None, 540), (excuse(505, 30), 540), (excuse(510, 30), 540), (excuse(530, 30), 560), (excuse(700, 30), 730)];
    for (excuse, expected) in cases {
        assert_eq!(deadline(at(500), Period::from_secs(40), excuse), at(expected), "{excuse:?}");
    }
}

#[test]
fn an_excused_silent_node_is_marked_when_the_excuse_ends() {
    let ready = conditions("Ready=True");
    let excuse = Some(Excuse { blind_until: at(530), reattach_window: Period::from_secs(30) });
    let judged = |now| verdict(Evidence { excuse, ..evidence(&ready, Some(at(500)), now) });
    assert_eq!(judged(at(540)), Verdict::Alive);
    assert_eq!(judged(just_after(at(540))), Verdict::WaitUntil(at(560)));
    assert_eq!(judged(at(560)), Verdict::WaitUntil(at(560)));
    assert_eq!(changed(judged(just_after(at(560)))).len(), 4);
}

#[test]
fn z_6_after_full_disruption_a_silent_node_has_a_whole_grace() {
    let ready = conditions("Ready=True");
    let (left_at, grace) = (at(900), Policy::default().node_monitor_grace_period);
    let excuses = [(at(910), Period::from_secs(20)), (left_at, grace)]
        .map(|(blind_until, reattach_window)| Excuse { blind_until, reattach_window });
    let excuse = excuses.into_iter().max_by_key(|excuse| excuse.end());
    let judged = |now| verdict(Evidence { excuse, ..evidence(&ready, Some(at(500)), now) });
    assert_eq!(judged(left_at), Verdict::WaitUntil(at(940)));
    assert_eq!(changed(judged(just_after(at(940)))).len(), 4);
}

#[test]
fn while_the_leader_is_blind_no_node_is_marked() {
    let ready = conditions("Ready=True");
    for now in [at(541), at(10_000)] {
        let excuse = Some(Excuse { blind_until: now, reattach_window: Period::from_secs(30) });
        let judged = verdict(Evidence { excuse, ..evidence(&ready, Some(at(500)), now) });
        assert_eq!(judged, Verdict::WaitUntil(Period::from_secs(30).after(now)));
    }
}

#[test]
fn a_sign_of_life_from_before_creation_is_another_incarnations() {
    assert_eq!(evidence(&[], Some(at(10)), at(CREATED)).deadline(&Policy::default()), at(CREATED + 60));
}

proptest! {
    #[test]
    fn the_verdict_follows_from_the_deadline_alone(
        heard in proptest::option::of(0..200_000_u64),
        blind in proptest::option::of((0..200_000_u64, 0..120_000_u64)),
        now in 100_000..400_000_u64,
        status in prop_oneof![Just(""), Just("Ready=True"), Just("Ready=False"), Just("Ready=Unknown")],
    ) {
        let conditions = conditions(status);
        let excuse = blind.map(|(until, window)| {
            Excuse { blind_until: ClusterTime(until), reattach_window: Period(window) }
        });
        let evidence = Evidence { excuse, ..evidence(&conditions, heard.map(ClusterTime), ClusterTime(now)) };
        let deadline = evidence.deadline(&Policy::default());
        match verdict(evidence) {
            Verdict::Silent(changes) => {
                prop_assert!(ClusterTime(now) > deadline);
                prop_assert!(changes.iter().all(|change| change.to.status == ConditionStatus::Unknown));
                prop_assert_eq!(changes.is_empty(), status == "Ready=Unknown");
            }
            Verdict::WaitUntil(until) => prop_assert!(until == deadline && ClusterTime(now) <= deadline),
            Verdict::Alive => prop_assert!(heard.is_some() && ClusterTime(now) <= deadline),
        }
    }
}
