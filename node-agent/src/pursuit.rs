//! The search for a replica that takes the agent in: which door to try next, and not before when.
//!
//! Agents begin at a door that follows from their name, so that a fleet spreads evenly without anybody assigning it.
//! Then they walk the doors in turn, those that just failed or fell silent last.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::failure::Failure;

/// A failure longer ago than this is not held against a door, or fleets would lean to one side after a restart.
const HELD_AGAINST: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Pursuit {
    /// When each door last failed.
    failures: Vec<Option<Instant>>,
    next: usize,
    not_before: Instant,
    backoff: Backoff,
}

impl Pursuit {
    /// `seed` is any number that differs between agents; `doors` is at least one.
    pub(crate) fn new(doors: usize, seed: u64, now: Instant) -> Self {
        let doors = doors.max(1);
        let next = usize::try_from(seed % doors as u64).unwrap_or(0);
        Self { failures: vec![None; doors], next, not_before: now, backoff: Backoff::default() }
    }

    pub(crate) fn not_before(&self) -> Instant {
        self.not_before
    }

    /// The door to try, another than the one `held` if there is another.
    pub(crate) fn door(&self, held: Option<usize>, now: Instant) -> usize {
        let doors = self.failures.len();
        let in_turn = (self.next..self.next + doors).map(|door| door % doors);
        let others = in_turn.filter(|door| Some(*door) != held);
        others.min_by_key(|door| self.failed_lately(*door, now)).unwrap_or(self.next)
    }

    /// The door did not take us in, or let go of us.
    pub(crate) fn failed(&mut self, door: usize, failure: &Failure, cap: Duration, dice: f64, now: Instant) {
        self.shun(door, now);
        let pause = match failure.is_verdict() {
            true => self.backoff.long_pause(cap, dice),
            false => self.backoff.pause(cap, dice),
        };
        self.not_before = now + pause;
    }

    /// The door is tried after the others.
    pub(crate) fn shun(&mut self, door: usize, now: Instant) {
        self.failures[door] = Some(now);
        self.next = (door + 1) % self.failures.len();
    }

    /// The door took us in.
    pub(crate) fn settled(&mut self, door: usize) {
        self.failures[door] = None;
        self.next = door;
    }

    /// A connection that lasted shows that the trouble is over; one that broke at once does not.
    pub(crate) fn lasted(&mut self, lifetime: Duration, cap: Duration) {
        if lifetime >= cap {
            self.backoff.reset();
        }
    }

    /// Doors that did not fail come first, then those whose failure is longest ago.
    fn failed_lately(&self, door: usize, now: Instant) -> Option<Instant> {
        self.failures[door].filter(|failed| now < *failed + HELD_AGAINST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(2);

    fn lost() -> Failure {
        Failure::Lost { door: "a:1".into(), reason: "reset".into() }
    }

    #[tokio::test]
    async fn agents_spread_over_the_doors_and_walk_them_in_turn() {
        let now = Instant::now();
        let mut pursuit = Pursuit::new(3, 7, now);
        let mut tried = vec![pursuit.door(None, now)];
        for _ in 0..4 {
            pursuit.failed(tried[tried.len() - 1], &lost(), CAP, 1.0, now);
            tried.push(pursuit.door(None, now));
        }
        assert_eq!(tried, [1, 2, 0, 1, 2]);
        assert_eq!(pursuit.not_before(), now + Duration::from_millis(1600));
    }

    #[tokio::test]
    async fn a_move_leads_to_another_door_if_there_is_one() {
        let now = Instant::now();
        assert_eq!(Pursuit::new(3, 1, now).door(Some(1), now), 2);
        assert_eq!(Pursuit::new(1, 1, now).door(Some(0), now), 0);
    }

    #[tokio::test]
    async fn doors_that_just_failed_or_fell_silent_are_tried_last() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut pursuit = Pursuit::new(4, 0, now);
        pursuit.failed(2, &lost(), CAP, 0.0, later(1));
        pursuit.settled(3);
        // Left for door 0, because it fell silent.
        pursuit.shun(3, later(2));
        pursuit.settled(0);
        pursuit.failed(0, &lost(), CAP, 0.0, later(3));
        let mut tried = Vec::new();
        for second in 4..8 {
            let door = pursuit.door(None, later(second));
            pursuit.failed(door, &lost(), CAP, 0.0, later(second));
            tried.push(door);
        }
        assert_eq!(tried, [1, 2, 3, 0]);
    }

    #[tokio::test]
    async fn an_old_failure_and_one_made_good_are_not_held_against_a_door() {
        let now = Instant::now();
        let mut pursuit = Pursuit::new(3, 0, now);
        pursuit.failed(1, &lost(), CAP, 0.0, now);
        pursuit.settled(0);
        assert_eq!(pursuit.door(Some(0), now), 2);
        assert_eq!(pursuit.door(Some(0), now + HELD_AGAINST), 1);
        pursuit.settled(1);
        pursuit.settled(0);
        assert_eq!(pursuit.door(Some(0), now), 1);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_at_once_does_not_reset_the_back_off() {
        let now = Instant::now();
        let mut pursuit = Pursuit::new(1, 0, now);
        pursuit.failed(0, &lost(), CAP, 1.0, now);
        pursuit.lasted(Duration::from_millis(1), CAP);
        pursuit.failed(0, &lost(), CAP, 1.0, now);
        assert_eq!(pursuit.not_before(), now + Duration::from_millis(400));
        pursuit.lasted(CAP, CAP);
        pursuit.failed(0, &lost(), CAP, 1.0, now);
        assert_eq!(pursuit.not_before(), now + Duration::from_millis(200));
    }

    #[tokio::test]
    async fn a_refusal_is_retried_slowly() {
        let now = Instant::now();
        let mut pursuit = Pursuit::new(2, 0, now);
        let refusal =
            Failure::Refused { door: "a:1".into(), code: tonic::Code::AlreadyExists, message: "taken".into() };
        pursuit.failed(0, &refusal, CAP, 0.0, now);
        assert_eq!(pursuit.not_before(), now + CAP / 2);
    }
}
