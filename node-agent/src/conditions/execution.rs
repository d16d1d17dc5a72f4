//! Execution of the operator's programs: bounded time, one line of output.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Bytes kept of the first line; the rest is dropped.
const LINE_MAX: usize = 1024;
/// Time to read output that was written before the program ended; its descendants may hold the pipe open.
const REMAINING_OUTPUT: Duration = Duration::from_millis(100);
/// Time for a killed program to end. One that does not is stuck in the kernel.
const DEATH: Duration = Duration::from_secs(1);

/// Variables of the service manager that only the agent itself may use.
const SERVICE_MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

#[derive(Debug)]
pub(super) enum Execution {
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
        line: String,
    },
    Unstartable(String),
    TimedOut,
    /// It timed out and could not be killed.
    Unkillable(Child),
}

/// The process group of a program. Dropping it kills the group.
struct Group(Option<Pid>);

pub(super) async fn run(program: &OsStr, arguments: &[String], limit: Duration) -> Execution {
    let mut child = match spawn(program, arguments) {
        Ok(child) => child,
        Err(error) => return Execution::Unstartable(error.to_string()),
    };
    let group = Group::of(&child);
    let mut line = Vec::new();
    match timeout(limit, wait_and_read(&mut child, &mut line)).await {
        Ok(Ok(status)) => {
            group.keep();
            ended(status, &line)
        }
        Ok(Err(error)) => Execution::Unstartable(error.to_string()),
        Err(_) => {
            drop(group);
            match timeout(DEATH, child.wait()).await {
                Ok(_) => Execution::TimedOut,
                Err(_) => Execution::Unkillable(child),
            }
        }
    }
}

fn spawn(program: &OsStr, arguments: &[String]) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    for variable in SERVICE_MANAGER {
        command.env_remove(variable);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true).spawn()
}

async fn wait_and_read(child: &mut Child, line: &mut Vec<u8>) -> std::io::Result<ExitStatus> {
    let Some(output) = child.stdout.take() else { return child.wait().await };
    let mut reading = pin!(read_line(output, line));
    let mut is_silent = false;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            () = &mut reading, if !is_silent => is_silent = true,
        }
    };
    if !is_silent {
        // Descendants may hold the pipe open for ever.
        let _ = timeout(REMAINING_OUTPUT, reading).await;
    }
    status
}

/// Keeps the beginning and reads the rest, so that the program does not block on it.
async fn read_line(mut output: impl AsyncRead + Unpin, line: &mut Vec<u8>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = output.read(&mut chunk).await {
        let room = LINE_MAX.saturating_sub(line.len());
        line.extend(chunk.iter().take(read.min(room)));
    }
}

fn ended(status: ExitStatus, line: &[u8]) -> Execution {
    Execution::Ended { code: status.code(), signal: status.signal(), line: first_line(line) }
}

fn first_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.trim_start().lines().next().unwrap_or_default().trim_end();
    let mut plain: String = line.chars().filter(|character| !character.is_control()).collect();
    // Replacement characters are longer than the bytes they replace.
    plain.truncate(plain.floor_char_boundary(LINE_MAX));
    plain
}

// === impl Group ===

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The group may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line_of_plain_text() {
        let long = "x".repeat(5000);
        for (output, line) in [
            ("all well\nand more\n", "all well"),
            ("\n\n  late\n", "late"),
            ("\u{1b}[31mred\u{1b}[0m\n", "[31mred[0m"),
            ("", ""),
            (long.as_str(), &long[..LINE_MAX]),
        ] {
            assert_eq!(first_line(output.as_bytes()), line);
        }
        assert!(first_line(&[0xff; 2000]).len() <= LINE_MAX);
    }
}
