//! The duties of a replica besides its doors: it hears its peers and itself, serves sessions, and leads when elected.
//!
//! ```text
//!   hearing (tables, excuses) <-- exchange, canary, contact
//!      |            |
//!   sessions     leading --> the supervision tree
//! ```

mod performed;

use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::Probe;
use muster_pki::tls::ReplicaTls;
use muster_proto::v1::operator_server::OperatorServer;
use muster_proto::v1::pulse_server::PulseServer;
use muster_raft::clock::Clock;
use muster_raft::replica::Replica;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::door::certificate_clock::CertificateClock;
use crate::door::connector::TlsConnector;
use crate::door::handshakes::Handshakes;
use crate::hearing::canary::Canary;
use crate::hearing::contact::Contact;
use crate::hearing::service::{PulseService, pulse_service};
use crate::hearing::{Hearing, exchange};
use crate::leading::growth::TreeGrowth;
use crate::leading::{Leading, QuarantinedNodes};
use crate::observe::http::Sources;
use crate::observe::metrics::Metrics;
use crate::observe::observer::{self, MeteredTree};
use crate::operator::explaining::{Explainer, Insight};
use crate::operator::pulses::Pulses;
use crate::operator::service::OperatorService;
use crate::session::Sessions;
use crate::session::heartbeats;

pub use performed::Abandoned;
pub(crate) use performed::Performed;

/// The parts of one replica that share its [`Hearing`].
pub(crate) struct Duties {
    pub(crate) replica: Replica,
    pub(crate) sessions: Sessions,
    pub(crate) certificates: CertificateClock,
    hearing: Hearing,
    contact: Contact,
    metrics: Arc<Metrics>,
    quarantined: QuarantinedNodes,
    growth: TreeGrowth,
    probe: Arc<dyn Probe>,
}

// === impl Duties ===

impl Duties {
    /// `handshakes` are those of the agents' door.
    pub(crate) fn new(
        config: &ServerConfig,
        replica: &Replica,
        (clock, certificates): (Arc<dyn Clock>, CertificateClock),
        probe: Arc<dyn Probe>,
        handshakes: Handshakes,
    ) -> Self {
        // Agents pause no longer between two attempts than between two beats. A leader keeps this up to date.
        let backoff_cap = Duration::from_millis(replica.current().state.policy().beat_interval().0);
        let feed = Arc::clone(replica.feed());
        let hearing = Hearing::new(config.id, backoff_cap, clock, feed, handshakes);
        let contact = Contact::new(hearing.clone());
        let sessions = Sessions::new(replica.clone(), hearing.clone(), contact.clone());
        let (metrics, quarantined, growth) = (Arc::default(), QuarantinedNodes::default(), TreeGrowth::default());
        Self { replica: replica.clone(), sessions, certificates, hearing, contact, metrics, quarantined, growth, probe }
    }

    /// Starts every duty. They end soon after `stop`.
    pub(crate) fn perform(
        &self,
        config: &ServerConfig,
        tls: &ReplicaTls,
        stop: &CancellationToken,
        performed: &mut Performed,
    ) {
        let (replica, hearing, metrics) = (&self.replica, &self.hearing, &self.metrics);
        let connector = TlsConnector::new(Arc::clone(&tls.canary), config.fleet.clone());
        let connector = Arc::new(connector.timed_by(&self.certificates));
        let canary = Canary::new(hearing.clone(), connector, config.advertise.agent.clone());
        let exchange = exchange::run(hearing.clone(), replica.clone(), Arc::clone(metrics), stop.clone());
        let sampling = observer::sample(Arc::clone(metrics), replica.clone(), hearing.clone(), stop.clone());
        let wall_clock = observer::watch_wall_clock(Arc::clone(metrics), self.certificates.clone(), stop.clone());
        performed.begin("listening to the other replicas", exchange);
        performed.begin("looking for the leader", self.contact.clone().run(replica.clone(), stop.clone()));
        performed.begin("the canary", canary.run(stop.clone()));
        performed.begin("looking after the sessions", self.sessions.clone().run(stop.clone()));
        performed.begin("sampling for metrics", sampling);
        performed.begin("watching the wall clock", wall_clock);
        performed.begin("leading", self.leading(config).run(stop.clone()));
    }

    pub(crate) fn pulse_service(&self) -> PulseServer<PulseService> {
        let explainer = Arc::new(self.explainer());
        pulse_service(self.replica.clone(), self.hearing.clone(), self.sessions.claims(), explainer)
    }

    pub(crate) fn operator_service(&self) -> OperatorServer<OperatorService> {
        let (hearing, feed) = (self.hearing.clone(), Arc::clone(self.replica.feed()));
        let last_heard = move |node: &_| heartbeats::rendered(node, &hearing, &feed);
        OperatorService::new(self.replica.clone())
            .explained_by(self.explainer())
            .dated_by(Arc::new(last_heard))
            .vouching_to(self.hearing.clone())
            .telling_time_by(self.certificates.clone())
            .hearing(Pulses::new(self.replica.clone(), self.hearing.clone()))
            .into_server()
    }

    pub(crate) fn sources(&self) -> Sources {
        let figures = Arc::clone(self.sessions.figures());
        let health = (&self.contact, &self.growth);
        observer::sources(Arc::clone(&self.metrics), &self.replica, &self.hearing, health, figures)
    }

    fn explainer(&self) -> Explainer {
        let (hearing, quarantined) = (self.hearing.clone(), self.quarantined.clone());
        let insight = Insight::new(Arc::clone(self.hearing.pulses()), move || hearing.moment())
            .with_quarantine(move |node| quarantined.reason(node))
            .with_wall_clock(self.certificates.clone());
        Explainer::new(self.replica.clone(), insight)
    }

    fn leading(&self, config: &ServerConfig) -> Leading {
        Leading {
            replica: self.replica.clone(),
            hearing: self.hearing.clone(),
            initial_policy: config.policy.clone(),
            explicit: config.explicit_policy.clone(),
            addressing: config.addressing.clone(),
            metrics: Arc::clone(&self.metrics),
            observer: Arc::new(MeteredTree(Arc::clone(&self.metrics))),
            probe: Arc::clone(&self.probe),
            quarantined: self.quarantined.clone(),
            growth: self.growth.clone(),
        }
    }
}
