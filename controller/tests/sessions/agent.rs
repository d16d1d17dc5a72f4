//! Scripted agents and aggregators, which say exactly what a test tells them to.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::channel::mpsc;
use hyper_util::rt::TokioIo;
use muster_client::connect;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{Issued, tls};
use muster_proto::v1;
use muster_proto::v1::agent_client::AgentClient;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::aggregator_reply::Message as AggregatorDown;
use muster_proto::v1::server_message::Message as Down;
use rustls::ClientConfig;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use crate::cluster::{Cluster, PATIENCE};

/// One node's stream.
pub struct Agent {
    up: mpsc::UnboundedSender<v1::AgentMessage>,
    down: Streaming<v1::ServerMessage>,
    /// Orders that arrived before the test asked for them.
    orders: VecDeque<v1::PodOrders>,
}

/// An aggregator's stream.
pub struct Aggregator {
    up: mpsc::UnboundedSender<v1::AggregatorMessage>,
    down: Streaming<v1::AggregatorReply>,
}

/// A connection to the agents' door of replica `id`.
pub async fn dial(cluster: &Cluster, id: ReplicaId, issued: &Issued) -> Channel {
    let ca = cluster.members.fleet.client_authority().certificate_pem();
    let tls = tls::agent(ca, &issued.certificate, &issued.key).unwrap();
    dial_with(cluster, id, tls).await.unwrap()
}

