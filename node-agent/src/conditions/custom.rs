//! Conditions of the operator's own: each executable of a directory is one, named after its file.
//!
//! The convention is that of node-problem-detector's plugins: exit code 0 is "no problem", 1 is "problem", anything else
//! is "cannot tell", and what the program prints is the message. The directory is read again before each round.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use muster_lifecycle::name;
use muster_lifecycle::node::{ConditionStatus, READY};
use muster_lifecycle::node::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};
use tokio::process::Child;

use super::board::{Board, Source};
use super::condition::Finding;
use super::execution::{self, Execution};
use super::network::NETWORK_UNAVAILABLE;
use super::pace::rounds;

pub const CHECK_INTERVAL: Duration = Duration::from_secs(30);
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
pub const CHECKS_MAX: usize = 64;
const AT_ONCE: usize = 8;
/// Entries of a directory that are looked at: a directory with more is not one of checks.
const ENTRIES_MAX: usize = 1024;

/// Conditions that this agent or the control plane answers for.
const RESERVED: [&str; 10] = [
    READY,
    MEMORY_PRESSURE,
    DISK_PRESSURE,
    PID_PRESSURE,
    NETWORK_UNAVAILABLE,
    "GracefulNodeShutdownInProgress",
    "DrainInProgress",
    "Drained",
    "MaintenancePlanned",
    "MaintenanceInProgress",
];

const WORLD_WRITABLE: u32 = 0o002;
const EXECUTABLE: u32 = 0o111;

/// Where the checks are, and how often and for how long they run.
#[derive(Debug, Clone)]
pub struct CustomChecks {
    pub directory: PathBuf,
    pub interval: Duration,
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub kind: String,
    pub path: PathBuf,
}

/// A file that is no check, and what would make it one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    pub path: PathBuf,
    pub rule: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    pub checks: Vec<Check>,
    pub refused: Vec<Refused>,
}

// === impl CustomChecks ===

impl CustomChecks {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), interval: CHECK_INTERVAL, timeout: CHECK_TIMEOUT }
    }

    /// What the directory holds now, in the order of names.
    pub fn scan(&self) -> io::Result<Scan> {
        if is_world_writable(&fs::metadata(&self.directory)?) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "anybody may write to it: chmod o-w"));
        }
        let mut paths: Vec<_> =
            fs::read_dir(&self.directory)?.take(ENTRIES_MAX).flatten().map(|it| it.path()).collect();
        paths.sort();
        let mut scan = Scan::default();
        for path in paths {
            match check(&path) {
                Ok(None) => {}
                Ok(Some(_)) if scan.checks.len() == CHECKS_MAX => {
                    scan.refused.push(Refused {
                        path,
                        rule: format!("there are {CHECKS_MAX} checks before it, which is the most"),
                    });
                }
                Ok(Some(kind)) => scan.checks.push(Check { kind, path }),
                Err(rule) => scan.refused.push(Refused { path, rule }),
            }
        }
        Ok(scan)
    }

    /// Runs the checks again and again and puts what they find on the board.
    pub(super) async fn run(self, board: Arc<Board>) {
        let mut rounds = rounds(self.interval);
        let mut runner = Runner::default();
        loop {
            rounds.tick().await;
            runner.look(&self);
            let findings = runner.round(self.timeout).await;
            board.put(Source::Custom, findings);
        }
    }
}

/// The condition that a directory entry is for; none for directories.
fn check(path: &Path) -> Result<Option<String>, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Ok(None);
    }
    let kind = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not plain text")?;
    name::qualified_name(kind).map_err(|rule| format!("its name is to be that of a condition, but {rule}"))?;
    if RESERVED.contains(&kind) {
        return Err(format!("{kind} is reserved for the agent and the control plane: rename it"));
    }
    match metadata.permissions().mode() {
        _ if !metadata.is_file() => Err("it is not a file".into()),
        _ if is_world_writable(&metadata) => Err("anybody may write to it: chmod o-w".into()),
        mode if mode & EXECUTABLE == 0 => Err("it is not executable: chmod +x, or remove it".into()),
        _ => Ok(Some(kind.to_owned())),
    }
}

fn is_world_writable(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & WORLD_WRITABLE != 0
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.rule)
    }
}

// === rounds ===

#[derive(Debug, Default)]
struct Runner {
    checks: Vec<Check>,
    /// What was refused in the last round, so that it is said once.
    refused: BTreeSet<Refused>,
    /// Runs that could not be killed. Their checks rest until they are gone.
    undead: BTreeMap<PathBuf, Child>,
}

impl Runner {
    /// A directory that cannot be read leaves the checks as they were: if they are gone too, they say so.
    fn look(&mut self, custom: &CustomChecks) {
        let scan = custom.scan().unwrap_or_else(|error| {
            let refused = vec![Refused { path: custom.directory.clone(), rule: error.to_string() }];
            Scan { checks: self.checks.clone(), refused }
        });
        let refused: BTreeSet<_> = scan.refused.into_iter().collect();
        for Refused { path, rule } in refused.difference(&self.refused) {
            tracing::error!(path = %path.display(), %rule, "is not used as a check");
        }
        self.undead.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        (self.checks, self.refused) = (scan.checks, refused);
    }

    async fn round(&mut self, patience: Duration) -> Vec<Finding> {
        let undead: BTreeSet<_> = self.undead.keys().cloned().collect();
        let run = |check: Check| async {
            let execution = match undead.contains(&check.path) {
                true => None,
                false => Some(execution::run(check.path.as_os_str(), &[], patience).await),
            };
            (check, execution)
        };
        // In the order of names, so that equal findings make equal reports.
        let ran: Vec<_> = stream::iter(self.checks.clone()).map(run).buffered(AT_ONCE).collect().await;
        let mut findings = Vec::new();
        for (check, execution) in ran {
            findings.push(finding(&check, execution.as_ref(), patience));
            if let Some(Execution::Undead(child)) = execution {
                self.undead.insert(check.path, child);
            }
        }
        findings
    }
}

fn finding(check: &Check, execution: Option<&Execution>, patience: Duration) -> Finding {
    let found = |status, reason, message: String| Finding::new(&check.kind, status, reason, message);
    let unknown = |reason, message| found(ConditionStatus::Unknown, reason, message);
    let or = |line: &String, otherwise: String| if line.is_empty() { otherwise } else { line.clone() };
    match execution {
        Some(Execution::Ended { code: Some(0), line, .. }) => {
            found(ConditionStatus::False, "NoProblemReported", or(line, "the check found no problem".into()))
        }
        Some(Execution::Ended { code: Some(1), line, .. }) => {
            found(ConditionStatus::True, "ProblemReported", or(line, "the check found a problem".into()))
        }
        Some(Execution::Ended { code: Some(code), line, .. }) => {
            unknown("CheckUnusable", or(line, format!("the check ended with exit code {code}")))
        }
        Some(Execution::Ended { signal, .. }) => {
            unknown("CheckUnusable", format!("the check was ended by signal {}", signal.unwrap_or_default()))
        }
        Some(Execution::Unstartable(reason)) => unknown("CheckNotRun", format!("the check cannot be run: {reason}")),
        Some(Execution::TimedOut) => {
            unknown("CheckTimedOut", format!("the check did not end within {patience:?} and was killed"))
        }
        Some(Execution::Undead(_)) | None => {
            unknown("CheckTimedOut", "the check did not end in time and cannot be killed".into())
        }
    }
}
