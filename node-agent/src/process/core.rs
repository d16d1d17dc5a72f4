//! Core of a pod of processes: what to start, when to restart it, when to end it, and its status. It starts no process
//! and never waits; the time is an argument.
//!
//! ```text
//!   init containers, one after the other       Waiting --start--> Running --exit--> Done
//!   then all others together                                         ^  \--exit--> BackOff (0, 10 s, 20 s .. 5 min)
//!                                                                    +--------------------/
//! ```
//!
//! The caller asks [`PodCore::next`] until nothing is left to do, and again at [`PodCore::deadline`] or after an
//! event. Phases follow Kubernetes' rules: a pod that will be restarted is Running, whatever its exit code.

use std::time::Duration;

use tokio::time::Instant;

use super::manifest::{PodPlan, RestartPolicy};
use crate::pods::{LocalPodStatus, PodPhase};

pub(super) use backoff::CrashBackoff;

mod backoff;
#[cfg(test)]
mod tests;

/// Processes that survive a kill are killed again.
const KILL_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct PodCore {
    containers: Vec<Container>,
    inits: usize,
    policy: RestartPolicy,
    grace: Duration,
    /// When its active deadline is reached.
    active_until: Option<Instant>,
    ending: Option<Ending>,
    /// Which promises of the manifest are not kept; empty if all are.
    caveat: String,
}

#[derive(Debug)]
struct Container {
    name: String,
    stage: Stage,
    restarts: u32,
    backoff: CrashBackoff,
    last: Option<Exit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running { since: Instant },
    BackOff { until: Instant, pause: Duration },
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
    OutOfMemory,
    /// It could not be started, with the reason.
    NotStarted(String),
}

#[derive(Debug)]
struct Ending {
    why: EndReason,
    asked: bool,
    kill_at: Instant,
    killed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Told,
    DeadlineExceeded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Start this container; it counts as running from now on.
    Start(usize),
    /// Ask everything to end.
    Terminate,
    Kill,
}

/// One container, as it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerView<'a> {
    pub(super) name: &'a str,
    pub(super) restarts: u32,
    pub(super) last: Option<&'a Exit>,
}

// === impl PodCore ===

impl PodCore {
    pub(super) fn new(plan: &PodPlan, now: Instant) -> Self {
        Self {
            containers: plan.containers.iter().map(|container| Container::new(&container.name)).collect(),
            inits: plan.inits,
            policy: plan.policy,
            grace: plan.grace,
            active_until: plan.active_deadline.map(|limit| now + limit),
            ending: None,
            caveat: caveat(&plan.ignored),
        }
    }

    /// The next action; it counts as done.
    pub(super) fn next(&mut self, now: Instant) -> Option<Action> {
        if self.ending.is_none() && self.active_until.is_some_and(|until| until <= now) {
            self.end(EndReason::DeadlineExceeded, self.grace, now);
        }
        let runs = self.runs();
        match &mut self.ending {
            Some(ending) if runs => ending.next(now),
            Some(_) => None,
            None => self.startable(now).map(|index| self.start(index, now)),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.ending {
            Some(ending) => self.runs().then_some(ending.kill_at),
            None => self.candidates().filter_map(|index| self.due(index)).chain(self.active_until).min(),
        }
    }

    /// The container's main process ended, or could not start.
    pub(super) fn exited(&mut self, index: usize, exit: Exit, now: Instant) {
        let again = self.ending.is_none() && self.restarts_after(index, &exit);
        let Some(container) = self.containers.get_mut(index) else { return };
        let Stage::Running { since } = container.stage else { return };
        container.last = Some(exit);
        container.stage = match again {
            true => {
                let pause = container.backoff.pause_after(now.saturating_duration_since(since));
                Stage::BackOff { until: now + pause, pause }
            }
            false => Stage::Done,
        };
    }

    /// A second call can only shorten the grace.
    pub(super) fn stop(&mut self, grace: Duration, now: Instant) {
        self.end(EndReason::Told, grace, now);
    }

    /// No container will start again and none runs. Processes they left behind may still run.
    pub(super) fn is_over(&self) -> bool {
        let nothing_left = || self.candidates().all(|index| self.stage(index) == Some(Stage::Done));
        !self.runs() && (self.ending.is_some() || self.init_failed() || nothing_left())
    }

    pub(super) fn status(&self) -> LocalPodStatus {
        let phase = self.phase();
        let (reason, message) = self.words(phase);
        let counted = if self.initialized() { self.mains() } else { self.inits() };
        LocalPodStatus {
            ready: phase == PodPhase::Running && self.mains().iter().all(Container::runs),
            restarts: counted.iter().map(|container| container.restarts).sum(),
            ..LocalPodStatus::new(phase, &reason, &message)
        }
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = ContainerView<'_>> {
        self.containers.iter().map(|container| ContainerView {
            name: &container.name,
            restarts: container.restarts,
            last: container.last.as_ref(),
        })
    }

    fn end(&mut self, why: EndReason, grace: Duration, now: Instant) {
        let kill_at = now + grace;
        let asked = Ending { why, asked: false, kill_at, killed: false };
        let ending = self.ending.get_or_insert(asked);
        ending.kill_at = ending.kill_at.min(kill_at);
    }

    fn start(&mut self, index: usize, now: Instant) -> Action {
        if let Some(container) = self.containers.get_mut(index) {
            container.restarts += u32::from(container.stage != Stage::Waiting);
            container.stage = Stage::Running { since: now };
        }
        Action::Start(index)
    }

    fn startable(&self, now: Instant) -> Option<usize> {
        self.candidates().find(|index| match self.stage(*index) {
            Some(Stage::Waiting) => true,
            Some(Stage::BackOff { until, .. }) => until <= now,
            Some(Stage::Running { .. } | Stage::Done) | None => false,
        })
    }

    fn due(&self, index: usize) -> Option<Instant> {
        match self.stage(index) {
            Some(Stage::BackOff { until, .. }) => Some(until),
            Some(Stage::Waiting | Stage::Running { .. } | Stage::Done) | None => None,
        }
    }

    /// The containers that may start: one init container, or all main containers.
    fn candidates(&self) -> impl Iterator<Item = usize> + use<> {
        let init = self.inits().iter().position(|init| !init.succeeded());
        match init {
            Some(_) if self.init_failed() => 0..0,
            Some(index) => index..index + 1,
            None => self.inits..self.containers.len(),
        }
    }

    fn restarts_after(&self, index: usize, exit: &Exit) -> bool {
        match self.policy {
            RestartPolicy::Always => index >= self.inits || !exit.is_success(),
            RestartPolicy::OnFailure => !exit.is_success(),
            RestartPolicy::Never => false,
        }
    }

    fn stage(&self, index: usize) -> Option<Stage> {
        self.containers.get(index).map(|container| container.stage)
    }

    fn runs(&self) -> bool {
        self.containers.iter().any(Container::runs)
    }

    fn inits(&self) -> &[Container] {
        self.containers.get(..self.inits).unwrap_or_default()
    }

    fn mains(&self) -> &[Container] {
        self.containers.get(self.inits..).unwrap_or_default()
    }

    fn initialized(&self) -> bool {
        self.inits().iter().all(Container::succeeded)
    }

    fn init_failed(&self) -> bool {
        self.inits().iter().any(|init| init.stage == Stage::Done && !init.succeeded())
    }

    fn phase(&self) -> PodPhase {
        let waiting = self.mains().iter().any(|container| container.stage == Stage::Waiting);
        if self.is_over() {
            let succeeded = self.mains().iter().all(Container::succeeded) && !self.deadline_exceeded();
            return if succeeded { PodPhase::Succeeded } else { PodPhase::Failed };
        }
        if !self.initialized() || waiting { PodPhase::Pending } else { PodPhase::Running }
    }

    fn deadline_exceeded(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.why == EndReason::DeadlineExceeded)
    }

