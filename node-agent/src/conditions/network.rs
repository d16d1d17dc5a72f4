//! Network check: the operator chooses it, because only the operator knows what must be reachable.
//!
//! Unlike a custom check, a command that ends with anything but 0 means that the network is unavailable: the usual
//! commands (ping, curl, nc) fail like that.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::ConditionStatus;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::check_board::{CheckBoard, Source};
use super::condition::CheckResult;
use super::execution::{self, Execution};
use super::rounds::rounds;

pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
pub const NETWORK_INTERVAL: Duration = Duration::from_secs(10);
pub const NETWORK_TIMEOUT: Duration = Duration::from_secs(5);

const PASSED: &str = "NetworkCheckPassed";
const FAILED: &str = "NetworkCheckFailed";
const UNUSABLE: &str = "NetworkCheckUnusable";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkProbe {
    /// A program and its arguments.
    Command { program: String, arguments: Vec<String> },
    /// `host:port` that must accept a connection.
    Tcp(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkCheck {
    pub probe: NetworkProbe,
    pub interval: Duration,
    pub timeout: Duration,
}

impl NetworkCheck {
    pub fn new(probe: NetworkProbe) -> Self {
        Self { probe, interval: NETWORK_INTERVAL, timeout: NETWORK_TIMEOUT }
    }

    pub(super) async fn run(self, board: Arc<CheckBoard>) {
        let mut rounds = rounds(self.interval);
        let mut unkillable = None;
        loop {
            rounds.tick().await;
            let is_unkillable = |child: &mut tokio::process::Child| matches!(child.try_wait(), Ok(None));
            if unkillable.as_mut().is_some_and(is_unkillable) {
                continue;
            }
            let (result, left_over) = self.check().await;
            unkillable = left_over;
            board.put(Source::Network, vec![result]);
        }
    }

    async fn check(&self) -> (CheckResult, Option<tokio::process::Child>) {
        match &self.probe {
            NetworkProbe::Tcp(address) => (self.connect(address).await, None),
            NetworkProbe::Command { program, arguments } => {
                let execution = execution::run(OsStr::new(program), arguments, self.timeout).await;
                let result = self.result_of(program, &execution);
                (result, if let Execution::Unkillable(child) = execution { Some(child) } else { None })
            }
        }
    }

    async fn connect(&self, address: &str) -> CheckResult {
        match timeout(self.timeout, TcpStream::connect(address)).await {
            Ok(Ok(_)) => found(ConditionStatus::False, PASSED, format!("{address} answers")),
            Ok(Err(error)) => found(ConditionStatus::True, FAILED, format!("{address} cannot be reached: {error}")),
            Err(_) => {
                found(ConditionStatus::True, FAILED, format!("{address} did not answer within {:?}", self.timeout))
            }
        }
    }

    fn result_of(&self, program: &str, execution: &Execution) -> CheckResult {
        let failed = |message| found(ConditionStatus::True, FAILED, message);
        match execution {
            Execution::Ended { code: Some(0), .. } => {
                found(ConditionStatus::False, PASSED, format!("{program} found no problem"))
            }
            Execution::Ended { line, .. } if !line.is_empty() => failed(format!("{program}: {line}")),
            Execution::Ended { code: Some(code), .. } => failed(format!("{program} ended with exit code {code}")),
            Execution::Ended { signal, .. } => {
                failed(format!("{program} was ended by signal {}", signal.unwrap_or_default()))
            }
            Execution::TimedOut | Execution::Unkillable(_) => {
                failed(format!("{program} did not end within {:?} and was killed", self.timeout))
            }
            Execution::Unstartable(reason) => {
                found(ConditionStatus::Unknown, UNUSABLE, format!("{program} cannot be run: {reason}"))
            }
        }
    }
}

fn found(status: ConditionStatus, reason: &str, message: String) -> CheckResult {
    CheckResult::new(NETWORK_UNAVAILABLE, status, reason, message)
}
