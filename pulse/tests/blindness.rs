//! Tests of the rule that missed heartbeats never mark a node, sentence by sentence.

use std::ops::RangeInclusive;
use std::time::Duration;

use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::Period;
use muster_pulse::blindness::{Blindness, Deadline, JudgingLoop, Trace};
use muster_pulse::by_replica::HEARD_THROUGH_MAX;
use muster_pulse::excuse::{BlindnessCause, InForce, REATTACH_MAX};
use muster_pulse::tick::Tick;

const GRACE: Duration = Duration::from_secs(40);
const CAP: Duration = Duration::from_secs(10);
/// Twice the cap.
const WINDOW: u64 = 20;
const PERIOD: Duration = Duration::from_secs(1);
const TWO: ReplicaId = ReplicaId(2);
const THREE: ReplicaId = ReplicaId(3);

fn at(seconds: u64) -> Tick {
    Tick::since_boot(Duration::from_secs(seconds))
}

fn heard(seconds: u64, through: ReplicaId) -> Trace {
    Trace::Heard { at: at(seconds), through }
}

fn blindness() -> Blindness {
    Blindness::new(CAP)
}

#[test]
fn the_deadline_is_last_heard_plus_grace_if_the_leader_was_never_blind() {
    let deadline = blindness().deadline(heard(7, TWO), GRACE, at(100));
    assert_eq!(deadline, Deadline { at: at(47), excuse: None });
    assert_eq!(blindness().excused_until(Some(TWO), at(100)), None);
}

#[test]
fn the_deadline_is_the_later_of_grace_and_end_of_blindness_plus_window() {
    let mut blindness = blindness();
    blindness.quorum_lost(at(100));
    blindness.quorum_heard(at(110));
    let cases = [(80, at(130), Some(BlindnessCause::Quorum)), (90, at(130), None), (91, at(131), None)];
    for (last, deadline, excuse) in cases {
        assert_eq!(blindness.deadline(heard(last, TWO), GRACE, at(115)), Deadline { at: deadline, excuse }, "{last}");
    }
}

#[test]
fn a_leader_that_took_over_is_blind_until_it_holds_the_full_table_of_every_reachable_voter() {
    let mut blindness = blindness();
    blindness.took_over([TWO, THREE], at(100));
    blindness.digest_complete(TWO, at(101));
    let open = at(102).after(CAP * 2);
    assert_eq!(blindness.excused_until(Some(TWO), at(102)), Some((open, BlindnessCause::Takeover)));
    blindness.digest_complete(THREE, at(103));
    assert_eq!(blindness.excused_until(Some(TWO), at(110)), Some((at(103 + WINDOW), BlindnessCause::Takeover)));
    assert_eq!(blindness.excused_until(Some(TWO), at(103 + WINDOW)), None);
}

fn told_every_second(blindness: &mut Blindness, seconds: RangeInclusive<u64>) {
    for second in seconds {
        blindness.digest_complete(TWO, at(second));
        blindness.digest_complete(THREE, at(second));
    }
}

#[test]
fn a_leader_with_every_digest_before_the_takeover_judges_once_it_has_the_tables() {
    let mut blindness = blindness();
    told_every_second(&mut blindness, 0..=1_000);
    blindness.took_over([TWO, THREE], at(1_002));
    blindness.handshakes_queued(at(1_002));
    assert!(blindness.excused_until(Some(TWO), at(1_002)).is_some(), "it still gathers");
    blindness.unreachable(THREE, at(1_003));
    blindness.digest_complete(TWO, at(1_003));
    assert_eq!(blindness.excused_until(Some(TWO), at(1_003)), None);
    let lost = Some((at(1_003 + WINDOW), BlindnessCause::Digest(THREE)));
    assert_eq!(blindness.excused_until(Some(THREE), at(1_003)), lost, "its agents have time to come back");
}

