//! Test bench: a process runtime in a directory of its own, with a listener.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use muster_node_agent::pods::{PodInbox, PodToStart, PodUid, PodUpdate, Runtime};
use muster_node_agent::process::{ProcessConfig, ProcessRuntime, SHIM_ARGUMENT};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Long enough for a machine that is busy with other things.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const HELPER: &str = env!("CARGO_BIN_EXE_muster-process-helper");

pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) config: ProcessConfig,
    pub(crate) runtime: Option<Arc<ProcessRuntime>>,
    pub(crate) inbox: Arc<PodInbox>,
    pub(crate) lost: bool,
    newest: BTreeMap<PodUid, PodUpdate>,
    uids: Vec<PodUid>,
}

/// Processes that a test left behind end with it.
impl Drop for Bench {
    fn drop(&mut self) {
        for uid in &self.uids {
            // The shim ends first, because it would restart a container that ended.
            if let Some(shim) = shim_of(&self.pod_dir(*uid)) {
                kill(shim);
            }
            processes_of(*uid).into_iter().for_each(kill);
        }
    }
}

impl Bench {
    /// A bench with a directory, but without a runtime.
    pub(crate) fn vacant() -> Self {
        let config =
            ProcessConfig { shim: HELPER.into(), log_bytes: 4096, ..ProcessConfig::of_this_machine().unwrap() };
        Self {
            dir: tempfile::tempdir().unwrap(),
            config,
            runtime: None,
            inbox: Arc::new(PodInbox::default()),
            lost: false,
            newest: BTreeMap::new(),
            uids: Vec::new(),
        }
    }

    pub(crate) async fn new() -> Self {
        let mut bench = Self::vacant();
        bench.open().await;
        bench
    }

    /// Opens the runtime as an agent that starts would. The tasks of an earlier one may hold the directory for a
    /// moment.
    pub(crate) async fn open(&mut self) {
        self.close();
        let mut opened = None;
        eventually("the directory is free", || {
            opened = ProcessRuntime::open(self.dir.path(), self.config.clone()).ok();
            opened.is_some()
        })
        .await;
        let runtime = opened.unwrap();
        runtime.report_to(self.inbox.sender(0));
        self.runtime = Some(runtime);
        self.hear();
    }

    /// The agent is gone; its pods still run.
    pub(crate) fn close(&mut self) {
        self.runtime = None;
        self.newest.clear();
        self.inbox.take();
    }

    pub(crate) fn runtime(&self) -> &ProcessRuntime {
        self.runtime.as_ref().unwrap()
    }

    /// A pod that no other test uses.
    pub(crate) fn uid(&mut self) -> PodUid {
        let uid = PodUid(rand::random());
        self.uids.push(uid);
        uid
    }

    pub(crate) fn start(&mut self, manifest: &Value) -> PodUid {
        let uid = self.uid();
        self.runtime().start(spec(uid, manifest));
        uid
    }

    pub(crate) fn pod_dir(&self, uid: PodUid) -> PathBuf {
        self.dir.path().join("pods").join(uid.to_string())
    }

    pub(crate) fn log(&self, uid: PodUid, container: &str) -> String {
        std::fs::read_to_string(self.pod_dir(uid).join(format!("logs/{container}.log"))).unwrap_or_default()
    }

    fn hear(&mut self) {
        for updates in self.inbox.take().into_values() {
            self.lost |= updates.lost;
            for (uid, news) in updates.pods {
                let known = self.newest.insert(uid, news);
                assert!(known.is_none_or(|known| !known.stopped), "an end is told once");
            }
        }
    }

    pub(crate) fn newest(&self, uid: PodUid) -> Option<&PodUpdate> {
        self.newest.get(&uid)
    }

    pub(crate) async fn until(&mut self, uid: PodUid, wanted: impl Fn(&PodUpdate) -> bool) -> PodUpdate {
        let end = Instant::now() + TIMEOUT;
        loop {
            self.hear();
            if let Some(news) = self.newest.get(&uid).filter(|news| wanted(news)) {
                return news.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            let inbox = Arc::clone(&self.inbox);
            assert!(timeout(left, inbox.arrived()).await.is_ok(), "last heard: {:?}", self.newest.get(&uid));
        }
    }

    pub(crate) async fn until_ready(&mut self, uid: PodUid) -> PodUpdate {
        self.until(uid, |news| news.status.ready).await
    }

    pub(crate) async fn until_stopped(&mut self, uid: PodUid) -> PodUpdate {
        self.until(uid, |news| news.stopped).await
    }

    /// The process of the pod's first container.
    pub(crate) fn pid(&self, uid: PodUid) -> Option<i32> {
        let state = std::fs::read(self.pod_dir(uid).join("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&state).ok()?;
        state["containers"][0]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
    }
}

pub(crate) fn spec(uid: PodUid, manifest: &Value) -> PodToStart {
    let (namespace, name) = ("default".to_owned(), "web".to_owned());
    PodToStart { namespace, name, uid, manifest: Bytes::from(manifest.to_string()) }
}

/// A pod of one container `c`.
pub(crate) fn shell(policy: &str, script: &str) -> Value {
    let container = json!({ "name": "c", "command": ["sh", "-c", script] });
    json!({ "metadata": { "name": "web" }, "spec": { "restartPolicy": policy, "containers": [container] } })
}

/// Processes whose environment names the pod, its shim apart.
pub(crate) fn processes_of(uid: PodUid) -> Vec<i32> {
    let mark = format!("MUSTER_POD_UID={uid}");
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_shim = arguments.split(|byte| *byte == 0).nth(1) == Some(SHIM_ARGUMENT.as_bytes());
        !is_shim && environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(marked).collect()
}

/// The process that was started to look after the pod of this directory.
pub(crate) fn shim_of(pod_dir: &Path) -> Option<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid| {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(2) == Some(pod_dir.as_os_str().as_encoded_bytes())
    })
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !so() {
        assert!(Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
