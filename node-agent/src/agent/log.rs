//! Logs to stderr, filtered by `RUST_LOG`.
//!
//! The filter supports levels and modules. The larger filter of the replicas would add half a megabyte for fields and
//! spans that an agent does not have.

use std::io::IsTerminal;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use super::exit::AgentError;

const FILTER: &str = "RUST_LOG";
const DEFAULT_FILTER: &str = "info";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentLogFormat {
    #[default]
    Text,
    Json,
}

/// Must be called once per process.
pub(super) fn init(format: AgentLogFormat) -> Result<(), AgentError> {
    let given = std::env::var(FILTER).ok().filter(|filter| !filter.is_empty());
    let filter = filter(given.as_deref().unwrap_or(DEFAULT_FILTER))?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        AgentLogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        AgentLogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).try_init().map_err(AgentError::other)
}

fn filter(text: &str) -> Result<Targets, AgentError> {
    let wrong =
        |error| AgentError::usage(format!("{FILTER} {text:?}: {error}; write it like info,muster_node_agent=debug"));
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_has_levels_and_modules() {
        let filter = filter("warn,muster_node_agent=debug").unwrap();
        assert!(filter.would_enable("muster_node_agent::session", &Level::DEBUG));
        assert!(filter.would_enable("h2", &Level::WARN) && !filter.would_enable("h2", &Level::INFO));
        let failed = super::filter("loud=very").unwrap_err();
        assert!(failed.message.starts_with("RUST_LOG \"loud=very\": "), "{failed}");
    }
}
