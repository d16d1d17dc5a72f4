//! `DIR/control.sock`: the socket on which `muster dev restart`, `muster dev stop` and `muster fleet` reach the
//! `muster dev` that runs.
//!
//! One line each way: `restart 2`, `stop`, `fleet status`, `fleet kill zone b 60`; answered by `ok TEXT` or `error
//! TEXT`.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use muster_client::Client;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::ClientConfig;
use rustix::process::{Pid, test_kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::lock;
use crate::exit::Failure;
use crate::output::say;
use muster_node_agent::simulated::{Behaviour, NodeTarget};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Restart(ReplicaId),
    Stop,
    Fleet(FleetRequest),
}

/// Requests to the simulated nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FleetRequest {
    Status,
    Apply { behaviour: Behaviour, target: NodeTarget },
}

/// A request with the way to answer it.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) answer: oneshot::Sender<Result<String, String>>,
}

/// Removes the socket when it goes.
pub(super) struct Control {
    path: PathBuf,
    calls: mpsc::Receiver<Call>,
    task: tokio::task::JoinHandle<()>,
}

const LINE_LIMIT: u64 = 4096;
/// The status of all simulated nodes is the longest answer: 1,000 of them with 110 pods each take some 25 MB.
const ANSWER_LIMIT: u64 = 64 << 20;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
const PENDING_CALLS: usize = 4;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

// === impl Control ===

impl Control {
    /// The caller holds the folder's lock, so whatever socket is there is a dead one.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = path(dir);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("cannot remove {}", path.display()));
        }
        let listener = UnixListener::bind(&path).with_context(|| {
            format!("cannot listen on {} (is the path too long? choose a shorter --dir)", path.display())
        })?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let (sender, calls) = mpsc::channel(PENDING_CALLS);
        let task = tokio::spawn(serve(listener, sender));
        Ok(Self { path, calls, task })
    }

    /// The next call. Waits for ever if the listener failed.
    pub(super) async fn next(&mut self) -> Call {
        match self.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        }
    }
}

impl Control {
    /// After a stop: gives the answer time to leave.
    pub(super) async fn settle(&mut self) {
        // A caller that does not read its answer is not waited for.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, &mut self.task).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        // Best effort: a dead socket is replaced by the next start.
        let _ = fs::remove_file(&self.path);
    }
}

// === impl Request ===

impl FromStr for Request {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().split_once(' ') {
            None if text.trim() == "stop" => Ok(Self::Stop),
            Some(("restart", id)) => id.parse().map(Self::Restart).map_err(|_| format!("{id:?} is not a replica id")),
            Some(("fleet", request)) => request.parse().map(Self::Fleet),
            _ => Err(format!("{:?} is not a request", text.trim())),
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Restart(id) => write!(f, "restart {id}"),
            Self::Stop => write!(f, "stop"),
            Self::Fleet(request) => write!(f, "fleet {request}"),
        }
    }
}

// === impl FleetRequest ===

impl FromStr for FleetRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a request to the simulated nodes");
        let words: Vec<&str> = text.split_whitespace().collect();
        let percent = |word: &str| word.parse().map(Some).map_err(|_| wrong());
        let (behaviour, target) = match words.as_slice() {
            ["status"] => return Ok(Self::Status),
            [behaviour, "node", name] => (behaviour, NodeTarget::Node((*name).to_owned())),
            [behaviour, "zone", zone] => (behaviour, NodeTarget::Zone { zone: (*zone).to_owned(), percent: None }),
            [behaviour, "zone", zone, share] => {
                (behaviour, NodeTarget::Zone { zone: (*zone).to_owned(), percent: percent(share)? })
            }
            [behaviour, "all"] => (behaviour, NodeTarget::All { percent: None }),
            [behaviour, "all", share] => (behaviour, NodeTarget::All { percent: percent(share)? }),
            _ => return Err(wrong()),
        };
        let behaviour = behaviour.parse::<Behaviour>().map_err(|error| error.to_string())?;
        Ok(Self::Apply { behaviour, target })
    }
}

impl std::fmt::Display for FleetRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::Apply { behaviour, target } = self else { return f.write_str("status") };
        let percent = match target {
            NodeTarget::Node(name) => return write!(f, "{behaviour} node {name}"),
            NodeTarget::Zone { zone, percent } => {
                write!(f, "{behaviour} zone {zone}")?;
                percent
            }
            NodeTarget::All { percent } => {
                write!(f, "{behaviour} all")?;
                percent
            }
        };
        percent.map_or(Ok(()), |percent| write!(f, " {percent}"))
    }
}

/// One caller at a time is plenty. Ends once a stop was answered.
async fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A caller that leaves in the middle gets no answer; the next one is served.
                if matches!(answer(stream, &calls).await, Ok(Some(Request::Stop))) {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

async fn answer(stream: UnixStream, calls: &mpsc::Sender<Call>) -> io::Result<Option<Request>> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(LINE_LIMIT));
    tokio::time::timeout(READ_TIMEOUT, reader.read_line(&mut line)).await.map_err(io::Error::other)??;
    let request = line.parse();
    let outcome = match request.clone() {
        Ok(request) => {
            let (answer, answered) = oneshot::channel();
            let sent = calls.send(Call { request, answer }).await.is_ok();
            match answered.await {
                Ok(outcome) if sent => outcome,
                Ok(_) | Err(_) => Err("`muster dev` is stopping".into()),
            }
        }
        Err(wrong) => Err(wrong),
    };
    let reply = match outcome {
        Ok(text) => format!("ok {text}\n"),
        Err(text) => format!("error {text}\n"),
    };
    writer.write_all(reply.as_bytes()).await?;
    Ok(request.ok())
}

