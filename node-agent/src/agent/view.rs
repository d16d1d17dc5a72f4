//! View of a running agent, for operators and programs: gathered on request, shown as text or JSON.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::pods::PodSnapshot;
use crate::session::{SessionHandle, SessionState};

/// A session that takes longer to answer hangs.
const TIMEOUT: Duration = Duration::from_secs(2);

/// When the node's certificate expires, if that is known.
pub type Expiry = Arc<dyn Fn() -> Option<Timestamp> + Send + Sync>;

/// Gathers the view.
#[derive(Clone)]
pub struct StatusSource {
    pub(super) node: String,
    pub(super) session: Arc<SessionHandle>,
    pub(super) expiry: Expiry,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    pub node: String,
    pub version: String,
    pub pid: u32,
    pub session: SessionView,
    pub certificate_expires: Option<String>,
    pub pods: Vec<PodView>,
}

/// Ages are in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    pub state: AttachmentState,
    pub replica: Option<u64>,
    pub endpoint: Option<String>,
    pub fleet: Option<String>,
    pub incarnation: u64,
    pub removals: u64,
    pub last_beat_sent_age: Option<f64>,
    pub last_heard_age: Option<f64>,
    pub last_acknowledged_age: Option<f64>,
    pub beats: u64,
    pub statuses: u64,
    pub failures: u64,
    pub last_error: Option<String>,
    /// What the replica lacks of the protocol that this agent speaks.
    #[serde(default)]
    pub lacking: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AttachmentState {
    Attached,
    #[default]
    Detached,
    /// The session's task does not answer.
    Hung,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodView {
    pub name: String,
    pub uid: String,
    pub phase: String,
    pub ready: bool,
    pub restarts: u32,
    pub stopping: bool,
    pub reason: String,
}

// === impl StatusSource ===

impl StatusSource {
    pub async fn view(&self) -> AgentView {
        let (state, snapshot) = (self.session.state(), self.session.inspect(TIMEOUT).await);
        let age = |at: Option<Instant>| at.map(|at| (at.elapsed().as_secs_f64() * 1000.0).round() / 1000.0);
        let counters = snapshot.as_ref().map(|snapshot| snapshot.counters).unwrap_or_default();
        let attachment = match (&snapshot, state.attached_to) {
            (None, _) => AttachmentState::Hung,
            (Some(_), Some(_)) => AttachmentState::Attached,
            (Some(_), None) => AttachmentState::Detached,
        };
        let SessionState { attached_to, fleet, incarnation, removals, last_error, lacking, terms: _ } = state;
        let (endpoint, pods) = snapshot.map(|snapshot| (snapshot.endpoint, snapshot.pods)).unwrap_or_default();
        AgentView {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            session: SessionView {
                state: attachment,
                replica: attached_to,
                endpoint,
                fleet: fleet.map(|fleet| fleet.to_string()),
                incarnation,
                removals,
                last_beat_sent_age: age(counters.beat_at),
                last_heard_age: age(counters.heard_at),
                last_acknowledged_age: age(counters.acknowledged_at),
                beats: counters.beats,
                statuses: counters.statuses,
                failures: counters.failures,
                last_error: last_error.map(|error| error.to_string()),
                lacking: lacking.map(|lacking| lacking.to_string()),
            },
            certificate_expires: (self.expiry)().map(|expires| expires.to_string()),
            pods: pods.into_iter().map(PodView::from).collect(),
        }
    }
}

impl From<PodSnapshot> for PodView {
    fn from(pod: PodSnapshot) -> Self {
        let PodSnapshot { uid, name, phase, ready, restarts, reason, stopping } = pod;
        Self { name, uid: uid.to_string(), phase: phase.as_str().to_owned(), ready, restarts, stopping, reason }
    }
}

// === impl AgentView ===

impl fmt::Display for AgentView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = &self.session;
        writeln!(f, "node          {}", self.node)?;
        writeln!(f, "agent         version {}, process {}", self.version, self.pid)?;
        writeln!(f, "session       {session}")?;
        if let Some(fleet) = &session.fleet {
            writeln!(f, "fleet         {fleet}, incarnation {}", session.incarnation)?;
        }
        let age = |age: Option<f64>| age.map_or_else(|| "never".to_owned(), |age| format!("{age:.1} s ago"));
        let (sent, heard) = (age(session.last_beat_sent_age), age(session.last_heard_age));
        writeln!(f, "last beat     sent {sent}, acknowledged {}", age(session.last_acknowledged_age))?;
        writeln!(f, "last heard    {heard}")?;
        writeln!(
            f,
            "certificate   {}",
            self.certificate_expires.as_deref().map_or("expiry unknown".to_owned(), |at| format!("until {at}"))
        )?;
        if let Some(error) = &session.last_error {
            writeln!(f, "last failure  {error}")?;
        }
        if let Some(lacking) = &session.lacking {
            writeln!(f, "protocol      {lacking}")?;
        }
        writeln!(f, "pods          {}", self.pods.len())?;
        self.pods.iter().try_for_each(|pod| writeln!(f, "  {pod}"))
    }
}

impl fmt::Display for SessionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.replica) {
            (AttachmentState::Attached, Some(replica)) => {
                write!(f, "attached to replica {replica} at {}", self.endpoint.as_deref().unwrap_or("?"))
            }
            (AttachmentState::Attached | AttachmentState::Detached, _) => f.write_str("not attached"),
            (AttachmentState::Hung, _) => f.write_str("does not answer"),
        }
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { &self.uid } else { &self.name };
        write!(f, "{name}  {}", self.phase)?;
        if self.ready {
            f.write_str(", ready")?;
        }
        if self.stopping {
            f.write_str(", stopping")?;
        }
        if self.restarts > 0 {
            write!(f, ", {} restarts", self.restarts)?;
        }
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) fn sample() -> AgentView {
    AgentView {
        node: "rack-1".into(),
        version: "0.1.0".into(),
        pid: 42,
        session: SessionView {
            state: AttachmentState::Attached,
            replica: Some(2),
            endpoint: Some("10.0.0.2:7401".into()),
            fleet: Some("f".into()),
            incarnation: 7,
            removals: 1,
            last_beat_sent_age: Some(1.25),
            last_heard_age: Some(0.5),
            last_acknowledged_age: None,
            beats: 10,
            statuses: 2,
            failures: 3,
            last_error: Some("what went wrong".into()),
            lacking: Some("replica 2 speaks less".into()),
        },
        certificate_expires: Some("2026-12-01T00:00:00Z".into()),
        pods: vec![PodView {
            name: "default/web".into(),
            uid: "u".into(),
            phase: "Running".into(),
            ready: true,
            restarts: 2,
            stopping: true,
            reason: "Why".into(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_shows_session_beats_certificate_and_pods() {
        let expected = "\
node          rack-1
agent         version 0.1.0, process 42
session       attached to replica 2 at 10.0.0.2:7401
fleet         f, incarnation 7
last beat     sent 1.2 s ago, acknowledged never
last heard    0.5 s ago
certificate   until 2026-12-01T00:00:00Z
last failure  what went wrong
protocol      replica 2 speaks less
pods          1
  default/web  Running, ready, stopping, 2 restarts (Why)
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn the_status_is_read_back_from_its_json() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert_eq!(serde_json::from_str::<AgentView>(&json).unwrap(), sample());
        assert!(json.contains(r#""state":"attached""#) && json.contains(r#""lastBeatSentAge":1.25"#), "{json}");
    }
}
