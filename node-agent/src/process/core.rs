//! A pod of processes: what to start, when to start it again, when to end it, and how it is. No processes, no waiting;
//! the time is an argument.
//!
//! ```text
//!   init containers, one after the other       Waiting --start--> Running --exit--> Done
//!   then all others together                                         ^  \--exit--> BackOff (0, 10 s, 20 s .. 5 min)
//!                                                                    +--------------------/
//! ```
//!
//! Who drives it asks [`PodCore::next`] until there is nothing to do, and again at [`PodCore::deadline`] or when
//! something happened. Phases follow Kubernetes' rules: a pod that will be restarted is Running, whatever its exit code.

use std::time::Duration;

use tokio::time::Instant;

use super::manifest::{PodPlan, RestartPolicy};
use crate::pods::{Phase, PodStatus};

pub(super) use backoff::CrashBackoff;

mod backoff;
#[cfg(test)]
mod tests;

/// What was killed and is still there is killed again.
const KILL_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct PodCore {
    containers: Vec<Container>,
    inits: usize,
    policy: RestartPolicy,
    grace: Duration,
    /// When it has been active for as long as it may be.
    active_until: Option<Instant>,
    ending: Option<Ending>,
    /// What the pod asks for and does not get, in a sentence; empty if there is nothing.
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
    /// It could not be started, and why.
    NotStarted(String),
}

#[derive(Debug)]
struct Ending {
    why: Why,
    asked: bool,
    kill_at: Instant,
    killed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Told,
    DeadlineExceeded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Counts as running from now on.
    Start(usize),
    /// Everything is to be asked to end.
    Terminate,
    Kill,
}

/// One container, as the world may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View<'a> {
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

    /// What to do now; it counts as done.
    pub(super) fn next(&mut self, now: Instant) -> Option<Act> {
        if self.ending.is_none() && self.active_until.is_some_and(|until| until <= now) {
            self.end(Why::DeadlineExceeded, self.grace, now);
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

    /// This container's own process ended, or never began.
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
        self.end(Why::Told, grace, now);
    }

    /// Nothing of it is to be started, and none of its containers runs. What they left behind may.
    pub(super) fn is_over(&self) -> bool {
        let nothing_left = || self.candidates().all(|index| self.stage(index) == Some(Stage::Done));
        !self.runs() && (self.ending.is_some() || self.init_failed() || nothing_left())
    }

    pub(super) fn status(&self) -> PodStatus {
        let phase = self.phase();
        let (reason, message) = self.words(phase);
        let counted = if self.initialized() { self.mains() } else { self.inits() };
        PodStatus {
            ready: phase == Phase::Running && self.mains().iter().all(Container::runs),
            restarts: counted.iter().map(|container| container.restarts).sum(),
            ..PodStatus::new(phase, &reason, &message)
        }
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = View<'_>> {
        self.containers.iter().map(|container| View {
            name: &container.name,
            restarts: container.restarts,
            last: container.last.as_ref(),
        })
    }

    fn end(&mut self, why: Why, grace: Duration, now: Instant) {
        let kill_at = now + grace;
        let asked = Ending { why, asked: false, kill_at, killed: false };
        let ending = self.ending.get_or_insert(asked);
        ending.kill_at = ending.kill_at.min(kill_at);
    }

    fn start(&mut self, index: usize, now: Instant) -> Act {
        if let Some(container) = self.containers.get_mut(index) {
            container.restarts += u32::from(container.stage != Stage::Waiting);
            container.stage = Stage::Running { since: now };
        }
        Act::Start(index)
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

    /// Those whose turn it is: one init container, or all others.
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

    fn phase(&self) -> Phase {
        let waiting = self.mains().iter().any(|container| container.stage == Stage::Waiting);
        if self.is_over() {
            let succeeded = self.mains().iter().all(Container::succeeded) && !self.overran();
            return if succeeded { Phase::Succeeded } else { Phase::Failed };
        }
        if !self.initialized() || waiting { Phase::Pending } else { Phase::Running }
    }

    fn overran(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.why == Why::DeadlineExceeded)
    }

    /// A word for programs and a sentence for people.
    fn words(&self, phase: Phase) -> (String, String) {
        if self.overran() {
            return ("DeadlineExceeded".to_owned(), "the pod was active for longer than it may be".to_owned());
        }
        match (phase, &self.ending) {
            (Phase::Failed, Some(ending)) if ending.killed => {
                ("Killed".to_owned(), "it did not end within its grace".to_owned())
            }
            (Phase::Failed, _) => self.failure(),
            (Phase::Succeeded, _) => ("Completed".to_owned(), String::new()),
            (Phase::Pending | Phase::Running | Phase::Unknown, _) => self.trouble(),
        }
    }

    fn failure(&self) -> (String, String) {
        let failed = |container: &&Container| container.last.as_ref().is_some_and(|exit| !exit.is_success());
        match self.containers.iter().find(failed) {
            Some(container) => (container.exit_word(), container.exit_sentence()),
            None => ("Terminated".to_owned(), "it was told to stop before all of it had run".to_owned()),
        }
    }

    fn trouble(&self) -> (String, String) {
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

/// Who relies on a probe must see that Ready does not.
fn caveat(ignored: &[String]) -> String {
    match ignored {
        [] => String::new(),
        fields => format!("ready means that its processes run, because this node does not run {}", fields.join(", ")),
    }
}

// === impl Ending ===

impl Ending {
    fn next(&mut self, now: Instant) -> Option<Act> {
        if self.kill_at <= now {
            (self.asked, self.killed) = (true, true);
            self.kill_at = now + KILL_AGAIN;
            return Some(Act::Kill);
        }
        (!std::mem::replace(&mut self.asked, true)).then_some(Act::Terminate)
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
