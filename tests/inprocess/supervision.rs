//! F-13: actors that panic on a real leader while nodes beat. The tree is rebuilt, a node that fell silent meanwhile
//! is caught all the same, and a node whose actor always dies is quarantined without harm to the rest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_actors::ports::{ActorKind, Probe};
use muster_node_agent::simulated::Behaviour;
use muster_proto::v1::member_request::Action;
use muster_testing::inprocess::agents::{Agents, REGION, node_name};
use muster_testing::inprocess::view::{self, NOT_READY, NodeView, QUARANTINED};
use muster_testing::inprocess::{GRACE, InprocessCluster, REPLICAS, short_policy, thirty_nodes};
use muster_testing::waiting::soon;
use tokio::time::Instant;

/// Below the number of deaths within a minute from which on an actor waits long to be rebuilt.
const DEATHS: usize = 3;
/// The time for actors to be rebuilt, each with a pause, on top of the grace.
const REBUILDING: Duration = Duration::from_secs(15);

/// Panics in chosen actors, and counts what they handle.
#[derive(Default)]
struct InjectedPanics(Mutex<BTreeMap<(ActorKind, String), PanicCount>>);

#[derive(Debug, Clone, Copy, Default)]
struct PanicCount {
    left: usize,
    deaths: usize,
    /// Messages handled without harm since the last death.
    handled: usize,
}

// === impl InjectedPanics ===

impl InjectedPanics {
    fn inject(&self, kind: ActorKind, name: &str, left: usize) {
        self.lock().insert((kind, name.to_owned()), PanicCount { left, ..PanicCount::default() });
    }

    /// The panics that have not happened, or whose actor has not handled a message since.
    fn unrecovered(&self) -> Vec<((ActorKind, String), PanicCount)> {
        let is_over = |count: &PanicCount| count.left == 0 && count.handled > 0;
        self.lock().iter().filter(|(_, count)| !is_over(count)).map(|(at, count)| (at.clone(), *count)).collect()
    }

    /// Actors die of panics here, and a lock held then is poisoned.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ActorKind, String), PanicCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe for InjectedPanics {
    fn before(&self, kind: ActorKind, name: &str) {
        let mut panics = self.lock();
        let Some(count) = panics.get_mut(&(kind, name.to_owned())) else { return };
        if count.left == 0 {
            count.handled += 1;
            return;
        }
        count.left -= 1;
        count.deaths += 1;
        drop(panics);
        panic!("an injected panic in {kind} {name}");
    }
}

/// Panics whenever a tree grows, while it is told to.
#[derive(Default)]
struct BarrenGround(AtomicUsize);

