//! I-25: rolling upgrades and downgrades of real replicas, one of which after the other runs the next build, under load
//! and with a zone lost in the middle. Replicas of both builds agree on every byte, no write is lost, no living node is
//! touched, the way back is free before the level is raised, and is refused in one sentence after it.
//!
//! `MUSTER_UPGRADE_ROUNDS=100` plays so many rounds, through every order of the replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_client::Client;
use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use muster_testing::dev::DevCluster;
use muster_testing::fleet::{self, ListedNode};
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, MUSTER_NEXT, text};
use muster_testing::waiting::{eventually, eventually_within};
use serde_json::{Value, json};
use tonic::Code;

const ORDERS: [[u64; 3]; 6] = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];

/// The pace of the writer. It need not be fast: it has to write at every moment of an upgrade.
const WRITE_PAUSE: Duration = Duration::from_millis(25);
/// The refused replica is looked for in its log, where `dev` starts it again a few times.
const PATIENCE: Duration = Duration::from_secs(120);

const LOST: &str = "b";
const RESERVED: &str = "rehearsal.muster/round";

/// How the level is raised.
#[derive(Debug, Clone, Copy)]
enum Raise {
    ByOperator,
    ByLeader,
}

#[tokio::test(flavor = "multi_thread")]
async fn i_25_replicas_are_upgraded_one_by_one_and_back_under_load() {
    let rounds = std::env::var("MUSTER_UPGRADE_ROUNDS").ok().map(|rounds| rounds.parse::<usize>().unwrap());
    let nodes = if rounds.is_some() { 90 } else { 15 };
    for round in 0..rounds.unwrap_or(1) {
        let order = ORDERS[(round + 3) % ORDERS.len()];
        // Each order comes with either way of raising.
        let raise = if (round + round / ORDERS.len()).is_multiple_of(2) { Raise::ByOperator } else { Raise::ByLeader };
        eprintln!("round {}: replicas {order:?}, level raised {raise:?}", round + 1);
        play(order, nodes, raise).await;
    }
}

async fn play(order: [u64; 3], nodes: usize, raise: Raise) {
    let cluster = Arc::new(tokio::task::spawn_blocking(move || start(nodes)).await.unwrap());
    let (stop, client) = (Arc::new(AtomicBool::new(false)), cluster.client());
    let writing = tokio::spawn(write_until(cluster.client(), Arc::clone(&stop)));
    let (upgraded, handle) = (Arc::clone(&cluster), tokio::runtime::Handle::current());
    let upgrade = move || {
        let upgrade = Upgrade { cluster: &upgraded, client, handle };
        upgrade.roll_out(order);
        upgrade.raise(raise);
        upgrade.try_to_go_back(order[1]);
    };
    tokio::task::spawn_blocking(upgrade).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let names = writing.await.unwrap();
    tokio::task::spawn_blocking(move || check(&cluster, &names)).await.unwrap();
}

fn start(nodes: usize) -> DevCluster {
    let count = nodes.to_string();
    let mut arguments = fleet::SHORT.to_vec();
    let pods = arguments.iter().position(|argument| *argument == "--demo-pods").unwrap();
    arguments[pods + 1] = "2";
    let arguments = [&["--nodes", count.as_str()], &arguments[..], &["--upgrade-finalize-after", "manual"]].concat();
    let cluster = DevCluster::start_installed(&arguments);
    eventually_within(PATIENCE, "all nodes are ready", || {
        let seen = fleet::nodes(&cluster);
        (seen.len() == nodes && seen.values().all(ListedNode::is_ready)).then_some(())
    });
    cluster.ok(&["set", "aggregator", "rack", "--nodes", "rack-*"]);
    cluster
}

/// Creates objects of which none may be missing afterwards. A write may fail only without an answer, and is then
/// repeated under its own number, so that it happens once.
async fn write_until(client: Client, stop: Arc<AtomicBool>) -> Vec<String> {
    let mut names = Vec::new();
    let mut pace = tokio::time::interval(WRITE_PAUSE);
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        let name = format!("load-{}", names.len());
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
        });
        let create = Operation::Create(v1::ManifestWrite { object: object.to_string().into() });
        match client.write(create).await {
            Ok(_) => names.push(name),
            Err(error) if error.code() == Some(Code::AlreadyExists) => names.push(name),
            Err(error) => assert_eq!(error.code(), None, "{name} was refused: {error}"),
        }
    }
    names
}

struct Upgrade<'a> {
    cluster: &'a DevCluster,
    client: Client,
    handle: tokio::runtime::Handle,
}

