//! The agent's task for one pod: starts its shim or finds it, listens to it, and passes on what is wanted. When the shim
//! is gone without having said that the pod ended, it makes sure that the pod has.
//!
//! A pod whose shim cannot be started for now, for want of disk, memory or descriptors, is one that crashed: it is tried
//! again, with longer and longer pauses, unless it is to run only once.

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
use super::durable;
use super::kin;
use super::manifest::{POD_MARK, RestartPolicy};
use super::record::{Record, STATE_BYTES_MAX, State};
use super::shim::{Command, SHIM_ARGUMENT};
use super::{Ground, dir::PodDir};
use crate::pods::{Phase, PodStatus, PodUid};

/// Between two attempts to reach a shim that lives and does not answer, or to kill what does not want to die.
const PAUSE: Duration = Duration::from_millis(200);
/// What sleeps in the kernel may take hours to die, and looking for it means looking at every process.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const START_ERROR: &str = "StartError";
/// What a machine lacks for now: disk, memory, processes, descriptors, or a shim that is just being replaced.
const PASSING: [Errno; 8] =
    [Errno::NOSPC, Errno::DQUOT, Errno::NOMEM, Errno::AGAIN, Errno::MFILE, Errno::NFILE, Errno::BUSY, Errno::TXTBSY];
/// How much of a shim's last words is passed on.
const LAST_WORDS_MAX: usize = 256;

/// Where a pod comes from.
pub(super) enum Origin {
    Ordered(Box<Record>, RestartPolicy),
    /// An earlier agent started it.
    Found,
}

/// Why nothing of a pod was started.
#[derive(Debug, Error)]
enum StartError {
    #[error(transparent)]
    Machine(#[from] io::Error),
    /// Why, only the machine knows: a disk that is full takes no last words either.
    #[error("its shim ended at once; it said: {0}")]
    Shim(String),
}

/// When a pod is to end, if at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wish(Option<Instant>);

pub(super) struct Keeper {
    ground: Arc<Ground>,
    uid: PodUid,
    dir: PodDir,
    wished: watch::Receiver<Wish>,
}

// === impl Wish ===

impl Wish {
    pub(super) fn sooner(self, grace: Duration) -> Self {
        let end = Instant::now() + grace;
        Self(Some(self.0.map_or(end, |known| known.min(end))))
    }

    fn command(self) -> Option<Command> {
        self.0.map(|end| Command::Stop(end.saturating_duration_since(Instant::now())))
    }
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(ground: Arc<Ground>, uid: PodUid, wished: watch::Receiver<Wish>) -> Self {
        let dir = ground.dir(uid);
        Self { ground, uid, dir, wished }
    }

    pub(super) async fn run(mut self, origin: Origin) {
        if let Origin::Ordered(record, policy) = origin
            && let Err(status) = self.begin(&Arc::new(*record), policy).await
        {
            return self.tell_end(status);
        }
        let mut pause = PAUSE;
        while !self.ended().await {
            pause = (pause * 2).min(PAUSE_MAX);
            if let Ok(stream) = self.connect().await {
                self.attend(stream).await;
                pause = PAUSE;
            }
            sleep(pause).await;
        }
    }

    /// Starts the shim and stays with it until one of them has nothing more to say. The error is the status of a pod of
    /// which nothing was started, nor will be.
    async fn begin(&mut self, record: &Arc<Record>, policy: RestartPolicy) -> Result<(), PodStatus> {
        let mut backoff = CrashBackoff::default();
        loop {
            if self.wished.borrow().0.is_some() {
                return Err(PodStatus::new(Phase::Failed, "Terminated", "it was told to stop before it began"));
            }
            let Err(error) = self.attempt(record).await else { return Ok(()) };
            tracing::error!(uid = %self.uid, %error, "a pod could not be started");
            let message = format!("the node could not start it: {error}");
            if !is_tried_again(&error, policy) {
                return Err(PodStatus::new(Phase::Failed, START_ERROR, &message));
            }
            let pause = backoff.pause_after(Duration::ZERO);
            let message = format!("{message}; it is tried again after {pause:?}");
            let status = PodStatus::new(Phase::Pending, START_ERROR, &message);
            self.ground.lock().tell(self.uid, status, false);
            tokio::select! {
                () = sleep(pause) => {}
                Ok(()) = self.wished.changed() => {}
            }
        }
    }

    async fn attempt(&mut self, record: &Arc<Record>) -> Result<(), StartError> {
        let (mut shim, stream) = self.launch(record).await?;
        self.attend(stream).await;
        // Reaped, whatever it says: how the pod ended is on disk. One that still lives is adopted like any other.
        tokio::select! {
            _ = shim.wait() => self.require_begun().await,
            () = sleep(PAUSE) => {
                drop(tokio::spawn(async move { shim.wait().await }));
                Ok(())
            }
        }
    }

    /// A shim writes the state of its pod before it starts anything: one that ended without has run nothing.
    async fn require_begun(&self) -> Result<(), StartError> {
        let dir = self.dir.clone();
        let looked = spawn_blocking(move || (State::read(&dir.state()), last_words(&dir)));
        match looked.await.map_err(io::Error::other)? {
            (Ok(None), words) => Err(StartError::Shim(words)),
            (Ok(Some(_)) | Err(_), _) => Ok(()),
        }
    }

