//! Process tree of the machine, as /proc shows it. A pid alone never identifies a process: before a signal, the
//! process is held by a descriptor and then compared by its start time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Bytes of an environment that are read; the rest is ignored.
const ENVIRONMENT_MAX: u64 = 4 << 20;
/// By then a starting program has its environment.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: i32,
    pub(super) group: i32,
    /// Start time in ticks since boot: pid and start time together identify a process.
    started: u64,
    zombie: bool,
}

// === impl Process ===

impl Process {
    pub(super) fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &stat)
    }

    /// The second field is the name in parentheses; it may contain any character.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid: Pid::from_raw(pid)?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            zombie: matches!(*fields.first()?, "Z" | "X"),
        })
    }

    /// False if the process is gone.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Ok(held) = pidfd_open(self.pid, PidfdFlags::empty()) else { return false };
        let same = Self::of(self.pid.as_raw_nonzero().get()).is_some_and(|now| now.started == self.started);
        same && pidfd_send_signal(&held, signal).is_ok()
    }

    /// Whether its environment contains `NAME=value`. None: the environment reads as empty.
    fn has_mark(&self, mark: &str) -> Option<bool> {
        let environment = self.read("environ");
        let has_mark = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        (!environment.is_empty()).then_some(has_mark)
    }

    /// The value of a variable in its environment.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let environment = self.read("environ");
        let mut variables =
            environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok());
        variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    }

    /// The argument that follows this one on its command line.
    pub(super) fn argument_after(&self, argument: &str) -> Option<PathBuf> {
        let line = self.read("cmdline");
        let mut arguments = line.split(|byte| *byte == 0).skip_while(|one| *one != argument.as_bytes());
        arguments.nth(1).and_then(|path| std::str::from_utf8(path).ok()).map(|path| Path::new(path).to_owned())
    }

    /// Empty if the process is gone or not ours to read.
    fn read(&self, file: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{}/{file}", self.pid)) {
            // A process that ends meanwhile need not be read in full.
            let _ = file.take(ENVIRONMENT_MAX).read_to_end(&mut bytes);
        }
        bytes
    }
}

/// The processes with `NAME=value` in their environment. A program that has just started shows an empty environment
/// for a moment, so processes without one are read twice.
pub(super) fn marked(processes: Vec<Process>, mark: &str) -> Vec<Process> {
    let (mut marked, mut unclear) = (Vec::new(), Vec::new());
    for process in processes {
        match process.has_mark(mark) {
            Some(true) => marked.push(process),
            Some(false) => {}
            None => unclear.push(process),
        }
    }
    if !unclear.is_empty() {
        std::thread::sleep(LOOK_AGAIN);
        marked.extend(unclear.into_iter().filter(|process| process.has_mark(mark) == Some(true)));
    }
    marked
}

/// Those of the processes whose parents are not among them.
pub(super) fn roots(processes: &[Process]) -> impl Iterator<Item = &Process> {
    let pids: BTreeSet<i32> = processes.iter().map(|process| process.pid.as_raw_nonzero().get()).collect();
    processes.iter().filter(move |process| !pids.contains(&process.parent))
}

/// All processes except zombies.
pub(super) fn all() -> Vec<Process> {
    everything().into_iter().filter(|process| !process.zombie).collect()
}

/// All descendants of this process except zombies.
pub(super) fn descendants_of(ancestor: i32) -> Vec<Process> {
    let everything = everything();
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    everything.iter().for_each(|process| children.entry(process.parent).or_default().push(process));
    let (mut seen, mut queue, mut found) = (BTreeSet::new(), vec![ancestor], Vec::new());
    while let Some(parent) = queue.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            // Pids reused while reading could form a cycle.
            if seen.insert(child.pid.as_raw_nonzero().get()) {
                queue.push(child.pid.as_raw_nonzero().get());
                found.push(**child);
            }
        }
    }
    found.retain(|process| !process.zombie);
    found
}

fn everything() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    numbers.filter_map(Process::of).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_process_name_with_spaces_and_parentheses_is_read() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let process = Process::parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started, process.zombie), (3, 7, 12345, false));
        assert!(Process::parse(7, "7 (a) S").is_none() && Process::parse(7, "").is_none());
    }

    #[test]
    fn a_process_is_found_by_its_mark_and_signalled_only_if_its_start_time_matches() {
        let mut child =
            Command::new("sleep").arg("600").env("MARK", "process_tree").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let process = descendants_of(own)
            .into_iter()
            .find(|process| process.parent == own && process.pid.as_raw_nonzero().get() == pid);
        let process = process.unwrap();
        // A busy machine may need more than two reads.
        let deadline = Instant::now() + Duration::from_secs(60);
        while marked(vec![process], "MARK=process_tree") != [process] {
            assert!(Instant::now() < deadline, "its mark never appeared");
        }
        assert_eq!(marked(vec![process], "MARK=ki"), []);
        let impostor = Process { started: process.started + 1, ..process };
        assert!(!impostor.signal(Signal::KILL) && child.try_wait().unwrap().is_none());
        assert!(process.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!process.signal(Signal::KILL));
    }
}