#[test]
fn a_leader_that_missed_digests_before_the_takeover_gives_every_node_a_window() {
    type Past = fn(&mut Blindness);
    let cases: [(&str, Past); 6] = [
        ("cut off until the end", |it| told_every_second(it, 0..=994)),
        ("cut off shortly before", |it| {
            [0..=900, 906..=1_000].into_iter().for_each(|told| told_every_second(it, told))
        }),
        ("one of them was never heard", |it| (0..=1_000).for_each(|second| it.digest_complete(TWO, at(second)))),
        ("heard for too short a while", |it| told_every_second(it, 900..=1_000)),
        ("took over before, and owes a window", |it| {
            told_every_second(it, 880..=999);
            it.took_over([TWO, THREE], at(999));
            told_every_second(it, 1_000..=1_000);
        }),
        ("a third that is no voter fell silent", |it| {
            it.digest_complete(ReplicaId(9), at(990));
            told_every_second(it, 0..=1_000);
        }),
    ];
    for (why, past) in cases {
        let mut blindness = blindness();
        past(&mut blindness);
        blindness.took_over([TWO, THREE], at(1_001));
        told_every_second(&mut blindness, 1_002..=1_002);
        let excused = Some((at(1_002 + WINDOW), BlindnessCause::Takeover));
        assert_eq!(blindness.excused_until(None, at(1_002)), excused, "{why}");
    }
}

#[test]
fn a_leader_that_has_just_started_gives_every_node_a_window_even_alone() {
    for (now, excused) in [(119, Some((at(119 + WINDOW), BlindnessCause::Takeover))), (120, None)] {
        let mut blindness = blindness();
        blindness.took_over([], at(now));
        assert_eq!(blindness.excused_until(None, at(now)), excused, "{now} s after its start");
    }
}

#[test]
fn an_unreachable_voter_does_not_delay_a_takeover_but_its_slots_are_excused() {
    let mut blindness = blindness();
    blindness.took_over([TWO, THREE], at(100));
    blindness.digest_complete(TWO, at(101));
    blindness.unreachable(THREE, at(105));
    assert_eq!(blindness.excused_until(Some(TWO), at(106)), Some((at(105 + WINDOW), BlindnessCause::Takeover)));
    assert_eq!(blindness.excused_until(Some(THREE), at(106)), Some((at(105 + WINDOW), BlindnessCause::Digest(THREE))));
}

#[test]
fn a_voter_that_never_sends_its_table_delays_a_takeover_for_a_bounded_time() {
    let mut blindness = blindness();
    blindness.took_over([TWO], at(100));
    let end = at(100).after(REATTACH_MAX).after(CAP * 2);
    assert_eq!(blindness.excused_until(Some(TWO), end.before(PERIOD)), Some((end, BlindnessCause::Takeover)));
    assert_eq!(blindness.excused_until(Some(TWO), end), None);
}

#[test]
fn the_grace_of_slots_never_heard_begins_when_the_takeover_has_all_tables() {
    let mut blindness = blindness();
    let never = Trace::Unplaced { since: at(3) };
    assert_eq!(blindness.deadline(never, GRACE, at(50)).at, at(43));
    blindness.took_over([TWO], at(100));
    assert_eq!(blindness.deadline(never, GRACE, at(102)).at, at(142), "not earlier than if it ended now");
    blindness.digest_complete(TWO, at(103));
    assert_eq!(blindness.deadline(never, GRACE, at(200)).at, at(143));
    let registered_later = Trace::Unplaced { since: at(150) };
    assert_eq!(blindness.deadline(registered_later, GRACE, at(200)).at, at(190));
}

#[test]
fn a_takeover_gives_no_new_grace_to_slots_that_a_replica_heard() {
    let mut blindness = blindness();
    blindness.took_over([TWO], at(100));
    blindness.digest_complete(TWO, at(101));
    assert_eq!(blindness.deadline(heard(90, TWO), GRACE, at(102)), Deadline { at: at(130), excuse: None });
}

