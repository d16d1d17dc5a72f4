//! The benchmarks' foundation, against real replicas: a running cluster is used as it is and left so, beats are
//! counted by the replicas that heard them, and the measurements are reported.

use std::time::Instant;

use muster_bench::{BenchCluster, SimulatedZone, simulated_zone};
use muster_testing::dev::DevCluster;
use muster_testing::operator::Operator;
use muster_testing::process::MUSTER;
use muster_testing::waiting::PATIENCE;

const NODES: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn beats_are_counted_by_the_replicas_that_received_them() {
    let running = DevCluster::start();
    let cluster = BenchCluster::attach(&MUSTER, running.dir.path()).unwrap();
    assert!(!cluster.is_own());
    let client = cluster.client().unwrap();
    let before = cluster.accepted().await.unwrap();
    let zone = SimulatedZone::start(&cluster, &client, 0, NODES).await.unwrap();
    simulated_zone::wait_ready(&client, NODES).await.unwrap();
    let start = Instant::now();
    while cluster.accepted().await.unwrap().since(&before).total() < NODES as u64 {
        assert!(start.elapsed() < PATIENCE, "no beats are counted");
    }
    let metrics = cluster.scrape(cluster.leader().await.unwrap()).await.unwrap();
    assert_eq!(metrics.get("muster_nodes"), Some(NODES as f64));
    drop((zone, cluster));
    assert_eq!(running.pids().len(), 3);
    running.settle();
}

#[test]
fn a_scenario_reports_its_figures_in_every_format() {
    let running = DevCluster::start();
    let (lines, page) = (running.dir.path().join("lines.json"), running.dir.path().join("report"));
    let [lines_flag, page_flag] = [&lines, &page].map(|path| path.to_str().unwrap());
    let said = running.ok(&["bench", "writes", "--seconds", "1", "--json", lines_flag, "--report", page_flag]);
    assert!(said.contains("writes, 256 clients: "), "{said}");
    let lines = std::fs::read_to_string(lines).unwrap();
    assert_eq!(
        lines.lines().filter(|line| line.starts_with(r#"{"scenario":"writes","goal":"other","value":"#)).count(),
        3
    );
    assert!(std::fs::read_to_string(page.join("index.html")).unwrap().contains("<polyline"));
    let refused = running.fails(2, &["bench", "writes", "--kills", "1"]);
    assert!(refused.contains("--kills means nothing to writes"), "{refused}");
}
