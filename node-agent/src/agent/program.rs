//! Program around a session: starts everything, logs changes, notifies systemd, and stops when told to.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use super::exit::AgentError;
use super::metrics::AgentMetrics;
use super::node::{NodeMachine, Observation};
use super::notify::SystemdNotify;
use super::settings::AgentSettings;
use super::socket::Socket;
use super::state_dir::StateDir;
use super::view::{Expiry, StatusSource};
use crate::connection::SessionFailure;
use crate::credentials::NodeCredentials;
use crate::pods::Runtime;
use crate::session::{Session, SessionConfig, SessionHandle, SessionState};

/// The status in systemd while no replica is attached.
const UNATTACHED: &str = "pods are managed; searching for a replica";

/// The parts that the program needs.
pub struct ProgramParts {
    /// The machine as last observed: filled before the program starts, and kept up to date.
    pub observed: watch::Receiver<Observation>,
    /// The pod runtime; none keeps pods pending.
    pub runtime: Option<Arc<dyn Runtime>>,
    /// The node's certificate and trusted CA. Renewals happen behind it.
    pub tls: Arc<ClientConfig>,
    pub expiry: Expiry,
    /// The metrics listener, if any.
    pub metrics: Option<AgentMetrics>,
    /// The credentials behind `tls`, if the agent renews them.
    pub renewed: Option<NodeCredentials>,
}

/// A running agent.
struct Program {
    node: String,
    session: Arc<SessionHandle>,
    events: watch::Receiver<SessionState>,
    observed: watch::Receiver<Observation>,
    credentials: Option<NodeCredentials>,
    renewals: Option<watch::Receiver<u64>>,
    notify: SystemdNotify,
    logged: SessionState,
    _listeners: Vec<AbortOnDropHandle<()>>,
}

/// Runs until `stop`, then closes the session. Pods go on running.
pub async fn serve(
    settings: &AgentSettings,
    state_dir: &StateDir,
    parts: ProgramParts,
    notify: SystemdNotify,
    stop: impl Future<Output = ()>,
) -> Result<(), AgentError> {
    let mut program = Program::start(settings, state_dir, parts, notify)?;
    tokio::pin!(stop);
    let outcome = tokio::select! {
        () = &mut stop => Ok(()),
        failed = program.work() => Err(failed),
    };
    tracing::info!(node = program.node, "stopping: pods go on running");
    program.notify.stopping();
    program.session.finish().await;
    outcome
}

/// Completes at SIGTERM or SIGINT. SIGHUP is ignored: there is nothing to reload, and an agent must not end with its
/// terminal.
pub fn asked_to_stop() -> Result<impl Future<Output = ()>, AgentError> {
    let listen = |kind| signal(kind).map_err(AgentError::other);
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => tracing::info!("SIGHUP ignored: restart the agent to change settings"),
            }
        }
    })
}

// === impl Program ===

