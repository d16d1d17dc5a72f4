//! Replicas that hang or do not acknowledge: an agent leaves them once another replica accepts it, and not before.

use std::time::Duration;

use futures::FutureExt;
use muster_node_agent::SessionFailure;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::aggregator::{Aggregator, bound};
use crate::replica::{AggregatorStream, Replica, SessionStream, TIMEOUT, welcome};
use crate::session::{Agent, first_visited};

/// A grace of eight seconds.
const INTERVAL_MS: u32 = 2000;
const INTERVAL: Duration = Duration::from_millis(INTERVAL_MS as u64);
/// A silence is doubted after one and a half seconds.
const SHORT_MS: u32 = 500;
const SHORT: Duration = Duration::from_millis(SHORT_MS as u64);

async fn replicas(count: usize) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for _ in 0..count {
        replicas.push(Replica::start().await);
    }
    replicas
}

fn all(replicas: &[Replica]) -> Vec<&Replica> {
    replicas.iter().collect()
}

/// An agent attached to replica 1, the stream it has there, and the other replicas in the order it would try them.
async fn attached(count: usize, interval_ms: u32) -> (Agent, Replica, SessionStream, Vec<Replica>) {
    let replicas = replicas(count).await;
    let agent = Agent::start(&all(&replicas));
    let (visited, mut session, others) = first_visited(replicas).await;
    session.send(Down::Welcome(welcome(1, 4, interval_ms))).await;
    session.take_status().await;
    agent.state(|state| state.attached_to == Some(1)).await;
    (agent, visited, session, others)
}

/// An aggregator of three nodes attached to the first of two replicas.
async fn carrying(interval_ms: u32) -> (Aggregator, Replica, AggregatorStream, Replica) {
    let (mut first, second) = (Replica::start().await, Replica::start().await);
    let aggregator = Aggregator::start(&[&first, &second], 3);
    let mut stream = first.aggregator().await;
    stream.greet_with(1, interval_ms).await;
    stream.bind(3, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.bound == 3).await;
    (aggregator, first, stream, second)
}

/// The time since the last sign of life, checked against when a silent replica has to be left.
fn assert_soon(silence: Duration) {
    assert!(silence > INTERVAL.mul_f64(1.8), "{silence:?} are no reason to leave");
    assert!(silence < INTERVAL.mul_f64(2.5), "{silence:?}");
}

#[tokio::test]
async fn l_3_a_frozen_replica_is_left_within_two_and_a_half_beat_intervals() {
    let (agent, visited, _session, mut others) = attached(3, INTERVAL_MS).await;
    let frozen = Instant::now();
    visited.freeze();
    let (session, hello) = others[0].session().await;
    assert_soon(frozen.elapsed());
    assert_eq!((hello.moving, hello.incarnation), (true, 4));
    let state = agent.state(|state| matches!(state.last_error, Some(SessionFailure::Silent { .. }))).await;
    assert_eq!(state.attached_to, Some(1), "until another has accepted");
    session.send(Down::Welcome(welcome(2, 4, INTERVAL_MS))).await;
    let state = agent.state(|state| state.attached_to == Some(2)).await;
    assert_eq!((state.last_error, state.removals), (None, 0));
}

#[tokio::test]
async fn a_replica_that_does_not_acknowledge_hears_beats_until_another_has_accepted() {
    let (agent, _visited, mut old, mut others) = attached(2, INTERVAL_MS).await;
    let last_word = Instant::now();
    old.acknowledges = false;
    let mut beats = Vec::new();
    let (new, hello) = {
        let visit = others[0].session().fuse();
        tokio::pin!(visit);
        loop {
            tokio::select! {
                visited = &mut visit => break visited,
                beat = old.beat() => beats.push(beat),
            }
        }
    };
    assert_soon(last_word.elapsed());
    assert!(hello.moving);
    assert!(!beats.is_empty() && beats.iter().any(|beat| beat.acknowledge), "{beats:?}");
    assert!(old.beat().await.acknowledge, "it goes on asking");
    new.send(Down::Welcome(welcome(2, 4, INTERVAL_MS))).await;
    agent.state(|state| state.attached_to == Some(2)).await;
    old.ended().await;
}

