//! What must outlive the agent's process beside the pods themselves: which pods ended, and how far the orders went.
//!
//! The file is a line with a checksum and one of JSON, replaced as a whole. Whoever notes something does not wait: a
//! thread of its own writes the newest. A damaged file is moved aside, since an agent that does not start helps nobody,
//! and what it would have prevented is rare.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::durable::{self, Durability, with_suffix};
use crate::pods::{Note, Phase, PodStatus, PodUid, REMEMBERED, Recollection};

const FILE_BYTES_MAX: u64 = 16 << 20;
/// How much of a text is kept of each pod that ended: enough for people to know why.
const MESSAGE_MAX: usize = 256;
/// After a write that failed, for want of space perhaps.
const RETRY: Duration = Duration::from_secs(1);

/// Dropping it waits for what is yet to be written.
#[derive(Debug)]
pub(super) struct Memory {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    desk: Mutex<Desk>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Desk {
    contents: Contents,
    /// How many changes there were, and how many of them are on disk.
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
    /// Pods that are only kept on record.
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
    /// The change that brought it; of an earlier process, none.
    #[serde(skip)]
    change: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptPod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

// === impl Memory ===

impl Memory {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let contents = match load(&path) {
            Ok(contents) => contents,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => set_aside(&path, &error)?,
            Err(error) => return Err(error),
        };
        let desk = Mutex::new(Desk { contents, ..Desk::default() });
        let shared = Arc::new(Shared { path, desk, changed: Condvar::new() });
        let writing = Arc::clone(&shared);
        let writer = std::thread::Builder::new().name("pod-memory".to_owned()).spawn(move || writing.write())?;
        Ok(Self { shared, writer: Some(writer) })
    }

    pub(super) fn recall(&self) -> Recollection {
        let desk = self.shared.lock();
        let Contents { fleet, revision, ended, .. } = &desk.contents;
        let ended = ended.iter().filter_map(|pod| Some((PodUid::parse(&pod.uid)?, pod.status()))).collect();
        Recollection { fleet: fleet.clone(), revision: *revision, ended }
    }

    pub(super) fn note(&self, note: Note) {
        self.change(|contents, change| match note {
            Note::Ended { uid, status } => contents.end(uid, &status, change),
            Note::Orders { fleet, revision } => (contents.fleet, contents.revision) = (fleet, revision),
        });
    }

    /// Whether a restart would know that this pod ended.
    pub(super) fn has_on_disk(&self, uid: PodUid) -> bool {
        let desk = self.shared.lock();
        let uid = uid.to_string();
        desk.contents.ended.iter().any(|pod| pod.uid == uid && pod.change <= desk.saved)
    }

    pub(super) fn kept(&self) -> Vec<KeptPod> {
        self.shared.lock().contents.kept.clone()
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

    /// The change is told its number.
    fn change(&self, change: impl FnOnce(&mut Contents, u64)) {
        let mut desk = self.shared.lock();
        desk.changes += 1;
        let number = desk.changes;
        change(&mut desk.contents, number);
        self.shared.changed.notify_all();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so.
            let _ = writer.join();
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until closed and nothing is left to write, or it cannot be.
    fn write(&self) {
        let mut failed = false;
        while let Some((contents, changes)) = self.next(failed) {
            let written = save(&self.path, &contents);
            if let Err(error) = &written
                && !failed
            {
                tracing::error!(path = %self.path.display(), %error, "what happened to pods cannot be noted; trying again");
            }
            failed = written.is_err();
            let mut desk = self.lock();
            match written {
                Ok(()) => desk.saved = changes,
                Err(_) if desk.closing => return,
                Err(_) => {}
            }
        }
    }

    fn next(&self, failed: bool) -> Option<(Contents, u64)> {
        let mut desk = self.lock();
        if failed {
            let pause = self.changed.wait_timeout_while(desk, RETRY, |desk| !desk.closing);
            desk = pause.unwrap_or_else(PoisonError::into_inner).0;
        }
        let idle = |desk: &mut Desk| desk.saved == desk.changes && !desk.closing;
        desk = self.changed.wait_while(desk, idle).unwrap_or_else(PoisonError::into_inner);
        (desk.saved != desk.changes).then(|| (desk.contents.clone(), desk.changes))
    }
}

// === impl Contents ===

impl Contents {
    fn end(&mut self, uid: PodUid, status: &PodStatus, change: u64) {
        let uid = uid.to_string();
        self.ended.retain(|pod| pod.uid != uid);
        let message = status.message.chars().take(MESSAGE_MAX).collect();
        let (phase, reason) = (status.phase.as_str().to_owned(), status.reason.clone());
        self.ended.push_back(EndedPod { uid, phase, restarts: status.restarts, reason, message, change });
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

// === impl EndedPod ===

impl EndedPod {
    fn status(&self) -> PodStatus {
        let phase = Phase::parse(&self.phase).unwrap_or(Phase::Failed);
        PodStatus { restarts: self.restarts, ..PodStatus::new(phase, &self.reason, &self.message) }
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

fn set_aside(path: &Path, error: &io::Error) -> io::Result<Contents> {
    let aside = with_suffix(path, ".damaged");
    std::fs::rename(path, &aside)?;
    tracing::error!(
        path = %path.display(), aside = %aside.display(), %error,
        "the memory of pods that ended is damaged and was set aside: until this agent has heard the newest orders, a \
         replica that lags behind could make it run a pod again"
    );
    Ok(Contents::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> PodStatus {
        PodStatus { restarts: 3, ..PodStatus::new(Phase::Failed, "Error", "it broke") }
    }

    #[test]
    fn what_was_noted_is_recalled_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let memory = Memory::open(path.clone()).unwrap();
        assert_eq!(memory.recall(), Recollection::default());
        memory.note(Note::Ended { uid: PodUid(7), status: failed() });
        memory.note(Note::Orders { fleet: "f".to_owned(), revision: 42 });
        memory.keep(KeptPod { uid: PodUid(8).to_string(), namespace: "n".to_owned(), name: "p".to_owned() });
        drop(memory);
        let memory = Memory::open(path).unwrap();
        let ended = vec![(PodUid(7), failed())];
        assert_eq!(memory.recall(), Recollection { fleet: "f".to_owned(), revision: 42, ended });
        assert_eq!(memory.kept().len(), 1);
        assert!(memory.has_on_disk(PodUid(7)) && !memory.has_on_disk(PodUid(8)));
    }

    #[test]
    fn a_damaged_file_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        drop({
            let memory = Memory::open(path.clone()).unwrap();
            memory.note(Note::Orders { fleet: "f".to_owned(), revision: 42 });
            memory
        });
        let whole = std::fs::read_to_string(&path).unwrap();
        for damage in ["", "x", "\n", &whole.replace("42", "43"), &whole[..whole.len() / 2]] {
            std::fs::write(&path, damage).unwrap();
            let memory = Memory::open(path.clone()).unwrap();
            assert_eq!(memory.recall(), Recollection::default(), "{damage:?}");
            assert_eq!(std::fs::read_to_string(with_suffix(&path, ".damaged")).unwrap(), damage);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut contents = Contents::default();
        for uid in 0..=REMEMBERED as u128 {
            contents.end(PodUid(uid), &PodStatus::new(Phase::Failed, "Error", &"m".repeat(9999)), 1);
        }
        assert_eq!(contents.ended.len(), REMEMBERED);
        assert!(serde_json::to_string(&contents).unwrap().len() as u64 <= FILE_BYTES_MAX);
    }
}
