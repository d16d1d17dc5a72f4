//! The task that keeps the conditions of this machine: it looks every few seconds, and takes up what checks found.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_lifecycle::node::{ConditionStatus, READY};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::board::Board;
use super::condition::{Condition, Conditions, Finding};
use super::custom::CustomChecks;
use super::network::NetworkCheck;
use super::pace::rounds;
use super::pressure::{Pressures, Shortage, TRANSITION_PERIOD, Verdict};
use super::probe::Probe;
use super::sample::{Sample, Subjects};
use super::signal::PressureKind;
use super::threshold::Thresholds;
use crate::facts::Filesystem;
use crate::facts::file::Root;

pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// For filesystems to answer, and never more than half the interval.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct MonitorConfig {
    /// `/proc` is looked for below it.
    pub root: PathBuf,
    pub interval: Duration,
    /// A directory on the filesystem that pods write to.
    pub nodefs: PathBuf,
    /// A directory on the filesystem of images; absent if that is the same.
    pub imagefs: Option<PathBuf>,
    pub thresholds: Thresholds,
    pub transition_period: Duration,
    /// Absent: NetworkUnavailable is not reported.
    pub network: Option<NetworkCheck>,
    pub custom: Option<CustomChecks>,
}

/// Whether what runs the pods can.
pub trait Readiness: Send + Sync + 'static {
    /// Or why not. Asked at every look; must not block.
    fn ready(&self) -> Result<(), String>;
}

/// Keeps conditions until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    conditions: watch::Receiver<Conditions>,
    board: Arc<Board>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

struct Watchman {
    probe: Probe,
    patience: Duration,
    pressures: Pressures,
    sample: Sample,
    /// Everything that a threshold watches has been read once.
    has_looked: bool,
    readiness: Arc<dyn Readiness>,
    board: Arc<Board>,
    conditions: watch::Sender<Conditions>,
}

impl<F: Fn() -> Result<(), String> + Send + Sync + 'static> Readiness for F {
    fn ready(&self) -> Result<(), String> {
        self()
    }
}

// === impl MonitorConfig ===

impl MonitorConfig {
    /// This machine, with upstream's defaults.
    pub fn this_machine(nodefs: impl Into<PathBuf>) -> Self {
        Self {
            root: PathBuf::from("/"),
            interval: SAMPLE_INTERVAL,
            nodefs: nodefs.into(),
            imagefs: None,
            thresholds: Thresholds::default(),
            transition_period: TRANSITION_PERIOD,
            network: None,
            custom: None,
        }
    }

    fn subjects(&self) -> Subjects {
        Subjects {
            root: Root::new(&self.root),
            nodefs: self.nodefs.clone(),
            imagefs: self.imagefs.clone().filter(|imagefs| *imagefs != self.nodefs),
            gauge: Arc::new(Filesystem::of),
        }
    }
}

// === impl Monitor ===

impl Monitor {
    /// Must be called on a tokio runtime.
    pub fn start(config: MonitorConfig, readiness: Arc<dyn Readiness>) -> Self {
        let board = Arc::new(Board::default());
        let (sender, conditions) = watch::channel(Conditions::default());
        let mut tasks = Vec::new();
        let watchman = Watchman::new(&config, readiness, Arc::clone(&board), sender);
        tasks.push(AbortOnDropHandle::new(tokio::spawn(watchman.run(config.interval))));
        if let Some(network) = config.network {
            tasks.push(AbortOnDropHandle::new(tokio::spawn(network.run(Arc::clone(&board)))));
        }
        if let Some(custom) = config.custom {
            tasks.push(AbortOnDropHandle::new(tokio::spawn(custom.run(Arc::clone(&board)))));
        }
        Self { conditions, board, _tasks: tasks }
    }

    /// The conditions, whose heartbeat times are renewed at each look. `changed` resolves for other changes only: those
    /// that are worth a post.
    pub fn conditions(&self) -> watch::Receiver<Conditions> {
        self.conditions.clone()
    }

