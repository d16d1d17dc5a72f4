//! Replacement of a replica whose disk was wiped, by `member` commands, while writes go on; backup and restore.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use muster_proto::v1;
use muster_proto::v1::write_request::Operation;
use muster_testing::dev::{DevCluster, pid_of};
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, free_ports, signal, text, wait_gone};
use muster_testing::waiting::eventually;
use serde_json::Value;

/// A replica that a test started itself, outside `dev`. Ends with the test.
struct Extra(Child);

impl Drop for Extra {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn write_until(client: muster_client::Client, stop: Arc<AtomicBool>, written: Arc<AtomicU64>) -> Vec<String> {
    let mut names = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("load-{}", names.len());
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let create = Operation::Create(v1::ManifestWrite { object: object.to_string().into() });
        client.write(create).await.expect("writes go on while a replica is replaced");
        written.fetch_add(1, Ordering::Relaxed);
        names.push(name);
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn i_28_a_wiped_replica_is_replaced_while_writes_go_on() {
    let cluster = Arc::new(DevCluster::start());
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writing = tokio::spawn(write_until(cluster.client(), Arc::clone(&stop), Arc::clone(&written)));
    let (replaced, counted) = (Arc::clone(&cluster), Arc::clone(&written));
    let extra = tokio::task::spawn_blocking(move || replace_replica_three(&replaced, &counted)).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let names = writing.await.unwrap();
    let listed = cluster.ok(&["get", "nodes", "-o", "name"]);
    for name in &names {
        assert!(listed.contains(&format!("node/{name}\n")), "{name} was acknowledged and is missing");
    }
    drop(extra);
}

fn replace_replica_three(cluster: &DevCluster, written: &AtomicU64) -> Extra {
    let flowing = || {
        let before = written.load(Ordering::Relaxed);
        eventually("writes flow", || (written.load(Ordering::Relaxed) > before + 20).then_some(()));
    };
    flowing();
    let data_dir = cluster.data_dir(3);
    cluster.kill(3);
    std::fs::remove_dir_all(&data_dir).unwrap();
    // Its old id is refused: the cluster remembers the store that voted.
    let _ = cluster.muster(&["dev", "restart", "3"]);
    eventually("the wiped replica says why it stops", || cluster.log_of(3).contains("another store").then_some(()));
    flowing();

    cluster.ok(&["member", "remove", "3"]);
    let ports = free_ports();
    let address = |door: u16| format!("127.0.0.1:{}", ports + door);
    let (peer, agent, client) = (address(0), address(1), address(2));
    cluster.ok(&["init", "add-replica", &format!("4=127.0.0.1:{ports}")]);
    let config = cluster.dir.path().join("replica-4/config.toml");
    let log = std::fs::File::create(cluster.dir.path().join("replica-4/log")).unwrap();
    let server =
        Command::new(&*MUSTER).args(["server", "--config"]).arg(config).stdin(Stdio::null()).stderr(log).spawn();
    let extra = Extra(server.unwrap());
    cluster.ok(&["member", "add", "4", "--peer", &peer, "--agent", &agent, "--client", &client]);
    eventually("the learner catches up and is promoted", || {
        cluster.muster(&["member", "promote", "4"]).status.success().then_some(())
    });
    flowing();
    let status = cluster.settle_members(&[1, 2, 4]);
    assert!(status["replicas"].as_array().unwrap().iter().all(|replica| replica["role"] != "learner"), "{status}");
    let refused = cluster.muster(&["member", "add", "3", "--peer", &peer, "--agent", &agent, "--client", &client]);
    assert!(text(&refused.stderr).contains("never reused"), "{}", text(&refused.stderr));
    extra
}

/// Copies a directory with everything in it.
fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn f_28_a_replica_whose_directory_went_back_takes_no_part_and_says_so_everywhere() {
    let cluster = DevCluster::start();
    cluster.settle();
    let id = 1 + cluster.leader() % 3;
    let (data, older) = (cluster.data_dir(id), cluster.dir.path().join("older"));
    cluster.kill(id);
    copy_dir(&data, &older);
    cluster.restart(id);
    cluster.settle();
    let manifest = cluster.dir.path().join("node.json");
    std::fs::write(&manifest, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"acked"}}"#).unwrap();
    cluster.ok(&["apply", "-f", manifest.to_str().unwrap()]);
    cluster.settle();
    cluster.kill(id);
    std::fs::remove_dir_all(&data).unwrap();
    copy_dir(&older, &data);
    let _ = cluster.muster(&["dev", "restart", &id.to_string()]);
    eventually("the replica says that it takes no part", || {
        cluster.log_of(id).contains("went back in time").then_some(())
    });
    let told = eventually("the status shows it", || {
        let status = cluster.status()?;
        let replica = status["replicas"].as_array()?.iter().find(|replica| replica["id"] == id)?.clone();
        replica["trouble"].as_str().map(ToOwned::to_owned)
    });
    assert!(told.contains("went back in time") && told.contains(&format!("muster member remove {id}")), "{told}");
    assert!(cluster.ok(&["get", "replicas"]).contains("(in trouble)"));
    eventually("an event tells it", || cluster.ok(&["get", "events"]).contains("ReplicaWentBack").then_some(()));
    assert!(cluster.ok(&["get", "nodes", "-o", "name"]).contains("node/acked"));
    cluster.ok(&["member", "remove", &id.to_string()]);
}

#[test]
fn i_10_a_backup_restores_into_a_new_cluster_with_raised_revisions() {
    let mut cluster = DevCluster::start();
    let manifest = cluster.dir.path().join("node.json");
    std::fs::write(&manifest, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"kept","labels":{"a":"b"}}}"#)
        .unwrap();
    cluster.ok(&["apply", "-f", manifest.to_str().unwrap()]);
    cluster.ok(&["cordon", "kept"]);
    let backup = cluster.dir.path().join("fleet.backup");
    let backup = backup.to_str().unwrap();
    cluster.ok(&["backup", backup]);
    cluster.ok(&["delete", "node", "kept"]);
    let before = cluster.settle();
    let running = cluster.muster(&["restore", backup]);
    assert!(!running.status.success(), "a restore over a running cluster was accepted");

