//! Monitor of this machine's conditions: samples the machine every few seconds and takes up the results of checks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_lifecycle::node::{ConditionStatus, READY};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::check_board::CheckBoard;
use super::condition::{CheckResult, MachineCondition, MachineConditions};
use super::custom::CustomChecks;
use super::network::NetworkCheck;
use super::pressure::{MetThreshold, PressureState, Pressures, TRANSITION_PERIOD};
use super::probe::Probe;
use super::rounds::rounds;
use super::sample::{MachineSample, SampleSources};
use super::signal::PressureKind;
use super::threshold::Thresholds;
use crate::facts::Filesystem;
use crate::facts::file::Root;

pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// How long filesystems may take to answer, at most half the interval.
const TIMEOUT_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct MonitorConfig {
    /// The directory that contains `/proc`.
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

/// Readiness of the pod runtime.
pub trait Readiness: Send + Sync + 'static {
    /// The error is the reason. Called for every report; must not block.
    fn ready(&self) -> Result<(), String>;
}

/// Keeps the conditions up to date until it is dropped.
#[derive(Debug)]
pub struct Monitor {
    conditions: watch::Receiver<MachineConditions>,
    board: Arc<CheckBoard>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

struct MonitorTask {
    probe: Probe,
    limit: Duration,
    pressures: Pressures,
    sample: MachineSample,
    /// Every signal with a threshold has been read once.
    has_sampled: bool,
    readiness: Arc<dyn Readiness>,
    board: Arc<CheckBoard>,
    conditions: watch::Sender<MachineConditions>,
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

    fn subjects(&self) -> SampleSources {
        SampleSources {
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
        let board = Arc::new(CheckBoard::default());
        let (sender, conditions) = watch::channel(MachineConditions::default());
        let mut tasks = Vec::new();
        let monitor_task = MonitorTask::new(&config, readiness, Arc::clone(&board), sender);
        tasks.push(AbortOnDropHandle::new(tokio::spawn(monitor_task.run(config.interval))));
        if let Some(network) = config.network {
            tasks.push(AbortOnDropHandle::new(tokio::spawn(network.run(Arc::clone(&board)))));
        }
        if let Some(custom) = config.custom {
            tasks.push(AbortOnDropHandle::new(tokio::spawn(custom.run(Arc::clone(&board)))));
        }
        Self { conditions, board, _tasks: tasks }
    }

    /// The conditions; each sample renews their heartbeat times. `changed` resolves only for other changes: those
    /// worth a post.
    pub fn conditions(&self) -> watch::Receiver<MachineConditions> {
        self.conditions.clone()
    }

    /// Checks the readiness again before the next sample.
    pub fn refresh(&self) {
        self.board.announce();
    }

    /// Waits for the first sample: milliseconds, or seconds if filesystems hang.
    pub async fn first_sample(&self) -> MachineConditions {
        let mut conditions = self.conditions.clone();
        let looked = conditions.wait_for(|conditions| conditions.get(READY).is_some()).await;
        looked.map(|conditions| conditions.clone()).unwrap_or_default()
    }
}

// === impl MonitorTask ===

impl MonitorTask {
    fn new(
        config: &MonitorConfig,
        readiness: Arc<dyn Readiness>,
        board: Arc<CheckBoard>,
        conditions: watch::Sender<MachineConditions>,
    ) -> Self {
        Self {
            probe: Probe::new(config.subjects()),
            limit: TIMEOUT_MAX.min(config.interval / 2),
            pressures: Pressures::new(&config.thresholds, config.transition_period),
            sample: MachineSample::empty(),
            has_sampled: false,
            readiness,
            board,
            conditions,
        }
    }

    async fn run(mut self, every: Duration) {
        let board = Arc::clone(&self.board);
        let mut samples = rounds(every);
        loop {
            tokio::select! {
                biased;
                _ = samples.tick() => self.take_sample().await,
                () = board.changed() => {}
            }
            self.publish();
        }
    }

    async fn take_sample(&mut self) {
        self.sample = self.probe.sample(self.limit).await;
        for MetThreshold { threshold, level } in self.pressures.observe(&self.sample, Instant::now()) {
            let (available, capacity) = (level.available, level.capacity);
            tracing::warn!(%threshold, available, capacity, "eviction threshold met");
        }
        self.has_sampled |= self.pressures.unread(&self.sample).is_none();
    }

    fn publish(&self) {
        let results = self.results(Instant::now());
        self.conditions.send_if_modified(|conditions| {
            let after = conditions.after(results, Timestamp::now());
            let differs = after.differs_from(conditions);
            if differs {
                log_changes(conditions, &after);
            }
            *conditions = after;
            differs
        });
    }

    fn results(&self, now: Instant) -> Vec<CheckResult> {
        let pressure = |kind: PressureKind| pressure_result(kind, self.pressures.state(kind, &self.sample, now));
        let pressures = PressureKind::ALL.into_iter().map(pressure);
        pressures.chain(self.board.all()).chain([self.readiness()]).collect()
    }

    fn readiness(&self) -> CheckResult {
        let mut reasons: Vec<String> = self.readiness.ready().err().into_iter().collect();
        if !self.has_sampled {
            reasons.extend(self.pressures.unread(&self.sample).map(str::to_owned));
        }
        match reasons.is_empty() {
            true => CheckResult::new(READY, ConditionStatus::True, "KubeletReady", "kubelet is posting ready status"),
            false => CheckResult::new(READY, ConditionStatus::False, "KubeletNotReady", reasons.join("; ")),
        }
    }
}

fn pressure_result(kind: PressureKind, state: PressureState) -> CheckResult {
    let (status, pressed) = match state {
        PressureState::NoPressure => (ConditionStatus::False, false),
        PressureState::Pressure => (ConditionStatus::True, true),
        PressureState::Unknown(reason) => {
            return CheckResult::new(kind.condition(), ConditionStatus::Unknown, "MachineUnreadable", reason);
        }
    };
    let (reason, message) = kind.words(pressed);
    CheckResult::new(kind.condition(), status, reason, message)
}

fn log_changes(before: &MachineConditions, after: &MachineConditions) {
    for MachineCondition { result, .. } in after.iter() {
        let known = before.get(&result.kind).map(|condition| &condition.result);
        if known != Some(result) {
            let CheckResult { kind, status, reason, message } = result;
            tracing::info!(condition = %kind, status = status.as_str(), %reason, %message, "condition changed");
        }
    }
    for MachineCondition { result, .. } in before.iter().filter(|condition| after.get(&condition.result.kind).is_none())
    {
        tracing::info!(condition = %result.kind, "condition no longer reported");
    }
}
