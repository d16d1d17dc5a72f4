//! A replica that the others cannot reach, while its agents can: nodes that live are not touched (I-05), nodes that
//! die meanwhile are caught (I-23), and afterwards all replicas have one state again.
//!
//! Links are cut in the two ways in which links fail: connections break, or nothing passes and nothing fails. All the
//! while operators read and write through all replicas, and what they see is linearizable (I-09).

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use muster_client::Query;
use muster_node_agent::simulated::Behaviour;
use muster_testing::inprocess::agents::Agents;
use muster_testing::inprocess::links::LinkFault;
use muster_testing::inprocess::view::{self, NOT_READY, NodeView};
use muster_testing::inprocess::{GRACE, InprocessCluster, REATTACH_WINDOW, REPLICAS, thirty_nodes};
use muster_testing::registers;
use muster_testing::waiting::soon;
use tokio::time::{Instant, sleep, sleep_until};

/// The time until a verdict is due the longest way round: an election, the time in which the new leader waits for the
/// table of the replica that is cut off, the excuse that follows, and a sweep on a busy machine.
const ELECTION: Duration = Duration::from_secs(5);
const SLACK: Duration = Duration::from_secs(8);
/// How long a link stays cut: long enough for every deadline that the cut could have moved to be over.
const CUT_FOR: Duration = Duration::from_secs(15);
/// The pause of each operator between two calls: enough calls to check, and too few to slow a cluster down.
const OPERATOR_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Who {
    Follower,
    Leader,
}

/// Two nodes that die the moment the link is cut: one that the cut replica heard, and one that another replica heard.
struct Dead {
    here: String,
    there: String,
}

// === impl Dead ===

impl Dead {
    fn choose(agents: &Agents, cut: u64) -> Self {
        let (here, attached) = (agents.attached_to(cut), agents.attached());
        let elsewhere = attached.iter().find(|(_, to)| to.is_some_and(|to| to != cut));
        Self { here: here[0].clone(), there: elsewhere.expect("nodes elsewhere").0.clone() }
    }

