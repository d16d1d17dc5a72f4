//! The agent as a program: what `muster-agent` and `muster agent` run.
//!
//! ```text
//!   flags, file --> Settings --+
//!   state directory, token ----+--> Wiring --> Program: one Session, its watchdog, its doors
//!   machine --> Observer ------+                  |  /metrics, the socket behind `status`
//!   what runs pods ------------+                  +--> goodbye on SIGTERM; pods go on running
//! ```
//!
//! Everything that can be wrong with a flag is found before anything is contacted.

mod args;
mod checkup;
mod exit;
mod flag;
mod identity;
mod kubeconfig;
mod log;
mod machine_settings;
mod metrics;
mod node;
mod notify;
mod observing;
mod program;
mod runtime;
mod settings;
mod socket;
mod state_dir;
mod view;

use runtime::Chosen;
use tokio_util::task::AbortOnDropHandle;

use crate::enrolment::keep_renewed;

pub use args::{AgentArgs, Cli, JoinWord, Layer, StatusArgs, Verb, Word};
pub use exit::{Exit, Failed};
pub use flag::BadFlag;
pub use kubeconfig::Kubeconfig;
pub use log::Format;
pub use machine_settings::MachineSettings;
pub use metrics::Metrics;
pub use node::{NodeMachine, Observation};
pub use notify::Notify;
pub use observing::Observer;
pub use program::{Wiring, asked_to_stop, serve};
pub use settings::{MetricsDoor, RuntimeKind, Settings};
pub use socket::ask;
pub use state_dir::StateDir;
pub use view::{Desk, Expiry, PodView, SessionView, Standing, View};

/// Does what the command line says. Must be called on a tokio runtime.
pub async fn run(args: AgentArgs) -> Result<(), Failed> {
    match &args.verb {
        Some(Verb::Status(status)) => show(status).await,
        None => work(Settings::new(args, &hostname())?).await,
    }
}

async fn show(args: &StatusArgs) -> Result<(), Failed> {
    let view = ask(&args.state_dir).await?;
    let text = match args.output.as_str() {
        "json" => serde_json::to_string_pretty(&view).map_err(Failed::error)? + "\n",
        _ => view.to_string(),
    };
    match std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failed::error),
    }
}

async fn work(settings: Settings) -> Result<(), Failed> {
    log::init(settings.log_format)?;
    let mut stop = std::pin::pin!(asked_to_stop()?);
    let notify = Notify::from_environment();
    let state_dir = StateDir::open(&settings.state_dir)?;
    // Whatever may be missing on this machine is found before a token is spent.
    let metrics = match &settings.metrics {
        Some(door) => Some(Metrics::open(door).await?),
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
    let observer = Observer::start(&settings.machine, every, nodefs, &version, readiness).await?;
    let (tls, expiry) = (credentials.tls(), identity::expiry(&credentials));
    let renewed = credentials.is_renewable().then_some(credentials);
    let wiring = Wiring { observed: observer.observed(), runtime: Some(runtime), tls, expiry, metrics, renewed };
    serve(&settings, &state_dir, wiring, notify, stop).await
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
