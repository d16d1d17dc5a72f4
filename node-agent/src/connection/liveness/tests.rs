//! Tests of replica liveness with a clock that the test sets, and a replica that answers after a while or not at all.

use super::*;

const ENDPOINT: &str = "a:1";

fn terms(interval_ms: u64) -> SessionTerms {
    SessionTerms { beat_interval: Duration::from_millis(interval_ms), ..SessionTerms::default() }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A quiet stream: only beats, and the acknowledgements they ask for.
struct Stream {
    liveness: ReplicaLiveness,
    terms: SessionTerms,
    began: Instant,
    beats: u32,
    asked: u32,
    doubted: Option<Duration>,
}

impl Stream {
    fn new(interval_ms: u64) -> Self {
        let began = Instant::now();
        Self {
            liveness: ReplicaLiveness::new(began),
            terms: terms(interval_ms),
            began,
            beats: 0,
            asked: 0,
            doubted: None,
        }
    }

    /// Beats `count` times, each late by `jitter`. The replica answers after `round_trip` for as long as it lives.
    fn run(&mut self, count: u32, jitter: f64, round_trip: Duration, dies: Duration) {
        let mut answer: Option<Instant> = None;
        for _ in 0..count {
            let before = self.began + self.terms.next_beat_in(jitter) * self.beats;
            let due = before + self.terms.next_beat_in(jitter);
            if let Some(heard) = answer.take_if(|at| *at <= due && *at < self.began + dies) {
                self.doubt_before(heard, due);
                self.liveness.heard(heard);
            }
            self.doubt_before(due, due);
            self.beats += 1;
            if self.liveness.wants_answer(&self.terms, due) {
                self.liveness.asked(due);
                self.asked += 1;
                answer.get_or_insert(due + round_trip);
            }
        }
    }

    fn doubt_before(&mut self, until: Instant, due: Instant) {
        if let Some(at) = self.liveness.doubt_at(&self.terms, due).filter(|at| *at < until) {
            assert!(self.liveness.doubt(&self.terms, due, ENDPOINT, at).is_some());
            self.doubted.get_or_insert(at - self.began);
        }
    }
}

#[tokio::test]
async fn an_answered_quiet_stream_asks_at_its_cadence_and_never_doubts() {
    // (interval, round trip, beats per question)
    for (interval, round_trip, beats_per_question) in
        [(10_000, 1, 2), (10_000, 400, 2), (7500, 50, 2), (5000, 50, 1), (2000, 1, 1), (2000, 400, 1), (1000, 200, 1)]
    {
        for jitter in [0.0, 0.5, 1.0] {
            let mut stream = Stream::new(interval);
            stream.run(100, jitter, ms(round_trip), Duration::MAX / 4);
            let row = (interval, round_trip, jitter);
            assert_eq!(stream.doubted, None, "{row:?}");
            assert_eq!(stream.asked, 100 / beats_per_question, "{row:?}");
        }
    }
}

#[tokio::test]
async fn a_slow_answer_is_not_a_silence() {
    for (interval, round_trip) in [(10_000, 4900), (2000, 950), (1000, 950), (100, 950)] {
        let mut stream = Stream::new(interval);
        stream.run(100, 0.5, ms(round_trip), Duration::MAX / 4);
        assert_eq!(stream.doubted, None, "{interval} ms, answered after {round_trip} ms");
        assert!(stream.asked > 5, "{interval} ms");
    }
}

#[tokio::test]
async fn a_silent_replica_is_doubted_two_intervals_after_its_last_message() {
    // (interval, from the last message to the doubt). Where beats are rare, the connection's pings come first.
    for (interval, silence) in [(5000, 10_000), (2000, 4000), (1000, 2000), (10_000, 25_000)] {
        let mut stream = Stream::new(interval);
        stream.run(5, 0.0, ms(0), Duration::ZERO);
        assert_eq!(stream.doubted, Some(ms(silence)), "{interval} ms");
    }
    assert!(dial::HANG_NOTICED <= ms(2 * 7500));
}

#[tokio::test]
async fn late_beats_delay_the_doubt_by_little() {
    for (interval, jitter) in [(5000, 1.0), (2000, 0.3), (2000, 1.0), (1000, 1.0)] {
        let mut stream = Stream::new(interval);
        stream.run(5, jitter, ms(0), Duration::ZERO);
        let intervals = stream.doubted.unwrap().as_secs_f64() / ms(interval).as_secs_f64();
        assert!((2.0..2.1).contains(&intervals), "{interval} ms: {intervals}");
    }
}

#[tokio::test]
async fn a_short_interval_does_not_shorten_the_wait_below_the_minimum() {
    let mut stream = Stream::new(100);
    stream.run(50, 0.0, ms(0), Duration::ZERO);
    assert_eq!(stream.doubted, Some(ms(100) + ANSWER_MIN));
}

#[tokio::test]
async fn an_open_question_is_repeated_once_per_interval() {
    let (terms, began) = (terms(2000), Instant::now());
    let mut liveness = ReplicaLiveness::new(began);
    let mut asked = 0;
    // Ten times per interval, as an aggregator sends.
    for step in 1..=100 {
        let now = began + ms(200) * step;
        if liveness.wants_answer(&terms, now) {
            liveness.asked(now);
            asked += 1;
        }
    }
    assert_eq!(asked, 1 + (20_000 - 1600) / 1600, "every eighth time, from the eighth on");
    assert_eq!(liveness.doubt_at(&terms, began), Some(began + ms(4000)), "the first question counts");
}

#[tokio::test]
async fn any_message_ends_the_doubt() {
    let (terms, began) = (terms(2000), Instant::now());
    let mut liveness = ReplicaLiveness::new(began);
    liveness.asked(began + ms(2000));
    assert_eq!(liveness.doubt(&terms, began, ENDPOINT, began + ms(3999)), None);
    let failure = liveness.doubt(&terms, began, ENDPOINT, began + Duration::from_micros(4_000_700)).unwrap();
    assert_eq!(failure, SessionFailure::Silent { endpoint: ENDPOINT.into(), silence: ms(4000) });
    assert!(liveness.is_doubtful() && liveness.doubt_at(&terms, began).is_none());
    liveness.heard(began + ms(5000));
    assert!(!liveness.is_doubtful() && !liveness.wants_answer(&terms, began + ms(6000)));
}

#[tokio::test]
async fn a_beat_that_finds_no_room_counts_as_a_question() {
    let (terms, began) = (terms(2000), Instant::now());
    let mut liveness = ReplicaLiveness::new(began);
    let due = began + ms(200);
    assert_eq!(liveness.doubt_at(&terms, due), Some(began + ms(4000)));
    assert!(liveness.doubt(&terms, due, ENDPOINT, began + ms(4000)).is_some());
}

#[tokio::test]
async fn an_agent_that_was_itself_suspended_waits_for_the_answer_again() {
    let (terms, began) = (terms(2000), Instant::now());
    let mut liveness = ReplicaLiveness::new(began);
    liveness.asked(began + ms(2000));
    let awake = began + ms(60_000);
    assert_eq!(liveness.doubt(&terms, awake, ENDPOINT, awake), None);
    assert_eq!(liveness.doubt_at(&terms, awake), Some(awake + ms(1000)));
    assert!(liveness.doubt(&terms, awake, ENDPOINT, awake + ms(1000)).is_some());
}

/// GC-3 frees the names of a deleted node's pods later than that. A beat asks at the latest one interval, with its
/// jitter, after it may ask.
#[tokio::test]
async fn gc_3_a_frozen_replica_is_noticed_within_the_bound_that_the_rules_know() {
    let longest = ms(muster_lifecycle::agent_bound::HANG_NOTICED_MAX.0);
    for interval_ms in [10, 2000, 5000, 7000, 7500, 10_000] {
        let (terms, now) = (terms(interval_ms), Instant::now());
        let asks = now + ask_after(&terms) + terms.next_beat_in(1.0);
        let mut liveness = ReplicaLiveness::new(now);
        liveness.asked(asks);
        let doubted = liveness.doubt_at(&terms, asks).unwrap();
        assert!(doubted - now <= longest, "{interval_ms}: {:?}", doubted - now);
    }
}
