//! Pods as plain processes of this machine, or as mere records.
//!
//! ```text
//!   Workload --start, stop, kill--> ProcessRuntime --one task per pod (Keeper)--> shim of the pod --> its processes
//!      ^------------- News <------------|  |                                          |
//!                                       |  +-- memory      ended uids, orders         +-- pods/UID/state.json, logs/
//!                                       +-- pods/UID/record.json, before anything runs
//! ```
//!
//! Each pod has a [shim](shim_main): a small process that outlives the agent. An agent that starts finds the pods by
//! their directories and the shims by the locks they hold, never by the numbers of processes, and goes on listening.
//! Everything is private to the agent's user (0700, 0600).

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

use crate::pods::{Listener, News, Note, Phase, PodName, PodSpec, PodStatus, PodUid, Recollection, Runtime};

use cgroup::Nest;
use dir::PodDir;
use keeper::{Keeper, Origin, Wish};
use manifest::PodPlan;
use memory::Memory;
use record::{Record, Settings};
use survey::Found;

pub use records::RecordRuntime;
pub use shim::{SHIM_ARGUMENT, shim_main};

mod cgroup;
mod core;
mod dir;
mod durable;
mod expansion;
mod keeper;
mod kin;
mod manifest;
mod memory;
mod record;
mod records;
mod shim;
mod survey;

/// What a kubelet allows a container's log.
const LOG_BYTES: u64 = 10 << 20;
const LOG_FILES: u32 = 3;
const KEEP_ENDED: usize = 10;
const PODS_DIR: &str = "pods";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// What to run as a pod's shim: an executable whose `main` begins with [`shim_main`].
    pub shim: PathBuf,
    /// Of the machine's present boot: what was started in another is gone.
    pub boot_id: String,
    /// How large a container's log grows before it is rotated, and how many of them there are.
    pub log_bytes: u64,
    pub log_files: u32,
    /// How many pods that ended keep their directories, for the sake of their logs.
    pub keep_ended: usize,
    /// Whether to use control groups, if the machine allows it.
    pub cgroups: bool,
    /// How many processes a pod may have.
    pub pod_pids_limit: Option<u64>,
}

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{path}: another agent uses this directory: stop it, or give each agent its own --state-dir")]
    InUse { path: PathBuf },
    #[error("{path}: {source}: the agent must be able to write there")]
    Io { path: PathBuf, source: io::Error },
}

/// Why no pod could be started at this moment.
#[derive(Debug, Error)]
pub enum Unhealthy {
    #[error("nothing can be written to {path}: {source}")]
    NotWritable { path: PathBuf, source: io::Error },
    #[error("{path}, which runs pods, is not there: {source}")]
    NoShim { path: PathBuf, source: io::Error },
}

/// A pod, as its runtime sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodView {
    uid: PodUid,
    namespace: String,
    name: String,
    status: PodStatus,
    stopped: bool,
}

/// Runs pods as processes. Dropping it leaves them running: the next one finds them.
#[derive(Debug)]
pub struct ProcessRuntime {
    ground: Arc<Ground>,
    /// Pods that an earlier agent left, until somebody is there to be told.
    found: Mutex<Vec<Found>>,
    /// Everything that ran was lost when the machine was booted.
    rebooted: bool,
    /// The tasks of all pods end with this.
    tasks: DropGuard,
}

/// What the tasks of all pods share.
#[derive(Debug)]
struct Ground {
    pods_dir: PathBuf,
    config: ProcessConfig,
    nest: Option<Nest>,
    memory: Memory,
    yard: Mutex<Yard>,
    /// One agent per directory.
    _held: File,
}

#[derive(Debug, Default)]
struct Yard {
    listener: Listener,
    pods: BTreeMap<PodUid, Pod>,
}

#[derive(Debug)]
struct Pod {
    view: PodView,
    /// None: it has no keeper, since it has ended.
    wish: Option<watch::Sender<Wish>>,
}

// === impl ProcessConfig ===

