//! Who speaks for a node, on a whole cluster with real agents: one session per node wherever it is held (I-14), sessions
//! that move without a write, nodes that are deleted under their agents, and aggregators that carry many.
#![allow(clippy::unwrap_used)]

mod inprocess;

use std::sync::Arc;

use inprocess::agents::{Agents, REGION, node_name};
use inprocess::view::{self, Seen, TAINTED};
use inprocess::{Cluster, REPLICAS, eventually, short_policy};
use muster_actors::surroundings::Quiet;
use muster_controller::tls;
use muster_lifecycle::policy::Policy;
use muster_node_agent::Failure;
use muster_node_agent::carrier::{CarriedNode, Carrier, CarrierConfig, CarrierHandle};
use muster_node_agent::session::{Session, SessionConfig, SessionHandle, SessionState};
use muster_node_agent::simulated::SimulatedMachine;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{AggregatorScope, Delete};
use rustls::ClientConfig;
use tokio::time::sleep;
use tonic::Code;

const NODE: &str = "node-x-01";
const FIRST: u64 = 0xab12_0000_0000_0001;
const SECOND: u64 = 0xcd34_0000_0000_0002;
const CARRIED: usize = 50;

// === one session per node ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i_14_a_second_instance_is_refused_wherever_it_comes_and_the_first_moves_freely() {
    let cluster = Cluster::start().await;
    let (here, there) = (REPLICAS[0], REPLICAS[1]);
    let tls = cluster.node_tls(NODE);
    let first = agent(&cluster, &tls, here, FIRST);
    attached(&first, here).await;
    cluster.ready(&[NODE.to_owned()]).await;

    for elsewhere in [there, REPLICAS[2]] {
        let clone = agent(&cluster, &tls, elsewhere, SECOND);
        let refusal = state_when(&clone, "refused", |state| is_refused(state, here)).await;
        assert_eq!(refusal.attached_to, None);
        clone.stop().await;
    }
    assert_eq!(first.state().attached_to, Some(here), "the first was disturbed");

    // Nothing but sessions moves from here on, so that any write would show.
    let before = revision(&cluster).await;
    let moved = agent(&cluster, &tls, there, FIRST);
    attached(&moved, there).await;
    state_when(&first, "told so", |state| is_lost(state, &format!("continued at replica {there}"))).await;
    drop(first);
    // The first may have come back for a moment; its end leaves the session to the one that is still there.
    attached(&moved, there).await;
    moved.acknowledged(inprocess::PATIENCE).await.unwrap();
    assert_eq!(moved.state().incarnation, incarnation_of_welcome(&moved), "it is the same life");
    drop(moved);
    let back = agent(&cluster, &tls, here, FIRST);
    attached(&back, here).await;
    back.acknowledged(inprocess::PATIENCE).await.unwrap();
    assert_eq!(revision(&cluster).await, before, "resuming a session wrote something");

    deleting_the_node_makes_its_agent_register_anew(&cluster, &back).await;
    cluster.assert_only_touched(&[]).await;
    cluster.settled().await;
    cluster.stop().await;
}