    /// Asks the readiness again without waiting for the next look.
    pub fn refresh(&self) {
        self.board.announce();
    }

    /// Waits for the first look at the machine, which is a matter of milliseconds, or of seconds if filesystems hang.
    pub async fn first_look(&self) -> Conditions {
        let mut conditions = self.conditions.clone();
        let looked = conditions.wait_for(|conditions| conditions.get(READY).is_some()).await;
        looked.map(|conditions| conditions.clone()).unwrap_or_default()
    }
}

// === impl Watchman ===

impl Watchman {
    fn new(
        config: &MonitorConfig,
        readiness: Arc<dyn Readiness>,
        board: Arc<Board>,
        conditions: watch::Sender<Conditions>,
    ) -> Self {
        Self {
            probe: Probe::new(config.subjects()),
            patience: PATIENCE_MAX.min(config.interval / 2),
            pressures: Pressures::new(&config.thresholds, config.transition_period),
            sample: Sample::empty(),
            has_looked: false,
            readiness,
            board,
            conditions,
        }
    }

    async fn run(mut self, every: Duration) {
        let board = Arc::clone(&self.board);
        let mut looks = rounds(every);
        loop {
            tokio::select! {
                biased;
                _ = looks.tick() => self.look().await,
                () = board.news() => {}
            }
            self.publish();
        }
    }

    async fn look(&mut self) {
        self.sample = self.probe.sample(self.patience).await;
        for Shortage { threshold, level } in self.pressures.observe(&self.sample, Instant::now()) {
            let (available, capacity) = (level.available, level.capacity);
            tracing::warn!(%threshold, available, capacity, "eviction threshold met");
        }
        self.has_looked |= self.pressures.unread(&self.sample).is_none();
    }

    fn publish(&self) {
        let findings = self.findings(Instant::now());
        self.conditions.send_if_modified(|conditions| {
            let after = conditions.after(findings, Timestamp::now());
            let differs = after.differs_from(conditions);
            if differs {
                log_changes(conditions, &after);
            }
            *conditions = after;
            differs
        });
    }

    fn findings(&self, now: Instant) -> Vec<Finding> {
        let pressure = |kind: PressureKind| pressure_finding(kind, self.pressures.verdict(kind, &self.sample, now));
        let pressures = PressureKind::ALL.into_iter().map(pressure);
        pressures.chain(self.board.all()).chain([self.readiness()]).collect()
    }

    fn readiness(&self) -> Finding {
        let mut reasons: Vec<String> = self.readiness.ready().err().into_iter().collect();
        if !self.has_looked {
            reasons.extend(self.pressures.unread(&self.sample).map(str::to_owned));
        }
        match reasons.is_empty() {
            true => Finding::new(READY, ConditionStatus::True, "KubeletReady", "kubelet is posting ready status"),
            false => Finding::new(READY, ConditionStatus::False, "KubeletNotReady", reasons.join("; ")),
        }
    }
}

fn pressure_finding(kind: PressureKind, verdict: Verdict) -> Finding {
    let (status, pressed) = match verdict {
        Verdict::Calm => (ConditionStatus::False, false),
        Verdict::Pressed => (ConditionStatus::True, true),
        Verdict::Unknown(reason) => {
            return Finding::new(kind.condition(), ConditionStatus::Unknown, "MachineUnreadable", reason);
        }
    };
    let (reason, message) = kind.words(pressed);
    Finding::new(kind.condition(), status, reason, message)
}

fn log_changes(before: &Conditions, after: &Conditions) {
    for Condition { finding, .. } in after.iter() {
        let known = before.get(&finding.kind).map(|condition| &condition.finding);
        if known != Some(finding) {
            let Finding { kind, status, reason, message } = finding;
            tracing::info!(condition = %kind, status = status.as_str(), %reason, %message, "condition changed");
        }
    }
    for Condition { finding, .. } in before.iter().filter(|condition| after.get(&condition.finding.kind).is_none()) {
        tracing::info!(condition = %finding.kind, "condition is not reported any more");
    }
}
