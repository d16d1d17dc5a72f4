//! F-23: the disk of the leader is nearly full while nodes beat and die. Another replica leads and marks the dead; no
//! living node is touched.

use muster_node_agent::simulated::Behaviour;
use muster_proto::v1::{Cordon, write_request};
use muster_testing::inprocess::{InprocessCluster, thirty_nodes};
use muster_testing::waiting::soon;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f_23_nodes_that_die_are_marked_although_the_leaders_disk_is_full() {
    let cluster = InprocessCluster::start().await;
    let agents = thirty_nodes(&cluster).await;
    let full = cluster.leader().await;
    let dead = agents.names()[0].clone();
    cluster.disk(full).fill(true);
    agents.play(Behaviour::Kill, &dead);

    cluster.leader_other_than(full).await;
    cluster.seen_when("unknown", &dead, |seen| seen.is_unknown()).await;
    let through_full = cluster.members.client_of(full);
    through_full.write(cordon(&agents.names()[1])).await.unwrap();
    soon("the status tells", async || {
        let status = cluster.status().await?;
        let one = status.replicas.into_iter().find(|replica| replica.id == full).ok_or("not a member")?;
        if one.cannot_write.contains("nearly full") { Ok(()) } else { Err(format!("{one:?}")) }
    })
    .await;
    assert!(cluster.metrics(full).await.contains("\nmuster_disk_in_trouble 1"));

    cluster.disk(full).fill(false);
    soon("the disk is well again", async || {
        let well = cluster.metrics(full).await.contains("\nmuster_disk_in_trouble 0");
        if well { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    cluster.settled().await;
    cluster.hand_over(full).await;
    cluster.assert_only_touched(&[&dead]).await;
    cluster.stop().await;
}

fn cordon(name: &str) -> write_request::Operation {
    write_request::Operation::Cordon(Cordon { name: name.into(), unschedulable: true, precondition: None })
}
