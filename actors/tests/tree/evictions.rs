//! The next eviction when a token comes: the next node that is neither heard again nor about to be excused.

use std::time::Duration;

use muster_lifecycle::node::{Condition, ConditionStatus, NodeStatus};

use crate::stage::{Stage, ready, seconds};

/// Twice the ten seconds between two beats.
const TIME_TO_REPORT: Duration = seconds(20);

/// Three nodes of the zone are lost and marked, the first is evicted, and the second is next when the token comes
/// back.
async fn one_evicted_and_two_waiting() -> Stage {
    let stage = Stage::set().with_zone("a", 8);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..3).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("the first is evicted", seconds(60), |stage| stage.is_evicted("a-0")).await;
    assert!(stage.is_unknown("a-1") && stage.is_unknown("a-2"));
    stage
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_heard_again_is_passed_over_and_the_next_is_evicted() {
    let stage = one_evicted_and_two_waiting().await;
    stage.beat_again("a-1");
    stage.until("another node is evicted", seconds(12), |stage| stage.evicted().len() == 2).await;
    assert!(stage.is_evicted("a-2") && !stage.is_evicted("a-1"));
    stage.pass(seconds(15)).await;
    assert!(stage.is_unknown("a-1") && !stage.is_evicted("a-1"), "it still has time to report");
    stage.revive("a-1");
    stage.pass(seconds(300)).await;
    assert_eq!(stage.evicted().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_beats_but_never_reports_a_status_is_evicted() {
    let stage = one_evicted_and_two_waiting().await;
    stage.beat_again("a-1");
    stage.until("all are evicted", seconds(60), |stage| stage.evicted().len() == 3).await;
    let times = stage.evicted();
    let spared = times["a-1"] - times["a-2"];
    assert!(spared + seconds(1) >= TIME_TO_REPORT && spared < TIME_TO_REPORT + seconds(3), "spared for {spared:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_again_is_not_passed_over() {
    let stage = one_evicted_and_two_waiting().await;
    stage.beat_again("a-1");
    stage.kill("a-1");
    // No node is evicted while a quorum is missing. When it is back, the beat is out of date.
    stage.pulses.blindness().quorum_lost(muster_actors::StateSource::moment(&*stage.world).tick);
    stage.pass(seconds(60)).await;
    stage.pulses.blindness().quorum_heard(muster_actors::StateSource::moment(&*stage.world).tick);
    stage.until("the next is evicted", seconds(30), |stage| stage.evicted().len() == 2).await;
    assert!(stage.is_evicted("a-1"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_reports_not_ready_is_not_passed_over() {
    let stage = one_evicted_and_two_waiting().await;
    stage.beat_again("a-1");
    stage.report("a-1", not_ready());
    // The node waits anew, behind a-2.
    stage.until("both are evicted", seconds(23), |stage| stage.evicted().len() == 3).await;
    let times = stage.evicted();
    assert!(times["a-1"] - times["a-2"] < seconds(11), "{times:?}");
}

fn not_ready() -> NodeStatus {
    let ready = ready();
    let conditions = ready.conditions.iter();
    let conditions = conditions.map(|condition| Condition { status: ConditionStatus::False, ..condition.clone() });
    NodeStatus { conditions: conditions.collect(), ..ready }
}
