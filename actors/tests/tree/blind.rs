//! Blindness is not death: no node is judged or evicted for beats that this replica could not hear (I-03, I-05).

use std::sync::Arc;
use std::time::Duration;

use muster_actors::StateSource;
use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::tick::Tick;

use crate::stage::{Stage, seconds};

fn tick(stage: &Stage) -> Tick {
    stage.world.moment().tick
}

fn verdicts(stage: &Stage) -> usize {
    let is_verdict = |operation: &LeaderOperation| {
        matches!(operation, LeaderOperation::MarkSilent { .. } | LeaderOperation::EvictNode { .. })
    };
    stage.world.log().iter().filter(|entry| is_verdict(&entry.operation)).count()
}

#[tokio::test(start_paused = true)]
async fn i_03_no_node_is_marked_unknown_while_the_leader_is_blind() {
    let stage = Stage::set().with_zone("a", 6);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    ["a-0", "a-1"].iter().for_each(|name| stage.kill(name));
    stage.pass(seconds(30)).await;
    stage.pulses.blindness().quorum_lost(tick(&stage));
    stage.pass(seconds(100)).await;
    assert_eq!(verdicts(&stage), 0);
    stage.pulses.blindness().quorum_heard(tick(&stage));
    let sighted = stage.world.elapsed();
    stage.beat_again("a-1");
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
    let after = stage.marked()["a-0"] - sighted;
    assert!(after >= seconds(20) && after < seconds(23), "agents get 20 s to come back, it was {after:?}");
    assert_eq!(stage.marked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn agents_that_beat_faster_get_less_time_to_come_back() {
    let stage = Stage::set().with_zone("a", 6);
    stage.set_policy("node-monitor-grace-period", "8s");
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.pulses.blindness().quorum_lost(tick(&stage));
    stage.kill("a-0");
    stage.pass(seconds(20)).await;
    stage.pulses.blindness().quorum_heard(tick(&stage));
    let sighted = stage.world.elapsed();
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
    let after = stage.marked()["a-0"] - sighted;
    assert!(after >= seconds(4) && after < seconds(6), "twice the 2 s between beats, not {after:?}");
}

#[tokio::test(start_paused = true)]
async fn blindness_that_begins_after_the_verdict_holds_evictions_back() {
    let stage = Stage::set().with_zone("a", 8);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..3).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("the first is evicted", seconds(60), |stage| !stage.evicted().is_empty()).await;
    stage.pulses.blindness().quorum_lost(tick(&stage));
    let before = verdicts(&stage);
    stage.pass(seconds(60)).await;
    assert_eq!(verdicts(&stage), before);
    stage.pulses.blindness().quorum_heard(tick(&stage));
    stage.until("the others follow", seconds(60), |stage| stage.evicted().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_judges_no_node_before_it_has_every_replicas_pulses() {
    let stage = Stage::set().with_zone("a", 6);
    let peer = stage.pulses.admit(ReplicaId(2)).unwrap();
    // Only the peer has heard a-0, and its table is still to come.
    stage.kill("a-0");
    stage.pass(seconds(100)).await;
    stage.pulses.blindness().took_over([ReplicaId(2)], tick(&stage));
    stage.grow().await;
    stage.pass(seconds(15)).await;
    assert_eq!(verdicts(&stage), 0);
    let slot = stage.node("a-0").slot;
    let beats = tokio::spawn({
        let world = Arc::clone(&stage.world);
        async move {
            loop {
                let _ = peer.beat(slot, world.moment().tick);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    });
    // The peer's digests are complete from here on.
    let digests = tokio::spawn({
        let (world, pulses) = (Arc::clone(&stage.world), Arc::clone(&stage.pulses));
        async move {
            loop {
                pulses.blindness().digest_complete(ReplicaId(2), world.moment().tick);
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        }
    });
    stage.pass(seconds(200)).await;
    assert_eq!(verdicts(&stage), 0, "every node is heard by some replica");
    beats.abort();
    stage.until("a-0 is marked", seconds(45), |stage| stage.is_unknown("a-0")).await;
    digests.abort();
}

#[tokio::test(start_paused = true)]
async fn a_stall_of_the_leader_excuses_every_node() {
    let stage = Stage::set().with_zone("a", 6);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    let killed = stage.world.elapsed();
    stage.kill("a-0");
    stage.pass(seconds(15)).await;
    // Nothing runs for a minute: neither beats nor sweeps.
    tokio::time::advance(seconds(60)).await;
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
    let silence = stage.marked()["a-0"] - killed;
    assert!(silence >= seconds(95) && silence < seconds(98), "20 s after the stall of 60 s, not {silence:?}");
    stage.pass(seconds(60)).await;
    assert_eq!(stage.marked().len(), 1);
}
