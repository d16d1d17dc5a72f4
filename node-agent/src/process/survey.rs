//! What an agent finds when it starts: which pods run, which ended while nobody looked, which were lost.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::PodView;
use super::dir::PodDir;
use super::durable;
use super::record::{Record, State};
use crate::pods::{Phase, PodStatus, PodUid};

/// A pod of an earlier agent.
#[derive(Debug)]
pub(super) enum Found {
    /// Of which something may run.
    Running {
        view: PodView,
    },
    Ended {
        view: PodView,
    },
}

#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) found: Vec<Found>,
    pub(super) rebooted: bool,
}

/// What a directory says of its pod.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Runs,
    Ended,
    /// It ran when the machine went down, and must not run again.
    Lost,
    /// It ran when the machine went down, and may be started again, as after any other end of its processes.
    Interrupted,
    NeverStarted,
}

/// Pods are found by their directories. Of one that says nothing sensible something may run nevertheless.
pub(super) fn survey(pods_dir: &Path, boot_id: &str) -> io::Result<Survey> {
    let mut survey = Survey::default();
    for entry in std::fs::read_dir(pods_dir)? {
        let path = entry?.path();
        let Some(uid) = uid_of(&path) else { continue };
        match look(uid, &PodDir::at(&path), boot_id) {
            Ok(Some((verdict, view))) => survey.add(verdict, view),
            Ok(None) => discard(&path),
            Err(error) => {
                tracing::error!(dir = %path.display(), %error, "what is written of a pod cannot be read");
                survey.add(Verdict::Runs, PodView::new(uid, "", "", PodStatus::new(Phase::Unknown, "", "")));
            }
        }
    }
    Ok(survey)
}

// === impl Survey ===

impl Survey {
    fn add(&mut self, verdict: Verdict, view: PodView) {
        match verdict {
            Verdict::Runs => self.found.push(Found::Running { view }),
            Verdict::Ended => self.found.push(Found::Ended { view }),
            Verdict::Lost => {
                self.rebooted = true;
                self.found.push(Found::Ended { view });
            }
            Verdict::Interrupted => self.rebooted = true,
            Verdict::NeverStarted => {}
        }
    }
}

/// None: nothing of it was ever started, and nothing will be.
fn look(uid: PodUid, dir: &PodDir, boot_id: &str) -> io::Result<Option<(Verdict, PodView)>> {
    let held = durable::lock(&dir.lock())?;
    let Some(record) = Record::read(&dir.record())? else { return Ok(None) };
    // A state that cannot be read is no end: what may run is to be looked for.
    let state = State::read(&dir.state()).unwrap_or_else(|error| {
        tracing::warn!(%uid, %error, "the state of a pod cannot be read");
        Some(State::new(&PodStatus::new(Phase::Unknown, "", ""), false, Vec::new()))
    });
    let verdict = judge(&record, state.as_ref(), held.is_some(), boot_id);
    let mut status = state.as_ref().map_or_else(|| PodStatus::new(Phase::Pending, "", ""), State::status);
    match verdict {
        Verdict::Runs | Verdict::Ended => {}
        Verdict::Lost => {
            let lost = PodStatus::new(Phase::Failed, "Rebooted", "the machine went down while it ran");
            status = PodStatus { restarts: status.restarts, ..lost };
            State::new(&status, true, Vec::new()).write(&dir.state())?;
        }
        // It is not to be found again; its logs are kept until it is started once more, or the agent is.
        Verdict::Interrupted => std::fs::remove_file(dir.state()).and_then(|()| std::fs::remove_file(dir.record()))?,
        Verdict::NeverStarted => {
            // Under its lock, so that a shim that was about to begin finds nothing to do.
            std::fs::remove_file(dir.record())?;
            return Ok(None);
        }
    }
    Ok(Some((verdict, PodView::new(uid, &record.namespace, &record.name, status))))
}

