//! Process runtime: pods as plain processes of this machine, or as records only.
//!
//! ```text
//!   NodePods --start, stop, kill--> ProcessRuntime --one task per pod (PodTask)--> shim of the pod --> its processes
//!      ^---------- PodUpdates <---------|  |                                          |
//!                                       |  +-- EndedLog: ended uids, orders           +-- pods/UID/state.json, logs/
//!                                       +-- pods/UID/record.json, before anything runs
//! ```
//!
//! Each pod has a [shim](shim_main): a small process that outlives the agent. A starting agent finds pods by their
//! directories and shims by the locks they hold, never by process ids, and reconnects to them. Everything is private
//! to the agent's user (0700, 0600).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::durable;
use crate::pods::{
    DurableNote, LocalPodStatus, PodListener, PodName, PodPhase, PodToStart, PodUid, PodUpdateSender, RecalledNotes,
    RunJournal, RunRecorder, Runtime,
};

use cgroup::CgroupRoot;
use dir::PodDir;
use ended_log::EndedLog;
use manifest::PodPlan;
use pod_files::{PodRecord, ShimSettings};
use pod_task::{PodOrigin, PodTask, StopRequest};
use survey::Found;
use unrecorded::UnrecordedPods;

pub use record_only::RecordRuntime;
pub use shim::{SHIM_ARGUMENT, shim_main};

mod cgroup;
mod core;
mod dir;
mod ended_log;
mod expansion;
mod manifest;
mod pod_files;
mod pod_task;
mod process_tree;
mod record_only;
mod shim;
mod survey;
mod unrecorded;

/// Kubelet's limits for a container's log.
const LOG_BYTES: u64 = 10 << 20;
const LOG_FILES: u32 = 3;
const KEEP_ENDED: usize = 10;
const PODS_DIR: &str = "pods";
/// The journal of what really ran, and its size before the older half is dropped.
const RUNS_FILE: &str = "runs.jsonl";
const RUNS_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// The executable of a pod's shim: its `main` begins with [`shim_main`].
    pub shim: PathBuf,
    /// The id of the machine's present boot: processes of another boot are gone.
    pub boot_id: String,
    /// Size at which a container's log is rotated, and the number of log files.
    pub log_bytes: u64,
    pub log_files: u32,
    /// How many ended pods keep their directories, so that their logs can be read.
    pub keep_ended: usize,
    /// Whether to use control groups where the machine allows it.
    pub cgroups: bool,
    /// The most processes that a pod may have.
    pub pod_pids_limit: Option<u64>,
}

#[derive(Debug, Error)]
pub enum RuntimeOpenError {
    #[error("{path}: another agent uses this directory: stop it, or give each agent its own --state-dir")]
    InUse { path: PathBuf },
    #[error("{path}: {source}: the agent must be able to write there")]
    Io { path: PathBuf, source: io::Error },
}

/// Why no pod can start at this moment.
#[derive(Debug, Error)]
pub enum RuntimeUnhealthy {
    #[error("cannot write to {path}: {source}")]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("the shim {path}, which runs pods, is missing: {source}")]
    NoShim { path: PathBuf, source: io::Error },
}

/// A pod that the runtime tracks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TrackedPod {
    uid: PodUid,
    namespace: String,
    name: String,
    status: LocalPodStatus,
    stopped: bool,
}

/// Runs pods as processes. Dropping it leaves them running; the next runtime finds them.
#[derive(Debug)]
pub struct ProcessRuntime {
    context: Arc<RuntimeContext>,
    /// Pods that an earlier agent left, until a session listens.
    found: Mutex<Vec<Found>>,
    /// The machine was booted since: every pod that ran was lost.
    rebooted: bool,
    /// Dropping this ends the tasks of all pods.
    tasks: DropGuard,
}

/// Shared by the tasks of all pods.
#[derive(Debug)]
struct RuntimeContext {
    pods_dir: PathBuf,
    config: ProcessConfig,
    cgroup_root: Option<CgroupRoot>,
    ended_log: EndedLog,
    recorder: RunRecorder,
    /// Pods that ran without a record when this agent started.
    unrecorded: UnrecordedPods,
    table: Mutex<PodTable>,
    /// Allows one agent per directory.
    _held: File,
}

