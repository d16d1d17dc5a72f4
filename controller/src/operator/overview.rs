//! Overview of the cluster, as one replica sees it.

use std::collections::BTreeMap;

use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_lifecycle::time::ClusterTime;
use muster_lifecycle::upgrade::{self, UpgradeOutlook};
use muster_proto::v1;
use muster_raft::audit::Mismatch;
use muster_raft::hello::HelloAnswer;
use muster_raft::replica::{ClusterMember, Replica};

/// Asks every member for its status; a member that does not answer is shown with the reason.
pub(super) async fn overview(replica: &Replica, fleet: String) -> v1::StatusResponse {
    let mut reached = replica.reach_members().await;
    let (current, build) = (replica.current(), replica.build());
    let mut troubles = seen_troubles(replica);
    let leader = replica.leader();
    let replicas = replica.members().into_iter().map(|(id, member)| {
        let status = member_status(id, &member, leader);
        if id == replica.id() {
            return v1::ReplicaStatus {
                reachable: true,
                applied: current.applied_index(),
                revision: current.state.revision().0,
                digest: current.state.digest().to_string(),
                version: build.version.to_owned(),
                level_min: build.levels.min.0,
                level_max: build.levels.max.0,
                trouble: replica.standing().trouble().map_or_else(String::new, |(_, text)| text),
                cannot_write: replica.disk_trouble().map(|trouble| trouble.to_string()).unwrap_or_default(),
                ..status
            };
        }
        let status = v1::ReplicaStatus { trouble: troubles.remove(&id).unwrap_or_default(), ..status };
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
        upgrade: Some(upgrade_status(&current.state, replica.feed().stamp().cluster)),
        wall_clock: String::new(),
    }
}

/// The level in force and what becomes of it.
fn upgrade_status(state: &State, now: ClusterTime) -> v1::UpgradeStatus {
    let in_force = state.level_in_force();
    let known = v1::UpgradeStatus {
        level: in_force.level.0,
        raised_by: in_force.raised_by.to_string(),
        ..v1::UpgradeStatus::default()
    };
    match upgrade::outlook(state) {
        UpgradeOutlook::Settled => known,
        UpgradeOutlook::HeldBack { to } => {
            let held_back_by = upgrade::holding_back(state, to).map(|replica| replica.id.0).collect();
            v1::UpgradeStatus { to: to.0, held_back_by, ..known }
        }
        UpgradeOutlook::Due { to, at } => {
            v1::UpgradeStatus { to: to.0, raised_in_ms: Some(at.0.saturating_sub(now.0)), ..known }
        }
        UpgradeOutlook::Manual { to } => v1::UpgradeStatus { to: to.0, ..known },
    }
}

/// What this replica found out about the others.
fn seen_troubles(replica: &Replica) -> BTreeMap<ReplicaId, String> {
    let mut troubles = replica.distrusted();
    for Mismatch { pair: (one, other), index } in replica.standing().mismatches().iter() {
        for id in [one, other] {
            let text = || format!("the states of replicas {one} and {other} differ at log index {index}");
            troubles.entry(*id).or_insert_with(text);
        }
    }
    troubles
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
        level_min: reached.levels.min.0,
        level_max: reached.levels.max.0,
        // What a replica says of itself is more exact than what this one saw of it.
        trouble: reached.trouble.map_or(status.trouble, |(_, text)| text),
        cannot_write: reached.cannot_write.unwrap_or_default(),
        ..status
    }
}
