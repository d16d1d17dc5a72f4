//! F-12: wall clocks that jump by an hour while nodes fall silent and wait to be evicted. Cluster time decides
//! (I-02), so nothing comes sooner or later than it does without a jump, and no living node is touched (I-05).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_actors::ports::Quiet;
use muster_lifecycle::policy::{Policy, Rate};
use muster_node_agent::simulated::Behaviour;
use muster_testing::inprocess::agents::{Agents, node_name};
use muster_testing::inprocess::view::{self, NOT_READY, NodeView, ObservedVerdict, TAINTED};
use muster_testing::inprocess::{GRACE, InprocessCluster, REPLICAS, short_policy, thirty_nodes};
use muster_testing::waiting::soon;
use tokio::time::{Instant, sleep};

const HOUR: i64 = 3_600;
/// Longer than the certificates of nodes, operators and replicas last.
const TWO_YEARS: i64 = 2 * 365 * 24 * HOUR;
/// Milliseconds between two evictions in a zone: time enough for clocks to jump while one node waits.
const SPACING_MS: u64 = 5_000;
/// The delay that a busy machine may add to a verdict or an eviction: a sweep, and an excuse for a loop that turned
/// late.
const SLACK_MS: u64 = 6_000;

/// What happened to two nodes of one zone that fell silent at the same moment.
#[derive(Debug)]
struct Course {
    marks: Vec<ObservedVerdict>,
    evictions: Vec<ObservedVerdict>,
    /// The time between the two evictions, in cluster time.
    spacing_ms: u64,
    /// The same, as seen from outside.
    watched: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_12_a_leader_whose_clock_jumps_an_hour_ahead_and_back_changes_no_countdown() {
    let (cluster, agents) = start().await;
    let leader = cluster.leader().await;
    let steady = silence_two(&cluster, &agents, "a", async || {}, async || {}).await;
    let ahead = async || cluster.clock(leader).set_ahead(HOUR);
    let back = async || cluster.clock(leader).set_ahead(-HOUR);
    let jumpy = silence_two(&cluster, &agents, "b", ahead, back).await;
    assert_eq!(cluster.leader().await, leader, "another replica's clock was read");

    // The jumps did reach the replicas that stamped the events.
    assert!(jumpy.marks.iter().all(|mark| is_off_by(mark, HOUR)), "{:?}", jumpy.marks);
    assert!(is_off_by(&jumpy.evictions[1], -HOUR), "{:?}", jumpy.evictions);
    assert_same_course(&steady, &jumpy);
    finish(cluster, agents, &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_12_a_new_leader_with_another_clock_changes_no_countdown() {
    let (cluster, agents) = start().await;
    let former = cluster.leader().await;
    let followers: Vec<u64> = REPLICAS.into_iter().filter(|id| *id != former).collect();
    let steady = silence_two(&cluster, &agents, "a", async || {}, async || {}).await;
    let followers_jump = async || {
        cluster.clock(followers[0]).set_ahead(HOUR);
        cluster.clock(followers[1]).set_ahead(-HOUR);
    };
    let hand_over = async || cluster.hand_over(followers[1]).await;
    let jumpy = silence_two(&cluster, &agents, "b", followers_jump, hand_over).await;

    assert!(jumpy.marks.iter().all(|mark| is_off_by(mark, 0)), "{:?}", jumpy.marks);
    assert!(is_off_by(&jumpy.evictions[1], -HOUR), "{:?}", jumpy.evictions);
    assert_same_course(&steady, &jumpy);
    finish(cluster, agents, &["a", "b"]).await;
}

/// I-02: wall time decides about no node, not even through certificates.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_12_a_shared_jump_beyond_the_end_of_every_certificate_harms_no_node() {
    let cluster = InprocessCluster::start().await;
    let agents = thirty_nodes(&cluster).await;
    let attached = agents.attached();
    REPLICAS.iter().for_each(|id| cluster.clock(*id).set_ahead(TWO_YEARS));
    for id in REPLICAS {
        soon("the jump is noticed", async || jump_seconds(&cluster, id, TWO_YEARS).await).await;
    }
    // Handshakes of agents and operators, too.
    let newcomers = Agents::start(&cluster, &["d"], 3);
    cluster.ready(&newcomers.names()).await;
    let status = cluster.members.client().status().await.unwrap();
    assert!(status.wall_clock.starts_with("the wall clock jumped ahead by 17520h: "), "{}", status.wall_clock);
    let explained = view::explain(&cluster.client, &node_name("a", 1)).await.unwrap();
    let is_shown = explained.excuses.iter().any(|excuse| excuse.text.starts_with("the wall clock jumped ahead"));
    assert!(is_shown, "{:?}", explained.excuses);

    sleep(2 * GRACE).await;
    assert_eq!(agents.attached(), attached, "sessions go on");
    cluster.assert_only_touched(&[]).await;
    cluster.ready(&agents.names()).await;

    REPLICAS.iter().for_each(|id| cluster.clock(*id).set_ahead(0));
    for id in REPLICAS {
        soon("the clock is believed again", async || jump_seconds(&cluster, id, 0).await).await;
    }
    cluster.settled().await;
    cluster.stop().await;
}

/// Whether the replica's metrics show that its wall clock is so much ahead of the time that it believes.
async fn jump_seconds(cluster: &InprocessCluster, id: u64, wanted: i64) -> Result<(), String> {
    let metrics = cluster.metrics(id).await;
    let line = metrics.lines().find_map(|line| line.strip_prefix("muster_wall_clock_jump_seconds "));
    let ahead: f64 = line.and_then(|value| value.parse().ok()).ok_or("there is no such metric")?;
    if (ahead - wanted as f64).abs() < 2.0 { Ok(()) } else { Err(format!("replica {id} is {ahead} s ahead")) }
}

async fn start() -> (InprocessCluster, Agents) {
    let policy = Policy { node_eviction_rate: Rate(1_000_000_000 / SPACING_MS), ..short_policy() };
    let cluster = InprocessCluster::start_with(policy, Arc::new(Quiet)).await;
    let agents = thirty_nodes(&cluster).await;
    (cluster, agents)
}

/// Two nodes of a zone fall silent. `in_silence` happens before they are judged, `in_queue` while the second of them
/// waits for its turn to be evicted.
async fn silence_two(
    cluster: &InprocessCluster,
    agents: &Agents,
    zone: &str,
    in_silence: impl AsyncFnOnce(),
    in_queue: impl AsyncFnOnce(),
) -> Course {
    let names = silent_ones(zone);
    names.iter().for_each(|name| agents.play(Behaviour::Silence, name));
    sleep(GRACE / 2).await;
    in_silence().await;
    let mut first_seen = None;
    soon("one is evicted and the other waits", async || {
        let seen = both(cluster, &names).await;
        let evicted = seen.iter().filter(|seen| seen.is_evicted()).count();
        if evicted > 0 {
            first_seen.get_or_insert_with(Instant::now);
        }
        if seen.iter().all(NodeView::is_unknown) && evicted == 1 { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    in_queue().await;
    for name in &names {
        cluster.seen_when("evicted", name, |seen| seen.is_unknown() && seen.is_evicted()).await;
    }
    let watched = first_seen.expect("seen").elapsed();
    let mut at = Vec::new();
    for name in &names {
        let time = soon("its eviction is explained", async || view::evicted_at(&cluster.client, name).await);
        at.push(time.await);
    }
    let of = |reason: &str, verdicts: &[ObservedVerdict]| -> Vec<ObservedVerdict> {
        verdicts.iter().filter(|verdict| verdict.reason == reason && names.contains(&verdict.node)).cloned().collect()
    };
    let verdicts = cluster.verdicts().await;
    let (marks, evictions) = (of(NOT_READY, &verdicts), of(TAINTED, &verdicts));
    assert_eq!((marks.len(), evictions.len()), (2, 2), "{verdicts:#?}");
    Course { marks, evictions, spacing_ms: at[0].abs_diff(at[1]), watched }
}

async fn both(cluster: &InprocessCluster, names: &[String; 2]) -> [NodeView; 2] {
    let nodes = cluster.nodes().await;
    names.each_ref().map(|name| nodes[name].clone())
}

fn silent_ones(zone: &str) -> [String; 2] {
    [node_name(zone, 3), node_name(zone, 7)]
}

/// Compares with the true time, and allows for a machine that is slow to look.
fn is_off_by(verdict: &ObservedVerdict, seconds: i64) -> bool {
    let ahead = verdict.at.as_second() - Timestamp::now().as_second();
    (ahead - seconds).abs() < HOUR / 2
}

fn assert_same_course(steady: &Course, jumpy: &Course) {
    let grace = u64::try_from(GRACE.as_millis()).unwrap();
    for course in [steady, jumpy] {
        for mark in &course.marks {
            let silence = mark.silence_ms();
            assert!((grace..grace + SLACK_MS).contains(&silence), "judged after {silence} ms: {steady:#?}, {jumpy:#?}");
        }
        let spacing = course.spacing_ms;
        assert!((SPACING_MS..SPACING_MS + SLACK_MS).contains(&spacing), "{spacing} ms: {steady:#?}, {jumpy:#?}");
        // The test looks ten times a second; cluster time is checked to the millisecond above.
        let shortest = Duration::from_millis(SPACING_MS - 1_000);
        assert!(course.watched > shortest, "watched {:?}: {steady:#?}, {jumpy:#?}", course.watched);
    }
}

/// With the clocks set right again, all nodes are ready again.
async fn finish(cluster: InprocessCluster, agents: Agents, zones: &[&str]) {
    let silent: Vec<String> = zones.iter().flat_map(|zone| silent_ones(zone)).collect();
    let guilty: Vec<&str> = silent.iter().map(String::as_str).collect();
    cluster.assert_only_touched(&guilty).await;
    REPLICAS.iter().for_each(|id| cluster.clock(*id).set_ahead(0));
    silent.iter().for_each(|name| agents.play(Behaviour::Resume, name));
    cluster.ready(&agents.names()).await;
    cluster.settled().await;
    cluster.assert_only_touched(&guilty).await;
    cluster.stop().await;
}
