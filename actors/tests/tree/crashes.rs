//! Crashes of any actor at any moment: it is rebuilt, and no silent node is lost with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use muster_actors::{ActorKind, StateSource};
use muster_lifecycle::command::{LeaderOperation, OperatorOperation};
use muster_lifecycle::text::Text;

use crate::stage::{Stage, seconds};
use crate::watching::{InjectedPanics, Watcher};

/// One actor of each kind by its name; nodes are hit where it hurts most.
const VICTIMS: [(ActorKind, &str); 5] = [
    (ActorKind::Cluster, "cluster"),
    (ActorKind::Zone, "/a"),
    (ActorKind::Shard, "/a#0"),
    (ActorKind::Node, "a-0"),
    (ActorKind::EvictionQueue, "/a"),
];

async fn stage() -> (Stage, Arc<Watcher>, Arc<InjectedPanics>) {
    let (watcher, panics) = (Arc::new(Watcher::default()), Arc::new(InjectedPanics::default()));
    let stage = Stage::set().with_zone("a", 20).with_zone("b", 20);
    stage.grow_watched(watcher.clone(), panics.clone()).await;
    stage.until("every node has an actor", seconds(5), |_| watcher.count(ActorKind::Node) == 40).await;
    stage.pass(seconds(20)).await;
    (stage, watcher, panics)
}

/// Waits until the panics happened and the actor is back.
async fn recover(stage: &Stage, watcher: &Watcher, panics: &InjectedPanics, kind: ActorKind, times: usize) {
    stage.until("all injected panics happened", seconds(120), |_| panics.is_spent()).await;
    stage.until("it is rebuilt", seconds(15), |_| watcher.restarts(kind) >= times).await;
    stage.until("every node has an actor again", seconds(15), |_| watcher.count(ActorKind::Node) == 40).await;
}

async fn expect_only_the_silent_are_marked(stage: &Stage) {
    stage.until("a-0 and b-0 are marked", seconds(60), |stage| stage.marked().len() == 2).await;
    stage.until("both are evicted", seconds(30), |stage| stage.evicted().len() == 2).await;
    stage.pass(seconds(120)).await;
    assert_eq!(stage.marked_names().into_iter().collect::<Vec<_>>(), ["a-0", "b-0"]);
}

