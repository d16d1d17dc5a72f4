//! P8: what a node costs: replicated state on a follower, and the leader's sweep over all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::cluster::resident_bytes;
use crate::figure::mebibytes;
use crate::load::fleet::Load;
use crate::outcome::{Finding, Goal, Outcome};
use crate::patience;
use crate::progress;
use crate::setting::Setting;
use crate::stage::Stage;
use crate::sweep::Sweeps;
use crate::table::Table;

const SCENARIO: &str = "footprint";
const MEMORY_GOAL: Goal = Goal::at_most("P8", 2_000.0);
const SWEEP_GOAL: Goal = Goal::at_most("P8", 5.0);
/// How long sweeps are watched.
const SWEEPS_FOR: Duration = Duration::from_secs(5);
/// Until memory that was only needed to begin has been given back.
const SETTLE: Duration = Duration::from_secs(10);
const SETTLE_SMALL: Duration = Duration::from_secs(1);
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(300);

/// A follower is killed and restarted: what it then has is what it needs.
pub async fn measure(stage: &Stage, load: &Load, setting: &Setting) -> Result<Outcome> {
    stage.on_duty(load.nodes).await?;
    let leader = stage.cluster.leader().await?;
    let swept = Sweeps::of(&stage.cluster, leader).await?;
    sleep(SWEEPS_FOR).await;
    let sweep = Sweeps::of(&stage.cluster, leader).await?.millis_since(&swept)?;
    let follower = stage.cluster.processes()?.into_iter().map(|(id, _)| id).find(|id| *id != leader);
    let follower = follower.context("there is no follower")?;
    let loaded = stage.resident(follower)?;
    progress::say(format_args!("replica {follower}, a follower, is restarted"));
    stage.cluster.kill(follower)?;
    let start = Instant::now();
    stage.cluster.restart(follower)?;
    caught_up(stage, follower, load.nodes).await?;
    let caught_up = start.elapsed();
    sleep(setting.scale.pick(SETTLE_SMALL, SETTLE)).await;
    let restarted = stage.resident(follower)?;
    let idle = stage.idle.get(&follower).copied().unwrap_or(0);
    let per_node = |bytes: u64| bytes.saturating_sub(idle) as f64 / load.nodes as f64;
    let mut table = Table::new(
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
        Finding::new(SCENARIO, goal, what, value, unit)
            .with("nodes", load.nodes)
            .with("bytes_per_node_after_registration", per_node(loaded))
            .with("restart_s", caught_up.as_secs_f64())
    };
    let findings = vec![
        detailed(MEMORY_GOAL, "follower memory per node", per_node(restarted), "bytes"),
        detailed(SWEEP_GOAL, "sweep", sweep, "ms"),
    ];
    Ok(Outcome { findings, tables: vec![table], ..Outcome::default() })
}

/// Until it has all that the others have.
async fn caught_up(stage: &Stage, id: u64, nodes: usize) -> Result<()> {
    let look = || async {
        let status = stage.client.status().await?;
        let replica = status.replicas.iter().find(|replica| replica.id == id).context("no such replica")?;
        let (applied, wanted) = (replica.applied, status.applied);
        ensure!(
            replica.reachable && applied >= wanted,
            "replica {id} has not caught up: it is at {applied} of {wanted}"
        );
        Ok(())
    };
    patience::until(patience::with(CATCH_UP_PATIENCE, nodes), look).await
}

// === impl Stage ===

impl Stage {
    fn resident(&self, id: u64) -> Result<u64> {
        let (_, pid) = self.cluster.processes()?.into_iter().find(|(known, _)| *known == id).context("no process")?;
        resident_bytes(pid)
    }
}
