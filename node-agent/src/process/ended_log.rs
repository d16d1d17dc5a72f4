//! Log of ended pods and orders: what must outlive the agent's process beside the pods themselves.
//!
//! The file has a line with a checksum and a line of JSON, and is replaced as a whole. Callers do not wait: a separate
//! thread writes the newest contents. A damaged file is moved aside: an agent that refuses to start would be worse,
//! and the file matters only in rare cases.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::durable::{self, Durability, with_suffix};
use crate::pods::{DurableNote, ENDED_PODS_MAX, LocalPodStatus, PodPhase, PodUid, RecalledNotes};

const FILE_BYTES_MAX: u64 = 16 << 20;
/// How much of the message of an ended pod is kept.
const MESSAGE_MAX: usize = 256;
/// Pause after a failed write, for example on a full disk.
const RETRY: Duration = Duration::from_secs(1);

/// Dropping it waits until everything is written.
#[derive(Debug)]
pub(super) struct EndedLog {
    file: Arc<LogFile>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    contents: Contents,
    /// The number of changes, and how many of them are on disk.
    changes: u64,
    saved: u64,
    closing: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    fleet: String,
    revision: u64,
    /// The oldest first.
    ended: VecDeque<EndedPod>,
    /// Pods of `--runtime none`.
    #[serde(default)]
    kept: Vec<KeptPod>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct EndedPod {
    uid: String,
    phase: String,
    restarts: u32,
    reason: String,
    message: String,
    /// The number of the change that added it; 0 if an earlier process did.
    #[serde(skip)]
    change: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptPod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

// === impl EndedLog ===

impl EndedLog {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let contents = match load(&path) {
            Ok(contents) => contents,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => move_aside(&path, &error)?,
            Err(error) => return Err(error),
        };
        let state = Mutex::new(LogState { contents, ..LogState::default() });
        let file = Arc::new(LogFile { path, state, changed: Condvar::new() });
        let writing = Arc::clone(&file);
        let writer = std::thread::Builder::new().name("ended-log".to_owned()).spawn(move || writing.write())?;
        Ok(Self { file, writer: Some(writer) })
    }

    pub(super) fn recall(&self) -> RecalledNotes {
        let state = self.file.lock();
        let Contents { fleet, revision, ended, .. } = &state.contents;
        let ended = ended.iter().filter_map(|pod| Some((PodUid::parse(&pod.uid)?, pod.status()))).collect();
        RecalledNotes { fleet: fleet.clone(), revision: *revision, ended }
    }

    pub(super) fn note(&self, note: DurableNote) {
        self.change(|contents, change| match note {
            DurableNote::Ended { uid, status } => contents.end(uid, &status, change),
            DurableNote::Orders { fleet, revision } => (contents.fleet, contents.revision) = (fleet, revision),
        });
    }

    /// Whether the end of this pod is on disk.
    pub(super) fn has_on_disk(&self, uid: PodUid) -> bool {
        let state = self.file.lock();
        let uid = uid.to_string();
        state.contents.ended.iter().any(|pod| pod.uid == uid && pod.change <= state.saved)
    }

    pub(super) fn kept(&self) -> Vec<KeptPod> {
        self.file.lock().contents.kept.clone()
    }

    pub(super) fn keep(&self, pod: KeptPod) {
        self.change(|contents, _| {
            contents.kept.retain(|kept| kept.uid != pod.uid);
            contents.kept.push(pod);
        });
    }

    pub(super) fn let_go(&self, uid: PodUid) {
        let uid = uid.to_string();
        self.change(|contents, _| contents.kept.retain(|kept| kept.uid != uid));
    }

    /// Applies a change, which is given its number.
    fn change(&self, change: impl FnOnce(&mut Contents, u64)) {
        let mut state = self.file.lock();
        state.changes += 1;
        let number = state.changes;
        change(&mut state.contents, number);
        self.file.changed.notify_all();
    }
}

impl Drop for EndedLog {
    fn drop(&mut self) {
        self.file.lock().closing = true;
        self.file.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has already reported it.
            let _ = writer.join();
        }
    }
}

// === impl LogFile ===

impl LogFile {
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the log is closed and everything is on disk, or a write fails while closing.
    fn write(&self) {
        let mut failed = false;
        while let Some((contents, changes)) = self.next(failed) {
            let written = save(&self.path, &contents);
            if let Err(error) = &written
                && !failed
            {
                tracing::error!(path = %self.path.display(), %error, "cannot write the log of ended pods; trying again");
            }
            failed = written.is_err();
            let mut state = self.lock();
            match written {
                Ok(()) => state.saved = changes,
                Err(_) if state.closing => return,
                Err(_) => {}
            }
        }
    }

    fn next(&self, failed: bool) -> Option<(Contents, u64)> {
        let mut state = self.lock();
        if failed {
            let pause = self.changed.wait_timeout_while(state, RETRY, |state| !state.closing);
            state = pause.unwrap_or_else(PoisonError::into_inner).0;
        }
        let idle = |state: &mut LogState| state.saved == state.changes && !state.closing;
        state = self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        (state.saved != state.changes).then(|| (state.contents.clone(), state.changes))
    }
}

