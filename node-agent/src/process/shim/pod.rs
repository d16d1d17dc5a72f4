//! The loop of a shim: waits, passes what happens to the core, and does what it says.

use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::core::{Act, Exit, PodCore};
use super::super::dir::PodDir;
use super::super::durable;
use super::super::manifest::PodPlan;
use super::super::record::{ContainerState, Record, State};
use super::family::{Family, Output};
use super::link::{Command, Links};
use super::logs::{Lines, LogFile, Stream};
use super::say;

/// Commands that were heard and not yet obeyed.
const COMMANDS_WAITING: usize = 16;
const READ_BYTES: usize = 8 << 10;
/// Between two looks at what does not want to die. What sleeps in the kernel may take hours, and each look is one at all
/// processes of the machine.
const DYING_PAUSE: Duration = Duration::from_millis(50);
const DYING_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Who could still print something is dead by then; what was passed to strangers is not waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two attempts to write down how it ended.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Pod {
    dir: PodDir,
    plan: PodPlan,
    core: PodCore,
    family: Family,
    logs: Vec<Arc<Mutex<LogFile>>>,
    reading: JoinSet<()>,
    state: watch::Sender<String>,
    links: Links,
    commands: mpsc::Receiver<Command>,
    children: Signal,
    terminated: Signal,
    complained: bool,
    /// Told to end by a signal, and not by an agent since.
    signalled: bool,
}

// === impl Pod ===

impl Pod {
    /// Must be called on a tokio runtime of one thread. What this returns is on disk: nothing has been started yet.
    pub(super) fn new(dir: PodDir, record: Record, plan: PodPlan, listener: UnixListener) -> io::Result<Self> {
        durable::private_dir(&dir.logs())?;
        let (state, states) = watch::channel(String::new());
        let (wanted, commands) = mpsc::channel(COMMANDS_WAITING);
        let links = Links::new(states, wanted);
        let settings = record.settings.clone();
        let log = |name: &str| LogFile::new(dir.log(name), settings.log_bytes, settings.log_files);
        let logs = plan.containers.iter().map(|container| Arc::new(Mutex::new(log(&container.name)))).collect();
        let pod = Self {
            core: PodCore::new(&plan, Instant::now()),
            family: Family::new(&record),
            reading: JoinSet::new(),
            children: signal(SignalKind::child())?,
            terminated: signal(SignalKind::terminate())?,
            dir,
            plan,
            logs,
            state,
            links,
            commands,
            complained: false,
            signalled: false,
        };
        pod.publish(false)?;
        pod.links.clone().accept_from(listener)?;
        Ok(pod)
    }

    pub(super) fn greet(&self, agent: Option<UnixStream>) {
        if let Some(agent) = agent {
            self.links.clone().greet(agent);
        }
    }

    pub(super) async fn run(mut self) -> io::Result<()> {
        loop {
            while let Some(act) = self.core.next(Instant::now()) {
                self.perform(act);
            }
            if self.core.is_over() {
                break;
            }
            // An agent that listens has heard it; one that comes later hears it again.
            if let Err(error) = self.publish(false) {
                self.complain(&error);
            }
            self.wait().await;
        }
        self.extinguish().await;
        self.hear_last_words().await;
        while let Err(error) = self.publish(true) {
            // Somebody removed the pod's directory: there is nobody left to tell.
            if error.kind() == io::ErrorKind::NotFound {
                return Err(error);
            }
            self.complain(&error);
            sleep(WRITE_AGAIN).await;
        }
        Ok(())
    }

    /// Once: what is tried again and again would fill the disk with complaints that it is full.
    fn complain(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            say(format_args!("the state of the pod could not be written; it is tried again: {error}"));
        }
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Start(index) => self.start(index),
            Act::Terminate => self.family.terminate(),
            Act::Kill => self.family.kill(),
        }
    }

    fn start(&mut self, index: usize) {
        let Some(container) = self.plan.containers.get(index) else { return };
        match self.family.spawn(index, container) {
            Ok(Output { out, err }) => {
                self.read(index, out, Stream::Out);
                self.read(index, err, Stream::Err);
            }
            Err(error) => {
                let why = format!("{}: {error}", container.program.chars().take(128).collect::<String>());
                self.core.exited(index, Exit::NotStarted(why), Instant::now());
            }
        }
    }

    fn read(&mut self, index: usize, output: PipeReader, stream: Stream) {
        // Those of earlier starts that have ended.
        while self.reading.try_join_next().is_some() {}
        let Some(log) = self.logs.get(index).cloned() else { return };
        match pipe::Receiver::from_owned_fd(OwnedFd::from(output)) {
            Ok(output) => drop(self.reading.spawn(keep(output, stream, log))),
            Err(error) => say(format_args!("the output of a container is lost: {error}")),
        }
    }

    async fn wait(&mut self) {
        let deadline = self.core.deadline();
        let later = deadline.unwrap_or_else(Instant::now);
        tokio::select! {
            _ = self.children.recv() => self.reap(),
            Some(Command::Stop(grace)) = self.commands.recv() => {
                self.signalled = false;
                self.core.stop(grace, Instant::now());
            }
            // The machine shuts down, or somebody wants this pod gone.
            _ = self.terminated.recv() => {
                self.signalled = true;
                self.core.stop(self.plan.grace, Instant::now());
            }
            () = sleep_until(later), if deadline.is_some() => {}
        }
    }

    fn reap(&mut self) {
        for (index, exit) in self.family.reap() {
            self.core.exited(index, exit, Instant::now());
        }
    }

    /// Until nothing is left, however long it takes: a pod of which anything runs has not stopped.
    async fn extinguish(&mut self) {
        self.family.kill();
        let mut pause = DYING_PAUSE;
        while !self.family.is_extinct() {
            self.family.kill();
            // A signal that came before is answered by the look itself.
            let _ = timeout(pause, self.children.recv()).await;
            pause = (pause * 2).min(DYING_PAUSE_MAX);
            self.family.reap();
        }
    }

    async fn hear_last_words(&mut self) {
        let _ = timeout(LAST_WORDS, async { while self.reading.join_next().await.is_some() {} }).await;
    }

    /// On disk first: who hears of it may forget everything else.
    fn publish(&self, over: bool) -> io::Result<()> {
        let view = |(index, container): (usize, super::super::core::View<'_>)| ContainerState {
            name: container.name.to_owned(),
            pid: self.family.pid_of(index),
            restarts: container.restarts,
            last: container.last.map(Exit::sentence),
        };
        let containers = self.core.containers().enumerate().map(view).collect();
        let state = State { by_signal: self.signalled, ..State::new(&self.core.status(), over, containers) };
        let line = state.to_line().ok_or_else(|| io::Error::other("it cannot be put in words"))?;
        if *self.state.borrow() == line {
            return Ok(());
        }
        let written = state.write(&self.dir.state());
        if written.is_ok() || !over {
            self.state.send_replace(line);
        }
        written
    }
}

/// Until nobody can print any more.
async fn keep(mut output: pipe::Receiver, stream: Stream, log: Arc<Mutex<LogFile>>) {
    let (mut lines, mut buffer) = (Lines::default(), vec![0; READ_BYTES]);
    let write = |line: &[u8], whole: bool| {
        log.lock().unwrap_or_else(PoisonError::into_inner).write(Timestamp::now(), stream, line, whole);
    };
    while let Ok(count) = output.read(&mut buffer).await {
        match buffer.get(..count).filter(|heard| !heard.is_empty()) {
            Some(heard) => lines.feed(heard, write),
            None => break,
        }
    }
    lines.finish(write);
}
