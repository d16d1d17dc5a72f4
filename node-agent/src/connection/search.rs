//! Search for a replica that accepts the agent: which endpoint to dial next, and when at the earliest.
//!
//! An agent starts at an endpoint derived from its name, so that a fleet spreads evenly without an assignment. It then
//! dials the endpoints in turn; those that failed or fell silent lately come last.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::failure::SessionFailure;

/// An older failure no longer counts against an endpoint. Otherwise fleets would lean to one side after a restart.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct ReplicaSearch {
    /// When each endpoint last failed.
    failures: Vec<Option<Instant>>,
    next: usize,
    not_before: Instant,
    backoff: Backoff,
}

impl ReplicaSearch {
    /// `seed` is any number that differs between agents; `endpoints` is at least one.
    pub(crate) fn new(endpoints: usize, seed: u64, now: Instant) -> Self {
        let endpoints = endpoints.max(1);
        let next = usize::try_from(seed % endpoints as u64).unwrap_or(0);
        Self { failures: vec![None; endpoints], next, not_before: now, backoff: Backoff::default() }
    }

    pub(crate) fn not_before(&self) -> Instant {
        self.not_before
    }

    /// The endpoint to dial: another than the one `held`, if there is another.
    pub(crate) fn endpoint(&self, held: Option<usize>, now: Instant) -> usize {
        let endpoints = self.failures.len();
        let in_turn = (self.next..self.next + endpoints).map(|endpoint| endpoint % endpoints);
        let others = in_turn.filter(|endpoint| Some(*endpoint) != held);
        others.min_by_key(|endpoint| self.failed_lately(*endpoint, now)).unwrap_or(self.next)
    }

    /// The endpoint refused the agent, or its link was lost.
    pub(crate) fn failed(&mut self, endpoint: usize, failure: &SessionFailure, cap: Duration, dice: f64, now: Instant) {
        self.try_last(endpoint, now);
        let pause = match failure.is_refusal() {
            true => self.backoff.long_pause(cap, dice),
            false => self.backoff.pause(cap, dice),
        };
        self.not_before = now + pause;
    }

    /// Puts the endpoint behind the others.
    pub(crate) fn try_last(&mut self, endpoint: usize, now: Instant) {
        self.failures[endpoint] = Some(now);
        self.next = (endpoint + 1) % self.failures.len();
    }

    /// The endpoint accepted the agent.
    pub(crate) fn attached(&mut self, endpoint: usize) {
        self.failures[endpoint] = None;
        self.next = endpoint;
    }

    /// Resets the back-off after a connection that lasted; one that broke at once does not reset it.
    pub(crate) fn lasted(&mut self, lifetime: Duration, cap: Duration) {
        if lifetime >= cap {
            self.backoff.reset();
        }
    }

    /// Sort key: endpoints that did not fail come first, then those whose failure is longest ago.
    fn failed_lately(&self, endpoint: usize, now: Instant) -> Option<Instant> {
        self.failures[endpoint].filter(|failed| now < *failed + FAILURE_COUNTS_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(2);

    fn lost() -> SessionFailure {
        SessionFailure::Lost { endpoint: "a:1".into(), reason: "reset".into() }
    }

    #[tokio::test]
    async fn agents_spread_over_the_endpoints_and_dial_them_in_turn() {
        let now = Instant::now();
        let mut search = ReplicaSearch::new(3, 7, now);
        let mut tried = vec![search.endpoint(None, now)];
        for _ in 0..4 {
            search.failed(tried[tried.len() - 1], &lost(), CAP, 1.0, now);
            tried.push(search.endpoint(None, now));
        }
        assert_eq!(tried, [1, 2, 0, 1, 2]);
        assert_eq!(search.not_before(), now + Duration::from_millis(1600));
    }

    #[tokio::test]
    async fn a_move_leads_to_another_endpoint_if_there_is_one() {
        let now = Instant::now();
        assert_eq!(ReplicaSearch::new(3, 1, now).endpoint(Some(1), now), 2);
        assert_eq!(ReplicaSearch::new(1, 1, now).endpoint(Some(0), now), 0);
    }

    #[tokio::test]
    async fn endpoints_that_just_failed_or_fell_silent_are_dialled_last() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut search = ReplicaSearch::new(4, 0, now);
        search.failed(2, &lost(), CAP, 0.0, later(1));
        search.attached(3);
        // The agent leaves endpoint 3 for endpoint 0, because 3 fell silent.
        search.try_last(3, later(2));
        search.attached(0);
        search.failed(0, &lost(), CAP, 0.0, later(3));
        let mut tried = Vec::new();
        for second in 4..8 {
            let endpoint = search.endpoint(None, later(second));
            search.failed(endpoint, &lost(), CAP, 0.0, later(second));
            tried.push(endpoint);
        }
        assert_eq!(tried, [1, 2, 3, 0]);
    }

    #[tokio::test]
    async fn an_old_failure_and_one_made_good_do_not_count_against_an_endpoint() {
        let now = Instant::now();
        let mut search = ReplicaSearch::new(3, 0, now);
        search.failed(1, &lost(), CAP, 0.0, now);
        search.attached(0);
        assert_eq!(search.endpoint(Some(0), now), 2);
        assert_eq!(search.endpoint(Some(0), now + FAILURE_COUNTS_FOR), 1);
        search.attached(1);
        search.attached(0);
        assert_eq!(search.endpoint(Some(0), now), 1);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_at_once_does_not_reset_the_back_off() {
        let now = Instant::now();
        let mut search = ReplicaSearch::new(1, 0, now);
        search.failed(0, &lost(), CAP, 1.0, now);
        search.lasted(Duration::from_millis(1), CAP);
        search.failed(0, &lost(), CAP, 1.0, now);
        assert_eq!(search.not_before(), now + Duration::from_millis(400));
        search.lasted(CAP, CAP);
        search.failed(0, &lost(), CAP, 1.0, now);
        assert_eq!(search.not_before(), now + Duration::from_millis(200));
    }

    #[tokio::test]
    async fn a_refusal_is_retried_slowly() {
        let now = Instant::now();
        let mut search = ReplicaSearch::new(2, 0, now);
        let refusal = SessionFailure::Refused {
            endpoint: "a:1".into(),
            code: tonic::Code::AlreadyExists,
            message: "taken".into(),
        };
        search.failed(0, &refusal, CAP, 0.0, now);
        assert_eq!(search.not_before(), now + CAP / 2);
    }
}