// === impl Contents ===

impl Contents {
    fn end(&mut self, uid: PodUid, status: &LocalPodStatus, change: u64) {
        let uid = uid.to_string();
        self.ended.retain(|pod| pod.uid != uid);
        let message = status.message.chars().take(MESSAGE_MAX).collect();
        let (phase, reason) = (status.phase.as_str().to_owned(), status.reason.clone());
        self.ended.push_back(EndedPod { uid, phase, restarts: status.restarts, reason, message, change });
        if self.ended.len() > ENDED_PODS_MAX {
            self.ended.pop_front();
        }
    }
}

// === impl EndedPod ===

impl EndedPod {
    fn status(&self) -> LocalPodStatus {
        let phase = self.phase.parse().unwrap_or(PodPhase::Failed);
        LocalPodStatus { restarts: self.restarts, ..LocalPodStatus::new(phase, &self.reason, &self.message) }
    }
}

fn save(path: &Path, contents: &Contents) -> io::Result<()> {
    let body = serde_json::to_string(contents)?;
    let text = format!("{}\n{body}\n", checksum(&body));
    durable::write(path, text.as_bytes(), Durability::Synced)
}

fn load(path: &Path) -> io::Result<Contents> {
    let Some(bytes) = durable::read(path, FILE_BYTES_MAX)? else { return Ok(Contents::default()) };
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let text = str::from_utf8(&bytes).map_err(|_| damaged("it is not text"))?;
    let (sum, body) = text.split_once('\n').ok_or_else(|| damaged("it has no checksum"))?;
    let body = body.trim_end_matches('\n');
    if sum != checksum(body) {
        return Err(damaged("its checksum is not that of its contents"));
    }
    serde_json::from_str(body).map_err(|error| damaged(&error.to_string()))
}

fn checksum(body: &str) -> String {
    format!("muster-memory-1 {:016x}", xxh3_64(body.as_bytes()))
}

fn move_aside(path: &Path, error: &io::Error) -> io::Result<Contents> {
    let aside = with_suffix(path, ".damaged");
    std::fs::rename(path, &aside)?;
    tracing::error!(
        path = %path.display(), aside = %aside.display(), %error,
        "the log of ended pods is damaged and was moved aside: until this agent has received the newest orders, a \
         replica that lags behind could make it run a pod again"
    );
    Ok(Contents::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> LocalPodStatus {
        LocalPodStatus { restarts: 3, ..LocalPodStatus::new(PodPhase::Failed, "Error", "it broke") }
    }

    #[test]
    fn entries_are_read_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let ended_log = EndedLog::open(path.clone()).unwrap();
        assert_eq!(ended_log.recall(), RecalledNotes::default());
        ended_log.note(DurableNote::Ended { uid: PodUid(7), status: failed() });
        ended_log.note(DurableNote::Orders { fleet: "f".to_owned(), revision: 42 });
        ended_log.keep(KeptPod { uid: PodUid(8).to_string(), namespace: "n".to_owned(), name: "p".to_owned() });
        drop(ended_log);
        let ended_log = EndedLog::open(path).unwrap();
        let ended = vec![(PodUid(7), failed())];
        assert_eq!(ended_log.recall(), RecalledNotes { fleet: "f".to_owned(), revision: 42, ended });
        assert_eq!(ended_log.kept().len(), 1);
        assert!(ended_log.has_on_disk(PodUid(7)) && !ended_log.has_on_disk(PodUid(8)));
    }

    #[test]
    fn a_damaged_file_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        drop({
            let ended_log = EndedLog::open(path.clone()).unwrap();
            ended_log.note(DurableNote::Orders { fleet: "f".to_owned(), revision: 42 });
            ended_log
        });
        let whole = std::fs::read_to_string(&path).unwrap();
        for damage in ["", "x", "\n", &whole.replace("42", "43"), &whole[..whole.len() / 2]] {
            std::fs::write(&path, damage).unwrap();
            let ended_log = EndedLog::open(path.clone()).unwrap();
            assert_eq!(ended_log.recall(), RecalledNotes::default(), "{damage:?}");
            assert_eq!(std::fs::read_to_string(with_suffix(&path, ".damaged")).unwrap(), damage);
        }
    }

    #[test]
    fn the_log_is_bounded() {
        let mut contents = Contents::default();
        for uid in 0..=ENDED_PODS_MAX as u128 {
            contents.end(PodUid(uid), &LocalPodStatus::new(PodPhase::Failed, "Error", &"m".repeat(9999)), 1);
        }
        assert_eq!(contents.ended.len(), ENDED_PODS_MAX);
        assert!(serde_json::to_string(&contents).unwrap().len() as u64 <= FILE_BYTES_MAX);
    }
}
