//! Sessions of nodes, on a whole cluster with real agents: one session per node wherever it is held (I-14), sessions
//! that move without a write, nodes that are deleted under their agents, and aggregators that carry many.

use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::Quiet;
use muster_lifecycle::policy::Policy;
use muster_node_agent::SessionFailure;
use muster_node_agent::aggregator::{AggregatedNode, AggregatorConfig, AggregatorHandle, AggregatorSession};
use muster_node_agent::session::{Session, SessionConfig, SessionHandle, SessionState};
use muster_node_agent::simulated::SimulatedMachine;
use muster_pki::tls;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{AggregatorScope, Delete};
use muster_testing::inprocess::agents::{Agents, REGION};
use muster_testing::inprocess::view::{self, NodeView, TAINTED};
use muster_testing::inprocess::{InprocessCluster, REPLICAS, short_policy};
use muster_testing::waiting::{PATIENCE, soon};
use rustls::ClientConfig;
use tokio::time::{sleep, timeout};
use tonic::Code;

const NODE: &str = "node-x-01";
const FIRST: u64 = 0xab12_0000_0000_0001;
const SECOND: u64 = 0xcd34_0000_0000_0002;
/// The replicas at which sessions are held and moved to.
const HERE: u64 = REPLICAS[0];
const THERE: u64 = REPLICAS[1];
/// Longer than a leader's rounds are apart.
const AT_REST: Duration = Duration::from_secs(2);

/// An aggregator, and the zone of the nodes it carries.
const RACK: &str = "rack";
const CARRIED: usize = 50;
const STRANGER: &str = "stranger-01";
/// At one per second.
const SEVERAL_TOKENS: Duration = Duration::from_secs(4);

