//! Whether the network serves: a check that the operator chooses, since nobody else knows what must be reachable.
//!
//! Unlike a custom check, a command that ends with anything but 0 means that the network is not available: that is how
//! the commands people use for it (ping, curl, nc) fail.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::ConditionStatus;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::board::{Board, Source};
use super::condition::Finding;
use super::execution::{self, Execution};
use super::pace::rounds;

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

    pub(super) async fn run(self, board: Arc<Board>) {
        let mut rounds = rounds(self.interval);
        let mut undead = None;
        loop {
            rounds.tick().await;
            let is_undead = |child: &mut tokio::process::Child| matches!(child.try_wait(), Ok(None));
            if undead.as_mut().is_some_and(is_undead) {
                continue;
            }
            let (finding, left_over) = self.look().await;
            undead = left_over;
            board.put(Source::Network, vec![finding]);
        }
    }

    async fn look(&self) -> (Finding, Option<tokio::process::Child>) {
        match &self.probe {
            NetworkProbe::Tcp(address) => (self.connect(address).await, None),
            NetworkProbe::Command { program, arguments } => {
                let execution = execution::run(OsStr::new(program), arguments, self.timeout).await;
                let finding = self.judge(program, &execution);
                (finding, if let Execution::Undead(child) = execution { Some(child) } else { None })
            }
        }
    }

    async fn connect(&self, address: &str) -> Finding {
        match timeout(self.timeout, TcpStream::connect(address)).await {
            Ok(Ok(_)) => found(ConditionStatus::False, PASSED, format!("{address} answers")),
            Ok(Err(error)) => found(ConditionStatus::True, FAILED, format!("{address} cannot be reached: {error}")),
            Err(_) => {
                found(ConditionStatus::True, FAILED, format!("{address} did not answer within {:?}", self.timeout))
            }
        }
    }

    fn judge(&self, program: &str, execution: &Execution) -> Finding {
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
            Execution::TimedOut | Execution::Undead(_) => {
                failed(format!("{program} did not end within {:?} and was killed", self.timeout))
            }
            Execution::Unstartable(reason) => {
                found(ConditionStatus::Unknown, UNUSABLE, format!("{program} cannot be run: {reason}"))
            }
        }
    }
}

fn found(status: ConditionStatus, reason: &str, message: String) -> Finding {
    Finding::new(NETWORK_UNAVAILABLE, status, reason, message)
}