/// The same with any TLS configuration.
pub async fn dial_with(
    cluster: &Cluster,
    id: ReplicaId,
    tls: Arc<ClientConfig>,
) -> Result<Channel, tonic::transport::Error> {
    let host = cluster.plan(id).agent.clone();
    let connect = tower::service_fn(move |_| {
        let (tls, host) = (Arc::clone(&tls), host.clone());
        async move { connect(tls, &host).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://replica.test").connect_with_connector(connect).await
}

pub fn hello(node: &str, instance: u64) -> v1::Hello {
    v1::Hello { node: node.to_owned(), instance, ..v1::Hello::default() }
}

// === impl Agent ===

impl Agent {
    /// Opens a stream with the certificate of `node`; nothing is said yet.
    pub async fn open(cluster: &Cluster, id: ReplicaId, node: &str) -> Self {
        let channel = dial(cluster, id, &cluster.members.fleet.issue_node(node).unwrap()).await;
        Self::on(channel).await.unwrap()
    }

    /// Opens a stream on a connection.
    pub async fn on(channel: Channel) -> Result<Self, Status> {
        let (up, messages) = mpsc::unbounded();
        let down = AgentClient::new(channel).session(messages).await?.into_inner();
        Ok(Self { up, down, orders: VecDeque::new() })
    }

    /// Opens a stream and says hello on it.
    pub async fn greet(cluster: &Cluster, id: ReplicaId, hello: v1::Hello) -> Self {
        let mut agent = Self::open(cluster, id, &hello.node.clone()).await;
        agent.say(Up::Hello(hello));
        agent
    }

    /// Opens a stream for a node that registers and is welcomed.
    pub async fn register(cluster: &Cluster, id: ReplicaId, hello: v1::Hello) -> (Self, v1::Welcome) {
        let node = hello.node.clone();
        let mut agent = Self::greet(cluster, id, hello).await;
        assert!(matches!(agent.hear().await, Down::RegistrationWanted(_)));
        agent.say(Up::Register(v1::Register { node: node_json(&node).into(), running: None }));
        let welcome = agent.welcomed().await;
        (agent, welcome)
    }

    pub fn say(&mut self, message: Up) {
        self.up.unbounded_send(v1::AgentMessage { message: Some(message) }).unwrap();
    }

    pub fn say_nothing_known(&mut self) {
        self.up.unbounded_send(v1::AgentMessage { message: None }).unwrap();
    }

    pub fn report(&mut self, sequence: u64, status: &str) {
        self.say(Up::Status(v1::StatusReport { sequence, status: status.to_owned().into(), running: None }));
    }

    /// Orders about pods are kept apart: they may come at any time.
    pub async fn try_hear(&mut self) -> Result<Option<Down>, Status> {
        loop {
            let heard = timeout(PATIENCE, self.down.message()).await.expect("an answer")?;
            match heard.map(|message| message.message.expect("a known message")) {
                Some(Down::Pods(orders)) => self.orders.push_back(orders),
                other => return Ok(other),
            }
        }
    }

    /// Orders that came while something else was waited for.
    pub fn heard_orders(&self) -> usize {
        self.orders.len()
    }

    /// The next orders with content; other messages before them are dropped.
    pub async fn ordered(&mut self) -> v1::PodOrders {
        loop {
            let orders = match self.orders.pop_front() {
                Some(orders) => orders,
                None => match timeout(PATIENCE, self.down.message()).await.expect("orders").unwrap().unwrap().message {
                    Some(Down::Pods(orders)) => orders,
                    Some(_) | None => continue,
                },
            };
            if !orders.orders.is_empty() {
                return orders;
            }
        }
    }

    pub async fn hear(&mut self) -> Down {
        self.try_hear().await.expect("the stream goes on").expect("the stream goes on")
    }

    pub async fn welcomed(&mut self) -> v1::Welcome {
        match self.hear().await {
            Down::Welcome(welcome) => welcome,
            other => panic!("not welcomed but told {other:?}"),
        }
    }

    /// The next answer to a report; other messages before it are dropped.
    pub async fn status_taken(&mut self) -> v1::StatusTaken {
        loop {
            if let Down::StatusTaken(taken) = self.hear().await {
                return taken;
            }
        }
    }

    /// Why the stream ends.
    pub async fn refusal(&mut self) -> Status {
        loop {
            match self.try_hear().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a reason"),
                Err(status) => return status,
            }
        }
    }
}

// === impl Aggregator ===

impl Aggregator {
    pub async fn greet(cluster: &Cluster, id: ReplicaId, aggregator: &str, instance: u64) -> Self {
        let issued = cluster.members.fleet.issue_aggregator(aggregator).unwrap();
        let mut client = AgentClient::new(dial(cluster, id, &issued).await);
        let (up, messages) = mpsc::unbounded();
        let down = client.carry(messages).await.unwrap().into_inner();
        let mut aggregator = Self { up, down };
        aggregator.say(AggregatorUp::Hello(v1::AggregatorHello { instance, ..v1::AggregatorHello::default() }));
        aggregator
    }

    pub fn say(&mut self, message: AggregatorUp) {
        self.up.unbounded_send(v1::AggregatorMessage { message: Some(message) }).unwrap();
    }

    pub fn bind(&mut self, nodes: &[(u32, &str)]) {
        let binding = |(handle, node): &(u32, &str)| v1::Binding {
            handle: *handle,
            node: (*node).into(),
            incarnation: 0,
            orders_revision: 0,
            continues: false,
        };
        self.say(AggregatorUp::Bind(v1::Bind { bindings: nodes.iter().map(binding).collect() }));
    }

    /// Skips orders about pods that are empty.
    pub async fn try_hear(&mut self) -> Result<Option<AggregatorDown>, Status> {
        loop {
            let heard = timeout(PATIENCE, self.down.message()).await.expect("an answer")?;
            let heard = heard.map(|message| message.message.expect("a known message"));
            if !heard.as_ref().is_some_and(are_no_orders) {
                return Ok(heard);
            }
        }
    }

    pub async fn hear(&mut self) -> AggregatorDown {
        self.try_hear().await.expect("the stream goes on").expect("the stream goes on")
    }

    /// The next message about bindings, by handle.
    pub async fn bound(&mut self) -> Vec<v1::BoundNode> {
        match self.hear().await {
            AggregatorDown::Bound(mut bound) => {
                bound.nodes.sort_by_key(|node| node.handle);
                bound.nodes
            }
            other => panic!("not about bindings: {other:?}"),
        }
    }

    /// The messages about `count` bindings, by handle: not all of them are answered at once.
    pub async fn all_bound(&mut self, count: usize) -> Vec<v1::BoundNode> {
        let mut nodes = Vec::new();
        while nodes.len() < count {
            nodes.extend(self.bound().await);
        }
        nodes.sort_by_key(|node| node.handle);
        nodes
    }

    /// The next message about one node.
    pub async fn carried(&mut self) -> (u32, Down) {
        match self.hear().await {
            AggregatorDown::Carried(v1::Carried { handle, message: Some(message) }) => {
                (handle, message.message.unwrap())
            }
            other => panic!("not about one node: {other:?}"),
        }
    }
}

fn are_no_orders(heard: &AggregatorDown) -> bool {
    let AggregatorDown::Carried(v1::Carried { message: Some(message), .. }) = heard else { return false };
    matches!(&message.message, Some(Down::Pods(orders)) if orders.orders.is_empty())
}

/// A Ready status, with a heartbeat of that second.
pub fn status_json(second: u32) -> String {
    format!(
        r#"{{"capacity":{{"cpu":"8"}},"conditions":[{{"type":"Ready","status":"True","reason":"KubeletReady",
            "message":"kubelet is posting ready status","lastHeartbeatTime":"2026-01-01T00:00:{second:02}Z"}}]}}"#
    )
}

pub fn node_json(name: &str) -> String {
    let status = status_json(0);
    format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}"}},"status":{status}}}"#)
}