impl ProcessConfig {
    /// For this machine, with this very executable as the shim.
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
    /// Reads what earlier agents left in this directory, and makes what is missing.
    pub fn open(dir: &Path, config: ProcessConfig) -> Result<Arc<Self>, OpenError> {
        let (held, dir) = occupy(dir)?;
        let pods_dir = dir.join(PODS_DIR);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Io { path, source }
        };
        durable::private_dir(&pods_dir).map_err(at(&pods_dir))?;
        let memory_path = dir.join("memory");
        let memory = Memory::open(memory_path.clone()).map_err(at(&memory_path))?;
        let survey = survey::survey(&pods_dir, &config.boot_id).map_err(at(&pods_dir))?;
        let nest = config.cgroups.then(prepare_cgroups).flatten();
        let yard = Mutex::new(Yard::default());
        let ground = Arc::new(Ground { pods_dir, config, nest, memory, yard, _held: held });
        Ok(Arc::new(Self {
            ground,
            found: Mutex::new(survey.found),
            rebooted: survey.rebooted,
            tasks: CancellationToken::new().drop_guard(),
        }))
    }

    /// Whether pods could be started: what Ready depends on.
    pub fn health(&self) -> Result<(), Unhealthy> {
        self.ground.health()
    }

    fn refuse(&self, pod: &PodSpec, error: &manifest::Unsupported) {
        let (namespace, name) = (pod.namespace.as_str(), pod.name.as_str());
        tracing::warn!(namespace, name, uid = %pod.uid, %error, "a pod cannot be run by this node and has failed");
        let status = PodStatus::new(Phase::Failed, "Unsupported", &error.to_string());
        let mut yard = self.ground.lock();
        yard.enter(PodView::new(pod.uid, &pod.namespace, &pod.name, status.clone()), None);
        yard.tell(pod.uid, status, true);
    }

    fn keep(&self, view: PodView, origin: Origin) {
        let (wish, wished) = watch::channel(Wish::default());
        let uid = view.uid;
        let keeper = Keeper::new(Arc::clone(&self.ground), uid, wished);
        self.ground.lock().enter(view, Some(wish));
        let closed = self.tasks.token().clone();
        tokio::spawn(async move { closed.run_until_cancelled(keeper.run(origin)).await });
    }

    fn adopt(&self, found: Found) {
        match found {
            Found::Running { view } => {
                tracing::info!(uid = %view.uid, namespace = view.namespace, name = view.name, "a running pod is adopted");
                self.keep(view, Origin::Found);
            }
            Found::Ended { view } => self.ground.lock().enter(PodView { stopped: true, ..view }, None),
        }
    }
}

impl Runtime for ProcessRuntime {
    fn report_to(&self, news: News) {
        let is_first = self.ground.lock().listener.listen(news);
        if self.rebooted && is_first {
            tracing::warn!("the machine was booted: the pods that ran before are lost");
            self.ground.lock().listener.lose_all();
        }
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.into_iter().for_each(|found| self.adopt(found));
        self.ground.lock().tell_all();
    }

    fn start(&self, pod: PodSpec) {
        let known = self.ground.lock().pods.get(&pod.uid).is_some_and(|pod| !pod.view.stopped);
        if known {
            return;
        }
        let plan = match PodPlan::read(&pod.manifest, geteuid().is_root()) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(&pod, &error),
        };
        if !plan.ignored.is_empty() {
            let ignored = plan.ignored.join(", ");
            tracing::warn!(uid = %pod.uid, namespace = pod.namespace, name = pod.name, ignored, "a pod runs without these");
        }
        let status = PodStatus::new(Phase::Pending, "ContainerCreating", "");
        let view = PodView::new(pod.uid, &pod.namespace, &pod.name, status);
        let (uid, status) = (view.uid, view.status.clone());
        self.keep(view, Origin::Ordered(Box::new(self.ground.record(pod)), plan.policy));
        self.ground.lock().tell(uid, status, false);
    }

    fn stop(&self, uid: PodUid, grace: Duration) {
        self.ground.lock().wish(uid, grace);
    }

    fn kill(&self, uid: PodUid) {
        self.ground.lock().wish(uid, Duration::ZERO);
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        self.ground.lock().pods.get(&uid).and_then(|pod| pod.view.pod_name())
    }

    fn recall(&self) -> Recollection {
        self.ground.memory.recall()
    }

    fn note(&self, note: Note) {
        self.ground.memory.note(note);
    }
}

/// How many of the pods that a process runtime started in this directory still run.
pub fn running_in(dir: &Path) -> usize {
    survey::count_running(&dir.join(PODS_DIR))
}

fn occupy(dir: &Path) -> Result<(File, PathBuf), OpenError> {
    let io = |source| OpenError::Io { path: dir.to_owned(), source };
    durable::private_dir(dir).map_err(io)?;
    let dir = dir.canonicalize().map_err(io)?;
    match durable::lock(&dir.join("lock")) {
        Ok(Some(held)) => Ok((held, dir)),
        Ok(None) => Err(OpenError::InUse { path: dir }),
        Err(source) => Err(OpenError::Io { path: dir, source }),
    }
}