/// Asks the `muster dev` that runs in `dir`.
pub(crate) async fn ask(dir: &Path, request: Request, patience: Duration) -> Result<String, Failure> {
    let asked = tokio::time::timeout(patience, exchange(dir, request)).await;
    let reply = asked.map_err(|_| Failure::Timeout(format!("`muster dev` did not answer within {patience:?}")))?;
    let reply = reply.map_err(|error| match lock::holder(dir) {
        Some(pid) => {
            Failure::Unreachable(format!("`muster dev` (pid {pid}) cannot be reached yet: {error}; try again"))
        }
        None => Failure::Unreachable(format!("no `muster dev` runs in {}; start it, or name its --dir", dir.display())),
    })?;
    // An answer without a line end is incomplete or too long.
    let complete = reply.strip_suffix('\n').unwrap_or_default();
    match complete.trim_end().split_once(' ') {
        Some(("ok", text)) => Ok(text.into()),
        Some((_, text)) => Err(Failure::other(anyhow::anyhow!("{text}"))),
        None if reply.len() as u64 >= ANSWER_LIMIT => {
            Err(Failure::other(anyhow::anyhow!("the answer is longer than {} MiB", ANSWER_LIMIT >> 20)))
        }
        None => Err(Failure::other(anyhow::anyhow!("`muster dev` ended before it answered"))),
    }
}

async fn exchange(dir: &Path, request: Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(path(dir)).await?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut reply = String::new();
    BufReader::new(stream.take(ANSWER_LIMIT)).read_line(&mut reply).await?;
    Ok(reply)
}

/// Stops the cluster and waits until it is gone, so that the folder may be touched afterwards.
pub(super) async fn stop(dir: &Path, patience: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    say(ask(dir, Request::Stop, patience).await?);
    while let Some(pid) = lock::holder(dir) {
        if Instant::now() >= deadline {
            return Err(Failure::Timeout(format!("`muster dev` (pid {pid}) is still stopping after {patience:?}")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// Restarts a replica and waits until the cluster sees it again.
pub(super) async fn restart(dir: &Path, id: ReplicaId, patience: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    let answer = ask(dir, Request::Restart(id), patience).await?;
    let pid: Option<i32> = answer.rsplit_once(' ').and_then(|(_, pid)| pid.parse().ok());
    say(&answer);
    let config = ClientConfig::load(&dir.join("operator/client.toml")).map_err(Failure::other)?;
    let client = Client::new(config).map_err(Failure::other)?.with_timeout(Duration::from_secs(2));
    loop {
        let known = client.status().await.ok().and_then(|status| {
            let has_leader = status.leader.is_some();
            let reachable = status.replicas.iter().find(|replica| replica.id == id.0).map(|replica| replica.reachable);
            has_leader.then_some(reachable)
        });
        match known {
            Some(Some(true)) => return Ok(()),
            Some(None) => {
                say(format_args!("replica {id} is not a member; add it with `muster member add {id} ...`"));
                return Ok(());
            }
            Some(Some(false)) | None => {}
        }
        if pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_err()) {
            let log = super::replica_dir(dir, id).join("log");
            return Err(Failure::other(anyhow::anyhow!("replica {id} ended again; see {}", log.display())));
        }
        if Instant::now() >= deadline {
            return Err(Failure::Timeout(format!("replica {id} runs, but is not reachable after {patience:?}")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.join("control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_back_as_written() {
        let fleet = |behaviour, target| Request::Fleet(FleetRequest::Apply { behaviour, target });
        let requests = [
            Request::Restart(ReplicaId(2)),
            Request::Stop,
            Request::Fleet(FleetRequest::Status),
            fleet(Behaviour::Kill, NodeTarget::Node("a".into())),
            fleet(Behaviour::Silence, NodeTarget::Zone { zone: "dev/b".into(), percent: Some(60) }),
            fleet(Behaviour::Flap, NodeTarget::Zone { zone: "b".into(), percent: None }),
            fleet(Behaviour::Resume, NodeTarget::All { percent: None }),
            fleet(Behaviour::Pressure, NodeTarget::All { percent: Some(5) }),
            fleet(Behaviour::Slow, NodeTarget::Node("a".into())),
            fleet(Behaviour::Stuck, NodeTarget::All { percent: None }),
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        let wrong =
            ["", "restart", "restart x", "stop now", "reboot", "fleet", "fleet dance all", "fleet kill zone a x"];
        for text in wrong {
            assert!(text.parse::<Request>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_call_is_answered_and_the_socket_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let mut control = Control::open(dir.path()).unwrap();
        let mode = fs::metadata(path(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let serve = async {
            let call = control.next().await;
            assert_eq!(call.request, Request::Restart(ReplicaId(7)));
            call.answer.send(Ok("done".into())).unwrap();
        };
        let ((), answer) = tokio::join!(serve, ask(dir.path(), Request::Restart(ReplicaId(7)), Duration::from_secs(5)));
        assert_eq!(answer.unwrap(), "done");
        drop(control);
        assert!(!path(dir.path()).exists());
    }

    #[tokio::test]
    async fn without_a_dev_the_error_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let error = ask(dir.path(), Request::Stop, Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.exit() as u8, 3);
        assert!(error.to_string().contains("no `muster dev` runs"), "{error}");
    }
}
