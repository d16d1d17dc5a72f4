//! Tests of the order and the rate in which sessions are claimed anew.

use muster_lifecycle::node::Slot;

use super::reclaim::{RECLAIM_PERIOD, RECLAIM_REST};
use super::*;
use crate::session::wake::entry::SOLE;

fn entry(index: u32) -> Arc<Entry> {
    let slot = Slot { index, generation: 1 };
    let remote = ([127, 0, 0, 1], 1).into();
    Arc::new(Entry::new(("n".into(), slot), (7, remote), 1, (Arc::default(), SOLE)))
}

fn registry_of(count: u32) -> Registry {
    let registry = Registry::default();
    (0..count).for_each(|index| drop(registry.enter(entry(index))));
    registry
}

fn claimed(queue: &mut ReclaimQueue, registry: &Registry) -> Vec<u32> {
    let mut claimed: Vec<u32> = std::iter::from_fn(|| queue.next(registry)).map(|entry| entry.slot.index).collect();
    claimed.sort_unstable();
    claimed
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_gets_claims_after_a_pause_and_one_batch_at_a_time() {
    let mut queue = ReclaimQueue::all();
    assert!(!queue.take_turn());
    sleep_until(Instant::now() + RECLAIM_REST).await;
    assert!(queue.take_turn() && !queue.take_turn());
    sleep_until(Instant::now() + RECLAIM_PERIOD).await;
    assert!(queue.take_turn());
}

#[tokio::test(start_paused = true)]
async fn every_open_session_is_claimed_once() {
    let registry = registry_of(200);
    let mut queue = ReclaimQueue::all();
    let first = queue.next(&registry).unwrap();
    let gone = registry.get(Slot { index: (first.slot.index + 1) % 200, generation: 1 }).unwrap();
    registry.leave(&gone);
    let mut all = claimed(&mut queue, &registry);
    all.push(first.slot.index);
    all.sort_unstable();
    assert!(all.into_iter().eq((0..200).filter(|index| *index != gone.slot.index)));
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_round_of_claims_continues_and_is_then_repeated() {
    let registry = registry_of(300);
    let mut queue = ReclaimQueue::all();
    let first: Vec<u32> = (0..100).filter_map(|_| queue.next(&registry)).map(|entry| entry.slot.index).collect();
    queue.interrupt();
    assert!(!queue.take_turn(), "a leader that did not answer is not asked again at once");
    let rest: Vec<u32> = (0..200).filter_map(|_| queue.next(&registry)).map(|entry| entry.slot.index).collect();
    assert!(rest.iter().all(|index| !first.contains(index)), "no session has a second turn before all had one");
    assert!(!queue.is_empty());
    assert!(claimed(&mut queue, &registry).into_iter().eq(0..300));
    assert!(queue.is_empty());
}
