//! The conversation under a clock that the test turns.

use bytes::Bytes;

use super::*;

const DOOR: &str = "a:1";

struct Still;

impl Machine for Still {
    fn node_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }

    fn status_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }
}

fn conversation() -> Conversation {
    Conversation::new("rack-1".into(), 1, "test".into(), Arc::new(Still), || 0.0, Instant::now())
}

fn down(message: Down) -> v1::ServerMessage {
    v1::ServerMessage { message: Some(message) }
}

fn welcome(incarnation: u64) -> v1::ServerMessage {
    let terms = Some(v1::Terms { revision: 1, beat_interval_ms: 1000, grace_ms: 4000, backoff_cap_ms: 400 });
    let fleet = "fleet-1".to_owned();
    down(Down::Welcome(v1::Welcome { fleet, replica: 1, incarnation, terms, ..v1::Welcome::default() }))
}

fn said(turn: Turn) -> Up {
    match turn {
        Turn::Say(message) => message.message.unwrap(),
        Turn::Leave(_) | Turn::Nothing => panic!("something was due, not {turn:?}"),
    }
}

#[tokio::test]
async fn whatever_is_said_counts_as_a_beat() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(_)));
    let later = now + Duration::from_millis(600);
    assert!(matches!(said(node.turn(DOOR, later)), Up::Status(_)));
    assert_eq!(node.turn(DOOR, now + Duration::from_secs(1)), Turn::Nothing);
    assert_eq!(node.deadline(), later + Duration::from_secs(1));
}

#[tokio::test]
async fn shorter_terms_take_effect_at_once() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    node.turn(DOOR, now);
    let terms = v1::Terms { revision: 2, beat_interval_ms: 100, grace_ms: 400, backoff_cap_ms: 0 };
    node.heard(down(Down::Terms(terms)), DOOR, now);
    assert_eq!(node.next_beat, now + Duration::from_millis(100));
}

/// The beats until `until`, with the time of each and whether it asked; nothing is answered.
fn beats_until(node: &mut Conversation, until: Instant) -> Vec<(Instant, bool)> {
    let mut beats = Vec::new();
    while node.deadline() < until {
        let now = node.deadline();
        if let Turn::Say(v1::AgentMessage { message: Some(Up::Beat(beat)) }) = node.turn(DOOR, now) {
            beats.push((now, beat.acknowledge));
        }
    }
    beats
}

#[tokio::test]
async fn a_silent_replica_is_asked_and_doubted_but_beaten_to_all_the_same() {
    let (mut node, now) = (conversation(), Instant::now());
    let second = |number| now + Duration::from_secs(number);
    assert_eq!(node.doubt_at(), None, "nobody is there to be doubted");
    node.heard(welcome(1), DOOR, now);
    // The status is posted after the first beat and is the last sign of life; its answer never comes.
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(v1::Beat { acknowledge: false, .. })));
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
    assert_eq!(beats_until(&mut node, second(3)), [(second(1), true), (second(2), true)]);
    assert_eq!((node.doubt_at(), node.is_doubtful()), (Some(second(2)), false));

    let doubt = node.doubt(DOOR, second(2));
    assert_eq!(doubt, Some(Failure::Silent { door: DOOR.into(), silence: Duration::from_secs(2) }));
    assert!(node.is_doubtful() && node.doubt_at().is_none());
    assert_eq!(beats_until(&mut node, second(5)), [(second(3), true), (second(4), true)]);
    assert_eq!(node.replica(), Some(1), "it stays");

    let acknowledged = v1::Acknowledged { sequence: 6 };
    assert_eq!(node.heard(down(Down::Acknowledged(acknowledged)), DOOR, second(4)), Reaction::Stay);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(second(6))));
}

#[tokio::test]
async fn a_status_that_is_posted_again_and_again_does_not_keep_a_silent_replica_from_being_asked() {
    let (mut node, now) = (conversation(), Instant::now());
    node.dice = || 1.0;
    node.heard(welcome(1), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(_)));
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
    let again = node.deadline();
    assert!(matches!(said(node.turn(DOOR, again)), Up::Status(_)), "it was not answered");
    let asked = beats_until(&mut node, again + Duration::from_secs(1));
    assert!(asked.first().is_some_and(|(_, asks)| *asks), "{asked:?}");
}

#[tokio::test]
async fn another_replica_begins_without_doubt() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    let later = now + Duration::from_secs(2);
    beats_until(&mut node, later);
    assert!(node.doubt(DOOR, later).is_some());
    node.detached();
    assert!(!node.is_doubtful());
    node.heard(welcome(1), "b:1", later);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(later + Duration::from_secs(2))));
}

#[tokio::test]
async fn a_replica_that_does_not_answer_a_registration_is_left() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(down(Down::RegistrationWanted(v1::RegistrationWanted::default())), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Register(_)));
    assert_eq!((node.deadline(), node.turn(DOOR, now)), (now + REGISTRATION_PATIENCE, Turn::Nothing));
    assert!(matches!(node.turn(DOOR, now + REGISTRATION_PATIENCE), Turn::Leave(Failure::Late { .. })));
}

#[tokio::test]
async fn a_welcome_as_another_incarnation_ends_the_former_life() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    node.heard(welcome(1), DOOR, now);
    assert_eq!(node.removals(), 0);
    node.heard(welcome(2), DOOR, now);
    assert_eq!((node.removals(), node.incarnation()), (1, 2));
}

#[tokio::test]
async fn a_stream_begins_with_a_welcome_or_a_request_to_register() {
    let node = conversation();
    assert_eq!(node.accepts(&welcome(1), DOOR), Ok(()));
    let moved = node.accepts(&down(Down::Move(v1::Move::default())), DOOR).unwrap_err();
    assert!(moved.to_string().contains("Move"), "{moved}");
    assert!(node.accepts(&v1::ServerMessage::default(), DOOR).is_err());
}
