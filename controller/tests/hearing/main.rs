//! Tests of replicas that hear each other over real TLS doors, also when one of them is lost.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a helper that fails is a failed test")]

mod cluster;
mod slow_line;

use std::time::Duration;

use cluster::{Cluster, Terms, until, within};
use muster_controller::hearing::canary::CANARY_LATE;
use muster_controller::hearing::contact::CONTACT_LOST;
use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::pulse_client::PulseClient;
use muster_pulse::excuse::BlindnessCause;
use muster_pulse::table::{Beat, CHUNK_SLOTS};
use muster_raft::membership::MembershipChange;
use muster_raft::peers::Lane;
use tokio::time::Instant;
use tonic::Code;

#[tokio::test]
async fn a_beat_at_one_replica_is_known_to_the_others_within_a_second() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    until("first digests", || [1, 3].map(ReplicaId).iter().all(|id| has_digest(&cluster, *id, ReplicaId(2)))).await;
    // Several tries, because other load on this machine may hold up one of them.
    let mut prompt = false;
    for index in 0..5 {
        let slot = slot(index);
        assert_eq!(cluster.hearing(ReplicaId(2)).beat(slot), Beat::Heard);
        let known = || [1, 3].map(ReplicaId).iter().all(|id| heard_through(&cluster, *id, slot) == Some(ReplicaId(2)));
        prompt |= within(Duration::from_secs(1), known).await;
        until("the beat is known", known).await;
    }
    assert!(prompt);
}

#[tokio::test]
async fn a_beat_is_never_dated_later_than_it_was() {
    let cluster = Cluster::start(&[1, 2].map(ReplicaId)).await;
    let before = cluster.hearing(ReplicaId(1)).tick();
    let _ = cluster.hearing(ReplicaId(2)).beat(slot(0));
    let after = cluster.hearing(ReplicaId(1)).tick();
    until("the beat is known", || heard_through(&cluster, ReplicaId(1), slot(0)).is_some()).await;
    let (heard, _) = cluster.hearing(ReplicaId(1)).pulses().tables().last_heard(slot(0)).unwrap();
    assert!(heard <= after, "{heard:?} after {after:?}");
    // At most one round trip and the rounding of ages earlier. A round trip over a second would not count.
    assert!(heard >= before.before(Duration::from_millis(1_020)), "{heard:?} long before {before:?}");
}

#[tokio::test]
async fn a_digest_contains_no_pulses_of_other_replicas() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let (first, second) = (slot(1), slot(2));
    let _ = cluster.hearing(ReplicaId(2)).beat(first);
    until("replica 1 knows", || heard_through(&cluster, ReplicaId(1), first) == Some(ReplicaId(2))).await;
    // Replica 1 tells of this beat in a digest made after it knew of the first beat.
    let _ = cluster.hearing(ReplicaId(1)).beat(second);
    until("replica 3 knows", || heard_through(&cluster, ReplicaId(3), second) == Some(ReplicaId(1))).await;
    let told_by_1 = cluster.hearing(ReplicaId(3)).pulses().tables().other(ReplicaId(1)).unwrap().clone();
    assert!(told_by_1.heard(second).is_some());
    assert_eq!(told_by_1.heard(first), None);
}

#[tokio::test]
async fn a_stopped_peer_excuses_its_nodes_and_comes_back_with_its_full_table() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let (on_1, on_2, later) = (slot(1), slot(2), slot(CHUNK_SLOTS as u32 + 3));
    let _ = cluster.hearing(ReplicaId(1)).beat(on_1);
    let _ = cluster.hearing(ReplicaId(2)).beat(on_2);
    until("replica 1 knows", || heard_through(&cluster, ReplicaId(1), on_2) == Some(ReplicaId(2))).await;
    let blind = |cluster: &Cluster, id| cluster.is_blind(id, BlindnessCause::Digest(ReplicaId(2)));
    until("no replica is blind for it", || !blind(&cluster, ReplicaId(1)) && !blind(&cluster, ReplicaId(3))).await;

    cluster.stop(ReplicaId(2)).await;
    until("both are blind for it", || blind(&cluster, ReplicaId(1)) && blind(&cluster, ReplicaId(3))).await;
    assert_eq!(heard_through(&cluster, ReplicaId(1), on_2), Some(ReplicaId(2)), "what it had heard is still known");

    cluster.boot(ReplicaId(2)).await;
    let _ = cluster.hearing(ReplicaId(2)).beat(later);
    until("its new process is heard", || {
        [1, 3]
            .map(ReplicaId)
            .iter()
            .all(|id| heard_through(&cluster, *id, later) == Some(ReplicaId(2)) && !blind(&cluster, *id))
    })
    .await;
    // It was told of `on_1` in an earlier run only: if it knows it now, it took the full table.
    until("it knows what the others had heard", || heard_through(&cluster, ReplicaId(2), on_1) == Some(ReplicaId(1)))
        .await;
    assert_eq!(heard_through(&cluster, ReplicaId(2), on_2), None, "no peer sends it what it had heard itself");
}