#[test]
fn a_stall_is_a_tick_late_by_more_than_one_second_or_a_tenth_of_grace() {
    let cases = [
        (GRACE, 5_000, None),
        (GRACE, 5_001, Some(BlindnessCause::Stall)),
        (Duration::from_secs(4), 2_000, None),
        (Duration::from_secs(4), 2_001, Some(BlindnessCause::Stall)),
    ];
    for (grace, later, expected) in cases {
        let mut blindness = blindness();
        let second = at(100).after(Duration::from_millis(later));
        blindness.tick(at(100), JudgingLoop { period: PERIOD, grace });
        blindness.tick(second, JudgingLoop { period: PERIOD, grace });
        let found = blindness.excused_until(Some(TWO), second);
        assert_eq!(found, expected.map(|excuse| (second.after(CAP * 2), excuse)), "grace {grace:?}, {later} ms later");
    }
}

#[test]
fn a_stall_before_the_first_tick_is_noticed() {
    let mut blindness = blindness();
    blindness.took_over([TWO], at(100));
    blindness.digest_complete(TWO, at(100));
    blindness.tick(at(106), JudgingLoop { period: PERIOD, grace: GRACE });
    assert_eq!(blindness.excused_until(None, at(110)), Some((at(106 + WINDOW), BlindnessCause::Stall)));
}

#[test]
fn a_pause_as_a_follower_is_not_a_stall() {
    let mut blindness = blindness();
    blindness.tick(at(10), JudgingLoop { period: PERIOD, grace: GRACE });
    blindness.took_over([], at(200));
    blindness.tick(at(201), JudgingLoop { period: PERIOD, grace: GRACE });
    assert_eq!(blindness.excused_until(Some(TWO), at(210)), None);
}

#[test]
fn a_stall_longer_than_the_grace_excuses_every_node() {
    let mut blindness = blindness();
    blindness.tick(at(100), JudgingLoop { period: PERIOD, grace: GRACE });
    blindness.tick(at(220), JudgingLoop { period: PERIOD, grace: GRACE });
    for origin in [ReplicaId(1), TWO] {
        assert_eq!(blindness.deadline(heard(99, origin), GRACE, at(220)).at, at(220 + WINDOW));
    }
}

#[test]
fn a_lost_quorum_excuses_every_node_while_it_lasts_and_one_window_longer() {
    let mut blindness = blindness();
    blindness.quorum_lost(at(100));
    let (now, later) = (at(1000), at(1000 + WINDOW));
    assert_eq!(blindness.excused_until(Some(TWO), now), Some((later, BlindnessCause::Quorum)));
    assert_eq!(blindness.excused_until(None, now), Some((later, BlindnessCause::Quorum)));
    blindness.quorum_heard(now);
    assert_eq!(blindness.excused_until(Some(TWO), later), None);
}

#[test]
fn a_lost_digest_excuses_the_slots_last_heard_through_that_replica_only() {
    let mut blindness = blindness();
    blindness.digest_missed(TWO, at(100));
    assert_eq!(blindness.excused_until(Some(TWO), at(101)), Some((at(100 + WINDOW), BlindnessCause::Digest(TWO))));
    assert_eq!(blindness.excused_until(Some(THREE), at(101)), None);
    assert_eq!(blindness.excused_until(None, at(101)), None);
}

#[test]
fn a_digest_that_comes_back_soon_excuses_until_one_window_later() {
    let mut blindness = blindness();
    blindness.digest_missed(TWO, at(100));
    blindness.digest_complete(TWO, at(104));
    assert_eq!(blindness.excused_until(Some(TWO), at(105)), Some((at(104 + WINDOW), BlindnessCause::Digest(TWO))));
}

#[test]
fn a_late_digest_is_noticed_by_the_tick() {
    let mut blindness = blindness();
    blindness.digest_complete(TWO, at(100));
    blindness.tick(at(101), JudgingLoop { period: PERIOD, grace: GRACE });
    assert_eq!(blindness.excused_until(Some(TWO), at(101)), None);
    blindness.tick(at(102), JudgingLoop { period: PERIOD, grace: GRACE });
    assert_eq!(blindness.excused_until(Some(TWO), at(102)), Some((at(102 + WINDOW), BlindnessCause::Digest(TWO))));
}

