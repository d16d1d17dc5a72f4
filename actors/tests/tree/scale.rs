//! Many nodes: the tree grows at once, and no verdict waits for a spawn.

use std::sync::Arc;
use std::time::Duration;

use muster_actors::ActorKind;
use muster_actors::ports::Quiet;

use crate::stage::{Stage, seconds};
use crate::watching::Watcher;

const NODES: usize = 20_000;

#[tokio::test(start_paused = true)]
async fn verdicts_do_not_wait_for_spawns() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", NODES / 2).with_zone("b", NODES / 2);
    let lost: Vec<String> = (0..40).map(|number| format!("a-{}", number * 97)).collect();
    lost.iter().for_each(|name| stage.kill(name));
    stage.pass(seconds(60)).await;
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.until("all of them are marked", seconds(3), |stage| stage.marked().len() == lost.len()).await;
    let got_actor = watcher.actors_at_verdicts.lock().unwrap().clone();
    assert_eq!(got_actor.len(), lost.len(), "each is judged once");
    assert!(got_actor.iter().all(|got_actor| *got_actor < NODES), "a verdict waited for all spawns: {got_actor:?}");
    stage.until("every node has an actor", seconds(20), |_| watcher.count(ActorKind::Node) == NODES).await;
    assert!(watcher.count(ActorKind::Shard) <= 10, "slots of two zones in five chunks");
    stage.kill("b-77");
    stage.until("b-77 is marked", seconds(45), |stage| stage.is_unknown("b-77")).await;
    assert_eq!(stage.marked().len(), lost.len() + 1);
    stage.prune().await;
    assert_eq!(watcher.count(ActorKind::Node), 0);
}

/// The last node by name is the last to be looked at, and a part takes 10 ms.
#[tokio::test(start_paused = true)]
async fn verdicts_do_not_wait_for_the_survey_of_the_whole_fleet() {
    let stage = Stage::set().with_zone("a", NODES / 2).with_zone("b", NODES / 2);
    stage.kill("b-9999");
    stage.pass(seconds(60)).await;
    let grown = stage.world.elapsed();
    stage.grow().await;
    stage.until("it is marked", seconds(3), |stage| stage.is_unknown("b-9999")).await;
    let waited = stage.marked()["b-9999"] - grown;
    assert!(waited < Duration::from_millis(50), "{waited:?}");
}

/// A tree that has looked at some nodes of `a` and at none of `b`.
async fn half_grown(watcher: &Arc<Watcher>) -> Stage {
    let stage = Stage::set().with_zone("a", NODES / 2).with_zone("b", NODES / 2);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.until("the tree grows", seconds(1), |_| watcher.count(ActorKind::Node) > 0).await;
    assert_eq!(watcher.count(ActorKind::Zone), 1);
    stage
}

async fn every_node_is_watched_once(stage: &Stage, watcher: &Watcher, nodes: usize) {
    stage.until("every node has an actor", seconds(20), |_| watcher.count(ActorKind::Node) == nodes).await;
    stage.pass(seconds(2)).await;
    assert_eq!(watcher.count(ActorKind::Node), nodes);
}

#[tokio::test(start_paused = true)]
async fn nodes_created_while_the_tree_grows_are_watched_and_deleted_ones_are_not() {
    let watcher = Arc::new(Watcher::default());
    let stage = half_grown(&watcher).await;
    for name in ["a-0", "a-9999", "b-0", "b-9999"] {
        stage.kill(name);
        stage.delete(name);
    }
    for name in ["a-new", "b-new", "c-new"] {
        stage.register(name, &name[..1]);
    }
    every_node_is_watched_once(&stage, &watcher, NODES - 1).await;
    ["a-new", "b-new", "c-new"].iter().for_each(|name| stage.kill(name));
    stage.until("the new ones are marked", seconds(45), |stage| stage.marked().len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_its_zone_while_the_tree_grows_is_watched_there() {
    let watcher = Arc::new(Watcher::default());
    let stage = half_grown(&watcher).await;
    for (name, zone) in [("a-0", "b"), ("a-9999", "b"), ("b-0", "a"), ("b-9999", "c")] {
        stage.relocate(name, zone);
    }
    every_node_is_watched_once(&stage, &watcher, NODES).await;
    ["a-0", "b-9999"].iter().for_each(|name| stage.kill(name));
    stage.until("both are marked", seconds(45), |stage| stage.marked().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_tree_with_a_gap_in_the_feed_while_it_grows_surveys_every_node() {
    let watcher = Arc::new(Watcher::default());
    let stage = half_grown(&watcher).await;
    stage.world.feed(false);
    stage.delete("a-0");
    stage.register("b-new", "b");
    stage.world.feed(true);
    stage.with_tree(|tree| tree.lost_track());
    every_node_is_watched_once(&stage, &watcher, NODES).await;
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_falls_silent_is_marked_in_few_large_proposals() {
    let stage = Stage::set().with_zone("a", 3_000).with_zone("b", 1_000);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..2_100).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("all are marked", seconds(45), |stage| stage.marked().len() == 2_100).await;
    let mut moments: Vec<_> = stage.marked().into_values().collect();
    moments.sort();
    moments.dedup();
    assert!(moments.len() <= 12, "{} proposals for 2,100 nodes", moments.len());
    stage.pass(seconds(5)).await;
    assert!(stage.evicted().len() <= 1, "the zone is braked before its second eviction");
}
