//! The cluster's own replicas: as rows, and as JSON.

use muster_client::has_leader;
use muster_proto::v1::{ReplicaStatus, StatusResponse};
use serde_json::{Value, json};

use super::or;

pub const HEADERS: &[&str] = &["ID", "ROLE", "REACHABLE", "APPLIED", "PEER", "AGENT", "CLIENT", "VERSION"];

pub fn row(replica: &ReplicaStatus) -> Vec<String> {
    let reachable = match (replica.reachable, replica.why_unreachable.as_str()) {
        (true, _) if !replica.cannot_write.is_empty() => format!("yes, cannot write ({})", replica.cannot_write),
        (true, _) => "yes".to_owned(),
        (false, "") => "no".to_owned(),
        (false, why) => format!("no ({why})"),
    };
    vec![
        replica.id.to_string(),
        replica.role.clone(),
        reachable,
        replica.applied.to_string(),
        or(&replica.peer, "<none>"),
        or(&replica.agent, "<none>"),
        or(&replica.client, "<none>"),
        or(&replica.version, "<unknown>"),
    ]
}

pub fn to_json(replica: &ReplicaStatus) -> Value {
    let mut object = json!({
        "id": replica.id,
        "role": replica.role,
        "reachable": replica.reachable,
        "applied": replica.applied,
        "peer": replica.peer,
        "agent": replica.agent,
        "client": replica.client,
        "version": replica.version,
        "digest": replica.digest,
        "revision": replica.revision,
    });
    if !replica.why_unreachable.is_empty() {
        object["whyUnreachable"] = replica.why_unreachable.clone().into();
    }
    if !replica.cannot_write.is_empty() {
        object["cannotWrite"] = replica.cannot_write.clone().into();
    }
    object
}

/// The stable shape of `status -o json`.
pub fn status_to_json(status: &StatusResponse) -> Value {
    json!({
        "fleet": status.fleet,
        "leader": status.leader,
        "term": status.term,
        "applied": status.applied,
        "revision": status.revision,
        "digest": status.digest,
        "answeredBy": status.answered_by,
        "replicas": status.replicas.iter().map(to_json).collect::<Vec<_>>(),
        "nodes": {"total": status.nodes_total, "ready": status.nodes_ready},
    })
}

/// The lines above the table of replicas.
pub fn summary(status: &StatusResponse) -> Vec<String> {
    let leader = match status.leader {
        Some(id) if has_leader(status) => format!("replica {id}"),
        Some(id) => format!("replica {id}, unreachable"),
        None => "none".into(),
    };
    vec![
        format!("cluster:  {}", status.fleet),
        format!("leader:   {leader} (term {})", status.term),
        format!("applied:  {} (revision {}, seen by replica {})", status.applied, status.revision, status.answered_by),
        format!("nodes:    {} ({} ready)", status.nodes_total, status.nodes_ready),
    ]
}

pub const LAG_HEADERS: &[&str] = &["ID", "ROLE", "REACHABLE", "APPLIED", "LAG", "CLIENT", "VERSION"];

/// A replica with how far it is behind the foremost one that could be asked.
pub fn lag_row(replica: &ReplicaStatus, foremost: u64) -> Vec<String> {
    let lag = match replica.reachable {
        true => foremost.saturating_sub(replica.applied).to_string(),
        false => "?".into(),
    };
    let row = row(replica);
    vec![row[0].clone(), row[1].clone(), row[2].clone(), row[3].clone(), lag, row[6].clone(), row[7].clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(id: u64, reachable: bool) -> ReplicaStatus {
        ReplicaStatus { id, role: "voter".into(), reachable, applied: 7, ..ReplicaStatus::default() }
    }

    #[test]
    fn status_json_has_the_documented_keys() {
        let status = StatusResponse {
            term: 3,
            applied: 9,
            replicas: vec![replica(1, true)],
            nodes_total: 4,
            nodes_ready: 2,
            ..StatusResponse::default()
        };
        let json = status_to_json(&status);
        assert!(json["leader"].is_null());
        assert_eq!((json["term"].as_u64(), json["applied"].as_u64()), (Some(3), Some(9)));
        assert_eq!(json["nodes"], json!({"total": 4, "ready": 2}));
        for key in ["id", "role", "reachable", "applied"] {
            assert!(!json["replicas"][0][key].is_null(), "{key}");
        }
    }

    #[test]
    fn a_replica_that_cannot_write_says_why() {
        let full = ReplicaStatus { cannot_write: "the disk is nearly full".into(), ..replica(2, true) };
        assert_eq!(row(&full)[2], "yes, cannot write (the disk is nearly full)");
        assert_eq!(to_json(&full)["cannotWrite"], "the disk is nearly full");
        assert!(to_json(&replica(1, true)).get("cannotWrite").is_none());
    }

    #[test]
    fn an_unreachable_replica_says_why_and_has_no_lag() {
        let lost = ReplicaStatus { why_unreachable: "connection refused".into(), ..replica(2, false) };
        assert_eq!(row(&lost)[2], "no (connection refused)");
        assert_eq!(lag_row(&lost, 10)[4], "?");
        assert_eq!(lag_row(&replica(1, true), 10)[4], "3");
    }
}