    fn names(&self) -> [&str; 2] {
        [&self.here, &self.there]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_05_a_follower_that_is_cut_off_harms_no_living_node() {
    in_both_ways(Who::Follower).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_05_a_leader_that_is_cut_off_harms_no_living_node() {
    in_both_ways(Who::Leader).await;
}

/// Both faults side by side, on a cluster each, because either takes as long as the cut.
async fn in_both_ways(who: Who) {
    let each = [LinkFault::Broken, LinkFault::Hung].map(|fault| async move {
        let survived =
            AssertUnwindSafe(a_cut_off_replica_harms_no_living_node(who, fault)).catch_unwind().await.is_ok();
        (fault, survived)
    });
    let outcomes = join_all(each).await;
    assert!(outcomes.iter().all(|(_, survived)| *survived), "{who:?} cut off: {outcomes:?}");
}

async fn a_cut_off_replica_harms_no_living_node(who: Who, fault: LinkFault) {
    let cluster = InprocessCluster::start().await;
    let agents = thirty_nodes(&cluster).await;
    let cut = choose(&agents);
    give_part(&cluster, cut, who).await;
    let dead = Dead::choose(&agents, cut);
    let proposals = verdicts_proposed_by(&cluster, cut).await;
    let load = registers::load_on(&cluster.members.client_config(), &agents.names()[..3], OPERATOR_PAUSE);

    let cut_at = Instant::now();
    cluster.isolate(cut, fault);
    dead.names().iter().for_each(|name| agents.play(Behaviour::Kill, name));

    expect_the_living_move(&agents, cut, &dead).await;
    expect_the_dead_are_caught(&cluster, &dead, cut_at).await;
    let acting = match who {
        Who::Follower => cluster.leader().await,
        Who::Leader => cluster.leader_other_than(cut).await,
    };
    expect_it_knows_nothing_new(&cluster, cut).await;
    sleep_until(cut_at + CUT_FOR).await;
    cluster.assert_only_touched(&dead.names()).await;
    assert_eq!(verdicts_proposed_by(&cluster, cut).await, proposals, "a replica that is cut off proposed verdicts");
    assert!(!verdicts_proposed_by(&cluster, acting).await.is_empty(), "the verdict was not by replica {acting}");

    cluster.heal();
    cluster.settled().await;
    dead.names().iter().for_each(|name| agents.play(Behaviour::Resume, name));
    cluster.ready(&agents.names()).await;
    cluster.settled().await;
    sleep(GRACE).await;
    cluster.assert_only_touched(&dead.names()).await;
    let history = load.finish();
    cluster.stop().await;
    history.assert_linearizable();
    history.assert_stale_reads_advance();
}

/// The replica that most agents are attached to: a slow replica may have sent its agents away.
fn choose(agents: &Agents) -> u64 {
    REPLICAS.into_iter().max_by_key(|id| agents.attached_to(*id).len()).expect("there are replicas")
}

async fn give_part(cluster: &InprocessCluster, id: u64, who: Who) {
    let leader = cluster.leader().await;
    let successor = match who {
        Who::Follower => REPLICAS.into_iter().find(|other| *other != id),
        Who::Leader => Some(id),
    };
    if (leader == id) != matches!(who, Who::Leader) {
        cluster.hand_over(successor.expect("there are replicas")).await;
    }
}

/// The agents move at once: a replica without contact to the leader sends its agents away.
async fn expect_the_living_move(agents: &Agents, cut: u64, dead: &Dead) {
    soon("its agents attach elsewhere", async || {
        let is_left = |(name, to): &(String, Option<u64>)| {
            !dead.names().contains(&name.as_str()) && to.is_none_or(|to| to == cut)
        };
        let left: Vec<_> = agents.attached().into_iter().filter(is_left).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

async fn expect_the_dead_are_caught(cluster: &InprocessCluster, dead: &Dead, since: Instant) {
    for name in dead.names() {
        cluster.seen_when("unknown and evicted", name, |seen| seen.is_unknown() && seen.is_evicted()).await;
    }
    let took = since.elapsed();
    let bound = GRACE + REATTACH_WINDOW + ELECTION + SLACK;
    assert!(took < bound, "caught only after {took:?}, and not within {bound:?}");
    let grace = u64::try_from(GRACE.as_millis()).unwrap();
    for verdict in cluster.verdicts().await.iter().filter(|verdict| verdict.reason == NOT_READY) {
        assert!(verdict.silence_ms() > grace, "judged before its time: {verdict:?}");
    }
}

/// A replica that is cut off commits nothing, not even as the leader: it does not know of the nodes that the others
/// caught.
async fn expect_it_knows_nothing_new(cluster: &InprocessCluster, cut: u64) {
    let client = cluster.members.client_of(cut);
    let query = Query { stale: true, ..Query::of("nodes") };
    let stale = client.list(&query).await.unwrap();
    let now = cluster.client.status().await.unwrap();
    assert!(stale.revision < now.revision, "{} is as new as {}", stale.revision, now.revision);
    let unknown = stale.value.iter().filter(|node| String::from_utf8_lossy(node).contains("\"Unknown\"")).count();
    assert_eq!(unknown, 0, "it holds nodes for unknown");
    assert!(view::nodes(&client).await.is_err(), "it answers as if it had a quorum");
    assert!(cluster.nodes().await.values().any(NodeView::is_unknown));
}

/// How often a replica proposed to mark or evict a node.
async fn verdicts_proposed_by(cluster: &InprocessCluster, id: u64) -> Vec<String> {
    let metrics = cluster.metrics(id).await;
    let proposals = metrics.lines().filter(|line| line.starts_with("muster_proposals_total"));
    let verdicts = proposals.filter(|line| line.contains("mark-silent") || line.contains("evict-node"));
    verdicts.map(ToOwned::to_owned).collect()
}