    /// Reason for programs and message for operators.
    fn words(&self, phase: PodPhase) -> (String, String) {
        if self.deadline_exceeded() {
            return (
                "DeadlineExceeded".to_owned(),
                "the pod was active for longer than its activeDeadlineSeconds".to_owned(),
            );
        }
        match (phase, &self.ending) {
            (PodPhase::Failed, Some(ending)) if ending.killed => {
                ("Killed".to_owned(), "it did not end within its grace".to_owned())
            }
            (PodPhase::Failed, _) => self.failure(),
            (PodPhase::Succeeded, _) => ("Completed".to_owned(), String::new()),
            (PodPhase::Pending | PodPhase::Running | PodPhase::Unknown, _) => self.waiting_reason(),
        }
    }

    fn failure(&self) -> (String, String) {
        let failed = |container: &&Container| container.last.as_ref().is_some_and(|exit| !exit.is_success());
        match self.containers.iter().find(failed) {
            Some(container) => (container.exit_word(), container.exit_sentence()),
            None => ("Terminated".to_owned(), "it was told to stop before all of its containers had run".to_owned()),
        }
    }

    fn waiting_reason(&self) -> (String, String) {
        for container in &self.containers {
            if let Stage::BackOff { pause, .. } = container.stage
                && !pause.is_zero()
            {
                let message = format!("{}; it is started again after {pause:?}", container.exit_sentence());
                return ("CrashLoopBackOff".to_owned(), message);
            }
        }
        match self.initialized() {
            true => (String::new(), self.caveat.clone()),
            false => ("PodInitializing".to_owned(), String::new()),
        }
    }
}

/// Tells readers of Ready that probes are not part of it.
fn caveat(ignored: &[String]) -> String {
    match ignored {
        [] => String::new(),
        fields => format!("ready means only that its processes run: this node does not run {}", fields.join(", ")),
    }
}

// === impl Ending ===

impl Ending {
    fn next(&mut self, now: Instant) -> Option<Action> {
        if self.kill_at <= now {
            (self.asked, self.killed) = (true, true);
            self.kill_at = now + KILL_AGAIN;
            return Some(Action::Kill);
        }
        (!std::mem::replace(&mut self.asked, true)).then_some(Action::Terminate)
    }
}

// === impl Container ===

impl Container {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), stage: Stage::Waiting, restarts: 0, backoff: CrashBackoff::default(), last: None }
    }

    fn runs(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    fn succeeded(&self) -> bool {
        self.stage == Stage::Done && self.last.as_ref().is_some_and(Exit::is_success)
    }

    fn exit_word(&self) -> String {
        self.last.as_ref().map_or("Error", Exit::word).to_owned()
    }

    fn exit_sentence(&self) -> String {
        let exit = self.last.as_ref().map_or_else(|| "has not run".to_owned(), Exit::sentence);
        format!("container {} {exit}", self.name)
    }
}

// === impl Exit ===

impl Exit {
    pub(super) fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Code(0) => "Completed",
            Self::Code(_) | Self::Signal(_) => "Error",
            Self::OutOfMemory => "OOMKilled",
            Self::NotStarted(_) => "StartError",
        }
    }

    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Code(code) => format!("ended with exit code {code}"),
            Self::Signal(signal) => format!("was ended by signal {signal}"),
            Self::OutOfMemory => "used more memory than its limit".to_owned(),
            Self::NotStarted(why) => format!("could not be started: {why}"),
        }
    }
}
