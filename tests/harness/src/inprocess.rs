//! Three whole replicas in the test's own process: real storage and real TLS sockets on loopback, but a network
//! between them that can be cut, wall clocks that can be set, and a probe in every actor.

pub mod agents;
pub mod clock;
pub mod disks;
pub mod links;
pub mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::{Probe, Quiet};
use muster_client::{Client, connect};
use muster_controller::config::{Doors, Layer, ServerConfig};
use muster_controller::door::DoorKind;
use muster_controller::door::connector::TlsConnector;
use muster_controller::door::listener::{Listener, Tcp};
use muster_controller::server::{Environment, ServeError, serve_in};
use muster_lifecycle::policy::{Policy, Rate};
use muster_lifecycle::time::Period;
use muster_pki::FleetFolder;
use muster_pki::tls::{self, ReplicaTls};
use muster_proto::v1::member_request::Action;
use muster_proto::v1::{ReplicaStatus, StatusResponse, write_request};
use muster_raft::disk::real::RealDisk;
use muster_raft::replica::Timing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::agents::Agents;
use self::clock::SkewedClock;
use self::disks::FillableDisk;
use self::links::{LinkFault, Links};
use self::view::{NodeView, ObservedVerdict};
use crate::members::{ANSWER_PATIENCE, Members};
use crate::turn::Turn;
use crate::waiting::{PATIENCE, soon};

pub const GRACE: Duration = Duration::from_secs(8);
/// Twice the longest pause of agents between two attempts, which is their beat interval, a quarter of the grace.
pub const REATTACH_WINDOW: Duration = Duration::from_secs(4);

pub const REPLICAS: [u64; 3] = [1, 2, 3];

pub struct InprocessCluster {
    pub members: Members,
    pub client: Client,
    links: Arc<Links>,
    running: BTreeMap<u64, Running>,
    _turn: Turn,
}

struct Running {
    clock: Arc<SkewedClock>,
    disk: Arc<FillableDisk>,
    shutdown: CancellationToken,
    ended: JoinHandle<Result<(), ServeError>>,
}

/// Timings at which a test need not wait long.
pub fn short_policy() -> Policy {
    Policy {
        node_monitor_period: Period::from_secs(1),
        node_monitor_grace_period: Period(u64::try_from(GRACE.as_millis()).unwrap()),
        node_startup_grace_period: Period::from_secs(20),
        node_eviction_rate: Rate(1_000_000),
        secondary_node_eviction_rate: Rate(100_000),
        ..Policy::default()
    }
}

// === impl InprocessCluster ===

impl InprocessCluster {
    pub async fn start() -> Self {
        Self::start_with(short_policy(), Arc::new(Quiet)).await
    }

    pub async fn start_with(policy: Policy, probe: Arc<dyn Probe>) -> Self {
        let turn = Turn::wait().await;
        let members = Members::on_loopback(&REPLICAS);
        let client = members.client();
        let links = Arc::<Links>::default();
        let running = REPLICAS.map(|id| (id, Running::start(&members.fleet, &links, id, &policy, &probe))).into();
        let cluster = Self { members, client, links, running, _turn: turn };
        cluster.settled().await;
        cluster
    }

    /// Ends all replicas. Each of them must have been well to the end.
    pub async fn stop(self) {
        self.running.values().for_each(|running| running.shutdown.cancel());
        for (id, running) in self.running {
            let ended = timeout(PATIENCE, running.ended).await.expect("a replica stops in time");
            ended.expect("a replica does not panic").unwrap_or_else(|error| panic!("replica {id}: {error}"));
        }
    }

