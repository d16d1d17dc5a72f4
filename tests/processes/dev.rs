//! `muster dev` itself: it starts, reports, restarts, resumes, and leaves nothing behind.

use std::process::Command;

use muster_testing::dev::{DevCluster, pid_of};
use muster_testing::operator::Operator;
use muster_testing::process::{MUSTER, free_ports, is_running, signal, text, wait_gone};
use muster_testing::waiting::eventually;

#[test]
fn dev_resumes_the_same_cluster_and_stops_everything() {
    let mut cluster = DevCluster::start();
    cluster.ok(&["status"]);
    let fleet = cluster.status().unwrap()["fleet"].clone();
    let first_pids = cluster.pids();
    cluster.stop();
    assert!(first_pids.iter().all(|pid| !is_running(*pid)));
    assert!(!cluster.dir.path().join("cluster.json").exists());
    cluster.start_again();
    assert_eq!(cluster.settle()["fleet"], fleet);
}

#[test]
fn a_killed_dev_leaves_no_process_behind() {
    let cluster = DevCluster::start();
    let pids = cluster.pids();
    signal("-KILL", cluster.dev_pid());
    for pid in pids {
        wait_gone(pid);
    }
}

#[test]
fn a_second_dev_on_the_same_directory_is_refused() {
    let cluster = DevCluster::start();
    let second = Command::new(&*MUSTER).args(["dev", "--dir"]).arg(cluster.dir.path()).output().unwrap();
    let stderr = text(&second.stderr);
    assert!(!second.status.success());
    assert!(stderr.contains(&cluster.dev_pid().to_string()), "{stderr}");
}

#[test]
fn a_port_in_use_is_named_with_the_flag_that_changes_it() {
    let dir = tempfile::tempdir().unwrap();
    let base = free_ports();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", base)).unwrap();
    let output = Command::new(&*MUSTER)
        .args(["dev", "--port-base", &base.to_string(), "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("--port-base") && stderr.contains(&base.to_string()), "{stderr}");
}

#[test]
fn with_restart_a_dead_replica_comes_back() {
    let cluster = DevCluster::start_with(&["--restart"]);
    let before = pid_of(&cluster.replica(2));
    signal("-KILL", before);
    eventually("replica 2 runs again", || (pid_of(&cluster.replica(2)) != before).then_some(()));
    cluster.settle();
}

#[test]
fn a_damaged_checkpoint_is_rebuilt_and_a_damaged_log_refuses_to_start() {
    let mut cluster = DevCluster::start();
    let manifest = cluster.dir.path().join("node.json");
    std::fs::write(&manifest, r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"kept"}}"#).unwrap();
    cluster.ok(&["apply", "-f", manifest.to_str().unwrap()]);
    cluster.settle();
    let data = cluster.data_dir(1);
    cluster.stop();
    damage(&data.join("checkpoint/db"));
    cluster.start_again();
    cluster.settle();
    assert!(cluster.log_of(1).contains("moved aside"), "{}", cluster.log_of(1));
    assert_eq!(cluster.ok(&["get", "nodes", "-o", "name"]), "node/kept\n");

    cluster.kill(1);
    let mut files = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path());
    let log = files.find(|path| path.extension().is_some_and(|extension| extension == "redb"));
    damage(&log.expect("a redb file in the data directory"));
    let _ = cluster.muster(&["dev", "restart", "1"]);
    eventually("replica 1 says how to replace it", || cluster.log_of(1).contains("muster member").then_some(()));
    cluster.ok(&["cordon", "kept"]);
}

/// Flips bits in everything that is not empty space, but for the very beginning.
fn damage(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for byte in bytes.iter_mut().skip(64).filter(|byte| **byte != 0) {
        *byte ^= 0x5a;
    }
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn simulated_nodes_show_the_behaviour_they_are_given() {
    let cluster = DevCluster::start_exactly(&["--nodes", "6", "--zones", "2"]);
    let ready = |count: usize| {
        eventually("simulated nodes are ready", || {
            let shown = cluster.ok(&["get", "nodes"]);
            (shown.lines().filter(|line| line.contains(" Ready ")).count() == count).then_some(())
        });
    };
    ready(6);
    let shown = cluster.ok(&["get", "config"]);
    assert!(shown.contains("node-monitor-grace-period") && shown.contains("8s"), "the demo policy: {shown}");

    cluster.ok(&["fleet", "pressure", "--node", "node-a-1"]);
    eventually("a full disk keeps pods away", || {
        cluster.ok(&["describe", "node", "node-a-1"]).contains("node.kubernetes.io/disk-pressure").then_some(())
    });
    cluster.ok(&["fleet", "kill", "--zone", "b", "--percent", "50"]);
    let status = cluster.ok(&["fleet", "status"]);
    assert!(status.lines().any(|line| line.starts_with("node-b-1") && line.contains("kill")), "{status}");
    ready(5);
    let explained = cluster.ok(&["explain", "node", "node-b-1"]);
    assert!(explained.starts_with("node node-b-1 (zone dev/b): unreachable since"), "{explained}");
    assert!(cluster.fails(1, &["fleet", "kill", "--zone", "x"]).contains("there are: dev/a, dev/b"));

    cluster.ok(&["fleet", "resume", "--all"]);
    ready(6);
    cluster.ok(&["set", "config", "node-monitor-grace-period=20s"]);
    assert!(
        cluster.ok(&["get", "events"]).contains("node-monitor-grace-period was changed from 8s to 20s by operator")
    );
    let refused = cluster.fails(1, &["set", "config", "node-monitor-period=30s"]);
    assert!(refused.contains("30s is above node-monitor-grace-period (20s)"), "{refused}");
}