// === one session per node ===

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i_14_a_second_instance_is_refused_at_any_replica_with_the_name_of_the_holder() {
    let cluster = InprocessCluster::start().await;
    let machine = Machine::new(&cluster);
    let first = machine.agent(&cluster, HERE, FIRST);
    attached(&first, HERE).await;
    cluster.ready(&[NODE.to_owned()]).await;
    for elsewhere in [THERE, HERE] {
        let clone = machine.agent(&cluster, elsewhere, SECOND);
        let refused = state_when(&clone, "refused", |state| refusal(state).is_some()).await;
        let (code, message) = refusal(&refused).unwrap();
        assert_eq!((refused.attached_to, code), (None, Code::AlreadyExists));
        let named = format!("another instance (ab12…) at replica {HERE} from 127.");
        assert!(message.contains(&named), "{message}");
    }
    first.acknowledged(PATIENCE).await.expect("the first goes on");
    // The end of the first lets the second in.
    first.stop().await;
    let second = machine.agent(&cluster, THERE, SECOND);
    attached(&second, THERE).await;
    cluster.assert_only_touched(&[]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_moves_between_replicas_without_a_write() {
    let cluster = InprocessCluster::start().await;
    let machine = Machine::new(&cluster);
    let first = machine.agent(&cluster, HERE, FIRST);
    let welcome = attached(&first, HERE).await;
    let before = revision_at_rest(&cluster).await;
    let moved = machine.agent(&cluster, THERE, FIRST);
    let continued = format!("continued at replica {THERE}");
    let (again, _) = tokio::join!(
        attached(&moved, THERE),
        state_when(&first, "told where it goes on", |state| is_lost(state, &continued)),
    );
    assert_eq!(again.incarnation, welcome.incarnation);
    // Both are one agent, so each may take the session from the other, until one of them is gone.
    drop(first);
    moved.acknowledged(PATIENCE).await.unwrap();
    // An agent that vanished comes back to where it was, with no memory.
    drop(moved);
    let back = machine.agent(&cluster, HERE, FIRST);
    assert_eq!(attached(&back, HERE).await.incarnation, welcome.incarnation);
    back.acknowledged(PATIENCE).await.unwrap();
    assert_eq!(revision(&cluster).await.unwrap(), before, "resuming a session wrote something");
    cluster.assert_only_touched(&[]).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_deleted_while_its_agent_runs_registers_as_a_new_incarnation() {
    let cluster = InprocessCluster::start().await;
    let machine = Machine::new(&cluster);
    let agent = machine.agent(&cluster, THERE, FIRST);
    let former = attached(&agent, THERE).await;
    let seen = cluster.seen_when("ready", NODE, NodeView::is_ready).await;
    let delete = Delete { kind: "nodes".into(), name: NODE.into(), precondition: None, ..Default::default() };
    cluster.write(Operation::Delete(delete)).await;
    let is_reborn = |state: &SessionState| state.removals == 1 && state.incarnation > former.incarnation;
    let anew = state_when(&agent, "registered anew", is_reborn).await;
    assert_eq!(anew.attached_to, Some(THERE), "its stream went on");
    let reborn = cluster.seen_when("ready again", NODE, NodeView::is_ready).await;
    assert_ne!(reborn.uid, seen.uid, "it is another Node");
    cluster.assert_only_touched(&[]).await;
    cluster.settled().await;
    cluster.stop().await;
}

/// One machine, for which more than one agent claims to speak.
struct Machine {
    tls: Arc<ClientConfig>,
    simulated: Arc<SimulatedMachine>,
}

impl Machine {
    fn new(cluster: &InprocessCluster) -> Self {
        Self { tls: cluster.members.node_tls(NODE), simulated: Arc::new(SimulatedMachine::new(NODE, REGION, "x", 0)) }
    }

    /// An agent that knows this replica only.
    fn agent(&self, cluster: &InprocessCluster, replica: u64, instance: u64) -> SessionHandle {
        let index = REPLICAS.iter().position(|id| *id == replica).unwrap();
        let config = SessionConfig {
            node: NODE.into(),
            endpoints: vec![cluster.members.agent_doors().swap_remove(index)],
            tls: Arc::clone(&self.tls),
            instance,
            version: "test".into(),
        };
        Session::start(config, Arc::clone(&self.simulated) as _).unwrap()
    }
}

async fn attached(agent: &SessionHandle, replica: u64) -> SessionState {
    state_when(agent, "attached", |state| state.attached_to == Some(replica)).await
}

async fn state_when(agent: &SessionHandle, what: &str, is_so: impl Fn(&SessionState) -> bool) -> SessionState {
    let mut states = agent.events();
    let found = timeout(PATIENCE, states.wait_for(|state| is_so(state))).await.map(|state| state.unwrap().clone());
    found.unwrap_or_else(|_| panic!("waited in vain for an agent that is {what}: {:?}", agent.state()))
}

fn refusal(state: &SessionState) -> Option<(Code, &str)> {
    let SessionFailure::Refused { code, message, .. } = state.last_error.as_ref()? else { return None };
    Some((*code, message))
}

fn is_lost(state: &SessionState, why: &str) -> bool {
    matches!(&state.last_error, Some(SessionFailure::Lost { reason, .. }) if reason.contains(why))
}

async fn revision(cluster: &InprocessCluster) -> Result<u64, String> {
    Ok(cluster.status().await?.revision)
}

/// Waits until nothing is written any more: the node is ready and its zone was assessed.
async fn revision_at_rest(cluster: &InprocessCluster) -> u64 {
    cluster.ready(&[NODE.to_owned()]).await;
    soon("nothing is written", async || {
        let zone = view::zone_status(&cluster.client, &format!("{REGION}/x")).await?;
        let before = revision(cluster).await?;
        sleep(AT_REST).await;
        let after = revision(cluster).await?;
        if zone["state"] == "Normal" && before == after { Ok(after) } else { Err(format!("{before}, {after}, {zone}")) }
    })
    .await
}

// === aggregators ===

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i_06_the_loss_of_an_aggregator_of_fifty_nodes_stops_evictions_in_its_zone() {
    // The threshold is so high that a disrupted zone of this size evicts no node at all.
    let policy = Policy { large_cluster_size_threshold: 100, ..short_policy() };
    let cluster = InprocessCluster::start_with(policy, Arc::new(Quiet)).await;
    let own = Agents::start(&cluster, &[RACK], 10);
    let (fine, tls) = (own.names(), aggregator_tls(&cluster));
    let scope = AggregatorScope { name: RACK.into(), nodes: vec!["rack-*".into()] };
    cluster.write(Operation::Aggregator(scope)).await;
    let aggregator = carry(&cluster, &tls);
    let carried: Vec<String> = (1..=CARRIED).map(|number| format!("rack-{number:02}")).collect();
    cluster.ready(&[fine.clone(), carried.clone()].concat()).await;
    expect_one_out_of_scope(&cluster, &aggregator).await;

    drop(aggregator);
    let names: Vec<&str> = carried.iter().map(String::as_str).collect();
    soon("all that it carried are unknown", async || {
        let nodes = view::nodes(&cluster.client).await?;
        let left: Vec<_> = names.iter().filter(|name| !nodes[**name].is_unknown()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    expect_the_brake_holds(&cluster).await;
    cluster.assert_only_touched(&names).await;

    let _again = carry(&cluster, &tls);
    cluster.ready(&[fine, carried.clone()].concat()).await;
    cluster.assert_only_touched(&names).await;
    cluster.stop().await;
}

fn aggregator_tls(cluster: &InprocessCluster) -> Arc<ClientConfig> {
    let issued = cluster.members.fleet.issue_aggregator(RACK).unwrap();
    let authority = cluster.members.fleet.client_authority().certificate_pem();
    tls::agent(authority, &issued.certificate, &issued.key).unwrap()
}

/// Carries fifty nodes of its scope, and tries one outside of it.
fn carry(cluster: &InprocessCluster, tls: &Arc<ClientConfig>) -> AggregatorHandle {
    let names = (1..=CARRIED).map(|number| format!("rack-{number:02}")).chain([STRANGER.to_owned()]);
    let node = |(number, name): (u32, String)| {
        let machine = Arc::new(SimulatedMachine::new(&name, REGION, RACK, number));
        AggregatedNode { name, machine }
    };
    let config = AggregatorConfig {
        endpoints: cluster.members.agent_doors(),
        tls: Arc::clone(tls),
        instance: rand::random(),
        version: "test".into(),
    };
    AggregatorSession::start(config, (100..).zip(names).map(node).collect()).unwrap()
}

async fn expect_one_out_of_scope(cluster: &InprocessCluster, aggregator: &AggregatorHandle) {
    let state = soon("all in its scope are bound, one is refused", async || {
        let state = aggregator.state();
        let figures = (state.bound, state.registering, state.refused);
        if figures == (CARRIED, 0, 1) { Ok(state) } else { Err(format!("{state:?}")) }
    })
    .await;
    let error = state.last_error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(error.contains(STRANGER) && error.contains("not in the scope"), "{state:?}");
    assert!(!cluster.nodes().await.contains_key(STRANGER));
}

/// Some may have been evicted before the zone was found disrupted; from then on none is.
async fn expect_the_brake_holds(cluster: &InprocessCluster) {
    let zone = soon("the zone is disrupted", async || {
        let zone = view::zone_status(&cluster.client, &format!("{REGION}/{RACK}")).await?;
        if zone["state"] == "PartialDisruption" { Ok(zone) } else { Err(zone.to_string()) }
    })
    .await;
    assert_eq!((&zone["evictionRate"], &zone["ready"]), (&0.0.into(), &10.into()), "{zone}");
    let before = evictions(cluster).await;
    assert!(before < CARRIED / 4, "{before} nodes were evicted before the brake");
    sleep(SEVERAL_TOKENS).await;
    assert_eq!(evictions(cluster).await, before, "a node was evicted although its zone is disrupted");
}

async fn evictions(cluster: &InprocessCluster) -> usize {
    cluster.verdicts().await.iter().filter(|verdict| verdict.reason == TAINTED).count()
}