impl Program {
    fn start(
        settings: &AgentSettings,
        state_dir: &StateDir,
        parts: ProgramParts,
        notify: SystemdNotify,
    ) -> Result<Self, AgentError> {
        let ProgramParts { observed, runtime, tls, expiry, metrics, renewed: credentials } = parts;
        // Subscribed before the first connection, so that no renewal is missed.
        let renewals = credentials.as_ref().map(NodeCredentials::renewals);
        let socket = Socket::open(state_dir.path())?;
        let config = SessionConfig {
            node: settings.node.clone(),
            endpoints: settings.server.clone(),
            tls,
            instance: state_dir.instance()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let machine = Arc::new(NodeMachine::new(settings, observed.clone(), runtime));
        let session = Arc::new(Session::start(config, machine).map_err(AgentError::usage)?);
        let source = StatusSource { node: settings.node.clone(), session: Arc::clone(&session), expiry };
        let mut listeners = vec![AbortOnDropHandle::new(tokio::spawn(socket.serve(source.clone())))];
        if let Some(metrics) = metrics {
            let address = metrics.address().map_err(AgentError::other)?;
            tracing::info!(%address, "metrics are served");
            listeners.push(AbortOnDropHandle::new(tokio::spawn(metrics.serve(source))));
        }
        let (node, events) = (settings.node.clone(), session.events());
        tracing::info!(node, server = settings.server.join(","), "starting");
        // Ready before it is attached: a machine must be able to boot while the control plane is away.
        notify.ready(UNATTACHED);
        let logged = SessionState::default();
        Ok(Self { node, session, events, observed, credentials, renewals, notify, logged, _listeners: listeners })
    }

    /// Returns only if something is wrong.
    async fn work(&mut self) -> AgentError {
        let watchdog = self.notify.watchdog();
        let mut ticks = watchdog.map(every);
        loop {
            tokio::select! {
                changed = self.events.changed() => match changed {
                    Ok(()) => self.log_changes(),
                    Err(_) => return AgentError::other("the session ended by itself: this is a bug of the agent"),
                },
                changed = self.observed.changed() => match changed {
                    Ok(()) => self.session.report(),
                    Err(_) => return AgentError::other("the observation of the machine ended by itself: this is a bug of the agent"),
                },
                () = renewed(&mut self.renewals) => self.session.reattach(),
                () = next(&mut ticks) => self.notify_watchdog(watchdog.unwrap_or_default()).await,
            }
        }
    }

    /// Notifies the watchdog only if the session's task answers, so that systemd restarts an agent whose session
    /// hangs.
    async fn notify_watchdog(&self, limit: Duration) {
        match self.session.inspect(limit / 2).await {
            Some(_) => self.notify.alive(),
            None => tracing::error!("the session does not answer: the watchdog is not notified"),
        }
    }

    /// Logs what has changed since the last time.
    fn log_changes(&mut self) {
        let state = self.events.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.logged, state.clone());
        let (node, incarnation) = (self.node.as_str(), state.incarnation);
        if state.removals > before.removals {
            tracing::warn!(node, "the Node was removed: stopping its pods before it registers again");
        }
        if has_expired(&state) && !has_expired(&before) {
            self.credentials.iter().for_each(NodeCredentials::doubt);
        }
        match (before.attached_to, state.attached_to) {
            (former, Some(replica)) if former != Some(replica) || before.incarnation != incarnation => {
                tracing::info!(node, replica, incarnation, fleet = state.fleet.as_deref(), "attached");
                self.notify.status(&format!("attached to replica {replica}"));
            }
            (Some(replica), None) => {
                let why = state.last_error.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(node, replica, why, "no longer attached");
                self.notify.status(UNATTACHED);
            }
            (Some(_) | None, Some(_)) => {}
            (None, None) => self.log_failure(&before, &state),
        }
    }

    /// Shows a lasting failure in the log and in systemd's status.
    fn log_failure(&self, before: &SessionState, state: &SessionState) {
        if let Some(trouble) = state.last_error.as_ref().filter(|trouble| before.last_error.as_ref() != Some(*trouble))
        {
            tracing::warn!(node = self.node, why = %trouble, "not attached");
            self.notify.status(&trouble.to_string());
        }
    }
}

/// According to a replica, whatever this machine's clock says.
fn has_expired(state: &SessionState) -> bool {
    matches!(&state.last_error, Some(SessionFailure::Refused { code: Code::Unauthenticated, .. }))
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Completes after each renewal; never, if there are none.
async fn renewed(renewals: &mut Option<watch::Receiver<u64>>) {
    match renewals {
        Some(renewals) => drop(renewals.changed().await),
        None => pending().await,
    }
}

async fn next(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => drop(interval.tick().await),
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use clap::Parser;
    use rustls::RootCertStore;

    use super::*;
    use crate::agent::AgentCli;
    use crate::session::AgentMode;

    /// A certificate store without a CA: the test connects to nothing.
    fn tls() -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
    }

    #[tokio::test]
    async fn the_watchdog_is_notified_only_while_the_session_answers() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let line = ["muster-agent", "--server=127.0.0.1:1", "--metrics-address=none", "--state-dir"];
        let args = AgentCli::try_parse_from(line.into_iter().chain([state.to_str().unwrap()])).unwrap().agent;
        let settings = AgentSettings::new(args, "rack-1").unwrap();
        let socket = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&socket).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let notify = SystemdNotify::to(socket.as_os_str(), None).unwrap();
        let (_observation, observed) = watch::channel(Observation::default());
        let parts = ProgramParts {
            observed,
            runtime: None,
            tls: tls(),
            expiry: Arc::new(|| None),
            metrics: None,
            renewed: None,
        };
        let state_dir = StateDir::open(&settings.state_dir).unwrap();
        let program = Program::start(&settings, &state_dir, parts, notify).unwrap();
        let fed = || std::iter::from_fn(|| systemd.recv(&mut [0; 64]).ok()).any(|length| length == "WATCHDOG=1".len());

        program.notify_watchdog(Duration::from_secs(20)).await;
        assert!(fed());
        program.session.simulate(AgentMode::Silent);
        // The session may need a moment to stop answering.
        while program.session.inspect(Duration::from_millis(10)).await.is_some() {}
        program.notify_watchdog(Duration::from_millis(20)).await;
        assert!(!fed(), "a hanging session must not look alive");
    }
}
