//! Golden bytes of the messages between replicas.

use std::path::Path;

use bytes::Bytes;
use muster_golden::GoldenBytes;
use prost::Message;

use crate::v1;

/// The sources of the messages: each of them must be pinned.
const SOURCES: [&str; 2] = [include_str!("../muster/v1/peer.proto"), include_str!("../muster/v1/pulse.proto")];

fn greeting() -> Option<v1::Greeting> {
    let (from_store, to_store) = (Bytes::from_static(&[1; 16]), Bytes::from_static(&[2; 16]));
    Some(v1::Greeting {
        fleet: "f".into(),
        generation: 300,
        from: 1,
        from_store,
        to: 2,
        to_store,
        run: 7,
        start: 1,
        promises: 300,
        heard: vec![mark()],
        level: 1,
        raised_by: "0.1.0".into(),
        level_min: 1,
        level_max: 2,
    })
}

fn mark() -> v1::Mark {
    v1::Mark { replica: 2, store: Bytes::from_static(&[1; 16]), run: 7, start: 1, promises: 300 }
}

fn digest_at() -> v1::DigestAt {
    v1::DigestAt { index: 300, digest: Bytes::from_static(&[3; 16]) }
}

fn session_claim() -> v1::SessionClaim {
    v1::SessionClaim {
        slot: 300,
        generation: 1,
        instance: 7,
        remote: "10.0.0.1:7".into(),
        number: 3,
        held_ms: 500,
        newcomer: true,
    }
}

fn proposed() -> v1::Proposed {
    v1::Proposed { outcome: bytes(), index: 300, code: 14, message: "m".into() }
}

fn taken_over() -> v1::TakenOver {
    v1::TakenOver { slot: 300, generation: 1, instance: 7, replica: 2, by_another: true }
}

fn bytes() -> Bytes {
    Bytes::from_static(&[9])
}

fn hello() -> v1::HelloResponse {
    v1::HelloResponse {
        id: 1,
        store: Bytes::from_static(&[1; 16]),
        initialized: true,
        known_store: Bytes::from_static(&[2; 16]),
        retired: true,
        leader: Some(3),
        term: 300,
        applied: 301,
        revision: 302,
        digest: "d".into(),
        version: "0.1.0".into(),
        digests: vec![digest_at()],
        level: 1,
        raised_by: "0.1.0".into(),
        level_min: 1,
        level_max: 2,
        mark: Some(mark()),
        heard: vec![mark()],
        members_term: 3,
        members_index: 300,
        members_digest: Bytes::from_static(&[4; 16]),
        trouble: "disputed".into(),
        trouble_detail: "t".into(),
        cannot_write: "full".into(),
    }
}

/// Every message that a replica sends to another, by its name in the sources.
fn pinned() -> Vec<(&'static str, Vec<u8>)> {
    let (payload, greeting) = (bytes(), greeting());
    let name = v1::DigestName { boot: 7, sequence: 300 };
    let wellbeing = v1::Wellbeing { canary_late: true, handshakes_queued: true, sessions: 300 };
    let answer = v1::ClaimAnswer { held_by: "h".into(), unsettled: true };
    let explain = v1::PeerExplainRequest {
        greeting: greeting.clone(),
        kind: "node".into(),
        name: "n".into(),
        namespace: "ns".into(),
    };
    let chunk = v1::SnapshotChunk { greeting: greeting.clone(), header: bytes(), data: bytes() };
    let propose = v1::ProposeRequest { greeting: greeting.clone(), commands: vec![bytes()], timeout_ms: 300 };
    let pull = v1::PullRequest { greeting: greeting.clone(), asked: 300, applied: Some(name) };
    let claims = v1::ClaimRequest {
        greeting: greeting.clone(),
        claims: vec![session_claim()],
        releases: vec![session_claim()],
        all_claimed: true,
    };
    let claimed = v1::ClaimResponse { answers: vec![answer.clone()], taken_over: vec![taken_over()] };
    vec![
        ("Greeting", greeting.clone().unwrap_or_default().encode_to_vec()),
        ("HelloResponse", hello().encode_to_vec()),
        ("Mark", mark().encode_to_vec()),
        ("DigestAt", digest_at().encode_to_vec()),
        ("RaftMessage", v1::RaftMessage { greeting: greeting.clone(), payload: payload.clone() }.encode_to_vec()),
        ("RaftReply", v1::RaftReply { payload, mark: Some(mark()), heard: vec![mark()] }.encode_to_vec()),
        ("SnapshotChunk", chunk.encode_to_vec()),
        ("ProposeRequest", propose.encode_to_vec()),
        ("ProposeResponse", v1::ProposeResponse { answers: vec![proposed()] }.encode_to_vec()),
        ("Proposed", proposed().encode_to_vec()),
        ("ReadIndexRequest", v1::ReadIndexRequest { greeting: greeting.clone() }.encode_to_vec()),
        ("ReadIndexResponse", v1::ReadIndexResponse { index: 300 }.encode_to_vec()),
        ("MembershipRequest", v1::MembershipRequest { greeting, change: bytes() }.encode_to_vec()),
        ("MembershipResponse", v1::MembershipResponse { message: "m".into() }.encode_to_vec()),
        ("PullRequest", pull.encode_to_vec()),
        ("DigestName", name.encode_to_vec()),
        ("DigestPart", v1::DigestPart { data: bytes(), wellbeing: Some(wellbeing) }.encode_to_vec()),
        ("Wellbeing", wellbeing.encode_to_vec()),
        ("ClaimRequest", claims.encode_to_vec()),
        ("SessionClaim", session_claim().encode_to_vec()),
        ("ClaimResponse", claimed.encode_to_vec()),
        ("TakenOver", taken_over().encode_to_vec()),
        ("ClaimAnswer", answer.encode_to_vec()),
        ("PeerExplainRequest", explain.encode_to_vec()),
        ("PeerExplainResponse", v1::PeerExplainResponse { explanation: bytes() }.encode_to_vec()),
    ]
}

#[test]
fn messages_between_replicas_keep_their_bytes() {
    let mut golden = GoldenBytes::default();
    pinned().into_iter().for_each(|(name, bytes)| golden.pin(name, bytes));
    golden.check(Path::new("golden/peers.txt"));
}

#[test]
fn every_message_between_replicas_is_pinned() {
    let known: Vec<&str> = pinned().iter().map(|(name, _)| *name).collect();
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let named = lines.filter_map(|line| line.strip_prefix("message ")?.split(' ').next());
    assert_eq!(named.filter(|name| !known.contains(name)).collect::<Vec<_>>(), [""; 0]);
}