/// I-02: a node that was last heard there has its whole grace.
#[tokio::test]
async fn pulses_of_a_removed_replica_are_dropped_after_its_agents_had_time_to_move_and_every_grace() {
    let backoff_cap = Duration::from_secs(1);
    let longest_grace = Duration::from_secs(6);
    let cluster = Cluster::start_with(&[1, 2, 3].map(ReplicaId), Terms { backoff_cap, ..Terms::default() }).await;
    let graces = [("node-monitor-grace-period", "4s"), ("node-startup-grace-period", "6s")];
    cluster.set_policy(&[[("node-monitor-period", "1s")].as_slice(), &graces].concat()).await;
    let (leader, removed) = (cluster.leader(), ReplicaId(if cluster.leader() == ReplicaId(3) { 2 } else { 3 }));
    let _ = cluster.hearing(removed).beat(slot(1));
    until("the leader knows", || heard_through(&cluster, leader, slot(1)) == Some(removed)).await;
    let before = cluster.hearing(leader).tick();
    let deadline = Instant::now() + cluster::PATIENCE;
    let change = MembershipChange::Remove { id: removed };
    cluster.running[&leader].replica.change_membership(&change, deadline).await.unwrap();
    until("it is forgotten", || cluster.hearing(leader).pulses().tables().other(removed).is_none()).await;
    let kept = cluster.hearing(leader).tick().elapsed_since(before);
    assert!(kept >= longest_grace.max(2 * backoff_cap), "kept for {kept:?}");
    assert_eq!(heard_through(&cluster, leader, slot(1)), None);
    assert!(!has_digest(&cluster, leader, removed));
    assert_eq!(cluster.excuse(leader, BlindnessCause::Digest(removed)), None);
}

/// 2.4 MB at 1 MB a second: far longer than a round trip, but part follows part.
#[tokio::test]
async fn a_table_that_takes_longer_than_a_second_is_merged_whole_and_its_replica_is_excused_meanwhile() {
    const SLOTS: u32 = 800_000;
    let cluster =
        Cluster::start_with(&[1, 2].map(ReplicaId), Terms { bytes_per_second: 1_000_000, ..Terms::default() }).await;
    let hearing = cluster.hearing(ReplicaId(2)).clone();
    for index in 0..SLOTS {
        let _ = hearing.beat(slot(index));
    }
    let known = |index| heard_through(&cluster, ReplicaId(1), slot(index)) == Some(ReplicaId(2));
    let missing = || cluster.is_blind(ReplicaId(1), BlindnessCause::Digest(ReplicaId(2)));
    until("it shows that it takes long", || missing() && !known(SLOTS - 1)).await;
    until("all are known", || known(SLOTS - 1) && (0..SLOTS).all(known)).await;
    until("and nothing is missing", || !missing()).await;
}

#[tokio::test]
async fn a_table_of_many_parts_is_merged_whole() {
    const SLOTS: u32 = 200_000;
    let cluster = Cluster::start(&[1, 2].map(ReplicaId)).await;
    let hearing = cluster.hearing(ReplicaId(2)).clone();
    for index in 0..SLOTS {
        let _ = hearing.beat(slot(index));
    }
    let known = |index| heard_through(&cluster, ReplicaId(1), slot(index)) == Some(ReplicaId(2));
    until("all are known", || known(SLOTS - 1) && (0..SLOTS).all(known)).await;
}

#[tokio::test]
async fn replicas_are_in_contact_until_the_quorum_is_lost() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let in_contact = |cluster: &Cluster, id| {
        let contact = &cluster.running[&id].contact;
        *contact.watch().borrow() && contact.lost_for().is_none()
    };
    until("all are in contact", || [1, 2, 3].map(ReplicaId).iter().all(|id| in_contact(&cluster, *id))).await;
    let leader = cluster.leader();
    until("the leader hears its quorum", || !cluster.is_blind(leader, BlindnessCause::Quorum)).await;
    for id in [1, 2, 3].map(ReplicaId) {
        if id != leader {
            cluster.stop(id).await;
        }
    }
    until("a leader without quorum is blind", || cluster.is_blind(leader, BlindnessCause::Quorum)).await;
    until("and loses contact", || !*cluster.running[&leader].contact.watch().borrow()).await;
    assert!(cluster.running[&leader].contact.lost_for().unwrap() >= CONTACT_LOST);
}

