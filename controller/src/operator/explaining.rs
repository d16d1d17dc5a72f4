//! Explanations for operators: what the rules decide from the state and from what was heard.
//!
//! Only the leader's pulses and excuses decide anything, so only the leader explains. The other replicas ask it and
//! pass on its answer.

use std::sync::Arc;

use bytes::Bytes;
use muster_lifecycle::explain::{self, ExcuseNote, NodeObservation};
use muster_lifecycle::node::Node;
use muster_lifecycle::pod::PodKey;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_proto::operation;
use muster_proto::v1;
use muster_proto::v1::pulse_client::PulseClient;
use muster_pulse::moment::Moment;
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::observation;
use muster_raft::peers::Lane;
use muster_raft::replica::Replica;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::door::DoorKind;
use crate::door::certificate_clock::CertificateClock;
use crate::hearing::service::Explains;
use crate::operator::view::resolve_zone;

/// The inputs of an explanation besides the state: the pulse monitor, the clocks, and the nodes that are quarantined.
#[derive(Clone)]
pub struct Insight {
    pulses: Arc<PulseMonitor>,
    now: Arc<dyn Fn() -> Moment + Send + Sync>,
    quarantine: Arc<Quarantine>,
    wall_clock: Option<CertificateClock>,
}

/// Why a node is not watched; `None` if it is.
pub(crate) type Quarantine = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Explains through the leader, wherever it is. Clones share all of it.
#[derive(Clone)]
pub struct Explainer {
    replica: Replica,
    insight: Insight,
}

/// The object to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainSubject {
    Node(String),
    Zone(String),
    Pod(PodKey),
}

// === impl ExplainSubject ===

impl ExplainSubject {
    pub fn parse(kind: &str, namespace: &str, name: &str) -> Result<Self, Status> {
        match kind {
            _ if name.is_empty() => Err(Status::invalid_argument("name: is required")),
            "node" => Ok(Self::Node(name.to_owned())),
            "zone" => Ok(Self::Zone(name.to_owned())),
            "pod" => Ok(Self::Pod(PodKey::new(operation::namespace(namespace.to_owned()), name))),
            other => {
                let message = format!("kind: {other:?} cannot be explained; only node, zone and pod");
                Err(Status::invalid_argument(message))
            }
        }
    }

    fn request(&self, greeting: v1::Greeting) -> v1::PeerExplainRequest {
        let (kind, namespace, name) = match self {
            Self::Node(name) => ("node", "", name.as_str()),
            Self::Zone(name) => ("zone", "", name.as_str()),
            Self::Pod(key) => ("pod", key.namespace.as_str(), key.name.as_str()),
        };
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        v1::PeerExplainRequest { greeting: Some(greeting), kind, name, namespace }
    }
}

// === impl Insight ===

impl Insight {
    pub fn new(pulses: Arc<PulseMonitor>, now: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        Self { pulses, now: Arc::new(now), quarantine: Arc::new(|_| None), wall_clock: None }
    }

    /// Without it, every node counts as watched.
    #[must_use]
    pub fn with_quarantine(mut self, quarantine: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.quarantine = Arc::new(quarantine);
        self
    }

    /// Without it, the wall clock counts as right.
    #[must_use]
    pub fn with_wall_clock(mut self, clock: CertificateClock) -> Self {
        self.wall_clock = Some(clock);
        self
    }

    /// The explanation as JSON, from what this replica itself has heard.
    pub fn explain(&self, state: &State, subject: &ExplainSubject) -> Result<Bytes, Status> {
        match subject {
            ExplainSubject::Node(name) => {
                let observation = state.node(name).map(|node| self.observation(state, node));
                to_json(observation.and_then(|observation| explain::node(state, name, &observation)), "node", name)
            }
            ExplainSubject::Zone(name) => {
                let (zone, moment) = (resolve_zone(state, name)?, (self.now)());
                let mut excuses = observation::of_all_nodes(&self.pulses, moment);
                excuses.extend(self.doubted_clock(moment));
                to_json(explain::zone(state, &zone, &excuses, moment.stamp), "zone", name)
            }
            ExplainSubject::Pod(key) => to_json(explain::pod(state, key, (self.now)().stamp), "pod", &key.to_string()),
        }
    }