#[test]
fn a_replica_lost_for_good_excuses_its_nodes_for_a_bounded_time() {
    let mut blindness = blindness();
    for second in 100..1000 {
        blindness.digest_missed(TWO, at(second));
        blindness.tick(at(second), JudgingLoop { period: PERIOD, grace: GRACE });
    }
    let deadline = blindness.deadline(heard(75, TWO), GRACE, at(1000));
    assert_eq!(deadline, Deadline { at: at(100 + WINDOW), excuse: Some(BlindnessCause::Digest(TWO)) });
    blindness.digest_complete(TWO, at(1000));
    assert_eq!(blindness.excused_until(Some(TWO), at(1000)), None, "its own digest says which nodes it hears");
}

#[test]
fn a_replica_that_flaps_excuses_its_nodes_for_a_bounded_time() {
    let mut blindness = blindness();
    let mut judged = 0;
    for second in (100..700).step_by(2) {
        blindness.digest_missed(TWO, at(second));
        blindness.digest_complete(TWO, at(second + 1));
        judged += u32::from(blindness.excused_until(Some(TWO), at(second + 1)).is_none());
    }
    assert!(judged >= 8, "judged {judged} times in ten minutes of flapping");
}

#[test]
fn a_replica_lost_after_much_flapping_excuses_its_nodes_for_one_more_window_and_no_longer() {
    let mut blindness = blindness();
    for second in (100..215).step_by(5) {
        blindness.digest_missed(TWO, at(second));
        blindness.digest_complete(TWO, at(second + 1));
    }
    let mut excused = Vec::new();
    for second in 215..400 {
        blindness.digest_missed(TWO, at(second));
        excused.extend(blindness.excused_until(Some(TWO), at(second)).map(|_| second));
    }
    // The run of flapping ends after 120 s; its nodes are judged for 5 s; then the loss has its own window.
    let expected: Vec<u64> = (215..220).chain(225..225 + WINDOW).collect();
    assert_eq!(excused, expected);
}

#[test]
fn a_canary_late_for_good_after_much_flapping_is_excused_once_more() {
    let mut blindness = blindness();
    for second in (100..200).step_by(5) {
        blindness.canary_late(TWO, at(second));
        blindness.canary_heard(TWO, at(second + 1));
    }
    let mut excused = Vec::new();
    for second in 200..600 {
        blindness.canary_late(TWO, at(second));
        excused.extend(blindness.excused_until(Some(TWO), at(second)).map(|_| second));
    }
    let (run_ends, bound) = (100 + 120 + WINDOW, 120 + WINDOW);
    let expected: Vec<u64> = (200..run_ends).chain(run_ends + 5..run_ends + 5 + bound).collect();
    assert_eq!(excused, expected);
}

#[test]
fn a_late_canary_excuses_its_replica_while_it_lasts_but_not_for_ever() {
    let mut blindness = blindness();
    blindness.canary_late(TWO, at(100));
    assert_eq!(blindness.excused_until(Some(TWO), at(160)), Some((at(160 + WINDOW), BlindnessCause::Canary(TWO))));
    assert_eq!(blindness.excused_until(Some(THREE), at(160)), None);
    let bound = at(100).after(REATTACH_MAX).after(CAP * 2);
    assert_eq!(blindness.excused_until(Some(TWO), bound), None);
}

#[test]
fn a_canary_heard_again_excuses_until_one_window_later() {
    let mut blindness = blindness();
    blindness.canary_late(TWO, at(100));
    blindness.canary_heard(TWO, at(160));
    assert_eq!(blindness.excused_until(Some(TWO), at(161)), Some((at(160 + WINDOW), BlindnessCause::Canary(TWO))));
}