#[derive(Debug, Default)]
struct PodTable {
    listener: PodListener,
    pods: BTreeMap<PodUid, Pod>,
}

#[derive(Debug)]
struct Pod {
    view: TrackedPod,
    /// None: its task has ended with the pod.
    stop_request: Option<watch::Sender<StopRequest>>,
}

// === impl ProcessConfig ===

impl ProcessConfig {
    /// For this machine, with this executable as the shim.
    pub fn of_this_machine() -> io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self {
            shim: std::env::current_exe()?,
            boot_id: boot_id.trim().to_owned(),
            log_bytes: LOG_BYTES,
            log_files: LOG_FILES,
            keep_ended: KEEP_ENDED,
            cgroups: true,
            pod_pids_limit: None,
        })
    }
}

// === impl ProcessRuntime ===

impl ProcessRuntime {
    /// Finds the pods that earlier agents left in this directory, and creates missing directories.
    pub fn open(dir: &Path, config: ProcessConfig) -> Result<Arc<Self>, RuntimeOpenError> {
        let (held, dir) = lock_directory(dir)?;
        let pods_dir = dir.join(PODS_DIR);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| RuntimeOpenError::Io { path, source }
        };
        durable::private_dir(&pods_dir).map_err(at(&pods_dir))?;
        let ended_log_path = dir.join("memory");
        let ended_log = EndedLog::open(ended_log_path.clone()).map_err(at(&ended_log_path))?;
        let survey = survey::survey(&pods_dir, &config.boot_id).map_err(at(&pods_dir))?;
        let unrecorded = UnrecordedPods::find(&pods_dir);
        let found = survey.found.into_iter().chain(unrecorded.own.iter().map(Found::unrecorded)).collect();
        let cgroup_root = config.cgroups.then(prepare_cgroups).flatten();
        let runs_path = dir.join(RUNS_FILE);
        let journal = RunJournal::in_file(&runs_path, RUNS_BYTES_MAX).map_err(at(&runs_path))?;
        // One agent per directory: the directory is the machine.
        let machine = dir.display().to_string();
        let recorder = journal.recorder(&machine, &machine);
        let table = Mutex::new(PodTable::default());
        let context = Arc::new(RuntimeContext {
            pods_dir,
            config,
            cgroup_root,
            ended_log,
            recorder,
            unrecorded,
            table,
            _held: held,
        });
        Ok(Arc::new(Self {
            context,
            found: Mutex::new(found),
            rebooted: survey.rebooted,
            tasks: CancellationToken::new().drop_guard(),
        }))
    }

    /// Whether pods can start: Ready depends on it.
    pub fn health(&self) -> Result<(), RuntimeUnhealthy> {
        self.context.health()
    }

    fn refuse(&self, pod: &PodToStart, error: &manifest::Unsupported) {
        let (namespace, name) = (pod.namespace.as_str(), pod.name.as_str());
        tracing::warn!(namespace, name, uid = %pod.uid, %error, "this node cannot run the pod: it has failed");
        let status = LocalPodStatus::new(PodPhase::Failed, "Unsupported", &error.to_string());
        let mut table = self.context.lock();
        table.insert(TrackedPod::new(pod.uid, &pod.namespace, &pod.name, status.clone()), None);
        table.update(pod.uid, status, true);
    }

    fn spawn_task(&self, view: TrackedPod, origin: PodOrigin) {
        let (stop_request, requested) = watch::channel(StopRequest::default());
        let uid = view.uid;
        let pod_task = PodTask::new(Arc::clone(&self.context), uid, requested);
        self.context.lock().insert(view, Some(stop_request));
        let closed = self.tasks.token().clone();
        tokio::spawn(async move { closed.run_until_cancelled(pod_task.run(origin)).await });
    }

    fn adopt(&self, found: Found) {
        match found {
            Found::Running { view } => {
                tracing::info!(uid = %view.uid, namespace = view.namespace, name = view.name, "adopted a running pod");
                self.spawn_task(view, PodOrigin::Found);
            }
            Found::Ended { view } => {
                self.context.recorder.ended(view.uid);
                self.context.lock().insert(TrackedPod { stopped: true, ..view }, None);
            }
        }
    }
}