    fn observation(&self, state: &State, node: &Node) -> NodeObservation {
        let (note, moment) = ((self.quarantine)(&node.meta.name), (self.now)());
        let mut observation = observation::of_node(state, node, &self.pulses, moment);
        observation.excuses.extend(self.doubted_clock(moment));
        NodeObservation { note, ..observation }
    }

    /// While the wall clock is not believed, no node is refused, and so judged, for a certificate that it says expired.
    fn doubted_clock(&self, moment: Moment) -> Option<ExcuseNote> {
        let jump = self.wall_clock.as_ref()?.jump()?;
        Some(ExcuseNote {
            text: jump.to_string(),
            until: jump.left.after(moment.stamp.cluster),
            concerns_this_node: true,
        })
    }
}

fn to_json<T: Serialize>(explained: Option<T>, noun: &str, name: &str) -> Result<Bytes, Status> {
    let explained = explained.ok_or_else(|| Status::not_found(format!("{noun} {name:?} not found")))?;
    let json = serde_json::to_vec(&explained).map_err(|error| Status::internal(error.to_string()))?;
    Ok(json.into())
}

// === impl Explainer ===

impl Explainer {
    pub fn new(replica: Replica, insight: Insight) -> Self {
        Self { replica, insight }
    }

    /// The leader's explanation as JSON, wherever the leader is.
    pub async fn explain_by_leader(&self, subject: &ExplainSubject, deadline: Instant) -> Result<Bytes, Status> {
        match self.replica.leader() {
            Some(leader) if leader == self.replica.id() => self.insight.explain(&self.replica.current().state, subject),
            Some(leader) => self.ask(leader, subject, deadline).await,
            None => Err(no_leader(self.replica.id())),
        }
    }

    async fn ask(&self, leader: ReplicaId, subject: &ExplainSubject, deadline: Instant) -> Result<Bytes, Status> {
        let reached = self.replica.peer_channel(leader, Lane::Request);
        let (channel, greeting) = reached.ok_or_else(|| no_leader(self.replica.id()))?;
        let limit = DoorKind::Peer.limits().message_bytes;
        let mut client = PulseClient::new(channel).max_decoding_message_size(limit);
        match timeout_at(deadline, client.explain(subject.request(greeting))).await {
            Ok(Ok(answer)) => Ok(answer.into_inner().explanation),
            Ok(Err(status)) => Err(passed_on(leader, &status)),
            Err(_) => Err(Status::unavailable(format!("the leader, replica {leader}, did not answer in time"))),
        }
    }
}

/// Answers peers, and only while this replica leads: another replica would answer from excuses that decide nothing.
#[tonic::async_trait]
impl Explains for Explainer {
    async fn explain(&self, kind: &str, namespace: &str, name: &str) -> Result<Bytes, Status> {
        let subject = ExplainSubject::parse(kind, namespace, name)?;
        match self.replica.leader() {
            Some(leader) if leader == self.replica.id() => {
                self.insight.explain(&self.replica.current().state, &subject)
            }
            Some(_) | None => Err(Status::unavailable(format!("replica {} does not lead", self.replica.id()))),
        }
    }
}

fn no_leader(me: ReplicaId) -> Status {
    Status::unavailable(format!(
        "replica {me} knows no leader, and only a leader knows which nodes it would judge: an election may be under way, or a \
         majority of replicas is missing"
    ))
}