#[tokio::test]
async fn a_replica_that_acknowledges_is_kept() {
    let (agent, _visited, mut session, mut others) = attached(2, SHORT_MS).await;
    let period = 8 * SHORT;
    let (heard, left_alone) = tokio::join!(session.hear_for(period), others[0].is_left_alone(period));
    let heard = heard.expect("the stream stays");
    let asked = heard.iter().filter(|message| matches!(message, Up::Beat(beat) if beat.acknowledge)).count();
    assert!(asked >= 4 && left_alone, "{heard:?}");
    assert_eq!((agent.session.state().attached_to, agent.session.state().last_error), (Some(1), None));
}

#[tokio::test]
async fn a_silent_replica_is_kept_while_no_other_accepts_and_kept_once_it_answers() {
    let (agent, _visited, mut old, mut others) = attached(2, SHORT_MS).await;
    old.acknowledges = false;
    for _ in 0..3 {
        let (refusing, hello) = others[0].session().await;
        assert!(hello.moving);
        refusing.refuse(Status::unavailable("no contact to the leader either")).await;
    }
    assert_eq!(agent.session.state().attached_to, Some(1));
    assert!(old.hear_for(2 * SHORT).await.expect("it is still held").len() > 2);

    old.acknowledges = true;
    old.beat().await;
    // Attempts may have been made before the message arrived.
    while timeout(SHORT, others[0].session()).await.is_ok() {
        old.beat().await;
    }
    let period = 6 * SHORT;
    let (heard, left_alone) = tokio::join!(old.hear_for(period), others[0].is_left_alone(period));
    assert!(heard.is_some_and(|heard| heard.len() > 2) && left_alone);
    assert_eq!(agent.session.state().attached_to, Some(1));
}

#[tokio::test]
async fn a_replica_that_answers_before_another_accepts_is_kept() {
    let (agent, _visited, mut old, mut others) = attached(2, SHORT_MS).await;
    old.acknowledges = false;
    let (undecided, hello) = others[0].session().await;
    assert!(hello.moving);
    old.acknowledges = true;
    let gives_up = undecided.ended();
    let keeps_answering = async { while old.receive().await.is_some() {} };
    tokio::select! {
        () = gives_up => {}
        () = keeps_answering => panic!("the stream that answers was left"),
    }
    assert_eq!(agent.session.state().attached_to, Some(1));
    let period = 4 * SHORT;
    let (heard, left_alone) = tokio::join!(old.hear_for(period), others[0].is_left_alone(period));
    assert!(heard.is_some_and(|heard| heard.len() > 2) && left_alone);
}

#[tokio::test]
async fn l_6_a_replica_that_hangs_costs_at_most_the_time_of_the_terms() {
    let (agent, visited, session, mut others) = attached(3, INTERVAL_MS).await;
    others[0].freeze();
    let lost = Instant::now();
    drop((session, visited));
    let (session, hello) = others[1].session().await;
    let took = lost.elapsed();
    assert!(took > INTERVAL.mul_f64(0.9) && took < INTERVAL.mul_f64(2.0), "one step takes one interval: {took:?}");
    assert!(!hello.moving);
    session.send(Down::Welcome(welcome(3, 4, INTERVAL_MS))).await;
    agent.state(|state| state.attached_to == Some(3)).await;
}

#[tokio::test]
async fn an_aggregator_leaves_a_frozen_replica_as_soon_as_an_agent() {
    let (aggregator, first, _stream, mut second) = carrying(INTERVAL_MS).await;
    let frozen = Instant::now();
    first.freeze();
    let mut new = second.aggregator().await;
    assert_soon(frozen.elapsed());
    assert_eq!(aggregator.state(|state| state.last_error.is_some()).await.attached_to, Some(1));
    assert!(new.greet_with(2, INTERVAL_MS).await.moving);
    new.bind(3, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.attached_to == Some(2) && state.bound == 3).await;
}

#[tokio::test]
async fn an_aggregator_keeps_a_replica_that_acknowledges_or_that_no_other_replaces() {
    let (aggregator, _first, mut old, mut second) = carrying(SHORT_MS).await;
    let until = Instant::now() + 8 * SHORT;
    while Instant::now() < until {
        old.beats().await;
    }
    assert!(second.aggregator().now_or_never().is_none(), "no search for another replica");

    old.acknowledges = false;
    for _ in 0..3 {
        let mut refusing = second.aggregator().await;
        assert!(refusing.hello().await.moving);
        let beaten = async { while old.beats().await.is_empty() {} };
        timeout(TIMEOUT, beaten).await.expect("the old stream still beats");
        refusing.refuse(Status::unavailable("no contact to the leader either")).await;
    }
    let state = aggregator.state(|_| true).await;
    assert_eq!((state.attached_to, state.bound), (Some(1), 3));
}
