//! Loop of a shim: waits for events, hands them to the core, and performs its actions.

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

use super::super::core::{Action, Exit, PodCore};
use super::super::dir::PodDir;
use super::super::manifest::PodPlan;
use super::super::pod_files::{ContainerState, PodRecord, ShimState};
use super::link::{Command, Links};
use super::log;
use super::logs::{Lines, LogFile, Stream};
use super::processes::{Output, PodProcesses};
use crate::durable;

/// Commands received and not yet executed.
const COMMANDS_WAITING: usize = 16;
const READ_BYTES: usize = 8 << 10;
/// Between two kills of processes that do not die. A process that sleeps in the kernel may take hours, and every
/// search reads all processes of the machine.
const KILL_PAUSE: Duration = Duration::from_millis(50);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Time for remaining output. The pod's processes are dead by then; pipes that other processes hold are not waited
/// for.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Between two attempts to write the final state.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct Pod {
    dir: PodDir,
    plan: PodPlan,
    core: PodCore,
    processes: PodProcesses,
    logs: Vec<Arc<Mutex<LogFile>>>,
    reading: JoinSet<()>,
    state: watch::Sender<String>,
    links: Links,
    commands: mpsc::Receiver<Command>,
    children: Signal,
    terminated: Signal,
    logged: bool,
    /// A signal told it to end, and no agent has since.
    signalled: bool,
}

// === impl Pod ===

impl Pod {
    /// Must be called on a tokio runtime with one thread. The state is on disk when this returns, and nothing has
    /// started yet.
    pub(super) fn new(dir: PodDir, record: PodRecord, plan: PodPlan, listener: UnixListener) -> io::Result<Self> {
        durable::private_dir(&dir.logs())?;
        let (state, states) = watch::channel(String::new());
        let (wanted, commands) = mpsc::channel(COMMANDS_WAITING);
        let links = Links::new(states, wanted);
        let settings = record.settings.clone();
        let log = |name: &str| LogFile::new(dir.log(name), settings.log_bytes, settings.log_files);
        let logs = plan.containers.iter().map(|container| Arc::new(Mutex::new(log(&container.name)))).collect();
        let pod = Self {
            core: PodCore::new(&plan, Instant::now()),
            processes: PodProcesses::new(&record),
            reading: JoinSet::new(),
            children: signal(SignalKind::child())?,
            terminated: signal(SignalKind::terminate())?,
            dir,
            plan,
            logs,
            state,
            links,
            commands,
            logged: false,
            signalled: false,
        };
        pod.publish(false)?;
        pod.links.clone().accept_from(listener)?;
        Ok(pod)
    }

    pub(super) fn connect(&self, agent: Option<UnixStream>) {
        if let Some(agent) = agent {
            self.links.clone().connect(agent);
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
            // A connected agent has the state; one that connects later receives it again.
            if let Err(error) = self.publish(false) {
                self.log_once(&error);
            }
            self.wait().await;
        }
        self.kill_until_gone().await;
        self.read_remaining_output().await;
        while let Err(error) = self.publish(true) {
            // The pod's directory was removed: the state has no reader left.
            if error.kind() == io::ErrorKind::NotFound {
                return Err(error);
            }
            self.log_once(&error);
            sleep(WRITE_AGAIN).await;
        }
        Ok(())
    }

    /// Logs once: repeated messages would fill the disk further.
    fn log_once(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.logged, true) {
            log(format_args!("cannot write the state of the pod; trying again: {error}"));
        }
    }

    fn perform(&mut self, act: Action) {
        match act {
            Action::Start(index) => self.start(index),
            Action::Terminate => self.processes.terminate(),
            Action::Kill => self.processes.kill(),
        }
    }

    fn start(&mut self, index: usize) {
        let Some(container) = self.plan.containers.get(index) else { return };
        match self.processes.spawn(index, container) {
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
        // Drops finished readers of earlier starts.
        while self.reading.try_join_next().is_some() {}
        let Some(file) = self.logs.get(index).cloned() else { return };
        match pipe::Receiver::from_owned_fd(OwnedFd::from(output)) {
            Ok(output) => drop(self.reading.spawn(copy_output(output, stream, file))),
            Err(error) => log(format_args!("cannot read the output of a container: {error}")),
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
            // The machine shuts down, or an operator ends this pod.
            _ = self.terminated.recv() => {
                self.signalled = true;
                self.core.stop(self.plan.grace, Instant::now());
            }
            () = sleep_until(later), if deadline.is_some() => {}
        }
    }

    fn reap(&mut self) {
        for (index, exit) in self.processes.reap() {
            self.core.exited(index, exit, Instant::now());
        }
    }

    /// Kills until nothing is left, however long it takes: a pod of which anything runs has not stopped.
    async fn kill_until_gone(&mut self) {
        self.processes.kill();
        let mut pause = KILL_PAUSE;
        while !self.processes.all_gone() {
            self.processes.kill();
            // A signal that came before is covered by the next search.
            let _ = timeout(pause, self.children.recv()).await;
            pause = (pause * 2).min(KILL_PAUSE_MAX);
            self.processes.reap();
        }
    }

    async fn read_remaining_output(&mut self) {
        let _ = timeout(LAST_WORDS, async { while self.reading.join_next().await.is_some() {} }).await;
    }

    /// Writes to disk first: an agent that receives an end may forget everything else.
    fn publish(&self, over: bool) -> io::Result<()> {
        let view = |(index, container): (usize, super::super::core::ContainerView<'_>)| ContainerState {
            name: container.name.to_owned(),
            pid: self.processes.pid_of(index),
            restarts: container.restarts,
            last: container.last.map(Exit::sentence),
        };
        let containers = self.core.containers().enumerate().map(view).collect();
        let state = ShimState { by_signal: self.signalled, ..ShimState::new(&self.core.status(), over, containers) };
        let line = state.to_line().ok_or_else(|| io::Error::other("the state cannot be serialised"))?;
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

/// Copies the output until every writer has closed it.
async fn copy_output(mut output: pipe::Receiver, stream: Stream, log: Arc<Mutex<LogFile>>) {
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
