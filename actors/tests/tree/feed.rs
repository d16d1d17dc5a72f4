//! The feed of commits: nodes that come, go, move and change, gaps in the feed, other policies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use muster_actors::ActorKind;
use muster_actors::ports::Quiet;
use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::text::Text;

use crate::stage::{Stage, seconds};
use crate::watching::Watcher;

#[tokio::test(start_paused = true)]
async fn created_nodes_are_watched_and_deleted_nodes_are_not() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 2);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.pass(seconds(10)).await;
    stage.register("late", "c");
    stage.until("it has an actor", seconds(2), |_| watcher.count(ActorKind::Node) == 3).await;
    stage.kill("late");
    stage.until("it is marked", seconds(45), |stage| stage.is_unknown("late")).await;
    stage.delete("late");
    stage.until("its zone is gone too", seconds(2), |_| watcher.count(ActorKind::Zone) == 1).await;
    assert_eq!(watcher.count(ActorKind::Node), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_created_again_under_its_name_is_another_node() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    stage.kill("a-0");
    stage.pass(seconds(35)).await;
    stage.delete("a-0");
    stage.register("a-0", "a");
    stage.pass(seconds(100)).await;
    assert!(stage.marked().is_empty(), "the newcomer beats");
    stage.kill("a-0");
    stage.until("the newcomer is marked", seconds(45), |stage| stage.is_unknown("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_in_the_feed_the_tree_is_rebuilt_from_the_state() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 3);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.pass(seconds(10)).await;
    stage.world.feed(false);
    stage.delete("a-0");
    stage.register("b-0", "b");
    stage.register("b-1", "b");
    stage.kill("b-0");
    stage.pass(seconds(60)).await;
    assert_eq!(watcher.count(ActorKind::Zone), 1);
    assert!(stage.marked().is_empty(), "the tree does not know b-0");
    stage.world.feed(true);
    stage.with_tree(|tree| tree.lost_track());
    stage.until("b-0 is marked", seconds(3), |stage| stage.is_unknown("b-0")).await;
    stage.until("its zone is there", seconds(2), |_| watcher.count(ActorKind::Zone) == 2).await;
    stage.until("all have actors", seconds(2), |_| watcher.count(ActorKind::Node) == 4).await;
    assert_eq!(stage.marked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_that_changes_its_zone_is_evicted_in_the_new_zone() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 1).with_zone("b", 3);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.pass(seconds(5)).await;
    stage.kill("a-0");
    stage.world.refuse(true);
    stage.pass(seconds(45)).await;
    stage.relocate("a-0", "b");
    stage.until("its old zone is gone", seconds(2), |_| watcher.count(ActorKind::Zone) == 1).await;
    stage.pass(seconds(5)).await;
    stage.world.refuse(false);
    stage.until("a-0 is evicted in its new zone", seconds(10), |stage| stage.is_evicted("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_takes_effect_once_the_agents_know() {
    let watcher = Arc::new(Watcher::default());
    let stage = Stage::set().with_zone("a", 4);
    stage.grow_watched(watcher.clone(), Arc::new(Quiet)).await;
    stage.pass(seconds(10)).await;
    stage.kill("a-0");
    stage.pass(seconds(20)).await;
    stage.set_policy("node-monitor-grace-period", "5s");
    let changed = stage.world.elapsed();
    stage.until("a-0 is marked", seconds(20), |stage| stage.is_unknown("a-0")).await;
    let after = stage.marked()["a-0"] - changed;
    assert!(after >= seconds(15) && after < seconds(17), "marked {after:?} after the change");
    let sweeps = watcher.sweeps.load(Ordering::SeqCst);
    stage.pass(seconds(10)).await;
    let sweeps = watcher.sweeps.load(Ordering::SeqCst) - sweeps;
    assert!((19..=21).contains(&sweeps), "{sweeps} sweeps in 10 s at a grace of 5 s");
    assert_eq!(stage.marked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_startup_grace_applies_to_nodes_that_were_never_heard() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    let created = stage.world.elapsed();
    let draft = Box::new(NodeDraft { name: Text::from("ghost"), ..NodeDraft::default() });
    stage.operator(OperatorOperation::CreateNode { draft, uid: Uid(99) });
    stage.pass(seconds(20)).await;
    stage.set_policy("node-startup-grace-period", "46s");
    stage.until("ghost is marked", seconds(30), |stage| stage.is_unknown("ghost")).await;
    assert!(stage.marked()["ghost"] - created < seconds(49));
}

#[tokio::test(start_paused = true)]
async fn a_longer_grace_applies_to_silent_nodes_that_are_not_marked_yet() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.kill("a-0");
    stage.pass(seconds(38)).await;
    stage.set_policy("node-monitor-grace-period", "100s");
    stage.pass(seconds(55)).await;
    assert!(stage.marked().is_empty());
    stage.until("a-0 is marked", seconds(12), |stage| stage.is_unknown("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_rate_that_is_raised_from_zero_takes_effect() {
    let stage = Stage::set().with_zone("a", 4);
    stage.set_policy("node-eviction-rate", "0");
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.kill("a-0");
    stage.pass(seconds(100)).await;
    assert!(stage.is_unknown("a-0") && !stage.is_evicted("a-0"));
    stage.set_policy("node-eviction-rate", "1");
    stage.until("a-0 is evicted", seconds(10), |stage| stage.is_evicted("a-0")).await;
}
