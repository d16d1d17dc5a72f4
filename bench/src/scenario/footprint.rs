//! `footprint` (P8): memory per node on a follower, and the leader's sweep over all nodes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::time::sleep;

use crate::harness::cluster::wait_caught_up;
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::harness::test_bed::TestBed;
use crate::harness::wait;
use crate::load::fleet::FleetLoad;
use crate::measure::sweep::SweepTimes;
use crate::report::figure::{Figure, Goal};
use crate::report::number::mebibytes;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

const SCENARIO: &str = "footprint";
const MEMORY_GOAL: Goal = Goal::at_most("P8", 2_000.0);
const SWEEP_GOAL: Goal = Goal::at_most("P8", 5.0);
/// How long sweeps are measured.
const SWEEPS_FOR: Duration = Duration::from_secs(5);
/// The time until the replica has given back the memory that only its start needed.
const COOL_DOWN: Duration = Duration::from_secs(10);
const COOL_DOWN_SMALL: Duration = Duration::from_secs(1);
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);

/// Kills and restarts a follower: the memory it then has is the memory that it needs.
pub(super) async fn measure(bed: &TestBed, load: &FleetLoad, options: &BenchOptions) -> Result<ScenarioOutcome> {
    bed.wait_watched(load.nodes).await?;
    let leader = bed.cluster.leader().await?;
    let swept = SweepTimes::of(&bed.cluster, leader).await?;
    sleep(SWEEPS_FOR).await;
    let sweep = SweepTimes::of(&bed.cluster, leader).await?.millis_since(&swept)?;
    let follower = bed.cluster.processes()?.into_iter().map(|(id, _)| id).find(|id| *id != leader);
    let follower = follower.context("there is no follower")?;
    let resident = || bed.cluster.resident_bytes()?.remove(&follower).context("no such replica");
    let loaded = resident()?;
    progress::print(format_args!("restarting replica {follower}, a follower"));
    bed.cluster.kill(follower)?;
    let start = Instant::now();
    bed.cluster.restart(follower)?;
    wait_caught_up(&bed.client, wait::limit(CATCH_UP_TIMEOUT, load.nodes)).await?;
    let caught_up = start.elapsed();
    sleep(options.scale.pick(COOL_DOWN_SMALL, COOL_DOWN)).await;
    let restarted = resident()?;
    let idle = bed.idle.get(&follower).copied().unwrap_or(0);
    let per_node = |bytes: u64| bytes.saturating_sub(idle) as f64 / load.nodes as f64;
    let mut table = ReportTable::new(
        format!("{} nodes", load.nodes),
        &["idle MiB", "after registration MiB", "restarted MiB", "bytes/node restarted", "restart s", "sweep ms"],
    );
    table.row([
        format!("{:.0}", mebibytes(idle)),
        format!("{:.0}", mebibytes(loaded)),
        format!("{:.0}", mebibytes(restarted)),
        format!("{:.0}", per_node(restarted)),
        format!("{:.1}", caught_up.as_secs_f64()),
        format!("{sweep:.2}"),
    ]);
    let detailed = |goal, what, value, unit| {
        Figure::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("bytes_per_node_after_registration", per_node(loaded))
            .with("restart_s", caught_up.as_secs_f64())
    };
    let figures = vec![
        detailed(MEMORY_GOAL, "follower memory per node", per_node(restarted), "bytes"),
        detailed(SWEEP_GOAL, "sweep", sweep, "ms"),
    ];
    Ok(ScenarioOutcome { figures, tables: vec![table], ..ScenarioOutcome::default() })
}
