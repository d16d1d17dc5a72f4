//! Logs: to stderr, as `RUST_LOG` filters them.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use super::exit::Failed;

const DEFAULT_FILTER: &str = "info";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Text,
    Json,
}

/// To be called once per process.
pub(super) fn init(format: Format) -> Result<(), Failed> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(filter) if !filter.is_empty() => {
            EnvFilter::try_new(&filter).map_err(|error| Failed::usage(format!("RUST_LOG {filter:?}: {error}")))?
        }
        Ok(_) | Err(_) => EnvFilter::new(DEFAULT_FILTER),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        Format::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
        Format::Json => builder.json().flatten_event(true).finish().try_init(),
    };
    installed.map_err(Failed::error)
}
