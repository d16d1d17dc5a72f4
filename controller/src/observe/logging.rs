//! Logs: structured, to stderr, so that stdout stays free for a command's output.

use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Quiets the libraries: at `info` an operator wants to read our own messages.
///
/// A leader logs every failed heartbeat to a replica that is gone, hundreds of times a second under many writes, and
/// the same for every failed append. Another log line says once that the replica is gone.
const DEFAULT_FILTER: &str = "info,openraft=warn,openraft::core::heartbeat=error,openraft::replication=error,\
                              openraft::replication::snapshot_transmitter=warn,\
                              openraft::engine::handler::replication_handler=error,sled=warn";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("RUST_LOG cannot be understood: write it like \"info,muster_controller=debug\"")]
    Filter(#[from] tracing_subscriber::filter::FromEnvError),
    #[error("the default log filter was refused")]
    Default(#[from] tracing_subscriber::filter::ParseError),
    #[error("logging was set up twice in one process")]
    Twice(#[from] TryInitError),
}

/// Starts logging as `RUST_LOG` says.
pub fn init(format: LogFormat) -> Result<(), Error> {
    let filter = match std::env::var_os(EnvFilter::DEFAULT_ENV) {
        Some(value) if !value.is_empty() => EnvFilter::try_from_default_env()?,
        Some(_) | None => EnvFilter::try_new(DEFAULT_FILTER)?,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is not a log format: choose text or json")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Refusals of callers that are logged per window.
const REFUSALS_PER_WINDOW: u32 = 10;
const REFUSALS_WINDOW: Duration = Duration::from_secs(600);

/// Lets a few messages per window through and counts the rest, so that a caller that floods a door cannot flood the
/// disk.
#[derive(Debug)]
pub struct Gate {
    burst: u32,
    window: Duration,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    opened: Option<Instant>,
    passed: u32,
    suppressed: u64,
}

impl Gate {
    pub fn new(burst: u32, window: Duration) -> Self {
        Self { burst, window, state: Mutex::default() }
    }

    /// A gate for messages that callers can cause as often as they like.
    pub fn of_refusals() -> Self {
        Self::new(REFUSALS_PER_WINDOW, REFUSALS_WINDOW)
    }

    /// `Some(n)`: log it, and that `n` earlier ones were not logged. `None`: stay silent.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        // A poisoned gate only miscounts; that is no reason to stop serving.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.opened.is_none_or(|opened| now.saturating_duration_since(opened) >= self.window) {
            state.opened = Some(now);
            state.passed = 0;
        }
        if state.passed == self.burst {
            state.suppressed += 1;
            return None;
        }
        state.passed += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_prints_as_it_parses() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!("xml".parse::<LogFormat>().is_err());
    }

    #[test]
    fn the_default_filter_is_valid() {
        EnvFilter::try_new(DEFAULT_FILTER).unwrap();
    }

    #[test]
    fn a_gate_counts_what_it_suppresses() {
        let (gate, start) = (Gate::new(2, Duration::from_secs(10)), Instant::now());
        let said: Vec<_> = (0..5).map(|second| gate.pass(start + Duration::from_secs(second))).collect();
        assert_eq!(said, [Some(0), Some(0), None, None, None]);
        assert_eq!(gate.pass(start + Duration::from_secs(10)), Some(3));
        assert_eq!(gate.pass(start + Duration::from_secs(11)), Some(0));
    }
}
