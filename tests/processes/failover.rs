//! Crashes under load: nothing acknowledged is lost, nothing rejected appears, watchers miss nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use muster_client::{Client, Query};
use muster_proto::v1;
use muster_proto::v1::watch_event::Type;
use muster_proto::v1::write_request::Operation;
use muster_testing::dev::DevCluster;
use muster_testing::operator::Operator;
use muster_testing::waiting::eventually;
use serde_json::{Value, json};
use tonic::Code;

const CLIENTS: usize = 8;
const KILLS: usize = 20;

/// The promise that a client got about one node name that only it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Promise {
    Absent,
    Present {
        cordoned: bool,
    },
    /// The outcome of the last write is not known: either is allowed.
    Either(Box<Promise>, Box<Promise>),
}

impl Promise {
    fn allows(&self, node: Option<&Value>) -> bool {
        match self {
            Self::Absent => node.is_none(),
            Self::Present { cordoned } => {
                node.is_some_and(|node| node["spec"]["unschedulable"].as_bool().unwrap_or(false) == *cordoned)
            }
            Self::Either(one, other) => one.allows(node) || other.allows(node),
        }
    }
}

/// One of the eight clients: creates, cordons and deletes nodes of its own until told to stop.
struct Worker {
    client: Client,
    number: usize,
    promises: BTreeMap<String, Promise>,
    acknowledged: Arc<AtomicU64>,
    last_revision: u64,
}

impl Worker {
    async fn work(mut self, stop: Arc<AtomicBool>) -> BTreeMap<String, Promise> {
        let mut round = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let name = format!("w{}-n{}", self.number, round % 40);
            round += 1;
            let now = self.promises.get(&name).cloned().unwrap_or(Promise::Absent);
            match now {
                Promise::Absent => {
                    self.write(&name, create(&name), now, Promise::Present { cordoned: false }).await;
                    self.expect_rejection(create(&name), Code::AlreadyExists, &name).await;
                }
                Promise::Present { cordoned: false } => {
                    self.write(&name, cordon(&name), now, Promise::Present { cordoned: true }).await;
                }
                Promise::Present { cordoned: true } => self.write(&name, delete(&name), now, Promise::Absent).await,
                Promise::Either(..) => self.find_out(&name).await,
            }
        }
        self.promises
    }

    async fn write(&mut self, name: &str, operation: Operation, before: Promise, after: Promise) {
        match self.client.write(operation).await {
            Ok(written) => {
                assert!(written.revision > self.last_revision, "the revision went back for {name}");
                self.last_revision = written.revision;
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                self.promises.insert(name.to_owned(), after);
            }
            Err(error) => {
                assert_eq!(error.code(), None, "{name}: refused although nothing else writes it: {error}");
                self.promises.insert(name.to_owned(), Promise::Either(Box::new(before), Box::new(after)));
            }
        }
    }

    /// A write that must be refused whenever the one before it was acknowledged.
    async fn expect_rejection(&self, operation: Operation, code: Code, name: &str) {
        if !matches!(self.promises.get(name), Some(Promise::Present { .. })) {
            return;
        }
        match self.client.write(operation).await {
            Ok(written) => panic!("{name}: a second creation was accepted: {written:?}"),
            Err(error) => assert!(error.code().is_none_or(|got| got == code), "{name}: {error}"),
        }
    }

    async fn find_out(&mut self, name: &str) {
        let promise = match self.client.get("nodes", name, false).await {
            Ok(read) => {
                let node: Value = serde_json::from_slice(&read.value).unwrap();
                Promise::Present { cordoned: node["spec"]["unschedulable"].as_bool().unwrap_or(false) }
            }
            Err(error) if error.code() == Some(Code::NotFound) => Promise::Absent,
            Err(_) => return,
        };
        let allowed = self.promises[name].clone();
        let shown = match &promise {
            Promise::Present { cordoned } => Some(json!({"spec": {"unschedulable": cordoned}})),
            Promise::Absent | Promise::Either(..) => None,
        };
        assert!(allowed.allows(shown.as_ref()), "{name}: promised {allowed:?}, found {promise:?}");
        self.promises.insert(name.to_owned(), promise);
    }
}