#[test]
fn the_window_is_twice_the_back_off_cap_and_never_over_120_seconds() {
    assert_eq!(blindness().reattach_window(), CAP * 2);
    assert_eq!(Blindness::new(Duration::MAX).reattach_window(), REATTACH_MAX);
}

#[test]
fn the_window_is_prolonged_to_120_seconds_at_most_while_replicas_still_queue_handshakes() {
    let mut blindness = blindness();
    blindness.digest_missed(TWO, at(100));
    let mut last_excused = 0;
    for second in 100..400 {
        blindness.handshakes_queued(at(second));
        if blindness.excused_until(Some(TWO), at(second)).is_some() {
            last_excused = second;
        }
    }
    assert_eq!(last_excused, 219);
}

#[test]
fn the_window_is_not_prolonged_once_the_queue_is_empty_and_not_revived_once_it_is_over() {
    let mut blindness = blindness();
    blindness.digest_missed(TWO, at(100));
    (100..=130).for_each(|second| blindness.handshakes_queued(at(second.min(125))));
    assert_eq!(blindness.excused_until(Some(TWO), at(126)), Some((at(130), BlindnessCause::Digest(TWO))));
    blindness.handshakes_queued(at(140));
    assert_eq!(blindness.excused_until(Some(TWO), at(141)), None);
}

#[test]
fn every_excuse_in_force_is_listed() {
    let mut blindness = blindness();
    blindness.quorum_lost(at(100));
    blindness.quorum_heard(at(105));
    blindness.canary_late(THREE, at(90));
    blindness.digest_missed(TWO, at(10));
    let shown: Vec<InForce> = blindness.in_force(at(110)).collect();
    let quorum =
        InForce { cause: BlindnessCause::Quorum, started: at(100), ended: Some(at(105)), until: at(105 + WINDOW) };
    let canary =
        InForce { cause: BlindnessCause::Canary(THREE), started: at(90), ended: None, until: at(110 + WINDOW) };
    assert_eq!(shown, [quorum, canary]);
    assert_eq!(BlindnessCause::Canary(THREE).to_string(), "replica 3's check of its own agent listener is late");
}

#[test]
fn a_removed_replica_is_neither_awaited_nor_excused() {
    let mut blindness = blindness();
    blindness.took_over([TWO], at(100));
    blindness.digest_missed(TWO, at(100));
    blindness.forget(TWO, at(101));
    assert_eq!(blindness.excused_until(Some(TWO), at(102)), Some((at(101 + WINDOW), BlindnessCause::Takeover)));
    assert_eq!(blindness.in_force(at(102)).count(), 1);
}

#[test]
fn excuses_are_kept_for_a_bounded_number_of_replicas() {
    let mut blindness = blindness();
    for id in 0..10_000 {
        blindness.digest_missed(ReplicaId(id), at(100));
        blindness.canary_late(ReplicaId(id), at(100));
        blindness.digest_complete(ReplicaId(id), at(100));
    }
    assert_eq!(blindness.in_force(at(101)).count(), 2 * HEARD_THROUGH_MAX);
}

#[test]
fn a_stall_is_noticed_well_within_any_grace() {
    let turned_after = |grace: Duration, pause: Duration| {
        let mut blindness = Blindness::new(Duration::from_secs(1));
        let (period, start) = (Duration::from_millis(100), Tick::BOOT);
        blindness.tick(start, JudgingLoop { period, grace });
        let now = start.after(period + pause);
        blindness.tick(now, JudgingLoop { period, grace });
        blindness.excused_until(None, now).is_some()
    };
    let table = [(1_000, 200, false), (1_000, 300, true), (8_000, 900, false), (8_000, 1_100, true)];
    for (grace, pause, noticed) in table {
        let seen = turned_after(Duration::from_millis(grace), Duration::from_millis(pause));
        assert_eq!(seen, noticed, "a pause of {pause} ms at a grace of {grace} ms");
    }
    assert!(!turned_after(Duration::from_secs(40), Duration::from_millis(3_900)));
    assert!(turned_after(Duration::from_secs(40), Duration::from_millis(4_100)));
}

