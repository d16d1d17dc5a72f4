//! `muster dev`: a real cluster on this machine, one process per replica.
//!
//! ```text
//!   muster dev ──spawns──> muster server (replica 1)   each in its own process, stopped by SIGTERM, and by
//!      │  │                muster server (replica 2)   itself when the pipe from `dev` closes
//!      │  │                muster server (replica 3)
//!      │  └── simulated nodes ──TLS──> the replicas' agent doors
//!      └── DIR/control.sock <── muster dev restart ID, muster dev stop, muster fleet ...
//! ```
//! The replicas are processes and not tasks, so that killing one is a real crash.

mod cluster;
pub(crate) mod control;
mod demo;
mod guide;
pub mod lock;
mod ports;
mod preset;
mod record;
mod replica;
mod simulation;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{FleetFolder, ReplicaPlan};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::cluster::{Cluster, Wish};
use self::lock::Lock;
use self::preset::Preset;
use self::simulation::{NODES_MAX, Size, ZONES_MAX};
use crate::addressing::AddressArgs;
use crate::discover::DEV_DIR;
use crate::exit::Failure;
use crate::output::say;
use crate::policy::PolicyArgs;
use crate::verb::Context;
use crate::verb::init::{DEFAULT_PORT_BASE, Place};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = POLICY_HELP)]
pub struct Args {
    /// How many replicas to start with [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub replicas: Option<u16>,
    /// Replica N uses the four ports from this plus 10 x (N - 1) on [default: 7400]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port_base: Option<u16>,
    /// Restart replicas that die
    #[arg(long)]
    pub restart: bool,
    /// How many simulated nodes to run
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(..=i64::from(NODES_MAX)))]
    pub nodes: u32,
    /// Over how many zones to spread them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(ZONES_MAX)))]
    pub zones: u32,
    /// How many pods per simulated node a new cluster begins with; 0 for none
    #[arg(long, value_name = "N", default_value_t = demo::PODS_PER_NODE_DEFAULT, value_parser = clap::value_parser!(u32).range(..=i64::from(demo::PODS_PER_NODE_MAX)))]
    pub demo_pods: u32,
    /// The lifecycle settings to begin with; single ones below override it [default: demo]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<Preset>,
    #[command(flatten)]
    pub settings: PolicyArgs,
    #[command(flatten)]
    pub addressing: AddressArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Restart a replica of the running local cluster, dead or alive
    Restart { id: ReplicaId },
    /// Stop the running local cluster
    Stop,
}

const POLICY_HELP: &str = "A new cluster starts with the demo policy, or with Kubernetes' timings by --policy upstream; the settings given here \
    override single values. When `muster dev` resumes a cluster, --policy and these settings change its policy. The ranges of \
    node CIDRs are set once, when the cluster has none.";
const DEFAULT_REPLICAS: u16 = 3;
const PORTS_PER_REPLICA: u16 = 10;
const HOST: &str = "127.0.0.1";
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let dir = folder(context);
    match args.command {
        Some(Command::Restart { id }) => {
            let patience = context.timeout.unwrap_or(CONTROL_TIMEOUT);
            control::restart(&dir, id, patience).await
        }
        Some(Command::Stop) => control::stop(&dir, context.timeout.unwrap_or(CONTROL_TIMEOUT)).await,
        None => start(&dir, &args).await,
    }
}

/// The folder of the local cluster.
pub(crate) fn folder(context: &Context) -> PathBuf {
    context.dir.clone().unwrap_or_else(|| DEV_DIR.into())
}

async fn start(dir: &Path, args: &Args) -> Result<(), Failure> {
    let wish = args.wish()?;
    let mut signals = Signals::new()?;
    make_folder(dir)?;
    let dir = dir.canonicalize()?;
    let lock = Lock::acquire(&dir)?;
    record::remove(&dir);
    let first_start = !dir.join("pki").exists();
    let fleet = fleet(&dir, args, first_start).await?;
    let size = Size { nodes: args.nodes, zones: args.zones, demo_pods: args.demo_pods };
    let mut cluster = Cluster::new(&dir, fleet, size, args.restart)?;
    let outcome = tokio::select! {
        outcome = cluster.run(first_start, wish) => outcome,
        () = signals.stop() => Ok(()),
    };
    say("stopping");
    record::remove(&dir);
    cluster.stop().await;
    drop(lock);
    outcome
}

/// The fleet in `dir`, created now if there is none.
async fn fleet(dir: &Path, args: &Args, first_start: bool) -> Result<FleetFolder, Failure> {
    if first_start {
        let plans = plans(args.replicas.unwrap_or(DEFAULT_REPLICAS), args.port_base.unwrap_or(DEFAULT_PORT_BASE))?;
        ports::require_free(&plans, "--port-base PORT", Duration::ZERO).await?;
        say(format_args!("creating a cluster of {} replicas in {}", plans.len(), dir.display()));
        return FleetFolder::create(dir, &plans).map_err(Failure::other);
    }
    let fleet = FleetFolder::load(dir).map_err(Failure::other)?;
    same_shape(dir, args, fleet.replicas())?;
    // Replicas of a `dev` that was killed need a moment to notice.
    let remedy = "a folder of its own: --dir DIR --port-base PORT";
    ports::require_free(fleet.replicas(), remedy, ports::LEAVING_TIMEOUT).await?;
    say(format_args!("resuming cluster {} in {}", fleet.id(), dir.display()));
    Ok(fleet)
}

