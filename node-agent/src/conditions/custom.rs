//! Custom checks of the operator: each executable of a directory is a condition, named after its file.
//!
//! The convention is that of node-problem-detector's plugins: exit code 0 is "no problem", 1 is "problem", anything
//! else is "unknown", and the output is the message. The directory is read again before each round.

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

use super::check_board::{CheckBoard, Source};
use super::condition::CheckResult;
use super::execution::{self, Execution};
use super::network::NETWORK_UNAVAILABLE;
use super::rounds::rounds;

pub const CHECK_INTERVAL: Duration = Duration::from_secs(30);
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
pub const CHECKS_MAX: usize = 64;
const AT_ONCE: usize = 8;
/// The most entries that are read; a directory with more is not one of checks.
const ENTRIES_MAX: usize = 1024;

/// Conditions that belong to this agent or the control plane.
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

/// The directory of checks, their interval and their timeout.
#[derive(Debug, Clone)]
pub struct CustomChecks {
    pub directory: PathBuf,
    pub interval: Duration,
    pub timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomCheck {
    pub kind: String,
    pub path: PathBuf,
}

/// A file that is refused as a check, and the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefusedCheck {
    pub path: PathBuf,
    pub rule: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckScan {
    pub checks: Vec<CustomCheck>,
    pub refused: Vec<RefusedCheck>,
}

// === impl CustomChecks ===

impl CustomChecks {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), interval: CHECK_INTERVAL, timeout: CHECK_TIMEOUT }
    }

    /// The present contents of the directory, sorted by name.
    pub fn scan(&self) -> io::Result<CheckScan> {
        if is_world_writable(&fs::metadata(&self.directory)?) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "every user may write to it: run chmod o-w"));
        }
        let mut paths: Vec<_> =
            fs::read_dir(&self.directory)?.take(ENTRIES_MAX).flatten().map(|it| it.path()).collect();
        paths.sort();
        let mut scan = CheckScan::default();
        for path in paths {
            match check(&path) {
                Ok(None) => {}
                Ok(Some(_)) if scan.checks.len() == CHECKS_MAX => {
                    scan.refused.push(RefusedCheck {
                        path,
                        rule: format!("there are {CHECKS_MAX} checks before it, which is the maximum"),
                    });
                }
                Ok(Some(kind)) => scan.checks.push(CustomCheck { kind, path }),
                Err(rule) => scan.refused.push(RefusedCheck { path, rule }),
            }
        }
        Ok(scan)
    }

    /// Runs the checks in rounds and puts their results on the board.
    pub(super) async fn run(self, board: Arc<CheckBoard>) {
        let mut rounds = rounds(self.interval);
        let mut runner = Runner::default();
        loop {
            rounds.tick().await;
            runner.rescan(&self);
            let results = runner.round(self.timeout).await;
            board.put(Source::Custom, results);
        }
    }
}

/// The condition of a directory entry; none for directories.
fn check(path: &Path) -> Result<Option<String>, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Ok(None);
    }
    let kind = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not plain text")?;
    name::qualified_name(kind).map_err(|rule| format!("its name must be that of a condition: {rule}"))?;
    if RESERVED.contains(&kind) {
        return Err(format!("{kind} is reserved for the agent and the control plane: rename it"));
    }
    match metadata.permissions().mode() {
        _ if !metadata.is_file() => Err("it is not a file".into()),
        _ if is_world_writable(&metadata) => Err("every user may write to it: run chmod o-w".into()),
        mode if mode & EXECUTABLE == 0 => Err("it is not executable: run chmod +x, or remove it".into()),
        _ => Ok(Some(kind.to_owned())),
    }
}

fn is_world_writable(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & WORLD_WRITABLE != 0
}

impl fmt::Display for RefusedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.rule)
    }
}

// === rounds ===

#[derive(Debug, Default)]
struct Runner {
    checks: Vec<CustomCheck>,
    /// The files refused in the last round, so that each is logged once.
    refused: BTreeSet<RefusedCheck>,
    /// Runs that could not be killed. Their checks pause until the process is gone.
    unkillable: BTreeMap<PathBuf, Child>,
}

impl Runner {
    /// Reads the directory. If it cannot be read, the former checks stay; missing ones then report that they cannot
    /// run.
    fn rescan(&mut self, custom: &CustomChecks) {
        let scan = custom.scan().unwrap_or_else(|error| {
            let refused = vec![RefusedCheck { path: custom.directory.clone(), rule: error.to_string() }];
            CheckScan { checks: self.checks.clone(), refused }
        });
        let refused: BTreeSet<_> = scan.refused.into_iter().collect();
        for RefusedCheck { path, rule } in refused.difference(&self.refused) {
            tracing::error!(path = %path.display(), %rule, "file refused as a check");
        }
        self.unkillable.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        (self.checks, self.refused) = (scan.checks, refused);
    }

    async fn round(&mut self, limit: Duration) -> Vec<CheckResult> {
        let unkillable: BTreeSet<_> = self.unkillable.keys().cloned().collect();
        let run = |check: CustomCheck| async {
            let execution = match unkillable.contains(&check.path) {
                true => None,
                false => Some(execution::run(check.path.as_os_str(), &[], limit).await),
            };
            (check, execution)
        };
        // Sorted by name, so that equal results make equal reports.
        let ran: Vec<_> = stream::iter(self.checks.clone()).map(run).buffered(AT_ONCE).collect().await;
        let mut results = Vec::new();
        for (check, execution) in ran {
            results.push(result(&check, execution.as_ref(), limit));
            if let Some(Execution::Unkillable(child)) = execution {
                self.unkillable.insert(check.path, child);
            }
        }
        results
    }
}

fn result(check: &CustomCheck, execution: Option<&Execution>, limit: Duration) -> CheckResult {
    let found = |status, reason, message: String| CheckResult::new(&check.kind, status, reason, message);
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
            unknown("CheckTimedOut", format!("the check did not end within {limit:?} and was killed"))
        }
        Some(Execution::Unkillable(_)) | None => {
            unknown("CheckTimedOut", "the check did not end in time and cannot be killed".into())
        }
    }
}
