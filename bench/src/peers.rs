//! What others reach on this machine: three etcd members with as many clients as we have, then ours, in one run.
//!
//! etcd answers every keep-alive and every renewal, our replicas a beat only when asked to; so ours is told both ways.

mod call;
mod comparison;
mod credentials;
mod etcd;
mod histogram;
mod load;
mod wire;

use anyhow::{Context, Result};

use self::comparison::all;
pub use self::comparison::{Ours, Peer, SCENARIO, Theirs, findings, tables};
use self::etcd::{Etcd, MEMBERS, Program, Reach};
pub use self::histogram::Summary;
use self::load::{Load, Measured};
use crate::heartbeats;
use crate::outcome::{Finding, Goal, Outcome};
use crate::progress::say;
use crate::setting::Setting;
use crate::timeline::{Series, Timeline};

/// As many for each system, with one stream or one call at a time each.
pub const CLIENTS: usize = 256;
/// Of etcd's clients: with one each its rates are a quarter lower, and our streams are multiplexed too.
const CONNECTIONS: usize = 12;
const MISSING: &str = "skipped: no `etcd` in PATH to compare with; install it (Debian: `apt-get install etcd-server`)";

/// etcd first, then ours, with as many clients.
pub async fn run(setting: &Setting) -> Result<Outcome> {
    let Some(program) = Program::find()? else { return Ok(skipped()) };
    let theirs = measure(&program, setting).await.context("etcd, for comparison")?;
    let ours = heartbeats::ours(setting, CLIENTS).await?;
    Ok(Outcome {
        findings: findings(&ours, &theirs, setting.scale),
        tables: tables(&ours, &theirs),
        timeline: timeline(&all(&ours, &theirs)),
        ..Outcome::default()
    })
}

fn skipped() -> Outcome {
    say(format_args!("{SCENARIO}: {MISSING}"));
    let finding = Finding::new(SCENARIO, Goal::told("P1"), "skipped", 0.0, "x").with("skipped", MISSING);
    Outcome { findings: vec![finding], ..Outcome::default() }
}

/// etcd has ended when this returns, so that what is measured next has the machine to itself.
async fn measure(program: &Program, setting: &Setting) -> Result<Theirs> {
    let load = Load {
        clients: CLIENTS,
        connections: CONNECTIONS,
        leases: setting.nodes(1_000, 10_000),
        length: setting.duration(2, 10),
    };
    let name = format!("etcd {}", program.version());
    let peer = |operation, measured: Measured| measured.into_peer(name.clone(), operation);
    say(format_args!(
        "{name}: {MEMBERS} members, {CLIENTS} clients on {CONNECTIONS} connections, {} leases",
        load.leases
    ));
    let etcd = Etcd::start(program).await?;
    let keep_alives = peer("lease keep-alive", load::keep_alives(&etcd, load, Reach::All).await?);
    say(format_args!("{name}: {:.0} lease keep-alives/s", keep_alives.rate));
    let at_leader = peer("lease keep-alive, leader only", load::keep_alives(&etcd, load, Reach::Leader).await?);
    say(format_args!("{name}: {:.0} lease keep-alives/s if all ask the leader", at_leader.rate));
    let renewals = peer("compare-and-put", load::renewals(&etcd, load).await?);
    say(format_args!("{name}: {:.0} compare-and-put renewals/s", renewals.rate));
    Ok(Theirs { keep_alives, at_leader, renewals })
}

/// Each was measured with a clock of its own; the names keep them apart.
fn timeline(peers: &[&Peer]) -> Timeline {
    let mut timeline = Timeline::default();
    for peer in peers {
        let named = |series: &Series| Series { name: format!("{}, {}", peer.operation, series.name), ..series.clone() };
        timeline.extend(peer.usage.series.iter().map(named));
    }
    timeline
}

impl Measured {
    fn into_peer(self, name: String, operation: &'static str) -> Peer {
        let Self { operations, rate, latency, usage } = self;
        Peer { name, operation, operations, rate, latency, usage }
    }
}