/// An error in the question is reported to the operator as it is. An error between replicas may be over at the next
/// try.
fn passed_on(leader: ReplicaId, status: &Status) -> Status {
    match status.code() {
        code if matches!(code, Code::NotFound | Code::InvalidArgument) => Status::new(code, status.message()),
        _ => Status::unavailable(format!("the leader, replica {leader}, did not explain: {}", status.message())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_lifecycle::command::{Batch, Command, OperatorOperation, Origin, Outcome, Position};
    use muster_lifecycle::meta::Uid;
    use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
    use muster_proto::manifest::node_from_json;
    use muster_pulse::tick::Tick;
    use serde_json::{Value, json};

    use super::*;

    const ME: ReplicaId = ReplicaId(1);
    const OTHER: ReplicaId = ReplicaId(2);
    /// Cluster time is an hour ahead of the replica's own, and wall time another ten.
    const CLUSTER_AHEAD: u64 = 3_600;
    const WALL_AHEAD: u64 = 36_000;

    fn moment(seconds: u64) -> Moment {
        Moment { tick: tick(seconds), stamp: stamp(seconds) }
    }

    fn tick(seconds: u64) -> Tick {
        Tick::since_boot(Duration::from_secs(seconds))
    }

    fn stamp(seconds: u64) -> Stamp {
        let cluster = (seconds + CLUSTER_AHEAD) * 1_000;
        Stamp { cluster: ClusterTime(cluster), wall: WallTime((cluster + WALL_AHEAD * 1_000) as i64) }
    }

    /// One node, created at second 10, ready ever since.
    fn state() -> State {
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": "a", "labels": { "topology.kubernetes.io/zone": "b" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        let draft = Box::new(node_from_json(node.to_string().as_bytes()).unwrap().draft);
        let operation = OperatorOperation::CreateNode { draft, uid: Uid(1) };
        let origin = Origin::Operator { user: "alice".into() };
        let batch =
            Batch { stamp: stamp(10), commands: vec![Command { origin, request: None, operation: operation.into() }] };
        let mut state = State::new();
        let applied = state.apply(Position { term: 1, index: 1 }, &batch);
        assert!(matches!(applied.outcomes[..], [Outcome::Done(_)]), "{applied:?}");
        state
    }

    /// A pulse monitor that knows of another replica, and what it makes of the one node at `seconds`.
    fn insight(seconds: u64) -> Insight {
        let pulses = Arc::new(PulseMonitor::new(ME, Duration::from_secs(2)));
        pulses.admit(OTHER).unwrap();
        Insight::new(pulses, move || moment(seconds))
    }

    fn explained(insight: &Insight, kind: &str, name: &str) -> Value {
        let subject = ExplainSubject::parse(kind, "", name).unwrap();
        serde_json::from_slice(&insight.explain(&state(), &subject).unwrap()).unwrap()
    }

    fn hear_through_the_other(insight: &Insight, seconds: u64) {
        let slot = state().node("a").unwrap().slot;
        let _ = insight.pulses.admit(OTHER).unwrap().beat(slot, tick(seconds));
    }

    #[test]
    fn a_node_is_explained_by_pulses_and_cluster_time() {
        let insight = insight(60);
        hear_through_the_other(&insight, 52);
        let node = explained(&insight, "node", "a");
        assert_eq!(node["headline"]["aside"], "last heard 8 s ago, by replica 2");
        let marked = &node["forecast"][0]["at"];
        assert_eq!(marked["clusterMs"], (52 + 40 + CLUSTER_AHEAD) * 1_000);
        assert_eq!(marked["wallMs"], (52 + 40 + CLUSTER_AHEAD + WALL_AHEAD) * 1_000);
    }

    #[test]
    fn excuses_say_whether_they_concern_the_node_and_move_its_deadline() {
        let insight = insight(60);
        hear_through_the_other(&insight, 15);
        insight.pulses.blindness().digest_missed(OTHER, tick(58));
        insight.pulses.blindness().canary_late(ME, tick(59));
        let node = explained(&insight, "node", "a");
        let excuses = node["excuses"].as_array().unwrap();
        let concerns = |text: &str| {
            let found = excuses.iter().find(|excuse| excuse["text"].as_str().is_some_and(|own| own.contains(text)));
            found.unwrap_or_else(|| panic!("{text:?} is not in {excuses:?}"))["concernsThisNode"].clone()
        };
        assert_eq!(concerns("what replica 2 heard is missing or late"), true);
        assert_eq!(concerns("replica 1's check of its own agent listener is late"), false);
        // Blind since 58, plus twice the longest pause between two attempts to come back.
        assert_eq!(node["forecast"][0]["at"]["clusterMs"], (58 + 4 + CLUSTER_AHEAD) * 1_000);
    }

    #[test]
    fn an_excuse_that_is_over_says_that_agents_may_still_come_back() {
        let insight = insight(60);
        insight.pulses.blindness().quorum_lost(tick(50));
        insight.pulses.blindness().quorum_heard(tick(59));
        let zone = explained(&insight, "zone", "b");
        let text = zone["excuses"][0]["text"].as_str().unwrap();
        assert_eq!(text, "the leader does not hear a quorum; that is over, and agents are given time to come back");
    }

    #[test]
    fn a_zone_shows_only_excuses_that_concern_every_node() {
        let insight = insight(60);
        insight.pulses.blindness().digest_missed(OTHER, tick(58));
        assert_eq!(explained(&insight, "zone", "/b")["excuses"], json!([]));
    }

    #[test]
    fn a_node_that_no_replica_heard_has_a_grace_from_the_end_of_the_takeover() {
        let insight = insight(60);
        insight.pulses.blindness().took_over([OTHER], tick(45));
        insight.pulses.blindness().digest_complete(OTHER, tick(46));
        let node = explained(&insight, "node", "a");
        assert_eq!(node["headline"]["aside"], "no replica remembers having heard it");
        assert_eq!(node["forecast"][0]["at"]["clusterMs"], (46 + 40 + CLUSTER_AHEAD) * 1_000);
    }

    #[test]
    fn a_quarantine_is_explained() {
        let insight = insight(60).with_quarantine(|name| (name == "a").then(|| "watching it crashed".to_owned()));
        let node = explained(&insight, "node", "a");
        assert!(node["facts"].to_string().contains("watching it crashed"), "{node}");
    }

    #[test]
    fn an_unknown_object_or_kind_is_refused_with_the_reason() {
        let refused = |kind: &str, name: &str| {
            let subject = ExplainSubject::parse(kind, "", name);
            let status = subject.and_then(|subject| insight(60).explain(&state(), &subject)).unwrap_err();
            (status.code(), status.message().to_owned())
        };
        let table = [
            ("node", "x", Code::NotFound, "node \"x\" not found"),
            ("zone", "x", Code::NotFound, "zone \"x\" not found"),
            ("node", "", Code::InvalidArgument, "name: is required"),
            ("pod", "x", Code::NotFound, "pod \"default/x\" not found"),
            ("event", "x", Code::InvalidArgument, "kind: \"event\" cannot be explained; only node, zone and pod"),
        ];
        for (kind, name, code, message) in table {
            assert_eq!(refused(kind, name), (code, message.to_owned()));
        }
    }

    #[test]
    fn only_errors_of_the_request_are_final() {
        let passed = |code| passed_on(ReplicaId(3), &Status::new(code, "because")).code();
        assert_eq!((passed(Code::NotFound), passed(Code::InvalidArgument)), (Code::NotFound, Code::InvalidArgument));
        for code in [Code::FailedPrecondition, Code::PermissionDenied, Code::Internal, Code::Unavailable] {
            assert_eq!(passed(code), Code::Unavailable, "{code:?}");
        }
        assert!(passed_on(ReplicaId(3), &Status::internal("x")).message().contains("replica 3"));
    }
}