/// `free`: no shim holds the pod's lock.
fn judge(record: &Record, state: Option<&State>, free: bool, boot_id: &str) -> Verdict {
    let runs_once = || {
        let manifest: serde_json::Value = serde_json::from_str(&record.manifest).unwrap_or_default();
        manifest["spec"]["restartPolicy"] == "Never"
    };
    match state {
        // The machine was shut down in an orderly way, which is not the pod's end.
        Some(state) if state.by_signal && record.boot_id != boot_id && !runs_once() => Verdict::Interrupted,
        Some(state) if state.over => Verdict::Ended,
        None if free => Verdict::NeverStarted,
        Some(_) if record.boot_id != boot_id && runs_once() => Verdict::Lost,
        Some(_) if record.boot_id != boot_id => Verdict::Interrupted,
        Some(_) | None => Verdict::Runs,
    }
}

/// How many pods have a shim that lives.
pub(super) fn count_running(pods_dir: &Path) -> usize {
    let entries = std::fs::read_dir(pods_dir).into_iter().flatten().flatten();
    let locks = entries.map(|entry| PodDir::at(&entry.path()).lock()).filter(|lock| lock.exists());
    locks.filter(|lock| matches!(durable::lock(lock), Ok(None))).count()
}

fn discard(dir: &Path) {
    tracing::info!(dir = %dir.display(), "nothing of a pod was started by the agent that was to; it is forgotten");
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "what is left of a pod cannot be removed");
    }
}

pub(super) fn uid_of(dir: &Path) -> Option<PodUid> {
    dir.file_name().and_then(|name| name.to_str()).and_then(PodUid::parse)
}

/// The directories of pods that ended, without the newest `kept`.
pub(super) fn ended_oldest_first(pods_dir: &Path, kept: usize) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pods_dir).into_iter().flatten().flatten();
    let mut ended: Vec<(SystemTime, PathBuf)> = entries.filter_map(|entry| ended_at(&entry.path())).collect();
    ended.sort();
    ended.truncate(ended.len().saturating_sub(kept));
    ended.into_iter().map(|(_, dir)| dir).collect()
}

fn ended_at(dir: &Path) -> Option<(SystemTime, PathBuf)> {
    let state = PodDir::at(dir).state();
    let over = State::read(&state).ok().flatten().is_some_and(|state| state.over);
    let written = std::fs::metadata(&state).and_then(|metadata| metadata.modified()).ok()?;
    over.then(|| (written, dir.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::record::Settings;
    use super::*;

    fn record(policy: &str, boot_id: &str) -> Record {
        Record {
            uid: PodUid(7).to_string(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            boot_id: boot_id.to_owned(),
            manifest: format!(r#"{{"spec":{{"restartPolicy":"{policy}"}}}}"#),
            settings: Settings { log_bytes: 1, log_files: 1, cgroup: None },
        }
    }

    /// systemd ends whatever is left with a signal before it turns off the machine.
    #[test]
    fn an_orderly_shutdown_is_not_the_end_of_a_pod_that_may_be_restarted() {
        let ended = State { by_signal: true, ..state(true) };
        for (policy, boot, wanted) in [
            ("Always", "before", Verdict::Interrupted),
            ("Never", "before", Verdict::Ended),
            ("Always", "now", Verdict::Ended),
        ] {
            assert_eq!(judge(&record(policy, boot), Some(&ended), true, "now"), wanted, "{policy} {boot}");
        }
    }

    fn state(over: bool) -> State {
        State::new(&PodStatus::ready(), over, Vec::new())
    }

    #[test]
    fn a_pod_is_judged_by_its_record_its_state_and_its_shims_lock() {
        let (held, free) = (false, true);
        let table = [
            ("Always", "now", None, held, Verdict::Runs),
            ("Always", "now", None, free, Verdict::NeverStarted),
            ("Always", "now", Some(false), held, Verdict::Runs),
            ("Always", "now", Some(false), free, Verdict::Runs),
            ("Always", "now", Some(true), free, Verdict::Ended),
            ("Always", "before", Some(true), free, Verdict::Ended),
            ("Always", "before", Some(false), free, Verdict::Interrupted),
            ("OnFailure", "before", Some(false), free, Verdict::Interrupted),
            ("Never", "before", Some(false), free, Verdict::Lost),
            ("Never", "before", None, free, Verdict::NeverStarted),
        ];
        for (policy, boot_id, over, lock, verdict) in table {
            let state = over.map(state);
            let judged = judge(&record(policy, boot_id), state.as_ref(), lock, "now");
            assert_eq!(judged, verdict, "{policy} {boot_id} {over:?} {lock}");
        }
    }
}