impl Probe for BarrenGround {
    fn growing(&self) {
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(taken.is_err(), "an injected panic in the growing tree");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_13_a_leader_whose_tree_does_not_grow_hands_leadership_over() {
    let ground = Arc::<BarrenGround>::default();
    let cluster = InprocessCluster::start_with(short_policy(), Arc::clone(&ground) as _).await;
    let agents = thirty_nodes(&cluster).await;
    let former = cluster.leader().await;
    let barren = REPLICAS.into_iter().find(|id| *id != former).unwrap();
    ground.0.store(1, Ordering::SeqCst);
    // It may lead for too short a while to be seen.
    let _ = cluster.client.member(Action::Transfer(barren)).await;
    soon("the one that cannot judge has led", async || match ground.0.load(Ordering::SeqCst) {
        0 => Ok(()),
        left => Err(format!("{left} trees are still to fail")),
    })
    .await;
    cluster.leader_other_than(barren).await;
    let silent = node_name("a", 2);
    agents.play(Behaviour::Silence, &silent);
    cluster.seen_when("unknown", &silent, NodeView::is_unknown).await;
    cluster.assert_only_touched(&[&silent]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_13_a_leader_whose_tree_does_not_grow_says_so_and_tries_again() {
    let ground = Arc::<BarrenGround>::default();
    let cluster = InprocessCluster::start_with(short_policy(), Arc::clone(&ground) as _).await;
    let agents = thirty_nodes(&cluster).await;
    // No replica can judge.
    ground.0.store(usize::MAX, Ordering::SeqCst);
    let former = cluster.leader().await;
    let next = REPLICAS.into_iter().find(|id| *id != former).unwrap();
    let _ = cluster.client.member(Action::Transfer(next)).await;
    soon("a leader is not ready", async || {
        let leader = cluster.leader().await;
        let ready = cluster.http(leader, "/readyz").await;
        if ready.contains("[-]judging failed: this replica leads and judges no node: ") { Ok(()) } else { Err(ready) }
    })
    .await;
    ground.0.store(0, Ordering::SeqCst);
    let silent = node_name("a", 2);
    agents.play(Behaviour::Silence, &silent);
    cluster.seen_when("unknown", &silent, NodeView::is_unknown).await;
    let leader = cluster.leader().await;
    let ready = cluster.http(leader, "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    cluster.assert_only_touched(&[&silent]).await;
    cluster.stop().await;
}

async fn start() -> (InprocessCluster, Agents, Arc<InjectedPanics>) {
    let panics = Arc::<InjectedPanics>::default();
    let cluster = InprocessCluster::start_with(short_policy(), Arc::clone(&panics) as _).await;
    let agents = thirty_nodes(&cluster).await;
    (cluster, agents, panics)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_13_every_kind_of_actor_may_panic_and_a_silent_node_is_still_caught() {
    let (cluster, agents, panics) = start().await;
    let leader = cluster.leader().await;
    let silent = [node_name("a", 2), node_name("a", 9), node_name("b", 5)];
    let guilty: Vec<&str> = silent.iter().map(String::as_str).collect();
    let zone = format!("{REGION}/a");
    let victims = [
        (ActorKind::Cluster, "cluster"),
        (ActorKind::Zone, &zone),
        (ActorKind::Shard, &format!("{zone}#0")),
        (ActorKind::Node, &silent[0]),
        (ActorKind::EvictionQueue, &zone),
        (ActorKind::TaintEviction, "taint-eviction"),
        (ActorKind::Placement, "placement"),
        (ActorKind::PodGc, "pod-gc"),
        (ActorKind::Staffing, "staffing"),
        (ActorKind::Ipam, "ipam"),
    ];
    assert_eq!(victims.map(|(kind, _)| kind), ActorKind::ALL, "every kind is hit");
    let since = Instant::now();
    silent.iter().for_each(|name| agents.play(Behaviour::Silence, name));
    victims.iter().for_each(|(kind, name)| panics.inject(*kind, name, DEATHS));

    for name in &silent {
        cluster.seen_when("unknown and evicted", name, |seen| seen.is_unknown() && seen.is_evicted()).await;
    }
    let took = since.elapsed();
    assert!(took < GRACE + REBUILDING, "caught only after {took:?}");
    soon("every actor died and is back", async || match panics.unrecovered() {
        unrecovered if unrecovered.is_empty() => Ok(()),
        unrecovered => Err(format!("{unrecovered:?}")),
    })
    .await;
    let grace = u64::try_from(GRACE.as_millis()).unwrap();
    for mark in cluster.verdicts().await.iter().filter(|verdict| verdict.reason == NOT_READY) {
        assert!(mark.silence_ms() > grace, "judged before its time: {mark:?}");
    }
    expect_restarts_counted(&cluster, leader).await;
    silent.iter().for_each(|name| agents.play(Behaviour::Resume, name));
    cluster.ready(&agents.names()).await;
    cluster.assert_only_touched(&guilty).await;
    assert_eq!(cluster.leader().await, leader, "panics cost it the leadership");
    cluster.settled().await;
    cluster.stop().await;
}

/// A supervisor's child may end with it, so fewer deaths of the lower kinds are their own.
async fn expect_restarts_counted(cluster: &InprocessCluster, leader: u64) {
    let metrics = cluster.metrics(leader).await;
    for kind in ActorKind::ALL {
        let prefix = format!("muster_actor_restarts_total{{kind=\"{kind}\"}} ");
        let counted = metrics.lines().find_map(|line| line.strip_prefix(&prefix)?.parse::<u64>().ok());
        assert!(counted.is_some_and(|count| count >= 1), "restarts of {kind}: {counted:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_whose_actor_always_panics_is_quarantined_and_the_rest_goes_on() {
    let (cluster, agents, panics) = start().await;
    let (crashing, other, later) = (node_name("b", 1), node_name("b", 2), node_name("b", 3));
    panics.inject(ActorKind::Node, &crashing, usize::MAX);
    [&crashing, &other].iter().for_each(|name| agents.play(Behaviour::Silence, name));

    cluster.seen_when("unknown and evicted", &other, |seen| seen.is_unknown() && seen.is_evicted()).await;
    let told = soon("the quarantine is told of", async || {
        let verdicts = view::verdicts(&cluster.client).await?;
        let told = verdicts.iter().find(|verdict| verdict.reason == QUARANTINED).cloned();
        told.ok_or_else(|| format!("{verdicts:?}, {:?}", panics.unrecovered()))
    })
    .await;
    assert_eq!(told.node, crashing);
    assert!(told.message.contains(&format!("an injected panic in node {crashing}")), "{told:?}");
    soon("it is explained", async || {
        let explanation = view::explain(&cluster.client, &crashing).await?;
        let is_it =
            explanation.facts.iter().any(|fact| fact.label == "quarantine" && fact.text.contains("no actor watches"));
        if is_it { Ok(()) } else { Err(format!("{explanation:?}")) }
    })
    .await;

    // The quarantined node is not judged; all other nodes are, in its own shard too.
    agents.play(Behaviour::Kill, &later);
    cluster.seen_when("unknown and evicted", &later, |seen| seen.is_unknown() && seen.is_evicted()).await;
    assert_eq!(cluster.nodes().await[&crashing].ready, "True");
    let quarantined = cluster.verdicts().await.into_iter().filter(|verdict| verdict.reason == QUARANTINED).count();
    assert_eq!(quarantined, 1, "it is told once");
    cluster.assert_only_touched(&[&crashing, &other, &later]).await;
    cluster.settled().await;
    cluster.stop().await;
}
