//! Many nodes that fall silent together: the zone slows down or stops, and when all zones are fully disrupted all
//! evictions are taken back.

use muster_actors::StateSource;
use muster_actors::proposal::ProposalOutcome;
use muster_lifecycle::command::LeaderOperation;
use muster_lifecycle::zone::ZoneState;

use crate::stage::{Entry, Stage, seconds};

#[tokio::test(start_paused = true)]
async fn a_small_zone_that_loses_most_of_its_nodes_evicts_no_node() {
    let stage = Stage::set().with_zone("a", 5).with_zone("b", 5);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..3).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("all three are marked", seconds(50), |stage| stage.marked().len() == 3).await;
    stage.pass(seconds(600)).await;
    assert!(stage.evicted().is_empty());
    let state = stage.world.state();
    let disrupted = state.zones().iter().filter(|zone| zone.zone.state == ZoneState::PartialDisruption).count();
    assert_eq!(disrupted, 1);
    (0..2).for_each(|number| stage.revive(&format!("a-{number}")));
    stage.until("the last one is evicted", seconds(30), |stage| stage.is_evicted("a-2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_large_zone_that_loses_most_of_its_nodes_evicts_slowly() {
    let stage = Stage::set().with_zone("a", 60).with_zone("b", 3);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..40).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("all forty are marked", seconds(50), |stage| stage.marked().len() == 40).await;
    stage.pass(seconds(950)).await;
    let evicted = stage.evicted().len();
    assert!((9..=10).contains(&evicted), "{evicted} evictions in 950 s at one per 100 s");
}

#[tokio::test(start_paused = true)]
async fn no_token_is_spent_while_verdicts_of_the_zone_are_not_committed() {
    let stage = Stage::set().with_zone("a", 6_000).with_zone("b", 3);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..4_500).for_each(|number| stage.kill(&format!("a-{number}")));
    // There are more nodes than fit into one proposal, and each proposal takes longer than an eviction would.
    stage.world.set_latency(seconds(2));
    stage.until("the first is evicted", seconds(120), |stage| !stage.evicted().is_empty()).await;
    let state = stage.world.state();
    let disrupted = state.zones().iter().any(|zone| zone.zone.state == ZoneState::PartialDisruption);
    assert!(disrupted && stage.marked().len() >= 3_300, "{} marked", stage.marked().len());
    let rejected = |entry: &Entry| matches!(entry.outcome, ProposalOutcome::Rejected(_));
    assert!(!stage.world.log().iter().any(rejected), "a verdict that waited is not rejected");
}

#[tokio::test(start_paused = true)]
async fn no_token_is_spent_while_verdicts_of_other_zones_would_make_all_fully_disrupted() {
    const LARGE: usize = 30_000;
    let stage = Stage::set().with_zone("a", 3).with_zone("b", LARGE);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    for (zone, count) in [("a", 3), ("b", LARGE)] {
        (0..count).for_each(|number| stage.kill(&format!("{zone}-{number}")));
    }
    // Zone a is written down and assessed long before the last nodes of zone b.
    stage.world.set_latency(seconds(1));
    stage.until("all are marked", seconds(120), |stage| stage.marked().len() == 3 + LARGE).await;
    stage.pass(seconds(60)).await;
    assert!(stage.world.state().policy_state().all_disrupted);
    assert!(stage.evicted().is_empty(), "{:?}", stage.evicted());
}

#[tokio::test(start_paused = true)]
async fn evictions_keep_the_pace_of_the_bucket() {
    let stage = Stage::set().with_zone("a", 10);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..4).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("all four are evicted", seconds(100), |stage| stage.evicted().len() == 4).await;
    let mut times: Vec<_> = stage.evicted().into_values().collect();
    times.sort();
    for pair in times.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(gap >= seconds(10) && gap < seconds(11), "one per ten seconds, but {gap:?} lie between two");
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_zones_are_disrupted_evictions_stop_and_their_taints_are_removed() {
    let stage = Stage::set().with_zone("a", 3).with_zone("b", 3);
    stage.grow().await;
    stage.pass(seconds(10)).await;
    stage.kill("a-0");
    stage.until("a-0 is evicted", seconds(50), |stage| stage.is_evicted("a-0")).await;
    let rest = ["a-1", "a-2", "b-0", "b-1", "b-2"];
    rest.iter().for_each(|name| stage.kill(name));
    stage
        .until("all zones are fully disrupted", seconds(50), |stage| stage.world.state().policy_state().all_disrupted)
        .await;
    stage.until("the eviction is taken back", seconds(3), |stage| stage.world.state().absent().is_empty()).await;
    stage.pass(seconds(300)).await;
    assert_eq!(stage.evicted().len(), 1, "only the one from before");

    stage.revive("b-0");
    stage.until("full disruption is over", seconds(6), |stage| !stage.world.state().policy_state().all_disrupted).await;
    let recovered = stage.world.elapsed();
    stage.until("evictions resume", seconds(60), |stage| stage.evicted().len() > 1).await;
    let resumed = stage.evicted().into_values().max().unwrap();
    assert!(
        resumed - recovered >= seconds(39),
        "every node has a grace first, but one was evicted after {:?}",
        resumed - recovered
    );
}

#[tokio::test(start_paused = true)]
async fn no_token_is_spent_on_an_outdated_view_of_the_zones() {
    let stage = Stage::set().with_zone("a", 100);
    stage.set_policy("node-monitor-period", "30s");
    stage.grow().await;
    stage.pass(seconds(10)).await;
    (0..70).for_each(|number| stage.kill(&format!("a-{number}")));
    stage.until("all are marked", seconds(50), |stage| stage.marked().len() == 70).await;
    stage.pass(seconds(5)).await;
    let log = stage.world.log();
    let last_assessment = log.iter().rposition(|entry| entry.operation == LeaderOperation::AssessZones);
    let first_eviction = log.iter().position(|entry| matches!(entry.operation, LeaderOperation::EvictNode { .. }));
    assert!(last_assessment < first_eviction, "assessed at {last_assessment:?}, evicted at {first_eviction:?}");
    assert_eq!(stage.evicted().len(), 1);
}
