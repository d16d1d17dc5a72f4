//! Journal of runs: what a machine really started and when nothing of it was left, one line each.
//!
//! It tells afterwards whether two pods of one name ever ran at the same time, whatever the fleet believed. A run is
//! noted before anything starts, and its end after nothing is left. The times are of the machine's clock since boot, so
//! that machines on one computer can be compared.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_lifecycle::invariant::runs::{PodRun, RunHistory};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{PodName, PodUid};

/// Where machines note their runs.
#[derive(Debug)]
pub struct RunJournal(Mutex<Sink>);

#[derive(Debug)]
enum Sink {
    Memory(RunHistory),
    /// When it is full, it replaces the file of the same name with `.1`.
    File {
        path: PathBuf,
        file: File,
        bytes: u64,
        bytes_max: u64,
    },
}

/// One machine's pen.
#[derive(Debug, Clone)]
pub struct RunRecorder {
    journal: Arc<RunJournal>,
    machine: String,
    node: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RunEvent {
    Began,
    Ended,
    /// The machine lost its power.
    Off,
}

#[derive(Debug, Serialize, Deserialize)]
struct JournalLine {
    at: u64,
    event: RunEvent,
    machine: String,
    node: String,
    #[serde(default)]
    pod: String,
    #[serde(default)]
    uid: String,
}

// === impl RunJournal ===

impl RunJournal {
    pub fn in_memory() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Sink::Memory(RunHistory::default()))))
    }

    /// Continues the file. At most twice `bytes_max` are kept.
    pub fn in_file(path: &Path, bytes_max: u64) -> io::Result<Arc<Self>> {
        let file = opened(path)?;
        let bytes = file.metadata()?.len();
        Ok(Arc::new(Self(Mutex::new(Sink::File { path: path.to_owned(), file, bytes, bytes_max }))))
    }

    /// `machine` tells machines apart that claim to be the same node.
    pub fn recorder(self: &Arc<Self>, machine: &str, node: &str) -> RunRecorder {
        RunRecorder { journal: Arc::clone(self), machine: machine.to_owned(), node: node.to_owned() }
    }

    /// What a journal in memory has noted; a file is read with [`read_runs`].
    pub fn history(&self) -> RunHistory {
        match &*self.lock() {
            Sink::Memory(history) => history.clone(),
            Sink::File { .. } => RunHistory::default(),
        }
    }

    fn note(&self, line: JournalLine) {
        let mut sink = self.lock();
        let noted = match &mut *sink {
            Sink::Memory(history) => {
                line.tell(history);
                Ok(())
            }
            Sink::File { path, file, bytes, bytes_max } => append(path, file, (bytes, *bytes_max), &line),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot note a run in the journal");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn append(path: &Path, file: &mut File, (bytes, bytes_max): (&mut u64, u64), line: &JournalLine) -> io::Result<()> {
    let line = serde_json::to_string(line)? + "\n";
    if *bytes > 0 && *bytes + line.len() as u64 > bytes_max {
        std::fs::rename(path, former(path))?;
        (*file, *bytes) = (opened(path)?, 0);
    }
    file.write_all(line.as_bytes())?;
    *bytes += line.len() as u64;
    Ok(())
}

fn former(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The history in a journal's files. A last line that was cut short by the end of its process is left out.
pub fn read_runs(path: &Path) -> io::Result<RunHistory> {
    let mut history = RunHistory::default();
    for path in [former(path), path.to_owned()] {
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        for line in BufReader::new(file).lines() {
            match serde_json::from_str::<JournalLine>(&line?) {
                Ok(line) => line.tell(&mut history),
                Err(error) if error.is_eof() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(history)
}

// === impl RunRecorder ===

impl RunRecorder {
    /// To be called before anything of the pod starts.
    pub fn began(&self, name: &PodName, uid: PodUid) {
        self.note(RunEvent::Began, format!("{}/{}", name.namespace, name.name), uid.to_string());
    }

    /// To be called when nothing of the pod is left.
    pub fn ended(&self, uid: PodUid) {
        self.note(RunEvent::Ended, String::new(), uid.to_string());
    }

    pub fn lost_all(&self) {
        self.note(RunEvent::Off, String::new(), String::new());
    }

    fn note(&self, event: RunEvent, pod: String, uid: String) {
        let (machine, node) = (self.machine.clone(), self.node.clone());
        self.journal.note(JournalLine { at: since_boot(), event, machine, node, pod, uid });
    }
}

fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
}

// === impl JournalLine ===

impl JournalLine {
    fn tell(self, history: &mut RunHistory) {
        let Self { at, event, machine, node, pod, uid } = self;
        match event {
            RunEvent::Began => history.began(PodRun { machine, node, pod, uid, began: at, ended: None }),
            RunEvent::Ended => history.ended(&machine, &uid, at),
            RunEvent::Off => history.lost_all(&machine, at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_in_a_file_is_read_back_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.jsonl");
        let name = PodName { namespace: "default".into(), name: "web-0".into() };
        let journal = RunJournal::in_file(&path, 400).unwrap();
        let (one, other) = (journal.recorder("m1", "a"), journal.recorder("m2", "b"));
        one.began(&name, PodUid(1));
        other.began(&name, PodUid(2));
        one.ended(PodUid(1));
        other.lost_all();
        drop(journal);
        let history = read_runs(&path).unwrap();
        assert_eq!((history.runs().len(), history.running_on("m2").count()), (2, 0));
        assert!(history.runs()[1].began <= history.runs()[0].ended.unwrap());
        let journal = RunJournal::in_file(&path, 400).unwrap();
        (0..50).for_each(|_| journal.recorder("m1", "a").lost_all());
        let length = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert!(length(&path) <= 400 && length(&former(&path)) <= 400);
        let mut file = opened(&path).unwrap();
        file.write_all(b"{\"at\":1,\"ev").unwrap();
        assert!(read_runs(&path).is_ok(), "its process ended in the middle of a line");
    }
}