#[test]
fn a_stall_is_known_before_the_late_tick_that_records_it() {
    let mut blindness = blindness();
    assert!(!blindness.is_overdue(at(1000), JudgingLoop { period: PERIOD, grace: GRACE }), "no leader judges yet");
    blindness.tick(at(100), JudgingLoop { period: PERIOD, grace: GRACE });
    // One period, and a tenth of the grace.
    assert!(!blindness.is_overdue(at(105), JudgingLoop { period: PERIOD, grace: GRACE }));
    assert!(blindness.is_overdue(at(106), JudgingLoop { period: PERIOD, grace: GRACE }));
    assert_eq!(blindness.excused_until(None, at(106)), None, "only a tick records it");
    blindness.tick(at(106), JudgingLoop { period: PERIOD, grace: GRACE });
    assert!(!blindness.is_overdue(at(106), JudgingLoop { period: PERIOD, grace: GRACE }));
    assert_eq!(blindness.excused_until(None, at(106)), Some((at(106 + WINDOW), BlindnessCause::Stall)));
}

/// I-03: after a stall the first to wake up may be an eviction queue, before the round that notices the stall.
#[test]
fn i_03_the_leader_is_blind_before_the_late_round_that_notices_a_stall() {
    let (mut blindness, judging) = (blindness(), JudgingLoop::of(&Policy::default()));
    let until = |blindness: &Blindness, now| blindness.blind_until(at(now), judging).map(|(_, excuse)| excuse);
    blindness.tick(at(100), judging);
    assert_eq!(until(&blindness, 101), None);
    assert_eq!(until(&blindness, 160), Some(BlindnessCause::Stall), "no round for a minute");
    blindness.tick(at(160), judging);
    assert_eq!(until(&blindness, 161), Some(BlindnessCause::Stall), "the round has noticed it");
    (161..=200).for_each(|second| blindness.tick(at(second), judging));
    assert_eq!(until(&blindness, 200), None);
}

#[test]
fn the_judging_loop_uses_the_shorter_grace() {
    let policy = Policy {
        node_monitor_grace_period: Period::from_secs(40),
        node_startup_grace_period: Period::from_secs(8),
        ..Policy::default()
    };
    assert_eq!(JudgingLoop::of(&policy).grace, Duration::from_secs(8));
}

// === nodes that were silent before their replica was lost ===

/// Both peers tell all they heard until `TWO` is lost, one second after its last digest.
const LOST: u64 = 1_001;

fn lost_in_order() -> Blindness {
    let mut blindness = blindness();
    told_every_second(&mut blindness, 0..=LOST - 1);
    blindness.digest_missed(TWO, at(LOST));
    blindness.digest_complete(THREE, at(LOST));
    blindness
}

#[test]
fn a_lost_replica_gives_no_window_to_a_node_that_it_had_reported_silent_for_two_beats() {
    let blindness = lost_in_order();
    // The last digest came at 1000 s, and two beats are 20 s.
    for (last, deadline, excused) in [(979, 1_019, false), (980, 1_020, false), (981, LOST + WINDOW, true)] {
        let trace = heard(last, TWO);
        assert_eq!(blindness.deadline(trace, GRACE, at(1_010)).at, at(deadline), "last heard at {last} s");
        assert_eq!(blindness.is_excused(trace, at(1_010)), excused, "last heard at {last} s");
    }
    assert!(blindness.excused_until(Some(TWO), at(1_010)).is_some(), "the others have time to come back");
}

