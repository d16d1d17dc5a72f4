//! Exit of the program: the exit codes of `muster`, and messages that say what to do next.

use std::fmt;
use std::process::ExitCode;

use super::flag::BadFlag;

/// The exit codes of `muster` that an agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum AgentExit {
    Error = 1,
    Usage = 2,
    Unreachable = 3,
    Denied = 6,
}

/// Why the program ends, unless it was told to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    pub exit: AgentExit,
    pub message: String,
}

impl AgentError {
    pub fn usage(message: impl fmt::Display) -> Self {
        Self { exit: AgentExit::Usage, message: message.to_string() }
    }

    pub fn other(message: impl fmt::Display) -> Self {
        Self { exit: AgentExit::Error, message: message.to_string() }
    }

    pub fn unreachable(message: impl fmt::Display) -> Self {
        Self { exit: AgentExit::Unreachable, message: message.to_string() }
    }
}

impl From<BadFlag> for AgentError {
    fn from(bad: BadFlag) -> Self {
        Self::usage(bad)
    }
}

impl From<AgentExit> for ExitCode {
    fn from(exit: AgentExit) -> Self {
        Self::from(exit as u8)
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AgentError {}
