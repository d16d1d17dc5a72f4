//! Agent program: what `muster-agent` and `muster agent` run.
//!
//! ```text
//!   flags, file --> AgentSettings --+
//!   state directory, token ---------+--> ProgramParts --> Program: one Session, its watchdog, its listeners
//!   machine --> MachineObserver ----+                        |  /metrics, the socket behind `status`
//!   pod runtime --------------------+                        +--> goodbye on SIGTERM; pods go on running
//! ```
//!
//! Every flag is checked before the agent contacts anything.

mod args;
mod exit;
mod flag;
mod identity;
mod kubeconfig;
mod log;
mod machine_settings;
mod metrics;
mod node;
mod notify;
mod observer;
mod program;
mod runtime;
mod runtime_health;
mod settings;
mod socket;
mod state_dir;
mod view;

use runtime::Chosen;
use tokio_util::task::AbortOnDropHandle;

use crate::enrolment::keep_renewed;

pub use args::{AgentArgs, AgentCli, AgentVerb, JoinArgument, RawValue, SettingsLayer, StatusArgs};
pub use exit::{AgentError, Exit};
pub use flag::BadFlag;
pub use kubeconfig::Kubeconfig;
pub use log::AgentLogFormat;
pub use machine_settings::MachineSettings;
pub use metrics::AgentMetrics;
pub use node::{NodeMachine, Observation};
pub use notify::SystemdNotify;
pub use observer::MachineObserver;
pub use program::{ProgramParts, asked_to_stop, serve};
pub use settings::{AgentSettings, MetricsEndpoint, RuntimeKind};
pub use socket::ask;
pub use state_dir::StateDir;
pub use view::{AgentView, AttachmentState, Expiry, PodView, SessionView, StatusSource};

/// Runs the command line. Must be called on a tokio runtime.
pub async fn run(args: AgentArgs) -> Result<(), AgentError> {
    match &args.verb {
        Some(AgentVerb::Status(status)) => show(status).await,
        None => work(AgentSettings::new(args, &hostname())?).await,
    }
}

async fn show(args: &StatusArgs) -> Result<(), AgentError> {
    let view = ask(&args.state_dir).await?;
    let text = match args.output.as_str() {
        "json" => serde_json::to_string_pretty(&view).map_err(AgentError::other)? + "\n",
        _ => view.to_string(),
    };
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        // The reader has closed the pipe and needs no more.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(AgentError::other),
    }
}

async fn work(settings: AgentSettings) -> Result<(), AgentError> {
    log::init(settings.log_format)?;
    let mut stop = std::pin::pin!(asked_to_stop()?);
    let notify = SystemdNotify::from_environment();
    let state_dir = StateDir::open(&settings.state_dir)?;
    // Local failures are found before a token is spent.
    let metrics = match &settings.metrics {
        Some(door) => Some(AgentMetrics::open(door).await?),
        None => None,
    };
    let Chosen { runtime, readiness, version } = runtime::choose(settings.runtime, &state_dir)?;
    notify.status("looking for credentials");
    let credentials = tokio::select! {
        () = &mut stop => return Ok(()),
        obtained = identity::obtain(&settings, &state_dir) => obtained?,
    };
    let _renewing = credentials
        .is_renewable()
        .then(|| AbortOnDropHandle::new(tokio::spawn(keep_renewed(credentials.clone(), settings.server.clone()))));
    let (every, nodefs) = (settings.update_every, state_dir.path());
    let observer = MachineObserver::start(&settings.machine, every, nodefs, &version, readiness).await?;
    let (tls, expiry) = (credentials.tls(), identity::expiry(&credentials));
    let renewed = credentials.is_renewable().then_some(credentials);
    let parts = ProgramParts { observed: observer.observed(), runtime: Some(runtime), tls, expiry, metrics, renewed };
    serve(&settings, &state_dir, parts, notify, stop).await
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