#[tokio::test]
async fn a_single_replica_is_its_own_quorum() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    until("it is in contact", || *cluster.running[&ReplicaId(1)].contact.watch().borrow()).await;
    assert_eq!(cluster.running[&ReplicaId(1)].replica.since_quorum(), Some(Duration::ZERO));
    assert_eq!(cluster.excuse(ReplicaId(1), BlindnessCause::Quorum), None);
}

#[tokio::test]
async fn a_canary_is_late_while_the_agents_door_does_not_answer_and_the_peers_know_it() {
    let cluster = Cluster::start(&[1, 2].map(ReplicaId)).await;
    let late_on = |id| cluster.is_blind(id, BlindnessCause::Canary(ReplicaId(1)));
    // Connections come up, but the listener never answers.
    let silent = std::net::TcpListener::bind(cluster.agent_address(ReplicaId(1))).unwrap();
    let started = cluster.hearing(ReplicaId(1)).tick();
    cluster.start_canary(ReplicaId(1));
    until("it is late, here and at the peer", || late_on(ReplicaId(1)) && late_on(ReplicaId(2))).await;
    assert!(cluster.hearing(ReplicaId(1)).canary_late());
    assert!(cluster.hearing(ReplicaId(1)).tick().elapsed_since(started) > CANARY_LATE);

    drop(silent);
    let door = cluster.open_agent_door(ReplicaId(1));
    until("it is heard, here and at the peer", || !late_on(ReplicaId(1)) && !late_on(ReplicaId(2))).await;
    assert!(!cluster.hearing(ReplicaId(1)).canary_late());

    door.close().await;
    until("it is late again", || late_on(ReplicaId(1)) && late_on(ReplicaId(2))).await;
    let _door = cluster.open_agent_door(ReplicaId(1));
    until("it recovers", || !late_on(ReplicaId(1)) && !late_on(ReplicaId(2))).await;
}

#[tokio::test]
async fn only_a_replica_with_a_valid_greeting_is_answered() {
    let cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let asking = &cluster.running[&ReplicaId(3)].replica;
    until("it knows replica 1", || asking.peer_channel(ReplicaId(1), Lane::Pulse).is_some()).await;
    let (channel, greeting) = asking.peer_channel(ReplicaId(1), Lane::Pulse).unwrap();
    let mut client = PulseClient::new(channel);
    let forged = v1::Greeting { from: 2, ..greeting.clone() };
    for greeting in [None, Some(forged), Some(v1::Greeting { to: 2, ..greeting.clone() })] {
        let pull = v1::PullRequest { greeting: greeting.clone(), asked: 1, applied: None };
        let claim = v1::ClaimRequest { greeting: greeting.clone(), ..v1::ClaimRequest::default() };
        let explain = v1::PeerExplainRequest { greeting, ..v1::PeerExplainRequest::default() };
        assert_eq!(client.pull(pull).await.map(|_| ()).unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(client.claim(claim).await.unwrap_err().code(), Code::PermissionDenied);
        assert_eq!(client.explain(explain).await.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test]
async fn claims_and_explanations_reach_the_service_of_the_peer() {
    let cluster = Cluster::start(&[1, 2].map(ReplicaId)).await;
    let (channel, greeting) = cluster.running[&ReplicaId(2)].replica.peer_channel(ReplicaId(1), Lane::Pulse).unwrap();
    let (mut client, greeting) = (PulseClient::new(channel), Some(greeting));
    let claims = vec![v1::SessionClaim::default(); 2];
    let claim = v1::ClaimRequest { greeting: greeting.clone(), claims, releases: vec![], all_claimed: false };
    let answers = client.claim(claim).await.unwrap().into_inner().answers;
    assert_eq!(answers.iter().map(|answer| answer.held_by.as_str()).collect::<Vec<_>>(), ["asked by 2"; 2]);
    let explain = v1::PeerExplainRequest { greeting, kind: "node".into(), name: "a".into(), ..Default::default() };
    assert_eq!(client.explain(explain).await.unwrap().into_inner().explanation, "node/a");
}

// === helpers ===

fn slot(index: u32) -> Slot {
    Slot { index, generation: 1 }
}

/// The replica through which replica `id` knows of the last beat.
fn heard_through(cluster: &Cluster, id: ReplicaId, slot: Slot) -> Option<ReplicaId> {
    cluster.hearing(id).pulses().tables().last_heard(slot).map(|(_, replica)| replica)
}

fn has_digest(cluster: &Cluster, id: ReplicaId, of: ReplicaId) -> bool {
    cluster.hearing(id).pulses().blindness().last_digest(of).is_some()
}