impl Args {
    /// The cluster that the flags ask for. A cluster that has a policy keeps it unless a flag asks for another.
    fn wish(&self) -> Result<Wish, Failure> {
        let by_hand = self.settings.layer().map_err(|invalid| Failure::Usage(invalid.to_string()))?;
        let policy = self.policy.unwrap_or_default().with(&by_hand);
        let policy = policy.map_err(|invalid| Failure::Usage(format!("--{}: {}", invalid.field, invalid.rule)))?;
        let asked_for = self.policy.is_some() || !by_hand.is_empty();
        Ok(Wish { policy, asked_for, addressing: self.addressing.flags(), plan: self.plan()? })
    }

    /// Which addresses nodes get. Wrong flags are reported here, not in the log of a replica that does not start.
    fn plan(&self) -> Result<Option<Addressing>, Failure> {
        let plan = self.addressing.layer().resolve();
        plan.map_err(|invalid| Failure::Usage(format!("--{}: {}", invalid.field, invalid.rule)))
    }
}

/// Addresses and members belong to the cluster's state by now; flags that ask for others are refused, not ignored.
fn same_shape(dir: &Path, args: &Args, plans: &[ReplicaPlan]) -> Result<(), Failure> {
    let first_port = plans.first().map(|plan| plan.peer.port());
    let other_ports = args.port_base.is_some_and(|base| Some(base) != first_port);
    let other_count = args.replicas.is_some_and(|count| usize::from(count) > plans.len());
    match other_ports || other_count {
        false => Ok(()),
        true => Err(Failure::Conflict(format!(
            "{} holds a cluster of {} replicas from port {} on; start without --replicas and --port-base to resume it, \
             choose another --dir, or remove the folder to begin anew",
            dir.display(),
            plans.len(),
            first_port.unwrap_or_default(),
        ))),
    }
}

fn plans(count: u16, base: u16) -> Result<Vec<ReplicaPlan>, Failure> {
    let place = |index: u16| {
        let port_base = index.checked_mul(PORTS_PER_REPLICA).and_then(|offset| base.checked_add(offset));
        let port_base = port_base
            .ok_or_else(|| Failure::Usage(format!("--port-base {base} leaves no room for {count} replicas")))?;
        Place { id: ReplicaId(u64::from(index) + 1), host: HOST.into(), port_base }.plan()
    };
    (0..count).map(place).collect()
}

fn make_folder(dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::other(anyhow::Error::new(error).context(format!("cannot create {}", dir.display())));
    muster_pki::secret::make_dir(dir).map_err(failed)
}

/// Everything that may ask `dev` to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

// === impl Signals ===

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// The folder in which a replica of `dir` keeps everything.
fn replica_dir(dir: &Path, id: ReplicaId) -> PathBuf {
    dir.join(format!("replica-{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(replicas: Option<u16>, port_base: Option<u16>) -> Args {
        Args {
            replicas,
            port_base,
            restart: false,
            nodes: 0,
            zones: 1,
            demo_pods: 0,
            policy: None,
            settings: PolicyArgs::default(),
            addressing: AddressArgs::default(),
            command: None,
        }
    }

    #[test]
    fn replicas_are_ten_ports_apart() {
        let plans = plans(3, 7400).unwrap();
        let clients: Vec<String> = plans.iter().map(|plan| plan.client.to_string()).collect();
        assert_eq!(clients, ["127.0.0.1:7402", "127.0.0.1:7412", "127.0.0.1:7422"]);
        assert!(super::plans(3, 65_520).is_err());
    }

    #[test]
    fn invalid_cidr_ranges_are_refused_before_anything_starts() {
        let mut args = args(None, None);
        assert!(args.wish().is_ok_and(|wish| wish.addressing.is_empty() && wish.plan.is_none()));
        args.addressing.cluster_cidr = Some("10.0.0.0/16".into());
        let refused = args.wish().map(drop).unwrap_err();
        assert!(refused.to_string().starts_with("--allocate-node-cidrs: is not set"), "{refused}");
        args.addressing.allocate_node_cidrs = Some(true);
        let wish = args.wish().unwrap();
        assert_eq!(wish.addressing, ["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/16"]);
    }

    #[test]
    fn flags_that_contradict_the_folder_are_refused() {
        let plans = plans(3, 7400).unwrap();
        let check = |replicas, base| same_shape(Path::new("d"), &args(replicas, base), &plans);
        assert!(check(None, None).is_ok());
        assert!(check(Some(3), Some(7400)).is_ok());
        assert!(check(Some(5), None).unwrap_err().to_string().contains("from port 7400 on"));
        assert!(check(None, Some(8000)).is_err());
    }
}
