//! In which order, and how fast, those who are here are claimed anew.

use super::*;
use crate::session::wake::entry::SOLE;

fn entry(index: u32) -> Arc<Entry> {
    let slot = Slot { index, generation: 1 };
    let remote = ([127, 0, 0, 1], 1).into();
    Arc::new(Entry::new(("n".into(), slot), (7, remote), 1, (Arc::default(), SOLE)))
}

fn inhabited(count: u32) -> Registry {
    let registry = Registry::default();
    (0..count).for_each(|index| drop(registry.enter(entry(index))));
    registry
}

fn claimed(residents: &mut Residents, registry: &Registry) -> Vec<u32> {
    let mut claimed: Vec<u32> = std::iter::from_fn(|| residents.next(registry)).map(|entry| entry.slot.index).collect();
    claimed.sort_unstable();
    claimed
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_is_left_alone_at_first_and_then_has_one_batch_at_a_time() {
    let mut residents = Residents::all();
    assert!(!residents.take_turn());
    sleep_until(Instant::now() + RESIDENTS_REST).await;
    assert!(residents.take_turn() && !residents.take_turn());
    sleep_until(Instant::now() + RESIDENTS_PERIOD).await;
    assert!(residents.take_turn());
}

#[tokio::test(start_paused = true)]
async fn everybody_who_is_still_here_is_claimed_once() {
    let registry = inhabited(200);
    let mut residents = Residents::all();
    let first = residents.next(&registry).unwrap();
    let gone = registry.get(Slot { index: (first.slot.index + 1) % 200, generation: 1 }).unwrap();
    registry.leave(&gone);
    let mut all = claimed(&mut residents, &registry);
    all.push(first.slot.index);
    all.sort_unstable();
    assert!(all.into_iter().eq((0..200).filter(|index| *index != gone.slot.index)));
    assert!(residents.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_walk_goes_on_and_then_begins_again() {
    let registry = inhabited(300);
    let mut residents = Residents::all();
    let first: Vec<u32> = (0..100).filter_map(|_| residents.next(&registry)).map(|entry| entry.slot.index).collect();
    residents.interrupt();
    assert!(!residents.take_turn(), "who did not answer is not asked again at once");
    let rest: Vec<u32> = (0..200).filter_map(|_| residents.next(&registry)).map(|entry| entry.slot.index).collect();
    assert!(rest.iter().all(|index| !first.contains(index)), "nobody has a second turn before all had one");
    assert!(!residents.is_empty());
    assert!(claimed(&mut residents, &registry).into_iter().eq(0..300));
    assert!(residents.is_empty());
}
