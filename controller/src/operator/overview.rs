//! Overview of the cluster, as one replica sees it.

use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_raft::hello::HelloAnswer;
use muster_raft::replica::{ClusterMember, Replica};

/// Asks every member for its status; a member that does not answer is shown with the reason.
pub(super) async fn overview(replica: &Replica, fleet: String) -> v1::StatusResponse {
    let mut reached = replica.reach_members().await;
    let current = replica.current();
    let leader = replica.leader();
    let replicas = replica.members().into_iter().map(|(id, member)| {
        let status = member_status(id, &member, leader);
        if id == replica.id() {
            return v1::ReplicaStatus {
                reachable: true,
                applied: current.applied_index(),
                revision: current.state.revision().0,
                digest: current.state.digest().to_string(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                cannot_write: replica.disk_trouble().map(|trouble| trouble.to_string()).unwrap_or_default(),
                ..status
            };
        }
        match reached.remove(&id) {
            Some(Ok(reached)) => with_greeting(status, reached),
            Some(Err(why)) => v1::ReplicaStatus { why_unreachable: why, ..status },
            None => status,
        }
    });
    let replicas = replicas.collect();
    let counts = current.state.node_counts();
    v1::StatusResponse {
        fleet,
        leader: leader.map(|leader| leader.0),
        term: replica.term(),
        applied: current.applied_index(),
        revision: current.state.revision().0,
        digest: current.state.digest().to_string(),
        answered_by: replica.id().0,
        replicas,
        nodes_total: counts.total as u64,
        nodes_ready: counts.ready as u64,
    }
}

fn member_status(id: ReplicaId, member: &ClusterMember, leader: Option<ReplicaId>) -> v1::ReplicaStatus {
    let role = match (leader == Some(id), member.voter) {
        (true, _) => "leader",
        (false, true) => "voter",
        (false, false) => "learner",
    };
    v1::ReplicaStatus {
        id: id.0,
        role: role.to_owned(),
        peer: member.endpoint.peer.clone(),
        agent: member.endpoint.agent.clone(),
        client: member.endpoint.client.clone(),
        ..v1::ReplicaStatus::default()
    }
}

fn with_greeting(status: v1::ReplicaStatus, reached: HelloAnswer) -> v1::ReplicaStatus {
    v1::ReplicaStatus {
        reachable: true,
        applied: reached.applied,
        revision: reached.revision,
        digest: reached.digest,
        version: reached.version,
        cannot_write: reached.cannot_write.unwrap_or_default(),
        ..status
    }
}
