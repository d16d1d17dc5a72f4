//! Task of one pod in the agent: starts its shim or connects to it, reads its state, and passes on stop requests. If
//! the shim dies without reporting the end of the pod, the task makes sure that nothing of the pod runs.
//!
//! If a shim cannot start for now, for lack of disk, memory or descriptors, the pod counts as crashed: it is tried
//! again with growing pauses, unless its restart policy is Never.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command as Program};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::cgroup::PodGroup;
use super::core::CrashBackoff;
use super::manifest::{POD_MARK, RestartPolicy};
use super::pod_files::{PodRecord, STATE_BYTES_MAX, ShimState};
use super::process_tree;
use super::shim::{Command, SHIM_ARGUMENT};
use super::unrecorded;
use super::{RuntimeContext, dir::PodDir};
use crate::durable;
use crate::pods::{LocalPodStatus, PodPhase, PodUid};

/// Between two attempts to reach a shim that lives but does not answer, or to kill processes that do not die.
const PAUSE: Duration = Duration::from_millis(200);
/// A process that sleeps in the kernel may take hours to die, and every search reads all processes.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const START_ERROR: &str = "StartError";
/// Errors that may pass: no disk, memory, processes or descriptors, or a shim that is being replaced.
const PASSING: [Errno; 8] =
    [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::BUSY, Errno::TXTBSY];
/// How much of a shim's last log line is passed on.
const LAST_WORDS_MAX: usize = 256;

/// Where a pod comes from.
pub(super) enum PodOrigin {
    Ordered(Box<PodRecord>, RestartPolicy),
    /// An earlier agent started it.
    Found,
}

/// Why nothing of a pod was started.
#[derive(Debug, Error)]
enum StartError {
    #[error(transparent)]
    Machine(#[from] io::Error),
    /// The log line may be missing: a shim on a full disk cannot log.
    #[error("its shim ended at once; its last log line: {0}")]
    Shim(String),
}

/// When the pod must end, if at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StopRequest(Option<Instant>);

pub(super) struct PodTask {
    context: Arc<RuntimeContext>,
    uid: PodUid,
    dir: PodDir,
    stop_requests: watch::Receiver<StopRequest>,
    /// What was found of a pod without a directory.
    remains: Remains,
}

/// The processes of a pod whose directory is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Remains {
    were_found: bool,
    were_asked: bool,
}

// === impl StopRequest ===

impl StopRequest {
    pub(super) fn no_later_than(self, grace: Duration) -> Self {
        let end = Instant::now() + grace;
        Self(Some(self.0.map_or(end, |known| known.min(end))))
    }

    /// The signal for processes that no shim can be told to stop.
    fn signal(self) -> Option<Signal> {
        self.0.map(|end| if end <= Instant::now() { Signal::KILL } else { Signal::TERM })
    }

    fn command(self) -> Option<Command> {
        self.0.map(|end| Command::Stop(end.saturating_duration_since(Instant::now())))
    }
}

// === impl PodTask ===

impl PodTask {
    pub(super) fn new(context: Arc<RuntimeContext>, uid: PodUid, stop_requests: watch::Receiver<StopRequest>) -> Self {
        let dir = context.dir(uid);
        Self { context, uid, dir, stop_requests, remains: Remains::default() }
    }

    pub(super) async fn run(mut self, origin: PodOrigin) {
        if let PodOrigin::Ordered(record, policy) = origin
            && let Err(status) = self.begin(&Arc::new(*record), policy).await
        {
            return self.report_end(status);
        }
        let mut pause = PAUSE;
        while !self.ended().await {
            pause = (pause * 2).min(PAUSE_MAX);
            if let Ok(stream) = self.connect().await {
                self.follow(stream).await;
                pause = PAUSE;
            }
            sleep(pause).await;
        }
    }

