//! Observer of the machine: reads facts and conditions periodically and keeps them in the form of a Node.
//!
//! A blocking thread reads the facts, because filesystems can hang; a task keeps the conditions. Every observation
//! wakes its watchers, which decide whether it is worth a post.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::exit::AgentError;
use super::machine_settings::MachineSettings;
use super::node::Observation;
use crate::conditions::{CustomChecks, MachineConditions, Monitor, MonitorConfig, Readiness};
use crate::facts::{FactSources, Facts, FactsError, FactsReader, NodeParts};

/// S-1: observations are late by at most this share of the period.
const JITTER: f64 = 0.04;

/// Observes until it is dropped.
#[derive(Debug)]
pub struct MachineObserver {
    observed: watch::Receiver<Observation>,
    monitor: Arc<Monitor>,
    _looking: AbortOnDropHandle<()>,
}

struct ObserverTask {
    reader: Option<FactsReader>,
    facts: Facts,
    settings: MachineSettings,
    conditions: watch::Receiver<MachineConditions>,
    observed: watch::Sender<Observation>,
}

// === impl MachineObserver ===

impl MachineObserver {
    /// Returns after the first observation. `nodefs` is where pods write, `runtime` is the runtime's version, as in
    /// `process://0.1.0`.
    pub async fn start(
        settings: &MachineSettings,
        every: Duration,
        nodefs: &Path,
        runtime: &str,
        readiness: Arc<dyn Readiness>,
    ) -> Result<Self, AgentError> {
        let sources = FactSources {
            hostname_override: settings.hostname.clone(),
            node_ips: settings.node_ips.clone(),
            external_ips: settings.external_ips.clone(),
            max_pods: settings.max_pods,
            ..FactSources::this_machine(nodefs, runtime)
        };
        let (reader, facts) = read(FactsReader::new(sources)).await;
        let facts = facts.map_err(AgentError::other)?;
        for (resource, reserved, capacity) in facts.capacity.overdrawn(&settings.reservations) {
            tracing::warn!(
                resource, %reserved, %capacity,
                "--system-reserved and --kube-reserved reserve the machine's whole capacity: no pod that requests it is placed here"
            );
        }
        let monitor = Arc::new(Monitor::start(monitoring(settings, every, nodefs), readiness));
        let seen = observation(&facts, settings, &monitor.first_sample().await);
        let (sender, observed) = watch::channel(seen);
        let conditions = monitor.conditions();
        let look = ObserverTask { reader, facts, settings: settings.clone(), conditions, observed: sender };
        Ok(Self { observed, monitor, _looking: AbortOnDropHandle::new(tokio::spawn(look.repeat(every))) })
    }

    pub fn observed(&self) -> watch::Receiver<Observation> {
        self.observed.clone()
    }

    /// Reads the runtime's readiness again, because it has changed.
    pub fn refresh(&self) {
        self.monitor.refresh();
    }
}

fn monitoring(settings: &MachineSettings, every: Duration, nodefs: &Path) -> MonitorConfig {
    MonitorConfig {
        interval: every,
        thresholds: settings.thresholds.clone(),
        transition_period: settings.transition_period,
        network: settings.network.clone(),
        custom: settings.condition_dir.as_ref().map(CustomChecks::new),
        ..MonitorConfig::this_machine(nodefs)
    }
}

// === impl ObserverTask ===

impl ObserverTask {
    async fn repeat(mut self, every: Duration) {
        loop {
            tokio::select! {
                () = sleep(every.mul_f64(1.0 + JITTER * rand::random::<f64>())) => self.look().await,
                changed = self.conditions.changed() => if changed.is_err() { return },
            }
            let conditions = self.conditions.borrow_and_update().clone();
            self.observed.send_replace(observation(&self.facts, &self.settings, &conditions));
        }
    }

    /// Reads the facts. If that fails, the last facts stay.
    async fn look(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let (reader, facts) = read(reader).await;
        self.reader = reader;
        match facts {
            Ok(facts) => self.facts = facts,
            Err(error) => tracing::warn!(%error, "cannot read the machine: reporting it as last observed"),
        }
    }
}

async fn read(mut reader: FactsReader) -> (Option<FactsReader>, Result<Facts, AgentError>) {
    let reading = tokio::task::spawn_blocking(move || {
        let facts = reader.read().map_err(|error: FactsError| AgentError::other(error));
        (Some(reader), facts)
    });
    reading.await.unwrap_or_else(|error| (None, Err(AgentError::other(error))))
}

fn observation(facts: &Facts, settings: &MachineSettings, conditions: &MachineConditions) -> Observation {
    let parts = facts.node_parts(&settings.reservations, &settings.thresholds);
    Observation { status: status(&parts, conditions), labels: parts.labels }
}

fn status(parts: &NodeParts, conditions: &MachineConditions) -> Value {
    json!({
        "capacity": &parts.capacity,
        "allocatable": &parts.allocatable,
        "conditions": conditions.to_json(),
        "addresses": &parts.addresses,
        "nodeInfo": &parts.node_info,
    })
}
