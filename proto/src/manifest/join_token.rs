//! A join token as JSON. Its hash is not printed.

use muster_lifecycle::join_token::JoinToken;
use muster_lifecycle::time::Stamp;
use serde_json::{Value, json};

use super::OWN_API_VERSION;
use super::moment;

pub fn join_token_to_json(token: &JoinToken, now: Stamp) -> Value {
    let used = token.used.as_ref().map(|used| json!({ "node": &*used.node, "at": moment::write(used.at) }));
    json!({
        "apiVersion": OWN_API_VERSION,
        "kind": "Token",
        "metadata": { "name": &*token.id, "creationTimestamp": moment::write(token.created) },
        "spec": { "node": token.node.as_deref(), "expires": moment::write(token.expires) },
        "status": {
            "state": token.state(now.cluster).as_str(),
            "createdBy": token.created_by.to_string(),
            "used": used,
        },
    })
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::author::Author;
    use muster_lifecycle::fingerprint::Fingerprint;
    use muster_lifecycle::time::{ClusterTime, WallTime};

    use super::*;

    #[test]
    fn a_token_is_shown_without_its_secret() {
        let at = |seconds: u64| Stamp { cluster: ClusterTime(seconds * 1000), wall: WallTime(seconds as i64 * 1000) };
        let token = JoinToken {
            id: "0123456789".into(),
            hash: Fingerprint([0xab; 32]),
            node: Some("n1".into()),
            created: at(1),
            created_by: Author::operator("alice"),
            expires: at(61),
            used: None,
            revoked: None,
        };
        let wanted = json!({
            "apiVersion": "muster/v1",
            "kind": "Token",
            "metadata": { "name": "0123456789", "creationTimestamp": "1970-01-01T00:00:01Z" },
            "spec": { "node": "n1", "expires": "1970-01-01T00:01:01Z" },
            "status": { "state": "Open", "createdBy": "alice", "used": null },
        });
        assert_eq!(join_token_to_json(&token, at(60)), wanted);
        assert_eq!(join_token_to_json(&token, at(61))["status"]["state"], "Expired");
        assert!(!join_token_to_json(&token, at(1)).to_string().contains("abab"));
    }
}
