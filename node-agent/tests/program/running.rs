//! Tests of a running agent against a scripted replica.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_node_agent::agent::{
    AgentError, AgentMetrics, AgentView, AttachmentState, Observation, ProgramParts, StateDir, SystemdNotify, ask,
    serve,
};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::flags::settings;
use crate::replica::{Replica, SessionStream, TIMEOUT, welcome};
use crate::tls;

const BEAT_MS: u32 = 50;
const EXPIRES: &str = "2026-12-01T00:00:00Z";

struct Agent {
    dir: TempDir,
    systemd: UnixDatagram,
    observation: watch::Sender<Observation>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), AgentError>>,
    metrics: String,
    /// Separate from the agent's own directory, whose path may be long.
    _notices: TempDir,
}

impl Agent {
    fn start(replica: &Replica, flags: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), replica, flags)
    }

    fn start_in(dir: TempDir, replica: &Replica, flags: &[&str]) -> Self {
        let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (endpoint, state) = (replica.endpoint(), dir.path().to_str().unwrap().to_owned());
        let usual = ["--server", &endpoint, "--state-dir", &state, "--hostname-override=rack-1"];
        let settings = settings(&[&usual[..], &["--metrics-address", &metrics], flags].concat()).unwrap();
        let notices = tempfile::tempdir().unwrap();
        let path = notices.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        let notify = SystemdNotify::to(path.as_os_str(), Some(Duration::from_millis(20))).unwrap();
        let (observation, observed) = watch::channel(observation("4"));
        let (stop, stopped) = oneshot::channel::<()>();
        let expiry = Arc::new(|| EXPIRES.parse::<Timestamp>().ok());
        let running = tokio::spawn(async move {
            let metrics = Some(AgentMetrics::open(settings.metrics.as_ref().unwrap()).await?);
            let parts =
                ProgramParts { observed, runtime: None, tls: tls::client("rack-1"), expiry, metrics, renewed: None };
            let state_dir = StateDir::open(&settings.state_dir)?;
            serve(&settings, &state_dir, parts, notify, async move { drop(stopped.await) }).await
        });
        Self { dir, systemd, observation, stop: Some(stop), running, metrics, _notices: notices }
    }

    /// Waits until systemd got a message that begins so.
    async fn told_systemd(&self, wanted: &str) {
        let hearing = async {
            loop {
                let mut words = [0; 512];
                match self.systemd.recv(&mut words) {
                    Ok(length) if words[..length].starts_with(wanted.as_bytes()) => return,
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        timeout(TIMEOUT, hearing).await.unwrap_or_else(|_| panic!("systemd never heard {wanted:?}"));
    }

    async fn view(&self, wanted: impl Fn(&AgentView) -> bool) -> AgentView {
        let asking = async {
            loop {
                match ask(self.dir.path()).await {
                    Ok(view) if wanted(&view) => return view,
                    Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        timeout(TIMEOUT, asking).await.expect("the status never came")
    }

    async fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn end(mut self) -> (Result<(), AgentError>, TempDir) {
        let _ = self.stop.take().unwrap().send(());
        (timeout(TIMEOUT, self.running).await.unwrap().unwrap(), self.dir)
    }
}

fn observation(cpu: &str) -> Observation {
    let status = json!({ "capacity": { "cpu": cpu }, "conditions": [{ "type": "Ready", "status": "True" }] });
    Observation { status, ..Observation::default() }
}

async fn next(session: &mut SessionStream, wanted: impl Fn(&Up) -> bool) -> Up {
    loop {
        match session.receive().await {
            Some(up) if wanted(&up) => return up,
            Some(_) => {}
            None => panic!("the agent went away"),
        }
    }
}

async fn posted(session: &mut SessionStream) -> (u64, Value) {
    let Up::Status(report) = next(session, |up| matches!(up, Up::Status(_))).await else { unreachable!() };
    (report.sequence, serde_json::from_slice(&report.status).unwrap())
}

#[tokio::test]
async fn an_agent_registers_reports_and_serves_status_and_metrics() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&replica, &["--node-labels=team=x"]);
    agent.told_systemd("READY=1\nSTATUS=pods are managed; searching for a replica").await;
    agent.told_systemd("WATCHDOG=1").await;
    let (mut session, hello) = replica.session().await;
    assert_eq!((hello.node.as_str(), hello.incarnation), ("rack-1", 0));
    agent.view(|view| view.session.state == AttachmentState::Detached && view.node == "rack-1").await;
    session.send(Down::RegistrationWanted(v1::RegistrationWanted { why: "unknown".into() })).await;
    let registered = next(&mut session, |up| matches!(up, Up::Register(_))).await;
    let Up::Register(register) = registered else { panic!("{registered:?}") };
    let node: Value = serde_json::from_slice(&register.node).unwrap();
    assert_eq!((&node["metadata"]["name"], &node["metadata"]["labels"]["team"]), (&json!("rack-1"), &json!("x")));
    session.send(Down::Welcome(welcome(2, 7, BEAT_MS))).await;
    agent.told_systemd("STATUS=attached to replica ").await;

    agent.observation.send_replace(observation("8"));
    let (sequence, status) = posted(&mut session).await;
    assert_eq!(status["capacity"]["cpu"], "8", "S-1: a change is posted at once");
    session.send(Down::StatusTaken(v1::StatusTaken { sequence, written: true, refused: String::new() })).await;

    let view = agent.view(|view| view.session.beats > 0 && view.session.statuses > 0).await;
    assert_eq!((view.session.state, view.session.incarnation), (AttachmentState::Attached, 7));
    assert_eq!(view.session.endpoint, Some(replica.endpoint()));
    assert!(view.session.last_beat_sent_age.is_some() && view.session.last_heard_age.is_some());
    assert_eq!((view.certificate_expires.as_deref(), view.pods.len()), (Some(EXPIRES), 0));
    let socket = agent.dir.path().join("agent.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);

    let metrics = agent.get("/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("\nmuster_agent_attached 1\n"), "{metrics}");
    assert!(agent.get("/secrets").await.starts_with("HTTP/1.1 404 Not Found\r\n"));

    let (ended, farewell) = tokio::join!(agent.end(), next(&mut session, |up| matches!(up, Up::Goodbye(_))));
    assert_eq!((ended.0, farewell), (Ok(()), Up::Goodbye(v1::Goodbye {})));
    assert!(!socket.exists());
}

/// Longer than the address of a socket can be.
#[tokio::test]
async fn an_agent_answers_at_a_socket_path_of_any_length() {
    let replica = Replica::start().await;
    let dir = tempfile::Builder::new().prefix(&"deep-".repeat(30)).tempdir().unwrap();
    let agent = Agent::start_in(dir, &replica, &[]);
    agent.view(|view| view.node == "rack-1").await;
    assert_eq!(agent.end().await.0, Ok(()));
}

#[tokio::test]
async fn a_restarted_agent_is_the_same_instance() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&replica, &[]);
    let (first, hello) = replica.session().await;
    let (ended, dir) = agent.end().await;
    drop(first);
    assert_eq!(ended, Ok(()));
    let _agent = Agent::start_in(dir, &replica, &[]);
    let (_session, again) = replica.session().await;
    assert_eq!(again.instance, hello.instance);
}

#[tokio::test]
async fn without_the_right_to_register_an_agent_waits_for_its_node() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&replica, &["--register-node=false"]);
    let (mut session, _) = replica.session().await;
    session.send(Down::RegistrationWanted(v1::RegistrationWanted { why: "unknown".into() })).await;
    assert!(session.receive().await.is_none(), "it does not register but goes");
    let view = agent.view(|view| view.session.last_error.is_some()).await;
    let waiting = "node rack-1 does not exist and does not register itself: waiting for an operator to create it";
    assert_eq!(view.session.last_error.as_deref(), Some(waiting));
    agent.told_systemd(&format!("STATUS={waiting}")).await;
    // The agent connects again; an operator has created the Node meanwhile.
    let mut session = replica.welcomed(welcome(2, 3, BEAT_MS)).await;
    agent.told_systemd("STATUS=attached to replica ").await;
    // Its Node is deleted, so the agent waits again.
    session.send(Down::Removed(v1::Removed { incarnation: 3, revision: 9 })).await;
    let gone = async { while session.receive().await.is_some() {} };
    timeout(TIMEOUT, gone).await.expect("it goes");
    let view = agent.view(|view| view.session.removals == 1).await;
    assert_eq!((view.session.state, view.session.incarnation), (AttachmentState::Detached, 0));
}

#[tokio::test]
async fn two_agents_do_not_share_a_state_directory() {
    let replica = Replica::start().await;
    let dir = tempfile::tempdir().unwrap();
    let held = StateDir::open(dir.path()).unwrap();
    let agent = Agent::start_in(dir, &replica, &[]);
    let failed = timeout(TIMEOUT, agent.running).await.unwrap().unwrap().unwrap_err();
    assert!(failed.message.contains("another agent uses it"), "{failed}");
    drop(held);
}