#[tokio::test(start_paused = true)]
async fn an_actor_crash_before_the_deadline_loses_no_node() {
    for (kind, name) in VICTIMS {
        let (stage, watcher, panics) = stage().await;
        let killed = stage.world.elapsed();
        ["a-0", "b-0"].iter().for_each(|name| stage.kill(name));
        stage.pass(seconds(20)).await;
        panics.inject(kind, name, 2);
        expect_only_the_silent_are_marked(&stage).await;
        let latest = stage.marked().into_values().max().unwrap() - killed;
        assert!(latest < seconds(46), "{kind}: marked {latest:?} after the last beat");
        // A node's own actor handles its first message when the node is judged.
        recover(&stage, &watcher, &panics, kind, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_crash_between_verdict_and_eviction_loses_no_node() {
    for (kind, name) in VICTIMS {
        let (stage, watcher, panics) = stage().await;
        ["a-0", "b-0"].iter().for_each(|name| stage.kill(name));
        stage.world.refuse(true);
        stage.pass(seconds(45)).await;
        assert!(stage.world.log().iter().any(|entry| matches!(entry.operation, LeaderOperation::MarkSilent { .. })));
        panics.inject(kind, name, 3);
        stage.pass(seconds(2)).await;
        stage.world.refuse(false);
        expect_only_the_silent_are_marked(&stage).await;
        recover(&stage, &watcher, &panics, kind, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_crash_after_the_verdict_proposes_nothing_again() {
    for (kind, name) in VICTIMS {
        let (stage, watcher, panics) = stage().await;
        ["a-0", "b-0"].iter().for_each(|name| stage.kill(name));
        expect_only_the_silent_are_marked(&stage).await;
        let entries = stage.world.log().len();
        panics.inject(kind, name, 1);
        recover(&stage, &watcher, &panics, kind, 1).await;
        stage.pass(seconds(120)).await;
        assert_eq!(stage.world.log().len(), entries, "{kind}: proposed something again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_keeps_crashing_does_not_affect_other_zones() {
    for (kind, name) in [(ActorKind::Zone, "/a"), (ActorKind::Shard, "/a#0"), (ActorKind::EvictionQueue, "/a")] {
        let (stage, watcher, panics) = stage().await;
        panics.inject(kind, name, usize::MAX);
        stage.kill("b-0");
        stage.until("b-0 is evicted all the same", seconds(60), |stage| stage.is_evicted("b-0")).await;
        stage.pass(seconds(120)).await;
        let restarts = watcher.restarts(kind);
        assert!((12..40).contains(&restarts), "{kind}: {restarts} restarts in 160 s, at most one per 10 s in the end");
        panics.inject(kind, name, 0);
        stage.kill("a-1");
        stage.until("a-1 is evicted", seconds(70), |stage| stage.is_evicted("a-1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_actor_that_keeps_crashing_is_always_rebuilt() {
    let (stage, watcher, panics) = stage().await;
    panics.inject(ActorKind::Cluster, "cluster", 20);
    stage.kill("a-0");
    stage.until("all injected panics happened", seconds(300), |_| panics.is_spent()).await;
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
    assert!(watcher.restarts(ActorKind::Cluster) >= 20);
    assert_eq!(stage.marked_names().into_iter().collect::<Vec<_>>(), ["a-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_actor_always_panics_is_quarantined_with_one_event() {
    let (stage, watcher, panics) = stage().await;
    panics.inject(ActorKind::Node, "a-0", usize::MAX);
    ["a-0", "a-1"].iter().for_each(|name| stage.kill(name));
    stage.until("a-1 is evicted", seconds(60), |stage| stage.is_evicted("a-1")).await;
    stage
        .until("a-0 is quarantined", seconds(60), |stage| !stage.with_tree(|tree| tree.quarantined()).is_empty())
        .await;
    stage.pass(seconds(300)).await;
    assert_eq!(stage.marked_names().into_iter().collect::<Vec<_>>(), ["a-1"]);
    assert_eq!(noted(&stage), ["a-0"]);
    assert!(events(&stage, "NodeQuarantined").contains("an injected panic in node a-0"));
    assert_eq!(watcher.quarantined.load(Ordering::SeqCst), 1);
    let quarantined = stage.with_tree(|tree| tree.quarantined());
    assert_eq!((quarantined[0].name.as_str(), quarantined[0].noted), ("a-0", true));

    // The node stays quarantined when the shard is rebuilt, until it is created anew.
    panics.inject(ActorKind::Shard, "/a#0", 1);
    stage.until("the shard is rebuilt", seconds(10), |_| watcher.restarts(ActorKind::Shard) == 1).await;
    stage.pass(seconds(60)).await;
    assert_eq!(noted(&stage), ["a-0"]);
    stage.delete("a-0");
    stage.register("a-0", "a");
    stage
        .until("a-0 is no longer quarantined", seconds(5), |stage| {
            stage.with_tree(|tree| tree.quarantined()).is_empty()
        })
        .await;
    stage.kill("a-0");
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_actor_panics_at_spawn_is_quarantined_and_its_shard_survives() {
    let (watcher, panics) = (Arc::new(Watcher::default()), Arc::new(InjectedPanics::default()));
    let stage = Stage::set().with_zone("a", 20);
    ["a-0", "a-1"].iter().for_each(|name| stage.kill(name));
    stage.pass(seconds(60)).await;
    panics.inject(ActorKind::Node, "a-0", usize::MAX);
    stage.grow_watched(watcher.clone(), panics.clone()).await;
    stage.until("a-1 is marked", seconds(3), |stage| stage.is_unknown("a-1")).await;
    stage.until("a-0 is quarantined", seconds(60), |stage| noted(stage) == ["a-0"]).await;
    assert_eq!(watcher.restarts(ActorKind::Shard), 0, "the shard was not restarted");
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_quarantine_is_proposed_until_the_log_answers() {
    let (stage, _, panics) = stage().await;
    panics.inject(ActorKind::Node, "a-0", usize::MAX);
    stage.kill("a-0");
    stage.world.refuse(true);
    stage
        .until("a-0 is quarantined", seconds(90), |stage| !stage.with_tree(|tree| tree.quarantined()).is_empty())
        .await;
    stage.pass(seconds(10)).await;
    assert!(noted(&stage).is_empty());
    stage.world.refuse(false);
    stage.until("it is noted", seconds(5), |stage| noted(stage) == ["a-0"]).await;
}

/// The same on real threads and in real time, where messages overtake each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn actor_crashes_under_load_lose_no_node() {
    let (watcher, panics) = (Arc::new(Watcher::default()), Arc::new(InjectedPanics::default()));
    let stage = Stage::set();
    let changes = ["node-monitor-period", "node-monitor-grace-period", "node-startup-grace-period"].into_iter();
    let changes = changes.zip(["500ms", "4s", "4s"]).map(|(name, value)| (Text::from(name), Text::from(value)));
    stage.operator(OperatorOperation::SetPolicy { changes: changes.collect() });
    let stage = stage.with_zone("a", 400).with_zone("b", 400);
    stage.grow_watched(watcher.clone(), panics.clone()).await;
    let lost: Vec<String> = (0..100).map(|number| format!("a-{number}")).collect();
    for (victim, lost) in VICTIMS.iter().zip(lost.chunks(20)) {
        lost.iter().for_each(|name| stage.kill(name));
        panics.inject(victim.0, victim.1, 1);
        stage.until("all injected panics happened", seconds(60), |_| panics.is_spent()).await;
    }
    stage.until("all lost ones are marked", seconds(60), |stage| stage.marked().len() >= lost.len()).await;
    assert_eq!(stage.marked_names(), lost.into_iter().collect());
    stage.prune().await;
    assert!(ActorKind::ALL.into_iter().all(|kind| watcher.count(kind) == 0));
}

/// The nodes whose quarantine the log has recorded, once per entry.
fn noted(stage: &Stage) -> Vec<String> {
    stage.accepted("note-quarantine").into_iter().map(|(name, _)| name).collect()
}

fn events(stage: &Stage, reason: &str) -> String {
    let state = stage.world.state();
    state.events().iter().filter(|event| event.reason() == reason).map(|event| event.message()).collect()
}
