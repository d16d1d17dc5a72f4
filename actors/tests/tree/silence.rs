//! A node that falls silent: when it is marked, when it is evicted, and when neither happens.

use std::time::Duration;

use muster_actors::ProposalOutcome;
use muster_lifecycle::command::{AgentOperation, LeaderOperation, OperatorOperation, Origin, Sighting};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{ConditionStatus, NodeDraft};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::text::Text;

use crate::stage::{ANY, Stage, seconds};

/// A sweep, a round and a commit.
const SLACK: Duration = Duration::from_millis(2_500);

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_marked_after_its_grace_and_evicted_with_a_token() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    stage.pass(seconds(100)).await;
    assert!(stage.marked().is_empty() && stage.evicted().is_empty());
    let killed = stage.world.elapsed();
    stage.kill("a-1");
    stage.until("a-1 is evicted", seconds(60), |stage| stage.is_evicted("a-1")).await;
    let marked = stage.marked();
    assert_eq!(marked.keys().collect::<Vec<_>>(), ["a-1"]);
    let silence = marked["a-1"] - killed;
    // The last beat was up to half a second before.
    assert!(silence > seconds(39) && silence < seconds(40) + SLACK, "marked after {silence:?}");
    assert!(stage.is_unknown("a-1"));
    let verdicts = stage.world.log();
    let mut verdicts = verdicts.iter().filter(|entry| !matches!(entry.operation, LeaderOperation::AssessZones));
    assert!(verdicts.all(|entry| entry.confirmed), "a quorum confirms the leader before a verdict");
    stage.pass(seconds(300)).await;
    assert_eq!(stage.marked().len() + stage.evicted().len(), 2, "nothing is proposed twice");
}

#[tokio::test(start_paused = true)]
async fn the_verdict_names_when_and_by_which_replica_the_node_was_last_heard() {
    let stage = Stage::set().with_zone("a", 4);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.kill("a-0");
    stage.until("a-0 is marked", seconds(60), |stage| stage.is_unknown("a-0")).await;
    let log = stage.world.log();
    let heard = log.iter().find_map(|entry| {
        let LeaderOperation::MarkSilent { heard, from, .. } = &entry.operation else { return None };
        Some((*heard, *from))
    });
    assert!(
        matches!(heard, Some((Some(Sighting { through: ReplicaId(1), .. }), Some(ConditionStatus::True)))),
        "{heard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_heard_again_within_its_grace_is_not_marked() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    for _ in 0..5 {
        stage.pass(seconds(5)).await;
        stage.kill("a-0");
        stage.pass(seconds(38)).await;
        stage.beat_again("a-0");
    }
    assert!(stage.marked().is_empty());
    stage.kill("a-0");
    stage.until("a-0 is marked", seconds(45), |stage| stage.is_unknown("a-0")).await;
}

#[tokio::test(start_paused = true)]
async fn nh_2_a_node_that_was_never_heard_has_the_startup_grace() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    stage.pass(seconds(30)).await;
    let created = stage.world.elapsed();
    let draft = Box::new(NodeDraft { name: Text::from("ghost"), ..NodeDraft::default() });
    stage.operator(OperatorOperation::CreateNode { draft, uid: Uid(99) });
    stage.until("ghost is marked", seconds(70), |stage| stage.is_unknown("ghost")).await;
    let silence = stage.marked()["ghost"] - created;
    assert!(silence >= seconds(60) && silence < seconds(60) + SLACK, "marked after {silence:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_a_second_time_is_marked_again() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    stage.kill("a-2");
    stage.until("a-2 is evicted", seconds(50), |stage| stage.is_evicted("a-2")).await;
    stage.revive("a-2");
    assert!(!stage.is_unknown("a-2") && !stage.is_evicted("a-2"), "only a status of the node makes it ready");
    stage.pass(seconds(60)).await;
    assert!(!stage.is_unknown("a-2"));
    stage.kill("a-2");
    stage.until("a-2 is marked again", seconds(50), |stage| stage.is_unknown("a-2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_that_an_operator_sets_ready_is_marked_again() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    stage.kill("a-2");
    stage.until("a-2 is marked", seconds(50), |stage| stage.is_unknown("a-2")).await;
    stage.pass(seconds(5)).await;
    let status = Box::new(crate::stage::ready());
    stage.operator(OperatorOperation::ReplaceNodeStatus { name: Text::from("a-2"), status, precondition: ANY });
    assert!(!stage.is_unknown("a-2"));
    stage.until("a-2 is marked again", seconds(5), |stage| stage.is_unknown("a-2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_was_overtaken_is_rejected_and_the_node_judged_again() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    stage.kill("a-0");
    stage.pass(seconds(30)).await;
    // The node reports that it is not ready, through a replica whose beats are not heard.
    let mut status = crate::stage::ready();
    status.conditions[0].status = ConditionStatus::False;
    let operation = AgentOperation::ReportStatus {
        name: Text::from("a-0"),
        incarnation: stage.node("a-0").incarnation,
        status: Box::new(status),
        running: None,
    };
    stage.world.apply(Origin::Node { name: Text::from("a-0") }, operation);
    stage.until("a-0 is marked", seconds(20), |stage| stage.is_unknown("a-0")).await;
    assert!(stage.world.log().iter().all(|entry| matches!(entry.outcome, ProposalOutcome::Done(_))));
}

#[tokio::test(start_paused = true)]
async fn a_queued_verdict_is_dropped_when_its_node_is_heard() {
    let stage = Stage::set().with_zone("a", 8_000);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    let names: Vec<String> = (0..4_300).map(|number| format!("a-{number}")).collect();
    names.iter().for_each(|name| stage.kill(name));
    stage.world.set_latency(seconds(2));
    // The first proposals take all the room there is, and the log has not answered yet.
    stage.pass(seconds(42)).await;
    assert!(stage.marked().is_empty());
    names[4_200..].iter().for_each(|name| stage.beat_again(name));
    stage.until("the others are marked", seconds(40), |stage| stage.marked().len() >= 4_200).await;
    stage.pass(seconds(30)).await;
    let marked = stage.marked_names();
    assert_eq!(marked, names[..4_200].iter().cloned().collect());
}