#[test]
fn a_replica_that_was_not_in_order_until_its_loss_gives_every_node_a_window() {
    type Past = fn(&mut Blindness);
    let cases: [(&str, Past); 6] = [
        ("its digests had a gap", |it| {
            (0..=LOST).filter(|second| !(981..987).contains(second)).for_each(|second| {
                it.digest_complete(TWO, at(second.min(LOST - 1)));
                it.digest_complete(THREE, at(second));
            });
        }),
        ("its last digest is old", |it| {
            (0..=LOST).for_each(|second| {
                it.digest_complete(TWO, at(second.min(LOST - 6)));
                it.digest_complete(THREE, at(second));
            });
        }),
        ("another's digests had a gap", |it| {
            (0..LOST).for_each(|second| it.digest_complete(TWO, at(second)));
            (0..LOST)
                .filter(|second| !(981..987).contains(second))
                .for_each(|second| it.digest_complete(THREE, at(second)));
        }),
        ("its canary is late", |it| {
            told_every_second(it, 0..=LOST - 1);
            it.canary_late(TWO, at(LOST - 2));
        }),
        ("its canary was late", |it| {
            told_every_second(it, 0..=LOST - 1);
            it.canary_late(TWO, at(970));
            it.canary_heard(TWO, at(975));
        }),
        ("it was heard for too short a while", |it| told_every_second(it, 975..=LOST - 1)),
    ];
    for (why, past) in cases {
        let mut blindness = blindness();
        past(&mut blindness);
        blindness.digest_missed(TWO, at(LOST));
        let until = blindness.excuse_for(heard(974, TWO), at(LOST)).map(|(until, _)| until);
        assert!(until.is_some_and(|until| until >= at(LOST + WINDOW)), "{why}: {until:?}");
    }
}

#[test]
fn a_node_that_was_silent_before_a_loss_is_excused_while_agents_queue_for_a_handshake() {
    let mut blindness = lost_in_order();
    let silent = heard(975, TWO);
    blindness.handshakes_queued(at(1_012));
    assert_eq!(blindness.excuse_for(silent, at(1_013)), Some((at(1_017), BlindnessCause::Digest(TWO))));
    assert!(!blindness.is_excused(silent, at(1_017)));
}

#[test]
fn a_restart_of_the_lost_replica_gives_no_window_to_nodes_that_were_silent_before() {
    let mut blindness = lost_in_order();
    blindness.digest_complete(TWO, at(LOST + 2));
    let deadline = |last| blindness.deadline(heard(last, TWO), GRACE, at(1_010)).at;
    assert_eq!(deadline(975), at(1_015));
    assert_eq!(deadline(982), at(LOST + 2 + WINDOW), "its agents may be on their way back");
}

#[test]
fn a_second_loss_is_judged_by_what_was_known_then() {
    let mut blindness = lost_in_order();
    told_every_second(&mut blindness, LOST + 2..=LOST + 20);
    blindness.digest_missed(TWO, at(LOST + 21));
    let deadline = |last| blindness.deadline(heard(last, TWO), GRACE, at(LOST + 21)).at;
    assert_eq!(deadline(LOST), at(LOST + 40), "silent for two beats by now");
    assert_eq!(deadline(LOST + 1), at(LOST + 21 + WINDOW));
}

/// Every beat of a living node that its replica hears is told within a second: however the phases of beats, digests and
/// the loss fall, it has its window.
#[test]
fn a_living_node_keeps_its_window_whatever_the_phase_of_its_beats() {
    let beat = u64::try_from(CAP.as_millis()).unwrap();
    let at = |millis: u64| Tick::since_boot(Duration::from_millis(millis));
    for digest_every in [250, 1_000, 4_900] {
        for phase in (0..beat).step_by(370) {
            let mut blindness = blindness();
            let (mut last, mut told) = (0, 0);
            for now in (0..200_000).step_by(10) {
                if now % beat == phase {
                    last = now;
                }
                if now % digest_every == 0 {
                    // The beats of the last round trip are not in it.
                    told = if last + 1_000 > now { last.saturating_sub(beat) } else { last };
                    blindness.digest_complete(TWO, at(now));
                    blindness.digest_complete(THREE, at(now));
                }
            }
            blindness.digest_missed(TWO, at(200_000));
            let trace = Trace::Heard { at: at(told), through: TWO };
            assert!(blindness.is_excused(trace, at(215_000)), "told every {digest_every} ms, phase {phase} ms");
        }
    }
}
