//! The program around a session: it starts everything, says what changes, keeps systemd informed, and stops when asked.

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

/// What systemd shows while there is nothing better to say.
const UNATTACHED: &str = "pods are looked after; looking for a replica";

/// What the parts beside the program bring to it.
pub struct ProgramParts {
    /// The machine, as it was last seen: to be filled before the program starts, and kept up to date.
    pub observed: watch::Receiver<Observation>,
    /// What runs pods; none keeps records only.
    pub runtime: Option<Arc<dyn Runtime>>,
    /// The node's certificate and whom it trusts. Renewals happen behind it.
    pub tls: Arc<ClientConfig>,
    pub expiry: Expiry,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<AgentMetrics>,
    /// What `tls` shows, if it is renewed from here.
    pub renewed: Option<NodeCredentials>,
}

/// An agent at work.
struct Program {
    node: String,
    session: Arc<SessionHandle>,
    events: watch::Receiver<SessionState>,
    observed: watch::Receiver<Observation>,
    credentials: Option<NodeCredentials>,
    renewals: Option<watch::Receiver<u64>>,
    notify: SystemdNotify,
    told: SessionState,
    _doors: Vec<AbortOnDropHandle<()>>,
}

/// Serves until `stop`, then says goodbye. Pods go on running.
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

/// Completes at SIGTERM or SIGINT. SIGHUP means nothing: there is nothing to read anew, and an agent must not die with a terminal.
pub fn asked_to_stop() -> Result<impl Future<Output = ()>, AgentError> {
    let listen = |kind| signal(kind).map_err(AgentError::other);
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hangup = listen(SignalKind::hangup())?;
    Ok(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => tracing::info!("SIGHUP: nothing is read anew; a restart changes settings"),
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
        // From before the first connection, so that none is opened with a certificate whose renewal goes unnoticed.
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
        let mut doors = vec![AbortOnDropHandle::new(tokio::spawn(socket.serve(source.clone())))];
        if let Some(metrics) = metrics {
            let address = metrics.address().map_err(AgentError::other)?;
            tracing::info!(%address, "metrics are served");
            doors.push(AbortOnDropHandle::new(tokio::spawn(metrics.serve(source))));
        }
        let (node, events) = (settings.node.clone(), session.events());
        tracing::info!(node, server = settings.server.join(","), "starting");
        // Not when it is attached: a machine must be able to boot while the control plane is away.
        notify.ready(UNATTACHED);
        let told = SessionState::default();
        Ok(Self { node, session, events, observed, credentials, renewals, notify, told, _doors: doors })
    }

    /// Returns only if something is wrong.
    async fn work(&mut self) -> AgentError {
        let watchdog = self.notify.watchdog();
        let mut feedings = watchdog.map(every);
        loop {
            tokio::select! {
                changed = self.events.changed() => match changed {
                    Ok(()) => self.tell(),
                    Err(_) => return AgentError::other("the session has ended by itself, which is a defect of the agent"),
                },
                changed = self.observed.changed() => match changed {
                    Ok(()) => self.session.report(),
                    Err(_) => return AgentError::other("nobody looks at the machine any more, which is a defect of the agent"),
                },
                () = renewed(&mut self.renewals) => self.session.reattach(),
                () = next(&mut feedings) => self.feed(watchdog.unwrap_or_default()).await,
            }
        }
    }

    /// The watchdog is to bite if the session hangs, however alive the rest is.
    async fn feed(&self, limit: Duration) {
        match self.session.inspect(limit / 2).await {
            Some(_) => self.notify.alive(),
            None => tracing::error!("the session does not answer: the watchdog is not fed"),
        }
    }

    /// Says what has changed since the last time.
    fn tell(&mut self) {
        let state = self.events.borrow_and_update().clone();
        let before = std::mem::replace(&mut self.told, state.clone());
        let (node, incarnation) = (self.node.as_str(), state.incarnation);
        if state.removals > before.removals {
            tracing::warn!(node, "the Node was removed: its pods are stopped before anything else");
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
                tracing::warn!(node, replica, why, "not attached any more");
                self.notify.status(UNATTACHED);
            }
            (Some(_) | None, Some(_)) => {}
            (None, None) => self.tell_trouble(&before, &state),
        }
    }

    /// What keeps a node away for long is shown where people look first.
    fn tell_trouble(&self, before: &SessionState, state: &SessionState) {
        if let Some(trouble) = state.last_error.as_ref().filter(|trouble| before.last_error.as_ref() != Some(*trouble))
        {
            tracing::warn!(node = self.node, why = %trouble, "not attached");
            self.notify.status(&trouble.to_string());
        }
    }
}

/// A replica says so; the clock of this machine may say otherwise.
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

    /// A certificate store that trusts nobody: there is nobody to be reached either.
    fn tls() -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
    }

    #[tokio::test]
    async fn the_watchdog_is_fed_only_while_the_session_answers() {
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

        program.feed(Duration::from_secs(20)).await;
        assert!(fed());
        program.session.simulate(AgentMode::Silent);
        // It may still be on its way to notice.
        while program.session.inspect(Duration::from_millis(10)).await.is_some() {}
        program.feed(Duration::from_millis(20)).await;
        assert!(!fed(), "a session that hangs must not look alive");
    }
}