impl Runtime for ProcessRuntime {
    fn report_to(&self, news: PodUpdateSender) {
        let is_first = self.context.lock().listener.listen(news);
        if self.rebooted && is_first {
            tracing::warn!("the machine was rebooted: the pods that ran before are lost");
            self.context.recorder.lost_all();
            self.context.lock().listener.lose_all();
        }
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.into_iter().for_each(|found| self.adopt(found));
        self.context.lock().report_all();
    }

    fn start(&self, pod: PodToStart) {
        let known = self.context.lock().pods.get(&pod.uid).is_some_and(|pod| !pod.view.stopped);
        if known {
            return;
        }
        let plan = match PodPlan::read(&pod.manifest, geteuid().is_root()) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(&pod, &error),
        };
        if !plan.ignored.is_empty() {
            let ignored = plan.ignored.join(", ");
            tracing::warn!(uid = %pod.uid, namespace = pod.namespace, name = pod.name, ignored, "pod runs without fields that this node does not support");
        }
        let status = LocalPodStatus::new(PodPhase::Pending, "ContainerCreating", "");
        let view = TrackedPod::new(pod.uid, &pod.namespace, &pod.name, status);
        let (uid, status) = (view.uid, view.status.clone());
        self.context.recorder.began(&PodName { namespace: pod.namespace.clone(), name: pod.name.clone() }, uid);
        self.spawn_task(view, PodOrigin::Ordered(Box::new(self.context.record(pod)), plan.policy));
        self.context.lock().update(uid, status, false);
    }

    fn stop(&self, uid: PodUid, grace: Duration) {
        self.context.lock().request_stop(uid, grace);
    }

    fn kill(&self, uid: PodUid) {
        self.context.lock().request_stop(uid, Duration::ZERO);
    }

    fn stop_unrecorded(&self, pod: &PodName, uid: PodUid, grace: Duration) -> bool {
        if self.context.lock().pods.get(&uid).is_some_and(|pod| pod.view.stopped) {
            return false;
        }
        let status = LocalPodStatus::new(PodPhase::Unknown, "NoRecord", "");
        self.spawn_task(TrackedPod::new(uid, &pod.namespace, &pod.name, status), PodOrigin::Found);
        self.context.lock().request_stop(uid, grace);
        true
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        self.context.lock().pods.get(&uid).and_then(|pod| pod.view.pod_name())
    }

    fn recall(&self) -> RecalledNotes {
        self.context.ended_log.recall()
    }

    fn note(&self, note: DurableNote) {
        self.context.ended_log.note(note);
    }
}

/// How many pods that a process runtime started in this directory still run.
pub fn running_in(dir: &Path) -> usize {
    survey::count_running(&dir.join(PODS_DIR))
}

fn lock_directory(dir: &Path) -> Result<(File, PathBuf), RuntimeOpenError> {
    let io = |source| RuntimeOpenError::Io { path: dir.to_owned(), source };
    durable::private_dir(dir).map_err(io)?;
    let dir = dir.canonicalize().map_err(io)?;
    match durable::lock(&dir.join("lock")) {
        Ok(Some(held)) => Ok((held, dir)),
        Ok(None) => Err(RuntimeOpenError::InUse { path: dir }),
        Err(source) => Err(RuntimeOpenError::Io { path: dir, source }),
    }
}

fn prepare_cgroups() -> Option<CgroupRoot> {
    match CgroupRoot::prepare() {
        Ok(cgroup_root) if cgroup_root.missing().is_empty() => Some(cgroup_root),
        Ok(cgroup_root) => {
            let missing = cgroup_root.missing().join(", ");
            tracing::warn!(
                missing,
                "the machine does not offer these cgroup controllers: pods run without their limits"
            );
            Some(cgroup_root)
        }
        Err(why) => {
            tracing::warn!(why, "pods run without limits: give the agent a delegated cgroup (systemd: Delegate=yes)");
            None
        }
    }
}

// === impl RuntimeContext ===