    async fn launch(&self, record: &Arc<Record>) -> io::Result<(Child, UnixStream)> {
        let (dir, record) = (self.dir.clone(), Arc::clone(record));
        spawn_blocking(move || prepare(&dir, &record)).await.map_err(io::Error::other)??;
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        Ok((self.spawn(theirs)?, stream))
    }

    fn spawn(&self, agent: StdStream) -> io::Result<Child> {
        let log = durable::create_private(&self.dir.shim_log())?;
        let mut program = Program::new(&self.ground.config.shim);
        // Marked as its children are: what it is about to start when it dies is found, too.
        program.arg(SHIM_ARGUMENT).arg(self.dir.path()).env_clear().env(POD_MARK, self.uid.to_string());
        program.stdin(Stdio::from(std::os::fd::OwnedFd::from(agent))).stdout(Stdio::null()).stderr(log);
        program.spawn()
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let stream = self.dir.with_socket(|path| StdStream::connect(path))?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    async fn attend(&mut self, stream: UnixStream) {
        let (heard, said) = stream.into_split();
        tokio::select! {
            () = listen(&self.ground, self.uid, heard) => {}
            () = pass_on(&mut self.wished, said) => {}
        }
    }

    /// Whether nothing of it runs any more. If so, it has been told.
    async fn ended(&self) -> bool {
        let dir = self.dir.clone();
        let state = spawn_blocking(move || State::read(&dir.state()).ok().flatten()).await.ok().flatten();
        if let Some(state) = state.filter(|state| state.over) {
            self.tell_end(state.status());
            return true;
        }
        let (dir, uid) = (self.dir.clone(), self.uid);
        let Ok(Some(last_words)) = spawn_blocking(move || bury(&dir, uid)).await else { return false };
        let message =
            format!("the process that looked after the pod is gone, and so is the pod; it said: {last_words}");
        let mut status = PodStatus::new(Phase::Failed, "ShimLost", &message);
        status.restarts = self.ground.lock().pods.get(&uid).map_or(0, |pod| pod.view.status.restarts);
        // For the next agent. If it cannot be written, that one will come to the same conclusion.
        let _ = State::new(&status, true, Vec::new()).write(&self.dir.state());
        self.tell_end(status);
        true
    }

    fn tell_end(&self, status: PodStatus) {
        let PodStatus { phase, reason, message, .. } = &status;
        tracing::info!(uid = %self.uid, phase = phase.as_str(), reason, message, "a pod has ended");
        self.ground.lock().tell(self.uid, status, true);
        let ground = Arc::clone(&self.ground);
        drop(spawn_blocking(move || ground.prune()));
    }
}

/// Whether a pod that could not be started may be once the machine has what it lacks.
fn is_tried_again(error: &StartError, policy: RestartPolicy) -> bool {
    let is_passing = match error {
        StartError::Shim(_) => true,
        StartError::Machine(error) => Errno::from_io_error(error).is_some_and(|errno| PASSING.contains(&errno)),
    };
    is_passing && policy != RestartPolicy::Never
}

/// The record is on disk before anything runs, and nothing there tells of an earlier life.
fn prepare(dir: &PodDir, record: &Record) -> io::Result<()> {
    durable::private_dir(dir.path())?;
    match std::fs::remove_file(dir.state()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    record.write(&dir.record())
}

/// Until the shim hangs up.
async fn listen(ground: &Ground, uid: PodUid, heard: OwnedReadHalf) {
    let (mut heard, mut line) = (BufReader::new(heard), Vec::new());
    loop {
        line.clear();
        match (&mut heard).take(STATE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_slice::<State>(&line) {
            // Its end is told when it is certain that the shim has gone as well.
            Ok(state) if !state.over => ground.lock().tell(uid, state.status(), false),
            Ok(_) => return,
            Err(_) if line == b"\n" => {}
            Err(error) => return tracing::warn!(%uid, %error, "a shim says what this agent does not understand"),
        }
    }
}

async fn pass_on(wished: &mut watch::Receiver<Wish>, mut said: OwnedWriteHalf) {
    loop {
        let wish = *wished.borrow_and_update();
        if let Some(command) = wish.command()
            && said.write_all(command.to_line().as_bytes()).await.is_err()
        {
            return std::future::pending().await;
        }
        if wished.changed().await.is_err() {
            return;
        }
    }
}

/// If the pod has no shim: kills what it may have left, and returns its last words when nothing is. The lock is held
/// meanwhile, so that no shim can come to life.
fn bury(dir: &PodDir, uid: PodUid) -> Option<String> {
    if dir.path().exists() {
        let _held = durable::lock(&dir.lock()).ok().flatten()?;
        let group = Record::read(&dir.record()).ok().flatten().and_then(|record| record.settings.cgroup);
        let group = group.map(PodGroup::new);
        if let Some(group) = &group {
            group.kill(None);
        }
        let strays = kin::marked(kin::all(), &format!("{POD_MARK}={uid}"));
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
    fn what_a_machine_lacks_for_now_is_no_end_of_a_pod_that_may_be_restarted() {
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
