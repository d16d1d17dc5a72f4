//! Changes of leader: what was heard and which tokens were spent stays.

use std::sync::Arc;

use muster_actors::ports::Quiet;
use muster_actors::{ActorKind, ProposalOutcome, StateSource};
use muster_lifecycle::rejection::Rejection;

use crate::stage::{Entry, Stage, TERM, seconds};
use crate::watching::Watcher;

async fn hand_over(stage: &Stage, term: u64) {
    stage.prune().await;
    stage.world.set_term(term);
    let now = stage.world.moment().tick;
    stage.pulses.blindness().took_over([], now);
    stage.grow_with(term, Arc::new(Quiet), Arc::new(Quiet)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_restart_graces() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    stage.pass(seconds(120)).await;
    let killed = stage.world.elapsed();
    stage.kill("a-3");
    stage.pass(seconds(30)).await;
    hand_over(&stage, TERM + 1).await;
    stage.until("a-3 is marked", seconds(60), |stage| stage.is_unknown("a-3")).await;
    let silence = stage.marked()["a-3"] - killed;
    // The new leader knew as much as the old one, so no node gets even a window to come back in.
    assert!(silence >= seconds(39) && silence < seconds(42), "marked after {silence:?}");
    assert_eq!(stage.marked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_bucket_is_the_same_for_every_leader() {
    let stage = Stage::set().with_zone("a", 10);
    stage.grow().await;
    stage.pass(seconds(60)).await;
    (0..4).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("the first is evicted", seconds(60), |stage| !stage.evicted().is_empty()).await;
    for term in 2..6 {
        stage.pass(seconds(3)).await;
        hand_over(&stage, term).await;
    }
    stage.until("all are evicted", seconds(120), |stage| stage.evicted().len() == 4).await;
    let mut times: Vec<_> = stage.evicted().into_values().collect();
    times.sort();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= seconds(10)), "one per ten seconds: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pruned_tree_has_no_actors_and_proposes_nothing() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 50).with_zone("b", 50);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.until("every node has an actor", seconds(5), |_| watcher.count(ActorKind::Node) == 100).await;
    assert_eq!(watcher.count(ActorKind::Zone), 2);
    stage.kill("a-0");
    stage.pass(seconds(20)).await;
    stage.prune().await;
    for kind in ActorKind::ALL {
        assert_eq!(watcher.count(kind), 0, "{kind} actors are left");
    }
    stage.pass(seconds(100)).await;
    assert!(stage.marked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rejection_for_its_term_is_proposed_again_once_per_round() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.world.set_term(TERM + 1);
    stage.kill("a-0");
    stage.pass(seconds(60)).await;
    assert!(stage.marked().is_empty());
    let log = stage.world.log();
    let foreign = |entry: &&Entry| {
        entry.term == TERM && matches!(entry.outcome, ProposalOutcome::Rejected(Rejection::ForeignTerm { .. }))
    };
    let rejected = log.iter().filter(foreign).count();
    assert!((1..60).contains(&rejected), "{rejected} rejections: proposed again, but no more than once per round");
    stage.world.set_term(TERM);
    stage.until("a-0 is evicted", seconds(5), |stage| stage.is_evicted("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn nh_10_a_failed_proposal_is_repeated_once_per_round() {
    let stage = Stage::set().with_zone("a", 1_200);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.world.refuse(true);
    (0..1_100).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.pass(seconds(60)).await;
    let log = stage.world.log();
    let mut moments: Vec<_> = log.iter().filter(|entry| entry.confirmed).map(|entry| entry.at).collect();
    moments.dedup();
    assert!((20..=42).contains(&moments.len()), "{} proposals failed in some 40 rounds", moments.len());
    stage.world.refuse(false);
    stage.until("all are marked", seconds(5), |stage| stage.marked().len() == 1_100).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_tree_stops_like_a_pruned_one() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 4);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.until("every node has an actor", seconds(5), |_| watcher.count(ActorKind::Node) == 4).await;
    stage.drop_tree();
    let is_gone = || ActorKind::ALL.into_iter().all(|kind| watcher.count(kind) == 0);
    stage.until("all actors are gone", seconds(5), |_| is_gone()).await;
}
