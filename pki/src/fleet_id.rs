//! The id of a fleet, which every certificate of the fleet carries.

use std::fmt;
use std::str::FromStr;

use muster_lifecycle::replica::ReplicaId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const FLEET_URI: &str = "muster://fleet/";

/// Names one fleet for ever: replicas, agents and operators pin it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FleetId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fleet id: it is the UUID that `muster init` wrote to pki/fleet.toml")]
pub struct NotAFleetId(String);

// === impl FleetId ===

impl FleetId {
    pub fn random() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same identity as one number, for binary formats.
    pub fn number(&self) -> u128 {
        // The text was checked to be a UUID when it was parsed.
        Uuid::parse_str(&self.0).map_or(0, |uuid| uuid.as_u128())
    }

    /// The URI name that every certificate of the fleet carries.
    pub fn uri(&self) -> String {
        format!("{FLEET_URI}{self}")
    }

    pub fn from_uri(uri: &str) -> Option<Self> {
        uri.strip_prefix(FLEET_URI)?.parse().ok()
    }

    /// The name under which a replica's server certificates can be verified wherever the replica runs.
    pub fn replica_name(&self, id: ReplicaId) -> String {
        format!("replica-{id}.{self}.muster")
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FleetId {
    type Err = NotAFleetId;

    /// Only the canonical spelling: two spellings of one id would be two names for one fleet.
    fn from_str(text: &str) -> Result<Self, NotAFleetId> {
        match Uuid::parse_str(text) {
            Ok(uuid) if uuid.to_string() == text => Ok(Self(text.to_owned())),
            Ok(_) | Err(_) => Err(NotAFleetId(text.to_owned())),
        }
    }
}

impl TryFrom<String> for FleetId {
    type Error = NotAFleetId;

    fn try_from(text: String) -> Result<Self, NotAFleetId> {
        text.parse()
    }
}

impl From<FleetId> for String {
    fn from(id: FleetId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_id_is_a_canonical_uuid() {
        let id = FleetId::random();
        assert_eq!(id.as_str().parse::<FleetId>().unwrap(), id);
        assert_eq!(FleetId::from_uri(&id.uri()), Some(id.clone()));
        for text in ["", "fleet", &id.as_str().to_uppercase(), &id.as_str().replace('-', ""), "../../etc"] {
            assert!(text.parse::<FleetId>().is_err(), "{text}");
        }
    }
}