impl RuntimeContext {
    fn lock(&self) -> MutexGuard<'_, PodTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dir(&self, uid: PodUid) -> PodDir {
        PodDir::new(&self.pods_dir, uid)
    }

    fn record(&self, pod: PodToStart) -> PodRecord {
        let uid = pod.uid.to_string();
        let config = &self.config;
        let cgroup = self.cgroup_root.as_ref().map(|cgroup_root| cgroup_root.settings(&uid, config.pod_pids_limit));
        PodRecord {
            uid,
            namespace: pod.namespace,
            name: pod.name,
            boot_id: config.boot_id.clone(),
            // The manifest was parsed before, so it is text.
            manifest: String::from_utf8_lossy(&pod.manifest).into_owned(),
            settings: ShimSettings { log_bytes: config.log_bytes, log_files: config.log_files, cgroup },
        }
    }

    fn health(&self) -> Result<(), RuntimeUnhealthy> {
        let probe = self.pods_dir.join(".writable");
        let written = durable::create_private(&probe).and_then(|_| std::fs::remove_file(&probe));
        written.map_err(|source| RuntimeUnhealthy::NotWritable { path: self.pods_dir.clone(), source })?;
        let shim = &self.config.shim;
        std::fs::metadata(shim).map_err(|source| RuntimeUnhealthy::NoShim { path: shim.clone(), source })?;
        Ok(())
    }

    /// Removes the oldest ended pods beyond the number to keep, but none whose end is not on disk yet.
    fn prune(&self) {
        for dir in survey::ended_oldest_first(&self.pods_dir, self.config.keep_ended) {
            let Some(uid) = survey::uid_of(&dir) else { continue };
            if self.lock().runs(uid) || !self.ended_log.has_on_disk(uid) {
                continue;
            }
            match std::fs::remove_dir_all(&dir) {
                Ok(()) => self.lock().pods.remove(&uid),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "cannot remove the directory of an ended pod");
                    None
                }
            };
        }
        let mut table = self.lock();
        let beyond = table.pods.len().saturating_sub(table.running() + self.config.keep_ended);
        let ended = table.pods.iter().filter(|(uid, pod)| pod.view.stopped && self.ended_log.has_on_disk(**uid));
        let forgotten: Vec<_> = ended.map(|(uid, _)| *uid).take(beyond).collect();
        forgotten.iter().for_each(|uid| drop(table.pods.remove(uid)));
    }
}

// === impl PodTable ===

impl PodTable {
    fn insert(&mut self, view: TrackedPod, stop_request: Option<watch::Sender<StopRequest>>) {
        self.pods.insert(view.uid, Pod { view, stop_request });
    }

    fn runs(&self, uid: PodUid) -> bool {
        self.pods.get(&uid).is_some_and(|pod| !pod.view.stopped)
    }

    fn running(&self) -> usize {
        self.pods.values().filter(|pod| !pod.view.stopped).count()
    }

    /// A later request counts only if it ends the pod sooner.
    fn request_stop(&mut self, uid: PodUid, grace: Duration) {
        if let Some(stop_request) = self.pods.get(&uid).and_then(|pod| pod.stop_request.as_ref()) {
            stop_request.send_modify(|stop_request| *stop_request = stop_request.no_later_than(grace));
        }
    }

    fn update(&mut self, uid: PodUid, status: LocalPodStatus, stopped: bool) {
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        (pod.view.status, pod.view.stopped) = (status.clone(), stopped);
        if stopped {
            pod.stop_request = None;
        }
        self.listener.tell(uid, status, stopped);
    }

    fn report_all(&self) {
        for TrackedPod { uid, status, stopped, .. } in self.pods.values().map(|pod| &pod.view) {
            self.listener.tell(*uid, status.clone(), *stopped);
        }
    }
}

// === impl TrackedPod ===

impl TrackedPod {
    fn new(uid: PodUid, namespace: &str, name: &str, status: LocalPodStatus) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { uid, namespace, name, status, stopped: false }
    }

    /// None: the pod's record cannot be read.
    fn pod_name(&self) -> Option<PodName> {
        let name = PodName { namespace: self.namespace.clone(), name: self.name.clone() };
        (!name.name.is_empty()).then_some(name)
    }
}
