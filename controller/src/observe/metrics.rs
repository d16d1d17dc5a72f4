//! Metrics of a replica, as OpenMetrics text for scrapers.
//!
//! ```text
//! Metrics   handles that the code touches while it works: an atomic each, no allocation   (pulse, lifecycle, ...)
//! Figures   questions that are asked anew at every scrape: what State, RaftMetrics and /proc say  (zones, state, ...)
//! ```
//! What State already knows is not counted a second time: it is read at each scrape. Names are written out in full
//! where they are registered, so that a name on a dashboard can be searched for here.

pub mod actors;
pub mod lifecycle;
pub mod process;
pub mod pulse;
pub mod raft;
pub mod state;
pub mod work;
pub mod zones;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use self::actors::Actors;
use self::lifecycle::Lifecycle;
use self::process::ProcessFigures;
use self::pulse::{DigestFigures, Pulse};
use self::raft::{RaftFigures, RaftMetrics};
use self::state::StateFigures;
use self::work::WorkFigures;
use self::zones::ZoneFigures;
use crate::session::figures::SessionFigures;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Every handle, by area. Made once per replica and shared.
#[derive(Debug)]
pub struct Metrics {
    pub pulse: Pulse,
    pub lifecycle: Lifecycle,
    pub actors: Actors,
    pub raft: RaftMetrics,
    registry: Registry,
}

/// Reads a value as of this moment.
pub type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;

/// The values that are read at every scrape. The process is always included.
#[derive(Clone)]
pub struct Figures {
    pub zones: Source<Vec<ZoneFigures>>,
    pub digests: Source<Vec<DigestFigures>>,
    pub raft: Source<RaftFigures>,
    pub state: Source<StateFigures>,
    pub work: Source<WorkFigures>,
    pub sessions: Arc<SessionFigures>,
}

/// The label of a metric that has one, out of a set that the code fixes.
type Label = [(&'static str, &'static str); 1];

/// All answers of one scrape.
#[derive(Debug)]
struct Scrape {
    zones: Vec<ZoneFigures>,
    digests: Vec<DigestFigures>,
    raft: RaftFigures,
    state: StateFigures,
    work: WorkFigures,
    sessions: Arc<SessionFigures>,
    process: Option<ProcessFigures>,
}

// === impl Metrics ===

impl Metrics {
    pub fn render(&self, figures: &Figures) -> Result<String, fmt::Error> {
        let mut answers = Registry::default();
        answers.register_collector(Box::new(figures.ask()));
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &answers)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        Self {
            pulse: Pulse::register(&mut registry),
            lifecycle: Lifecycle::register(&mut registry),
            actors: Actors::register(&mut registry),
            raft: RaftMetrics::register(&mut registry),
            registry,
        }
    }
}

// === impl Figures ===

impl Figures {
    fn ask(&self) -> Scrape {
        Scrape {
            zones: zones::within_limit((self.zones)()),
            digests: (self.digests)(),
            raft: (self.raft)(),
            state: (self.state)(),
            work: (self.work)(),
            sessions: Arc::clone(&self.sessions),
            process: ProcessFigures::read(),
        }
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

// === impl Scrape ===

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        zones::encode(&self.zones, &mut encoder)?;
        pulse::encode(&self.digests, &mut encoder)?;
        pulse::encode_sessions(&self.sessions, &mut encoder)?;
        self.raft.encode(&mut encoder)?;
        self.state.encode(&mut encoder)?;
        self.work.encode(&mut encoder)?;
        self.process.as_ref().map_or(Ok(()), |process| process.encode(&mut encoder))
    }
}

/// Registers a metric and returns the handle to it.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// A histogram whose buckets grow by `factor` from `first` seconds on.
fn durations(registry: &mut Registry, name: &str, help: &str, (first, factor, count): (f64, f64, u16)) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(first, factor, count));
    registry.register(name, help, histogram.clone());
    histogram
}

/// Writes a gauge that has one value per label set.
fn gauges<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Writes a gauge that has no labels.
fn gauge(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), value: f64) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

/// Writes a counter that is kept elsewhere; `_total` is appended to the name.
fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl IntoIterator<Item = (L, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
    }
    Ok(())
}

/// The same without labels.
fn counter(encoder: &mut DescriptorEncoder<'_>, (name, help): (&str, &str), value: f64) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, f64, f64>(&value, None)
}

#[cfg(test)]
mod tests;
