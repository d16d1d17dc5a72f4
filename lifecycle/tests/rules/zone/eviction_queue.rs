//! The token bucket and the queue (Q-1 to Q-3, NE-4, NE-6).

use muster_lifecycle::eviction_queue::{Enqueued, EvictionQueue};
use muster_lifecycle::policy::Rate;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::token_bucket::TokenBucket;
use proptest::prelude::*;

use crate::fixture::conditions::at;

const TENTH: Rate = Rate(100_000);
const ONE: Rate = Rate(1_000_000);

fn names(queue: &EvictionQueue) -> Vec<&str> {
    queue.iter().map(|(name, _)| name.as_str()).collect()
}

/// Takes every token in the millisecond it comes.
fn taken_in(bucket: &mut TokenBucket, from: u64, until: u64) -> Vec<u64> {
    (from..until).filter(|now| bucket.take(ClusterTime(*now))).collect()
}

#[test]
fn q_2_the_first_token_is_there_at_once_then_one_per_ten_seconds() {
    let mut bucket = TokenBucket::new(TENTH, ClusterTime(0));
    assert_eq!(taken_in(&mut bucket, 0, 35_000), [0, 10_000, 20_000, 30_000]);
}

#[test]
fn q_2_idle_time_is_not_saved_up_beyond_one_token() {
    let mut bucket = TokenBucket::new(TENTH, ClusterTime(0));
    assert!(bucket.take(at(0)));
    assert!(bucket.take(at(3600)));
    assert!(!bucket.take(at(3600)) && !bucket.take(at(3609)));
    assert!(bucket.take(at(3610)));
}

#[test]
fn q_2_rate_zero_is_never() {
    let mut bucket = TokenBucket::new(Rate::NEVER, ClusterTime(0));
    assert!(!bucket.take(at(0)) && !bucket.take(at(1_000_000)) && !bucket.has_token(ClusterTime(u64::MAX)));
    assert_eq!(bucket.next_token_at(at(5)), None);
    assert_eq!(bucket.eta(3, at(5)), None);
}

#[test]
fn q_3_better_than_upstream_from_zero_to_exactly_one_takes_effect() {
    let mut bucket = TokenBucket::new(Rate::NEVER, at(0));
    bucket.set_rate(ONE, at(100));
    assert_eq!(bucket.rate(), ONE);
    assert_eq!(bucket.next_token_at(at(100)), Some(at(101)));
    assert!(bucket.take(at(101)));
}

#[test]
fn q_3_a_bucket_without_a_token_starts_empty_and_one_with_a_token_keeps_it() {
    let mut empty = TokenBucket::new(TENTH, at(0));
    assert!(empty.take(at(0)));
    empty.set_rate(ONE, at(9));
    assert_eq!(empty.next_token_at(at(9)), Some(at(10)));
    let mut full = TokenBucket::new(TENTH, at(0));
    full.set_rate(ONE, at(9));
    assert_eq!(full.next_token_at(at(9)), Some(at(9)));
}

#[test]
fn q_3_the_same_rate_again_changes_nothing() {
    let mut bucket = TokenBucket::new(TENTH, at(0));
    assert!(bucket.take(at(0)));
    let before = bucket.clone();
    bucket.set_rate(TENTH, at(9));
    assert_eq!(bucket, before);
    assert!(bucket.take(at(10)));
}

#[test]
fn q_3_switching_to_zero_and_back_makes_no_token() {
    let mut bucket = TokenBucket::new(TENTH, at(0));
    bucket.set_rate(Rate::NEVER, at(1));
    bucket.set_rate(TENTH, at(2));
    assert!(!bucket.has_token(at(2)));
    assert_eq!(bucket.next_token_at(at(2)), Some(at(12)));
}