    cluster.stop();
    let full = cluster.muster(&["restore", backup]);
    assert!(!full.status.success(), "a restore over existing data was accepted");
    for id in 1..=3 {
        std::fs::remove_dir_all(cluster.dir.path().join(format!("replica-{id}/data"))).unwrap();
    }
    cluster.ok(&["restore", backup]);
    cluster.start_again();
    let after = cluster.settle();
    assert!(after["revision"].as_u64() > before["revision"].as_u64(), "{before} then {after}");
    assert_eq!(after["fleet"], before["fleet"]);
    let node: Value = serde_json::from_str(&cluster.ok(&["get", "node", "kept", "-o", "json"])).unwrap();
    assert_eq!((&node["metadata"]["labels"]["a"], &node["spec"]["unschedulable"]), (&"b".into(), &true.into()));
    cluster.ok(&["uncordon", "kept"]);
}

#[test]
fn leadership_is_handed_over_on_request_and_on_sigterm() {
    let cluster = DevCluster::start();
    let leader = cluster.leader();
    let heir = 1 + leader % 3;
    cluster.ok(&["member", "transfer", &heir.to_string()]);
    assert_eq!(cluster.leader(), heir);
    let term = cluster.settle()["term"].as_u64().unwrap();
    signal("-TERM", pid_of(&cluster.replica(heir)));
    eventually("another replica leads", || {
        let status = cluster.status()?;
        status["leader"].as_u64().filter(|leader| *leader != heir)
    });
    let now = cluster.status().unwrap()["term"].as_u64().unwrap();
    assert_eq!(now, term + 1, "a handover takes one term; an election after a crash may take more");
}

#[test]
fn i_28_a_replica_that_was_removed_stops_and_says_why() {
    let cluster = DevCluster::start();
    cluster.settle();
    let removed = 1 + cluster.leader() % 3;
    let pid = pid_of(&cluster.replica(removed));
    cluster.ok(&["member", "remove", &removed.to_string()]);
    wait_gone(pid);
    let log = cluster.log_of(removed);
    assert!(log.contains("was removed from the cluster"), "{log}");
    let others: Vec<u64> = (1..=3).filter(|id| *id != removed).collect();
    cluster.settle_members(&others);
}