    /// Starts the shim and follows it until one side closes the connection. The error is the status of a pod of which
    /// nothing started, nor will.
    async fn begin(&mut self, record: &Arc<PodRecord>, policy: RestartPolicy) -> Result<(), LocalPodStatus> {
        let mut backoff = CrashBackoff::default();
        self.clear_remains().await;
        loop {
            if self.stop_requests.borrow().0.is_some() {
                return Err(LocalPodStatus::new(
                    PodPhase::Failed,
                    "Terminated",
                    "it was told to stop before it started",
                ));
            }
            let Err(error) = self.attempt(record).await else { return Ok(()) };
            tracing::error!(uid = %self.uid, %error, "cannot start a pod");
            let message = format!("the node could not start it: {error}");
            if !is_tried_again(&error, policy) {
                return Err(LocalPodStatus::new(PodPhase::Failed, START_ERROR, &message));
            }
            let pause = backoff.pause_after(Duration::ZERO);
            let message = format!("{message}; it is tried again after {pause:?}");
            let status = LocalPodStatus::new(PodPhase::Pending, START_ERROR, &message);
            self.context.lock().update(self.uid, status, false);
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = self.stop_requests.changed() => {}
            }
        }
    }

    async fn attempt(&mut self, record: &Arc<PodRecord>) -> Result<(), StartError> {
        let (mut shim, stream) = self.launch(record).await?;
        self.follow(stream).await;
        // The shim is reaped; how the pod ended is on disk. A shim that still lives is adopted like any other.
        tokio::select! {
            _ = shim.wait() => self.require_begun().await,
            () = sleep(PAUSE) => {
                drop(tokio::spawn(async move { shim.wait().await }));
                Ok(())
            }
        }
    }

    /// A shim writes the state of its pod before it starts anything: a shim that ended without a state ran nothing.
    async fn require_begun(&self) -> Result<(), StartError> {
        let dir = self.dir.clone();
        let looked = spawn_blocking(move || (ShimState::read(&dir.state()), last_words(&dir)));
        match looked.await.map_err(io::Error::other)? {
            (Ok(None), words) => Err(StartError::Shim(words)),
            (Ok(Some(_)) | Err(_), _) => Ok(()),
        }
    }

    async fn launch(&self, record: &Arc<PodRecord>) -> io::Result<(Child, UnixStream)> {
        let (dir, record) = (self.dir.clone(), Arc::clone(record));
        spawn_blocking(move || prepare(&dir, &record)).await.map_err(io::Error::other)??;
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        Ok((self.spawn(theirs)?, stream))
    }

    fn spawn(&self, agent: StdStream) -> io::Result<Child> {
        let log = durable::create_private(&self.dir.shim_log())?;
        let mut program = Program::new(&self.context.config.shim);
        // Marked like its children, so that a process it is about to start when it dies is found too.
        program.arg(SHIM_ARGUMENT).arg(self.dir.path()).env_clear().env(POD_MARK, self.uid.to_string());
        program.stdin(Stdio::from(std::os::fd::OwnedFd::from(agent))).stdout(Stdio::null()).stderr(log);
        program.spawn()
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let stream = self.dir.with_socket(|path| StdStream::connect(path))?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    async fn follow(&mut self, stream: UnixStream) {
        let (heard, said) = stream.into_split();
        tokio::select! {
            () = receive_states(&self.context, self.uid, heard) => {}
            () = send_stop_requests(&mut self.stop_requests, said) => {}
        }
    }

    /// Whether nothing of the pod runs any more. If so, the end has been reported.
    async fn ended(&mut self) -> bool {
        if !self.dir.path().exists() {
            return self.ended_unrecorded().await;
        }
        let dir = self.dir.clone();
        let state = spawn_blocking(move || ShimState::read(&dir.state()).ok().flatten()).await.ok().flatten();
        if let Some(state) = state.filter(|state| state.over) {
            self.report_end(state.status());
            return true;
        }
        let (dir, uid) = (self.dir.clone(), self.uid);
        let Ok(Some(last_words)) = spawn_blocking(move || clean_up(&dir, uid)).await else { return false };
        let message = format!("the shim of the pod is gone, and so is the pod; its last log line: {last_words}");
        let mut status = LocalPodStatus::new(PodPhase::Failed, "ShimLost", &message);
        status.restarts = self.context.lock().pods.get(&uid).map_or(0, |pod| pod.view.status.restarts);
        // For the next agent. If this write fails, the next agent comes to the same conclusion.
        let _ = ShimState::new(&status, true, Vec::new()).write(&self.dir.state());
        self.report_end(status);
        true
    }

    /// The same for a pod whose directory is lost. Its processes are left alone until it has to stop.
    async fn ended_unrecorded(&mut self) -> bool {
        let signal = self.stop_requests.borrow().signal();
        let signal = signal.filter(|signal| *signal == Signal::KILL || !self.remains.were_asked);
        if self.remain(signal).await {
            self.remains = Remains { were_found: true, were_asked: self.remains.were_asked || signal.is_some() };
            return false;
        }
        let (reason, message) = match self.remains.were_found {
            true => ("RecordLost", "its directory on the node was lost while it ran; nothing of it is left"),
            false => ("NotRunning", "the node has no record of it, and no process of it was found"),
        };
        self.report_end(LocalPodStatus::new(PodPhase::Failed, reason, message));
        true
    }

    /// Ends what an earlier agent left of this pod without a record, so that it does not run twice.
    async fn clear_remains(&self) {
        if self.context.unrecorded.uids.contains(&self.uid) && !self.dir.path().exists() {
            tracing::warn!(uid = %self.uid, "processes of this pod run without a record: they end before it starts");
            while self.remain(Some(Signal::KILL)).await {
                sleep(PAUSE).await;
            }
        }
    }

    /// Whether anything of the pod runs. In doubt something does.
    async fn remain(&self, signal: Option<Signal>) -> bool {
        let (uid, limit) = (self.uid, self.context.config.pod_pids_limit);
        let root = self.context.cgroup_root.as_ref();
        let group = root.map(|root| PodGroup::new(root.settings(&uid.to_string(), limit)));
        let searched = spawn_blocking(move || unrecorded::signal_remains(uid, group.as_ref(), signal));
        searched.await.unwrap_or(true)
    }

    fn report_end(&self, status: LocalPodStatus) {
        let LocalPodStatus { phase, reason, message, .. } = &status;
        tracing::info!(uid = %self.uid, phase = phase.as_str(), reason, message, "pod ended");
        self.context.recorder.ended(self.uid);
        self.context.lock().update(self.uid, status, true);
        let context = Arc::clone(&self.context);
        drop(spawn_blocking(move || context.prune()));
    }
}

