//! Processes and their descendants, as /proc shows them. A number alone never identifies a process: what is signalled is
//! held by a descriptor first, and then looked at again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// An environment may be as large as this; what is beyond is not looked at.
const ENVIRONMENT_MAX: u64 = 4 << 20;
/// A program that is being started has an environment by then.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    parent: i32,
    pub(super) group: i32,
    /// In ticks since boot: with the number, it is one process and no other.
    started: u64,
    zombie: bool,
}

// === impl Process ===

impl Process {
    pub(super) fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &stat)
    }

    /// The name comes second, in parentheses, and may contain anything.
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

    /// False if it is gone.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Ok(held) = pidfd_open(self.pid, PidfdFlags::empty()) else { return false };
        let same = Self::read(self.pid.as_raw_nonzero().get()).is_some_and(|now| now.started == self.started);
        same && pidfd_send_signal(&held, signal).is_ok()
    }

    /// Whether it was started with `NAME=value` in its environment. None: it seems to have no environment.
    fn carries(&self, mark: &str) -> Option<bool> {
        let file = File::open(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut environment = Vec::new();
        // What could be read counts; a process that ends meanwhile is no concern.
        let _ = file.take(ENVIRONMENT_MAX).read_to_end(&mut environment);
        let carries = environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
        (!environment.is_empty()).then_some(carries)
    }
}

/// Those that were started with `NAME=value` in their environment. For a moment after it has begun a program hides that:
/// who seems to have none is asked twice.
pub(super) fn marked(processes: Vec<Process>, mark: &str) -> Vec<Process> {
    let (mut marked, mut unclear) = (Vec::new(), Vec::new());
    for process in processes {
        match process.carries(mark) {
            Some(true) => marked.push(process),
            Some(false) => {}
            None => unclear.push(process),
        }
    }
    if !unclear.is_empty() {
        std::thread::sleep(LOOK_AGAIN);
        marked.extend(unclear.into_iter().filter(|process| process.carries(mark) == Some(true)));
    }
    marked
}

/// All that live, zombies apart.
pub(super) fn all() -> Vec<Process> {
    everything().into_iter().filter(|process| !process.zombie).collect()
}

/// Those that live and descend from this process.
pub(super) fn descendants_of(ancestor: i32) -> Vec<Process> {
    let everything = everything();
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    everything.iter().for_each(|process| children.entry(process.parent).or_default().push(process));
    let (mut seen, mut queue, mut found) = (BTreeSet::new(), vec![ancestor], Vec::new());
    while let Some(parent) = queue.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            // Numbers that were reused while we looked could make a circle.
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
    numbers.filter_map(Process::read).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let process = Process::parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started, process.zombie), (3, 7, 12345, false));
        assert!(Process::parse(7, "7 (a) S").is_none() && Process::parse(7, "").is_none());
    }

    #[test]
    fn a_process_is_found_by_its_mark_and_signalled_only_if_it_is_the_same() {
        let mut child = Command::new("sleep").arg("600").env("MARK", "kin").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let process = descendants_of(own)
            .into_iter()
            .find(|process| process.parent == own && process.pid.as_raw_nonzero().get() == pid);
        let process = process.unwrap();
        // A busy machine may take longer than two looks.
        let deadline = Instant::now() + Duration::from_secs(60);
        while marked(vec![process], "MARK=kin") != [process] {
            assert!(Instant::now() < deadline, "its mark was never seen");
        }
        assert_eq!(marked(vec![process], "MARK=ki"), []);
        let impostor = Process { started: process.started + 1, ..process };
        assert!(!impostor.signal(Signal::KILL) && child.try_wait().unwrap().is_none());
        assert!(process.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!process.signal(Signal::KILL));
    }
}
