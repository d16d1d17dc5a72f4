//! Exit codes of `muster` and `muster-agent`, and the error an agent ends with, whose message says what to do next.

use std::fmt;
use std::process::ExitCode;

use super::flag::BadFlag;

/// The exit codes of every program and command of this workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    Error = 1,
    Usage = 2,
    Unreachable = 3,
    NotFound = 4,
    Conflict = 5,
    Denied = 6,
    Timeout = 7,
    Partial = 8,
    Interrupted = 130,
}

/// Why the program ends, unless it was told to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    pub exit: Exit,
    pub message: String,
}

impl AgentError {
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string() }
    }

    pub fn other(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Error, message: message.to_string() }
    }

    pub fn unreachable(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Unreachable, message: message.to_string() }
    }
}

impl From<BadFlag> for AgentError {
    fn from(bad: BadFlag) -> Self {
        Self::usage(bad)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AgentError {}