fn prepare_cgroups() -> Option<Nest> {
    match Nest::prepare() {
        Ok(nest) if nest.missing().is_empty() => Some(nest),
        Ok(nest) => {
            let missing = nest.missing().join(", ");
            tracing::warn!(missing, "the machine lets this agent limit pods only in part");
            Some(nest)
        }
        Err(why) => {
            tracing::warn!(why, "pods run without limits: give the agent a delegated cgroup (systemd: Delegate=yes)");
            None
        }
    }
}

// === impl Ground ===

impl Ground {
    fn lock(&self) -> MutexGuard<'_, Yard> {
        self.yard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dir(&self, uid: PodUid) -> PodDir {
        PodDir::new(&self.pods_dir, uid)
    }

    fn record(&self, pod: PodSpec) -> Record {
        let uid = pod.uid.to_string();
        let config = &self.config;
        let cgroup = self.nest.as_ref().map(|nest| nest.settings(&uid, config.pod_pids_limit));
        Record {
            uid,
            namespace: pod.namespace,
            name: pod.name,
            boot_id: config.boot_id.clone(),
            // It was read before, so that it is text.
            manifest: String::from_utf8_lossy(&pod.manifest).into_owned(),
            settings: Settings { log_bytes: config.log_bytes, log_files: config.log_files, cgroup },
        }
    }

    fn health(&self) -> Result<(), Unhealthy> {
        let probe = self.pods_dir.join(".writable");
        let written = durable::create_private(&probe).and_then(|_| std::fs::remove_file(&probe));
        written.map_err(|source| Unhealthy::NotWritable { path: self.pods_dir.clone(), source })?;
        let shim = &self.config.shim;
        std::fs::metadata(shim).map_err(|source| Unhealthy::NoShim { path: shim.clone(), source })?;
        Ok(())
    }

    /// Removes what ended longest ago, beyond the number to keep; never what a restart would not know to have ended.
    fn prune(&self) {
        for dir in survey::ended_oldest_first(&self.pods_dir, self.config.keep_ended) {
            let Some(uid) = survey::uid_of(&dir) else { continue };
            if self.lock().runs(uid) || !self.memory.has_on_disk(uid) {
                continue;
            }
            match std::fs::remove_dir_all(&dir) {
                Ok(()) => self.lock().pods.remove(&uid),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %error, "what is left of a pod cannot be removed");
                    None
                }
            };
        }
        let mut yard = self.lock();
        let beyond = yard.pods.len().saturating_sub(yard.running() + self.config.keep_ended);
        let ended = yard.pods.iter().filter(|(uid, pod)| pod.view.stopped && self.memory.has_on_disk(**uid));
        let forgotten: Vec<_> = ended.map(|(uid, _)| *uid).take(beyond).collect();
        forgotten.iter().for_each(|uid| drop(yard.pods.remove(uid)));
    }
}

// === impl Yard ===

impl Yard {
    fn enter(&mut self, view: PodView, wish: Option<watch::Sender<Wish>>) {
        self.pods.insert(view.uid, Pod { view, wish });
    }

    fn runs(&self, uid: PodUid) -> bool {
        self.pods.get(&uid).is_some_and(|pod| !pod.view.stopped)
    }

    fn running(&self) -> usize {
        self.pods.values().filter(|pod| !pod.view.stopped).count()
    }

    /// A later wish only counts if it is for an earlier end.
    fn wish(&mut self, uid: PodUid, grace: Duration) {
        if let Some(wish) = self.pods.get(&uid).and_then(|pod| pod.wish.as_ref()) {
            wish.send_modify(|wish| *wish = wish.sooner(grace));
        }
    }

    fn tell(&mut self, uid: PodUid, status: PodStatus, stopped: bool) {
        let Some(pod) = self.pods.get_mut(&uid) else { return };
        (pod.view.status, pod.view.stopped) = (status.clone(), stopped);
        if stopped {
            pod.wish = None;
        }
        self.listener.tell(uid, status, stopped);
    }

    fn tell_all(&self) {
        for PodView { uid, status, stopped, .. } in self.pods.values().map(|pod| &pod.view) {
            self.listener.tell(*uid, status.clone(), *stopped);
        }
    }
}

// === impl PodView ===

impl PodView {
    fn new(uid: PodUid, namespace: &str, name: &str, status: PodStatus) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { uid, namespace, name, status, stopped: false }
    }

    /// None: what was written of it cannot be read.
    fn pod_name(&self) -> Option<PodName> {
        let name = PodName { namespace: self.namespace.clone(), name: self.name.clone() };
        (!name.name.is_empty()).then_some(name)
    }
}
