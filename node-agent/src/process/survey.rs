//! Survey at the start of an agent: which pods run, which ended meanwhile, and which were lost.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::TrackedPod;
use super::dir::PodDir;
use super::pod_files::{PodRecord, ShimState};
use crate::durable;
use crate::pods::{LocalPodStatus, PodName, PodPhase, PodUid};

/// A pod of an earlier agent.
#[derive(Debug)]
pub(super) enum Found {
    /// Something of it may run.
    Running {
        view: TrackedPod,
    },
    Ended {
        view: TrackedPod,
    },
}

impl Found {
    /// A pod whose directory is lost while it runs.
    pub(super) fn unrecorded((uid, name): (&PodUid, &Option<PodName>)) -> Self {
        tracing::warn!(%uid, ?name, "a pod runs whose directory is lost");
        let (namespace, name) = name.as_ref().map_or(("", ""), |name| (name.namespace.as_str(), name.name.as_str()));
        let status = LocalPodStatus::new(PodPhase::Unknown, "NoRecord", "its directory on the node is lost");
        Self::Running { view: TrackedPod::new(*uid, namespace, name, status) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) found: Vec<Found>,
    pub(super) rebooted: bool,
}

/// What a directory shows about its pod.
#[derive(Debug, PartialEq, Eq)]
enum SurveyResult {
    Runs,
    Ended,
    /// It ran when the machine went down, and must not run again.
    Lost,
    /// It ran when the machine went down, and may start again like after any other end of its processes.
    Interrupted,
    NeverStarted,
}

/// Finds pods by their directories. A directory that cannot be read counts as a running pod.
pub(super) fn survey(pods_dir: &Path, boot_id: &str) -> io::Result<Survey> {
    let mut survey = Survey::default();
    for entry in std::fs::read_dir(pods_dir)? {
        let path = entry?.path();
        let Some(uid) = uid_of(&path) else { continue };
        match look(uid, &PodDir::at(&path), boot_id) {
            Ok(Some((found, view))) => survey.add(found, view),
            Ok(None) => discard(&path),
            Err(error) => {
                tracing::error!(dir = %path.display(), %error, "cannot read the files of a pod");
                survey.add(
                    SurveyResult::Runs,
                    TrackedPod::new(uid, "", "", LocalPodStatus::new(PodPhase::Unknown, "", "")),
                );
            }
        }
    }
    Ok(survey)
}

// === impl Survey ===

impl Survey {
    fn add(&mut self, found: SurveyResult, view: TrackedPod) {
        match found {
            SurveyResult::Runs => self.found.push(Found::Running { view }),
            SurveyResult::Ended => self.found.push(Found::Ended { view }),
            SurveyResult::Lost => {
                self.rebooted = true;
                self.found.push(Found::Ended { view });
            }
            SurveyResult::Interrupted => self.rebooted = true,
            SurveyResult::NeverStarted => {}
        }
    }
}

/// None: nothing of it ever started, and nothing will.
fn look(uid: PodUid, dir: &PodDir, boot_id: &str) -> io::Result<Option<(SurveyResult, TrackedPod)>> {
    let held = durable::lock(&dir.lock())?;
    let Some(record) = PodRecord::read(&dir.record())? else { return Ok(None) };
    // An unreadable state is not an end: processes of the pod may run.
    let state = ShimState::read(&dir.state()).unwrap_or_else(|error| {
        tracing::warn!(%uid, %error, "cannot read the state of a pod");
        Some(ShimState::new(&LocalPodStatus::new(PodPhase::Unknown, "", ""), false, Vec::new()))
    });
    let found = classify(&record, state.as_ref(), held.is_some(), boot_id);
    let mut status = state.as_ref().map_or_else(|| LocalPodStatus::new(PodPhase::Pending, "", ""), ShimState::status);
    match found {
        SurveyResult::Runs | SurveyResult::Ended => {}
        SurveyResult::Lost => {
            let lost = LocalPodStatus::new(PodPhase::Failed, "Rebooted", "the machine went down while it ran");
            status = LocalPodStatus { restarts: status.restarts, ..lost };
            ShimState::new(&status, true, Vec::new()).write(&dir.state())?;
        }
        // The next survey must not find it; its logs are kept until it or the agent starts again.
        SurveyResult::Interrupted => {
            std::fs::remove_file(dir.state()).and_then(|()| std::fs::remove_file(dir.record()))?
        }
        SurveyResult::NeverStarted => {
            // The lock is held, so a shim that was about to start finds no record.
            std::fs::remove_file(dir.record())?;
            return Ok(None);
        }
    }
    Ok(Some((found, TrackedPod::new(uid, &record.namespace, &record.name, status))))
}

/// `free`: no shim holds the pod's lock.
fn classify(record: &PodRecord, state: Option<&ShimState>, free: bool, boot_id: &str) -> SurveyResult {
    let runs_once = || {
        let manifest: serde_json::Value = serde_json::from_str(&record.manifest).unwrap_or_default();
        manifest["spec"]["restartPolicy"] == "Never"
    };
    match state {
        // An orderly shutdown of the machine is not the pod's end.
        Some(state) if state.by_signal && record.boot_id != boot_id && !runs_once() => SurveyResult::Interrupted,
        Some(state) if state.over => SurveyResult::Ended,
        None if free => SurveyResult::NeverStarted,
        Some(_) if record.boot_id != boot_id && runs_once() => SurveyResult::Lost,
        Some(_) if record.boot_id != boot_id => SurveyResult::Interrupted,
        Some(_) | None => SurveyResult::Runs,
    }
}

/// The number of pods with a live shim.
pub(super) fn count_running(pods_dir: &Path) -> usize {
    let entries = std::fs::read_dir(pods_dir).into_iter().flatten().flatten();
    let locks = entries.map(|entry| PodDir::at(&entry.path()).lock()).filter(|lock| lock.exists());
    locks.filter(|lock| matches!(durable::lock(lock), Ok(None))).count()
}

fn discard(dir: &Path) {
    tracing::info!(dir = %dir.display(), "a pod was recorded and never started: its directory is removed");
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove the directory of a pod");
    }
}