/// Whether to try again to start a pod after this error.
fn is_tried_again(error: &StartError, policy: RestartPolicy) -> bool {
    let is_passing = match error {
        StartError::Shim(_) => true,
        StartError::Machine(error) => Errno::from_io_error(error).is_some_and(|errno| PASSING.contains(&errno)),
    };
    is_passing && policy != RestartPolicy::Never
}

/// Writes the record before anything runs, and removes the state of an earlier run.
fn prepare(dir: &PodDir, record: &PodRecord) -> io::Result<()> {
    durable::private_dir(dir.path())?;
    match std::fs::remove_file(dir.state()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    record.write(&dir.record())
}

/// Reads states until the shim closes the connection.
async fn receive_states(context: &RuntimeContext, uid: PodUid, heard: OwnedReadHalf) {
    let (mut heard, mut line) = (BufReader::new(heard), Vec::new());
    loop {
        line.clear();
        match (&mut heard).take(STATE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_slice::<ShimState>(&line) {
            // The end is reported once the shim has gone as well.
            Ok(state) if !state.over => context.lock().update(uid, state.status(), false),
            Ok(_) => return,
            Err(_) if line == b"\n" => {}
            Err(error) => return tracing::warn!(%uid, %error, "cannot parse the state that a shim sent"),
        }
    }
}

async fn send_stop_requests(stop_requests: &mut watch::Receiver<StopRequest>, mut said: OwnedWriteHalf) {
    loop {
        let stop_request = *stop_requests.borrow_and_update();
        if let Some(command) = stop_request.command()
            && said.write_all(command.to_line().as_bytes()).await.is_err()
        {
            return std::future::pending().await;
        }
        if stop_requests.changed().await.is_err() {
            return;
        }
    }
}

/// For a pod without a shim: kills what it may have left, and returns the shim's last log line when nothing is left.
/// It holds the pod's lock meanwhile, so that no shim can start.
fn clean_up(dir: &PodDir, uid: PodUid) -> Option<String> {
    if dir.path().exists() {
        let _held = durable::lock(&dir.lock()).ok().flatten()?;
        let group = PodRecord::read(&dir.record()).ok().flatten().and_then(|record| record.settings.cgroup);
        let group = group.map(PodGroup::new);
        if let Some(group) = &group {
            group.kill(None);
        }
        let strays = process_tree::marked(process_tree::all(), &format!("{POD_MARK}={uid}"));
        for stray in &strays {
            stray.signal(Signal::KILL);
        }
        if !strays.is_empty() || !group.as_ref().is_none_or(PodGroup::remove) {
            return None;
        }
    }
    Some(last_words(dir))
}

fn last_words(dir: &PodDir) -> String {
    let words = std::fs::read_to_string(dir.shim_log()).unwrap_or_default();
    words.lines().last().unwrap_or("nothing").chars().take(LAST_WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_fails_for_a_temporary_reason_is_retried() {
        let of_errno = |errno: Errno| StartError::Machine(errno.into());
        let passing = PASSING.map(of_errno).into_iter().chain([StartError::Shim("nothing".to_owned())]);
        let lasting = [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::NOEXEC, Errno::ROFS, Errno::IO].map(of_errno);
        let table = passing.map(|error| (error, true)).chain(lasting.map(|error| (error, false)));
        for (error, again) in table {
            for policy in [RestartPolicy::Always, RestartPolicy::OnFailure] {
                assert_eq!(is_tried_again(&error, policy), again, "{error} {policy:?}");
            }
            assert!(!is_tried_again(&error, RestartPolicy::Never), "{error}");
        }
    }
}
