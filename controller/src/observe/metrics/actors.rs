//! Metrics of the actors: how many run, how often they were restarted, and how many nodes are quarantined.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::{Label, registered};

#[derive(Debug)]
pub struct Actors {
    /// Nodes whose actor kept crashing and is no longer restarted.
    pub quarantined: Gauge,
    running: Family<Label, Gauge>,
    restarts: Family<Label, Counter>,
}

impl Actors {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            quarantined: registered(registry, "muster_actors_quarantined", "Nodes whose actor is not restarted"),
            running: registered(registry, "muster_actors", "Actors that run at this replica, by kind"),
            restarts: registered(registry, "muster_actor_restarts", "Actors restarted after a failure, by kind"),
        }
    }

    /// The gauge of one kind, to be kept: actors come and go by the hundred thousand when leadership moves.
    pub fn running(&self, kind: &'static str) -> Gauge {
        self.running.get_or_create_owned(&[("kind", kind)])
    }

    pub fn restarted(&self, kind: &'static str) {
        self.restarts.get_or_create(&[("kind", kind)]).inc();
    }
}