pub(super) fn uid_of(dir: &Path) -> Option<PodUid> {
    dir.file_name().and_then(|name| name.to_str()).and_then(PodUid::parse)
}

/// The directories of ended pods, without the newest `kept`.
pub(super) fn ended_oldest_first(pods_dir: &Path, kept: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pods_dir).into_iter().flatten().flatten();
    let mut ended: Vec<(SystemTime, PathBuf)> = entries.filter_map(|entry| ended_at(&entry.path())).collect();
    ended.sort();
    ended.truncate(ended.len().saturating_sub(kept));
    ended.into_iter().map(|(_, dir)| dir).collect()
}

fn ended_at(dir: &Path) -> Option<(SystemTime, PathBuf)> {
    let state = PodDir::at(dir).state();
    let over = ShimState::read(&state).ok().flatten().is_some_and(|state| state.over);
    let written = std::fs::metadata(&state).and_then(|metadata| metadata.modified()).ok()?;
    over.then(|| (written, dir.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::pod_files::ShimSettings;
    use super::*;

    fn record(policy: &str, boot_id: &str) -> PodRecord {
        PodRecord {
            uid: PodUid(7).to_string(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            boot_id: boot_id.to_owned(),
            manifest: format!(r#"{{"spec":{{"restartPolicy":"{policy}"}}}}"#),
            settings: ShimSettings { log_bytes: 1, log_files: 1, cgroup: None },
        }
    }

    /// systemd ends the remaining processes with a signal before it turns off the machine.
    #[test]
    fn an_orderly_shutdown_does_not_end_a_pod_that_may_be_restarted() {
        let ended = ShimState { by_signal: true, ..state(true) };
        for (policy, boot, wanted) in [
            ("Always", "before", SurveyResult::Interrupted),
            ("Never", "before", SurveyResult::Ended),
            ("Always", "now", SurveyResult::Ended),
        ] {
            assert_eq!(classify(&record(policy, boot), Some(&ended), true, "now"), wanted, "{policy} {boot}");
        }
    }

    fn state(over: bool) -> ShimState {
        ShimState::new(&LocalPodStatus::ready(), over, Vec::new())
    }

    #[test]
    fn the_fate_of_a_pod_follows_from_record_state_and_lock() {
        let (held, free) = (false, true);
        let table = [
            ("Always", "now", None, held, SurveyResult::Runs),
            ("Always", "now", None, free, SurveyResult::NeverStarted),
            ("Always", "now", Some(false), held, SurveyResult::Runs),
            ("Always", "now", Some(false), free, SurveyResult::Runs),
            ("Always", "now", Some(true), free, SurveyResult::Ended),
            ("Always", "before", Some(true), free, SurveyResult::Ended),
            ("Always", "before", Some(false), free, SurveyResult::Interrupted),
            ("OnFailure", "before", Some(false), free, SurveyResult::Interrupted),
            ("Never", "before", Some(false), free, SurveyResult::Lost),
            ("Never", "before", None, free, SurveyResult::NeverStarted),
        ];
        for (policy, boot_id, over, lock, found) in table {
            let state = over.map(state);
            let judged = classify(&record(policy, boot_id), state.as_ref(), lock, "now");
            assert_eq!(judged, found, "{policy} {boot_id} {over:?} {lock}");
        }
    }
}