#[test]
fn the_time_of_the_next_token_is_exact_to_the_millisecond() {
    let third = Rate(333_333);
    let mut bucket = TokenBucket::new(third, at(0));
    assert_eq!(bucket.next_token_at(at(0)), Some(at(0)));
    assert!(bucket.take(at(0)));
    let next = bucket.next_token_at(at(1)).unwrap();
    assert_eq!(next, ClusterTime(3001), "3.000003 s, rounded up");
    assert!(!bucket.has_token(ClusterTime(next.0 - 1)) && bucket.has_token(next));
}

#[test]
fn a_time_before_the_last_refill_adds_no_token() {
    let mut bucket = TokenBucket::new(TENTH, at(100));
    assert!(bucket.take(at(100)));
    assert!(!bucket.take(at(50)));
    assert!(bucket.take(at(110)));
}

#[test]
fn the_farthest_moment_does_not_overflow() {
    let mut bucket = TokenBucket::new(Rate(u64::MAX), ClusterTime(0));
    assert!(bucket.take(ClusterTime(0)) && bucket.take(ClusterTime(u64::MAX)));
    let mut slow = TokenBucket::new(Rate(1), ClusterTime(0));
    assert!(slow.take(ClusterTime(u64::MAX)));
    assert_eq!(slow.eta(usize::MAX, ClusterTime(u64::MAX)), Some(ClusterTime(u64::MAX)));
}

#[test]
fn q_1_first_come_first_served_and_by_name_among_equals() {
    let mut queue = EvictionQueue::default();
    for (name, seconds) in [("c", 2), ("b", 1), ("a", 2), ("d", 3)] {
        assert_eq!(queue.enqueue(Text::from(name), at(seconds)), Enqueued::Added);
    }
    assert_eq!(names(&queue), ["b", "a", "c", "d"]);
    assert_eq!(queue.head(), Some((&Text::from("b"), at(1))));
    let positions = ["b", "a", "c", "d", "e"].map(|name| queue.position(name));
    assert_eq!(positions, [Some(0), Some(1), Some(2), Some(3), None]);
}

#[test]
fn q_1_a_node_that_left_joins_again_at_the_end() {
    let mut queue = EvictionQueue::default();
    assert_eq!(queue.enqueue(Text::from("a"), at(1)), Enqueued::Added);
    assert_eq!(queue.enqueue(Text::from("b"), at(2)), Enqueued::Added);
    assert!(queue.remove("a") && !queue.remove("a") && !queue.contains("a"));
    assert_eq!(queue.enqueue(Text::from("a"), at(3)), Enqueued::Added);
    assert_eq!(names(&queue), ["b", "a"]);
    queue.clear();
    assert!(queue.is_empty() && queue.head().is_none() && !queue.contains("b"));
}

