//! `muster server`: one replica, from a file, flags, or both.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use muster_controller::config::{self, AdvertiseLayer, EnrolmentLayer, Layer, ListenLayer, ServerConfig};
use muster_controller::observe::logging::{self, LogFormat};
use muster_controller::server::{Build, serve};
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{FleetId, FleetMember, HostPort};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::addressing::AddressArgs;
use crate::exit::Failure;
use crate::policy::PolicyArgs;

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = POLICY_HELP)]
pub struct Args {
    /// The replica's configuration (TOML); flags win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long)]
    pub id: Option<ReplicaId>,
    /// The fleet's id, as `muster init` printed it
    #[arg(long, value_name = "UUID")]
    pub fleet: Option<FleetId>,
    /// Where the replica keeps its log, snapshots and state
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The folder with the replica's certificates and keys
    #[arg(long, value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,
    /// Where to listen for other replicas
    #[arg(long, value_name = "IP:PORT")]
    pub listen_peer: Option<SocketAddr>,
    /// Where to listen for agents
    #[arg(long, value_name = "IP:PORT")]
    pub listen_agent: Option<SocketAddr>,
    /// Where to listen for operators
    #[arg(long, value_name = "IP:PORT")]
    pub listen_client: Option<SocketAddr>,
    /// Where to listen for HTTPS: metrics and probes [default: one port above --listen-client]
    #[arg(long, value_name = "IP:PORT")]
    pub listen_http: Option<SocketAddr>,
    /// Where other replicas reach this one [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise_peer: Option<HostPort>,
    /// Where agents reach this replica [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise_agent: Option<HostPort>,
    /// Where operators reach this replica [default: where it listens]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise_client: Option<HostPort>,
    /// A replica of the new cluster; repeat for each
    #[arg(long = "initial-member", value_name = "ID=PEER,AGENT,CLIENT")]
    pub initial_members: Vec<FleetMember>,
    /// Join a running cluster instead of forming a new one
    #[arg(long)]
    pub join: bool,
    /// How to log: text or json
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Stop in an orderly way when stdin closes, that is, when the process that started this one has ended
    #[arg(long)]
    pub exit_with_parent: bool,
    /// How long the certificates of nodes last that this replica signs [default: 720h]
    #[arg(long, value_name = "TIME")]
    pub node_certificate_lifetime: Option<String>,
    /// For how long a node may renew a certificate that has expired; 0s: not at all [default: 168h]
    #[arg(long, value_name = "TIME")]
    pub expired_certificate_renewal: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    #[command(flatten)]
    pub addressing: AddressArgs,
}

const POLICY_HELP: &str = "A new cluster gets its lifecycle policy from these flags, and upstream's value for every flag that \
    is not given. A cluster that has a policy keeps it, whatever its replicas are started with: `muster set config` \
    changes it, for all of them at once. Only a `muster dev` that resumes a cluster takes such flags as a change. The \
    ranges of node CIDRs are those of the first leader that has flags for them, and cannot be changed afterwards.";

pub async fn run(build: Build, args: Args) -> Result<(), Failure> {
    let (file, exit_with_parent) = (args.config.clone(), args.exit_with_parent);
    let layer = file.as_deref().map(Layer::load).transpose().map_err(Failure::other)?;
    let config = args.flags().and_then(|flags| ServerConfig::merge(layer, flags));
    let config = config.with_context(|| named(file.as_ref())).map_err(Failure::Other)?;
    logging::init(config.log_format).map_err(Failure::other)?;
    let shutdown = CancellationToken::new();
    stop_on_signals(&shutdown)?;
    if exit_with_parent {
        stop_with_parent(&shutdown).map_err(Failure::Other)?;
    }
    serve(build, config, shutdown).await.map_err(Failure::other)
}

// === impl Args ===

impl Args {
    fn flags(self) -> Result<Layer, config::Error> {
        Ok(Layer {
            id: self.id,
            fleet: self.fleet,
            data_dir: self.data_dir,
            tls_dir: self.tls_dir,
            join: self.join.then_some(true),
            log_format: self.log_format,
            listen: ListenLayer {
                peer: self.listen_peer,
                agent: self.listen_agent,
                client: self.listen_client,
                http: self.listen_http,
            },
            advertise: AdvertiseLayer {
                peer: self.advertise_peer,
                agent: self.advertise_agent,
                client: self.advertise_client,
            },
            policy: self.policy.layer().map_err(config::Error::Policy)?,
            addressing: self.addressing.layer(),
            enrolment: EnrolmentLayer {
                node_certificate_lifetime: self.node_certificate_lifetime,
                expired_certificate_renewal: self.expired_certificate_renewal,
            },
            initial_members: self.initial_members,
        })
    }
}

fn named(file: Option<&PathBuf>) -> String {
    match file {
        Some(path) => format!("the configuration {} with its flags cannot be used", path.display()),
        None => "without --config FILE, every setting has to come from a flag".into(),
    }
}

/// The first signal asks for an orderly stop; the second one does not wait for it.
fn stop_on_signals(shutdown: &CancellationToken) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let shutdown = shutdown.clone();
    tokio::spawn(async move {
        for orderly in [true, false] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if orderly {
                tracing::info!("stopping; a second signal stops at once");
                shutdown.cancel();
            }
        }
        std::process::exit(crate::exit::Exit::Interrupted as i32);
    });
    Ok(())
}

/// Our parent holds the other end of stdin and never writes; the end of the stream is the parent's end. A thread of
/// its own, because a blocked read would keep the runtime from ending.
fn stop_with_parent(shutdown: &CancellationToken) -> anyhow::Result<()> {
    let shutdown = shutdown.clone();
    let wait = move || {
        let mut buffer = [0; 64];
        let mut stdin = std::io::stdin().lock();
        while stdin.read(&mut buffer).is_ok_and(|read| read > 0) {}
        tracing::info!("the parent process has ended; stopping");
        shutdown.cancel();
    };
    std::thread::Builder::new().name("parent-watch".into()).spawn(wait).context("cannot watch the parent process")?;
    Ok(())
}
