//! Metrics of judging: its duration and its outcome. The names of the collector's two histograms are Kubernetes'.

use muster_pulse::node_watch::Judgement;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{Label, durations, registered};

const NODE_BUCKETS: (f64, f64, u16) = (0.001, 4.0, 8);
const FLEET_BUCKETS: (f64, f64, u16) = (0.01, 4.0, 8);
/// Buckets from a handful of nodes, which take microseconds, to a million.
const SWEEP_BUCKETS: (f64, f64, u16) = (0.000_01, 4.0, 10);

#[derive(Debug)]
pub struct Lifecycle {
    /// Seconds that the judgement of one node took.
    pub node_health_duration: Histogram,
    /// Seconds that one round over all nodes took.
    pub all_nodes_health_duration: Histogram,
    pub sweep_duration: Histogram,
    /// Nodes past their deadline at the last sweep.
    pub silent_nodes: Gauge,
    verdicts: Family<Label, Counter>,
}

impl Lifecycle {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let node = "Duration in seconds for NodeController to update the health of a single node";
        let all = "Duration in seconds for NodeController to update the health of all nodes";
        let verdicts: Family<Label, Counter> =
            registered(registry, "muster_verdicts", "Judgements over single nodes, by what they said");
        for verdict in ["known", "wait", "silent"] {
            verdicts.get_or_create(&[("verdict", verdict)]).inc_by(0);
        }
        Self {
            node_health_duration: durations(
                registry,
                "node_collector_update_node_health_duration_seconds",
                node,
                NODE_BUCKETS,
            ),
            all_nodes_health_duration: durations(
                registry,
                "node_collector_update_all_nodes_health_duration_seconds",
                all,
                FLEET_BUCKETS,
            ),
            sweep_duration: durations(
                registry,
                "muster_sweep_duration_seconds",
                "How long one sweep over all slots took",
                SWEEP_BUCKETS,
            ),
            silent_nodes: registered(registry, "muster_silent_nodes", "Nodes past their deadline at the last sweep"),
            verdicts,
        }
    }

    pub fn judged(&self, judgement: &Judgement) {
        let name = match judgement {
            Judgement::AlreadyUnknown(_) => "known",
            Judgement::LookAgain(_) => "wait",
            Judgement::Propose(_) => "silent",
        };
        self.verdicts.get_or_create(&[("verdict", name)]).inc();
    }
}