#[test]
fn ne_4_better_than_upstream_a_waiting_node_keeps_its_place() {
    let mut queue = EvictionQueue::default();
    for (name, seconds, expected) in [("a", 1, Enqueued::Added), ("b", 2, Enqueued::Added), ("a", 3, Enqueued::Kept)] {
        assert_eq!(queue.enqueue(Text::from(name), at(seconds)), expected);
    }
    assert_eq!(names(&queue), ["a", "b"]);
    assert_eq!((queue.queued_at("a"), queue.len()), (Some(at(1)), 2));
}

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Take,
    SetRate(Rate),
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![Just(0), Just(10_000), Just(100_000), Just(1_000_000), 1..5_000_000_u64].prop_map(Rate)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..20_000_u64).prop_map(Step::Wait),
        4 => Just(Step::Take),
        1 => rates().prop_map(Step::SetRate),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn any_window_gives_at_most_the_burst_and_its_share(
        rate in rates(),
        waits in proptest::collection::vec(0..5000_u64, 1..200),
    ) {
        let mut bucket = TokenBucket::new(rate, ClusterTime(0));
        let mut now = 0;
        let mut taken = Vec::new();
        for wait in waits {
            now += wait;
            if bucket.take(ClusterTime(now)) {
                taken.push(now);
            }
        }
        for (first, from) in taken.iter().enumerate() {
            for (last, until) in taken.iter().enumerate().skip(first) {
                let (tokens, share) = (1 + (last - first) as u64, rate.0 * (until - from));
                prop_assert!(tokens * 1_000_000_000 <= 1_000_000_000 + share, "{tokens} from {from} to {until}");
            }
        }
    }

    #[test]
    fn the_number_of_refills_makes_no_difference(
        rate in 1..5_000_000_u64,
        looks in proptest::collection::vec(0..500_u64, 0..300),
    ) {
        let mut watched = TokenBucket::new(Rate(rate), ClusterTime(0));
        prop_assert!(watched.take(ClusterTime(0)));
        let left_alone = watched.clone();
        let mut now = 0;
        for look in looks {
            now += look;
            let foreseen = left_alone.next_token_at(ClusterTime(now));
            prop_assert_eq!(watched.next_token_at(ClusterTime(now)), foreseen);
            let taken = watched.take(ClusterTime(now));
            prop_assert_eq!(taken, left_alone.has_token(ClusterTime(now)));
            if taken {
                break;
            }
        }
    }

    #[test]
    fn changing_rates_never_give_more_than_the_burst_and_the_share_of_each(steps in steps()) {
        let mut bucket = TokenBucket::new(TENTH, ClusterTime(0));
        let (mut now, mut tokens, mut share) = (0, 0, 0);
        for step in steps {
            match step {
                Step::Wait(millis) => {
                    now += millis;
                    share += bucket.rate().0 * millis;
                }
                Step::Take => tokens += u64::from(bucket.take(ClusterTime(now))),
                Step::SetRate(rate) => {
                    bucket.set_rate(rate, ClusterTime(now));
                    prop_assert_eq!(bucket.rate(), rate);
                }
            }
            prop_assert!(tokens * 1_000_000_000 <= 1_000_000_000 + share);
        }
    }

    #[test]
    fn the_eta_of_each_position_is_when_its_token_comes(rate in 50_000..2_000_000_u64, spent in 0..20_000_u64) {
        let mut bucket = TokenBucket::new(Rate(rate), ClusterTime(0));
        prop_assert!(bucket.take(ClusterTime(0)));
        let now = ClusterTime(spent);
        let foreseen = [0, 1, 2, 3].map(|position| bucket.eta(position, now).expect("the rate is not zero"));
        for eta in foreseen {
            prop_assert_eq!(bucket.next_token_at(eta), Some(eta));
            prop_assert!(eta.0 == spent || !bucket.has_token(ClusterTime(eta.0 - 1)));
            prop_assert!(bucket.take(eta));
        }
    }

    #[test]
    fn a_queue_is_ordered_by_the_first_enqueue_of_each_node(
        asked in proptest::collection::vec((0..8_u8, 0..5_u64, any::<bool>()), 0..60),
    ) {
        let mut queue = EvictionQueue::default();
        let mut model: Vec<(ClusterTime, String)> = Vec::new();
        for (node, seconds, leaves) in asked {
            let name = format!("n{node}");
            let waits = model.iter().any(|(_, own)| *own == name);
            if leaves {
                model.retain(|(_, own)| *own != name);
                prop_assert_eq!(queue.remove(&name), waits);
            } else {
                let expected = if waits { Enqueued::Kept } else { Enqueued::Added };
                prop_assert_eq!(queue.enqueue(Text::from(&name), at(seconds)), expected);
                if !waits {
                    model.push((at(seconds), name));
                }
            }
            model.sort();
            let order: Vec<_> = queue.iter().map(|(name, since)| (since, name.to_string())).collect();
            prop_assert_eq!(&order, &model);
            for (position, (_, name)) in model.iter().enumerate() {
                prop_assert_eq!(queue.position(name), Some(position));
            }
        }
    }
}