    pub async fn write(&self, operation: write_request::Operation) {
        self.client.write(operation).await.unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn clock(&self, id: u64) -> &SkewedClock {
        &self.running[&id].clock
    }

    pub fn disk(&self, id: u64) -> &FillableDisk {
        &self.running[&id].disk
    }

    /// Cuts a replica off from the other two; agents and operators still reach it.
    pub fn isolate(&self, id: u64, fault: LinkFault) {
        self.links.cut(id, REPLICAS.into_iter().filter(|other| *other != id), fault);
    }

    pub fn heal(&self) {
        self.links.heal();
    }

    pub async fn leader(&self) -> u64 {
        soon("a leader", async || self.status().await?.leader.ok_or_else(|| "none".to_owned())).await
    }

    pub async fn hand_over(&self, to: u64) {
        soon("the leader hands over", async || {
            let asked = self.client.member(Action::Transfer(to)).await.map_err(|error| error.to_string());
            let leader = self.status().await?.leader;
            if leader == Some(to) { Ok(()) } else { Err(format!("{leader:?} leads; the last answer was {asked:?}")) }
        })
        .await;
    }

    /// Waits until another replica than this one leads.
    pub async fn leader_other_than(&self, former: u64) -> u64 {
        soon("another leader", async || {
            let leader = self.status().await?.leader;
            leader.filter(|leader| *leader != former).ok_or_else(|| format!("{leader:?} leads"))
        })
        .await
    }

    pub async fn status(&self) -> Result<StatusResponse, String> {
        self.client.status().await.map_err(|error| error.to_string())
    }

    /// Waits until all replicas are up and have the same state at the same index.
    pub async fn settled(&self) {
        soon("all replicas agree", async || {
            let status = self.status().await?;
            let first = status.replicas.first().map(|replica| (replica.applied, replica.digest.clone()));
            let agrees =
                |replica: &ReplicaStatus| replica.reachable && Some((replica.applied, replica.digest.clone())) == first;
            let settled = status.replicas.len() == REPLICAS.len() && status.replicas.iter().all(agrees);
            if settled { Ok(()) } else { Err(format!("{status:#?}")) }
        })
        .await;
    }

    pub async fn nodes(&self) -> BTreeMap<String, NodeView> {
        soon("the nodes can be read", async || view::nodes(&self.client).await).await
    }

    pub async fn verdicts(&self) -> Vec<ObservedVerdict> {
        soon("the events can be read", async || view::verdicts(&self.client).await).await
    }

    /// Waits until all of these nodes are ready and without a taint.
    pub async fn ready(&self, names: &[String]) {
        soon("the nodes are ready", async || {
            let nodes = view::nodes(&self.client).await?;
            let ready = |name: &&String| nodes.get(*name).is_some_and(NodeView::is_ready);
            let missing: Vec<_> = names.iter().filter(|name| !ready(name)).collect();
            let seen = || missing.iter().map(|name| format!("{name}: {:?}\n", nodes.get(*name))).collect();
            if missing.is_empty() { Ok(()) } else { Err(seen()) }
        })
        .await;
    }

    pub async fn seen_when(&self, what: &str, node: &str, is_so: impl Fn(&NodeView) -> bool) -> NodeView {
        soon(&format!("{node} is {what}"), async || {
            let seen = view::nodes(&self.client).await?.remove(node);
            seen.clone().filter(|seen| is_so(seen)).ok_or_else(|| format!("{seen:?}"))
        })
        .await
    }

    /// I-05: in spite of all faults, no node but these was ever marked, evicted or quarantined.
    pub async fn assert_only_touched(&self, guilty: &[&str]) {
        let verdicts = self.verdicts().await;
        let innocent: Vec<_> = verdicts.iter().filter(|verdict| !guilty.contains(&verdict.node.as_str())).collect();
        assert!(innocent.is_empty(), "nodes that were alive were touched: {innocent:#?}");
    }

    /// The metrics of a replica.
    pub async fn metrics(&self, id: u64) -> String {
        let address = self.members.plan(id).http().unwrap().to_string().parse().unwrap();
        let mut tls = tls::operator(&self.members.client_config().tls).unwrap().as_ref().clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut stream = connect(Arc::new(tls), &address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // The last line tells whether the answer is complete, not the way in which the connection ends.
        let _ = timeout(ANSWER_PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer");
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("# EOF"), "no metrics: {answer}");
        answer
    }

    /// Waits until every replica has asked every other one for its table, and got it, after this call.
    pub async fn tables_exchanged(&self) {
        for id in REPLICAS {
            let before = merged_digests(&self.metrics(id).await);
            soon("the replicas tell each other what they heard", async || {
                let now = merged_digests(&self.metrics(id).await);
                // The first digest may have been asked for before.
                let is_told = |(from, count): (&String, &u64)| *count >= before.get(from).unwrap_or(&0) + 2;
                let told = now.len() == REPLICAS.len() - 1 && now.iter().all(is_told);
                if told { Ok(()) } else { Err(format!("replica {id}: {before:?}, then {now:?}")) }
            })
            .await;
        }
    }
}

// === impl Running ===

impl Running {
    fn start(fleet: &FleetFolder, links: &Arc<Links>, id: u64, policy: &Policy, probe: &Arc<dyn Probe>) -> Self {
        let file = Layer::load(&fleet.replica_dir(id).join("config.toml")).unwrap();
        let config =
            ServerConfig { policy: policy.clone(), ..ServerConfig::merge(Some(file), Layer::default()).unwrap() };
        let tls = ReplicaTls::load(&config.tls_dir).unwrap();
        let (clock, shutdown) = (Arc::new(SkewedClock::default()), CancellationToken::new());
        let connector = Arc::new(TlsConnector::new(Arc::clone(&tls.peer_client), config.fleet.clone()));
        let listen = |kind, address| Box::new(Tcp::bind(kind, address).unwrap()) as Box<dyn Listener>;
        let disk = Arc::new(FillableDisk::over(RealDisk::open(&config.data_dir).unwrap()));
        let environment = Environment {
            clock: Arc::clone(&clock) as _,
            disk: Arc::clone(&disk) as _,
            connector: links.cable(id, connector),
            listeners: Doors {
                peer: listen(DoorKind::Peer, config.listen.peer),
                agent: listen(DoorKind::Agent, config.listen.agent),
                client: listen(DoorKind::Client, config.listen.client),
            },
            http: listen(DoorKind::Http, config.listen.http),
            timing: Timing::default(),
            agent_runtime: tokio::runtime::Handle::current(),
            probe: Arc::clone(probe),
        };
        let ended = tokio::spawn(serve_in(environment, config, tls, shutdown.clone()));
        Self { clock, disk, shutdown, ended }
    }
}

/// Thirty nodes in the zones a, b and c, all of them ready, and known as such to every replica.
pub async fn thirty_nodes(cluster: &InprocessCluster) -> Agents {
    let agents = Agents::start(cluster, &["a", "b", "c"], 10);
    cluster.ready(&agents.names()).await;
    cluster.tables_exchanged().await;
    agents
}

/// How many digests of each other replica came in whole, by the label that names it.
fn merged_digests(metrics: &str) -> BTreeMap<String, u64> {
    let merged =
        metrics.lines().filter(|line| line.starts_with("muster_digest_pulls_total{") && line.contains("merged"));
    merged
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(labels, count)| (labels.into(), count.parse().unwrap()))
        .collect()
}