impl Upgrade<'_> {
    /// One replica after the other, with a zone lost after the first, and one of them back again before the last.
    fn roll_out(&self, [first, second, third]: [u64; 3]) {
        self.expect_level(1, &[]);
        self.run_on(first, &MUSTER_NEXT);
        self.expect_level(1, &[second, third]);
        self.expect_refused("needs level 2; replica");
        fleet::fleet(self.cluster, &["kill", "--zone", LOST]);
        self.run_on(second, &MUSTER_NEXT);
        self.run_on(first, &MUSTER);
        self.expect_level(1, &[first, third]);
        let refused = self.cluster.fails(1, &["upgrade", "finalize"]);
        assert!(refused.contains("(levels 1 to 1)"), "{refused}");
        self.run_on(first, &MUSTER_NEXT);
        eventually_within(PATIENCE, "the lost zone is found", || {
            let nodes = fleet::nodes(self.cluster);
            nodes.values().filter(|node| node.zone == LOST).all(|node| !node.is_ready()).then_some(())
        });
        fleet::fleet(self.cluster, &["resume", "--zone", LOST]);
        self.run_on(third, &MUSTER_NEXT);
        self.expect_level(1, &[]);
        self.expect_refused("needs level 2; level 1 is in force; every replica speaks level 2");
        // The rule of level 1: the label may be set.
        self.label("1").expect("the level is not raised yet");
    }

    fn raise(&self, raise: Raise) {
        match raise {
            Raise::ByOperator => {
                let said = self.cluster.ok(&["upgrade", "finalize"]);
                assert!(said.starts_with("upgrade finalized"), "{said}");
            }
            Raise::ByLeader => drop(self.cluster.ok(&["set", "config", "upgrade-finalize-after=1s"])),
        }
        eventually("the level is raised", || (self.upgrade_status()["level"] == 2).then_some(()));
        self.agree();
        self.note("raised").expect("level 2 is in force");
        let reserved = self.label("2").unwrap_err();
        assert!(reserved.to_string().contains("is reserved"), "{reserved}");
        let again = self.cluster.ok(&["upgrade", "finalize"]);
        assert!(again.starts_with("nothing to finalize: level 2 is in force"), "{again}");
    }

    /// The older build says which version to run, changes nothing, and the newer one goes on from there.
    fn try_to_go_back(&self, id: u64) {
        self.cluster.install(&MUSTER);
        // `dev` reports that the replica does not stay; the reason is in the replica's log.
        let output = self.cluster.muster(&["dev", "restart", &id.to_string()]);
        let wanted = "the cluster is at level 2, which version 0.2.0-rehearsal raised; this is version";
        eventually_within(PATIENCE, "the older build says why it does not start", || {
            self.cluster.log_of(id).contains(wanted).then_some(())
        });
        assert!(self.cluster.log_of(id).contains("run version 0.2.0-rehearsal"), "{}", text(&output.stderr));
        self.note("without it").expect("the other two go on");
        self.run_on(id, &MUSTER_NEXT);
        self.note("with it").expect("all three go on");
        self.agree();
    }

    /// Restarts a replica from this program, as an upgrade does.
    fn run_on(&self, id: u64, program: &std::path::Path) {
        self.cluster.install(program);
        self.cluster.restart(id);
        self.agree();
    }

    /// All replicas answer and had equal states at an equal index while the load goes on.
    fn agree(&self) {
        eventually_within(PATIENCE, "all replicas answer with equal digests", || {
            let status = self.cluster.status()?;
            let replicas = status["replicas"].as_array()?;
            assert!(!self.said("has diverged"), "a replica says that it has diverged");
            let applied = |replica: &Value| (replica["applied"].as_u64(), replica["digest"].clone());
            let all: Vec<_> = replicas.iter().map(applied).collect();
            let reachable = replicas.iter().all(|replica| replica["reachable"] == true);
            for (index, digest) in &all {
                let same_index = all.iter().filter(|(other, _)| other == index);
                assert!(same_index.clone().all(|(_, other)| other == digest), "states differ: {status}");
            }
            (reachable && status["leader"].is_u64() && all.iter().all(|seen| *seen == all[0])).then_some(())
        });
    }

    fn said(&self, words: &str) -> bool {
        (1..=3).any(|id| self.cluster.log_of(id).contains(words))
    }

    fn upgrade_status(&self) -> Value {
        serde_json::from_str(&self.cluster.ok(&["upgrade", "status", "-o", "json"])).unwrap()
    }

    fn expect_level(&self, level: u64, held_back_by: &[u64]) {
        eventually("the upgrade's status is as wanted", || {
            let status = self.upgrade_status();
            let holds = |replica: &&Value| replica["holdsBack"] == true;
            let ids = status["replicas"].as_array()?.iter().filter(holds).filter_map(|replica| replica["id"].as_u64());
            let mut ids: Vec<u64> = ids.collect();
            let mut wanted = held_back_by.to_vec();
            ids.sort_unstable();
            wanted.sort_unstable();
            (status["level"] == level && ids == wanted).then_some(())
        });
    }

    fn expect_refused(&self, why: &str) {
        let refused = self.note("too early").unwrap_err();
        assert_eq!(refused.code(), Some(Code::Unimplemented), "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }

    /// The command of level 2.
    fn note(&self, note: &str) -> Result<v1::WriteResponse, muster_client::Error> {
        let note = v1::RehearsalNote { aggregator: "rack".into(), note: note.into() };
        self.handle.block_on(self.client.write(Operation::RehearseNote(note)))
    }

    /// A label that only level 1 allows.
    fn label(&self, value: &str) -> Result<v1::WriteResponse, muster_client::Error> {
        let name = fleet::nodes(self.cluster).into_keys().next().unwrap();
        let set = [(RESERVED.to_owned(), value.to_owned())].into();
        let edit = v1::PairsEdit { name, set, overwrite: true, ..v1::PairsEdit::default() };
        self.handle.block_on(self.client.write(Operation::Label(edit)))
    }
}

fn check(cluster: &DevCluster, names: &[String]) {
    fleet::all_ready(cluster);
    cluster.settle();
    let listed = cluster.ok(&["get", "replicasets", "-o", "name"]);
    assert!(names.len() > 100, "only {} writes", names.len());
    for name in names {
        assert!(listed.contains(&format!("replicaset/{name}\n")), "{name} was acknowledged and is missing");
    }
    let lost = fleet::first_of_zone(cluster, LOST, usize::MAX);
    fleet::assert_only_touched(cluster, &lost);
    for id in 1..=3 {
        assert!(!cluster.log_of(id).contains("has diverged"), "replica {id} says that it has diverged");
    }
}