/// Follows every node change from the beginning and rebuilds the collection from it.
async fn follow(
    client: Client,
    from: u64,
    until: Arc<AtomicU64>,
) -> (BTreeMap<String, Value>, Vec<(u64, i32, String)>) {
    let mut watch = client.watch(Query::of("nodes"), Some(from)).await.unwrap();
    let (mut nodes, mut seen) = (BTreeMap::new(), Vec::new());
    loop {
        let end = until.load(Ordering::Relaxed);
        if end > 0 && watch.revision() >= end {
            return (nodes, seen);
        }
        let next = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
        let Ok(event) = next else { continue };
        let event = event.expect("the watch is never gone: other replicas hold its history");
        let node: Value = serde_json::from_slice(&event.object).unwrap();
        let name = node["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(
            seen.last().is_none_or(|(revision, ..)| *revision < event.revision),
            "out of order or twice: {event:?}"
        );
        let known = nodes.contains_key(&name);
        match event.r#type() {
            Type::Added => assert!(!known, "{name} added twice"),
            Type::Modified | Type::Deleted => assert!(known, "{name} changed before it was added"),
            Type::Bookmark | Type::Unspecified => panic!("not a change: {event:?}"),
        }
        seen.push((event.revision, event.r#type, name.clone()));
        if event.r#type() == Type::Deleted {
            nodes.remove(&name);
        } else {
            nodes.insert(name, node);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i_08_i_10_i_11_killing_the_leader_twenty_times_loses_nothing() {
    let cluster = Arc::new(DevCluster::start());
    let stop = Arc::new(AtomicBool::new(false));
    let end_of_watch = Arc::new(AtomicU64::new(0));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let start = cluster.client().list(&Query::of("nodes")).await.unwrap().revision;

    let watchers: Vec<_> =
        (0..3).map(|_| tokio::spawn(follow(cluster.client(), start, Arc::clone(&end_of_watch)))).collect();
    let workers: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let worker = Worker {
                client: cluster.client(),
                number,
                promises: BTreeMap::new(),
                acknowledged: Arc::clone(&acknowledged),
                last_revision: 0,
            };
            tokio::spawn(worker.work(Arc::clone(&stop)))
        })
        .collect();

    for kill in 0..KILLS {
        let cluster = Arc::clone(&cluster);
        let acknowledged = Arc::clone(&acknowledged);
        tokio::task::spawn_blocking(move || kill_the_leader_under_load(&cluster, &acknowledged, kill)).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let mut promises = BTreeMap::new();
    for worker in workers {
        promises.extend(worker.await.unwrap());
    }

    let settled = Arc::clone(&cluster);
    tokio::task::spawn_blocking(move || settled.settle()).await.unwrap();
    let list = cluster.client().list(&Query::of("nodes")).await.unwrap();
    let nodes = by_name(&list.value);
    for (name, promise) in &promises {
        assert!(promise.allows(nodes.get(name)), "{name}: promised {promise:?}, found {:?}", nodes.get(name));
    }
    for name in nodes.keys() {
        assert!(promises.contains_key(name), "{name} exists but was never created");
    }

    // A last change, so that every watcher has something to wait for.
    let last = cluster.client().write(create("the-end")).await.unwrap().revision;
    end_of_watch.store(last, Ordering::Relaxed);
    let list = cluster.client().list(&Query::of("nodes")).await.unwrap();
    let mut histories = Vec::new();
    for watcher in watchers {
        let (rebuilt, seen) = watcher.await.unwrap();
        assert_eq!(rebuilt, by_name(&list.value), "a watcher's picture differs from the list");
        histories.push(seen);
    }
    assert!(histories.windows(2).all(|pair| pair[0] == pair[1]), "watchers saw different histories");
    assert!(acknowledged.load(Ordering::Relaxed) > KILLS as u64 * 10, "hardly any write was acknowledged");
}

/// Kills the leader once writes are flowing, waits until they flow again, and brings the replica back.
fn kill_the_leader_under_load(cluster: &DevCluster, acknowledged: &AtomicU64, kill: usize) {
    let flowing = |what: &str| {
        let before = acknowledged.load(Ordering::Relaxed);
        eventually(what, || (acknowledged.load(Ordering::Relaxed) > before + 20).then_some(()));
    };
    flowing(&format!("writes flow before kill {kill}"));
    let leader = cluster.leader();
    cluster.kill(leader);
    flowing(&format!("writes flow after kill {kill}"));
    cluster.restart(leader);
    eventually("the killed replica is back", || {
        let status = cluster.status()?;
        status["replicas"].as_array()?.iter().all(|replica| replica["reachable"] == true).then_some(())
    });
}

#[test]
fn i_08_killing_all_three_at_once_and_starting_again_loses_nothing() {
    let mut cluster = DevCluster::start();
    for number in 0..50 {
        let manifest = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number}")}});
        let file = cluster.dir.path().join("node.json");
        std::fs::write(&file, manifest.to_string()).unwrap();
        cluster.ok(&["apply", "-f", file.to_str().unwrap()]);
    }
    cluster.ok(&["cordon", "node-7"]);
    cluster.ok(&["delete", "node", "node-8"]);
    let before = cluster.settle();
    cluster.kill_everything();
    cluster.start_again();
    let after = cluster.settle();
    let nodes: Value = serde_json::from_str(&cluster.ok(&["get", "nodes", "-o", "json"])).unwrap();
    assert_eq!(nodes["items"].as_array().unwrap().len(), 49);
    let cordoned: Value = serde_json::from_str(&cluster.ok(&["get", "node", "node-7", "-o", "json"])).unwrap();
    assert_eq!(cordoned["spec"]["unschedulable"], true);
    cluster.fails(4, &["get", "node", "node-8"]);
    assert!(after["revision"].as_u64() >= before["revision"].as_u64(), "the revision went back");
    assert!(after["term"].as_u64() > before["term"].as_u64(), "a restarted leader resumed its term");
}

fn by_name(objects: &[bytes::Bytes]) -> BTreeMap<String, Value> {
    let nodes = objects.iter().map(|object| serde_json::from_slice::<Value>(object).unwrap());
    nodes.map(|node| (node["metadata"]["name"].as_str().unwrap().to_owned(), node)).collect()
}

fn create(name: &str) -> Operation {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string();
    Operation::Create(v1::ManifestWrite { object: object.into() })
}

fn cordon(name: &str) -> Operation {
    Operation::Cordon(v1::Cordon { name: name.to_owned(), unschedulable: true, precondition: None })
}

fn delete(name: &str) -> Operation {
    Operation::Delete(v1::Delete {
        kind: "nodes".to_owned(),
        name: name.to_owned(),
        precondition: None,
        ..Default::default()
    })
}
