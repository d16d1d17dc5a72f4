//! `peers` (P1): three etcd members with as many clients as we have, then our replicas, in one run on this machine.
//!
//! etcd answers every keep-alive and every renewal, our replicas a beat only when asked to, so ours is measured both
//! ways.

mod call;
mod comparison;
mod credentials;
mod etcd;
mod load;
mod wire;

use anyhow::{Context, Result};

use self::comparison::{EtcdResults, all, figures, tables};
pub(super) use self::comparison::{MusterResults, PeerResult, SCENARIO};
use self::etcd::{EtcdBinary, EtcdCluster, MEMBERS, Reach};
use self::load::{EtcdLoad, Measured};
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::timeline::{MeasuredTimeline, Series};
use crate::scenario::heartbeats;

/// Clients of each system, with one stream or one call at a time each.
const CLIENTS: usize = 256;
/// Connections of etcd's clients: with one per client its rates are a quarter lower, and our streams are multiplexed
/// too.
const CONNECTIONS: usize = 12;
const MISSING: &str = "skipped: no `etcd` in PATH to compare with; install it (Debian: `apt-get install etcd-server`)";

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let Some(program) = EtcdBinary::find()? else { return Ok(skipped()) };
    let theirs = measure(&program, options).await.context("etcd, for comparison")?;
    let ours = heartbeats::muster_results(options, CLIENTS).await?;
    Ok(ScenarioOutcome {
        figures: figures(&ours, &theirs, options.scale),
        tables: tables(&ours, &theirs),
        timeline: timeline(&all(&ours, &theirs)),
        ..ScenarioOutcome::default()
    })
}

fn skipped() -> ScenarioOutcome {
    progress::print(format_args!("{SCENARIO}: {MISSING}"));
    let figure = Figure::new(SCENARIO, Goal::reported("P1"), "skipped", 0.0, "x").with("skipped", MISSING);
    ScenarioOutcome { figures: vec![figure], ..ScenarioOutcome::default() }
}

/// etcd has ended when this returns, so that the next measurement has the machine to itself.
async fn measure(program: &EtcdBinary, options: &BenchOptions) -> Result<EtcdResults> {
    let load = EtcdLoad {
        clients: CLIENTS,
        connections: CONNECTIONS,
        leases: options.nodes(1_000, 10_000),
        length: options.duration(2, 10),
    };
    let name = format!("etcd {}", program.version());
    let peer = |operation, measured: Measured| measured.into_peer(name.clone(), operation);
    progress::print(format_args!(
        "{name}: {MEMBERS} members, {CLIENTS} clients on {CONNECTIONS} connections, {} leases",
        load.leases
    ));
    let etcd = EtcdCluster::start(program).await?;
    let keep_alives = peer("lease keep-alive", load::keep_alives(&etcd, load, Reach::All).await?);
    progress::print(format_args!("{name}: {:.0} lease keep-alives/s", keep_alives.rate));
    let at_leader = peer("lease keep-alive, leader only", load::keep_alives(&etcd, load, Reach::Leader).await?);
    progress::print(format_args!("{name}: {:.0} lease keep-alives/s if all ask the leader", at_leader.rate));
    let renewals = peer("compare-and-put", load::renewals(&etcd, load).await?);
    progress::print(format_args!("{name}: {:.0} compare-and-put renewals/s", renewals.rate));
    Ok(EtcdResults { keep_alives, at_leader, renewals })
}

/// Each system was measured with a clock of its own; the names keep them apart.
fn timeline(peers: &[&PeerResult]) -> MeasuredTimeline {
    let mut timeline = MeasuredTimeline::default();
    for peer in peers {
        let named = |series: &Series| Series { name: format!("{}, {}", peer.operation, series.name), ..series.clone() };
        timeline.extend(peer.usage.series.iter().map(named));
    }
    timeline
}

impl Measured {
    fn into_peer(self, name: String, operation: &'static str) -> PeerResult {
        let Self { operations, rate, latency, usage } = self;
        PeerResult { name, operation, operations, rate, latency, usage }
    }
}
