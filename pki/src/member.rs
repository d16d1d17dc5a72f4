//! A member of a fleet: the id of a replica, and the addresses at which its doors are reached.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

use muster_lifecycle::replica::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::HostPort;
use crate::settings::Error;

/// Consensus among more voters only gets slower; no fleet needs more.
const MEMBERS_LIMIT: usize = 9;

/// A replica and where its doors for peers, agents and clients are reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMember {
    pub id: ReplicaId,
    pub peer: HostPort,
    pub agent: HostPort,
    pub client: HostPort,
}

// === impl FleetMember ===

impl FromStr for FleetMember {
    type Err = String;

    /// The form of the flag: `ID=PEER,AGENT,CLIENT`, each `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = || format!("{text:?} is not a member: write ID=PEER,AGENT,CLIENT with three HOST:PORT addresses");
        let (id, addresses) = text.split_once('=').ok_or_else(shape)?;
        let id = id.parse().map_err(|_| shape())?;
        let addresses: Vec<_> = addresses.split(',').collect();
        let [peer, agent, client] = addresses.as_slice() else { return Err(shape()) };
        let parse = |address: &str| address.parse::<HostPort>().map_err(|error| error.to_string());
        Ok(Self { id, peer: parse(peer)?, agent: parse(agent)?, client: parse(client)? })
    }
}

/// The HTTP door is next to the client door unless a flag or the file puts it elsewhere.
pub fn http_beside(client: SocketAddr) -> Option<SocketAddr> {
    client.port().checked_add(1).map(|port| SocketAddr::new(client.ip(), port))
}

/// Checks the members of one fleet: few, each with its own id and its own addresses.
pub fn unique_members(key: &'static str, members: &[FleetMember]) -> Result<(), Error> {
    if members.len() > MEMBERS_LIMIT {
        return invalid(key, format!("{} are too many: the limit is {MEMBERS_LIMIT}", members.len()));
    }
    let (mut ids, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for member in members {
        if member.id == ReplicaId(0) {
            return invalid(key, "replicas are numbered from 1");
        }
        if !ids.insert(member.id) {
            return invalid(key, format!("id {} is given twice", member.id));
        }
        for address in [&member.peer, &member.agent, &member.client] {
            if !addresses.insert(address) {
                return invalid(key, format!("address {address} is given twice"));
            }
        }
    }
    Ok(())
}

fn invalid<T>(key: &'static str, reason: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid { key, reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_can_be_written_as_a_flag() {
        let member: FleetMember = "2=a:1,b:2,[::1]:3".parse().unwrap();
        assert_eq!((member.id, member.client.to_string()), (ReplicaId(2), "[::1]:3".to_owned()));
        for text in ["", "2", "2=a:1,b:2", "x=a:1,b:2,c:3", "2=a:1,b:2,c:3,d:4", "2=a:1,b:2,c"] {
            assert!(text.parse::<FleetMember>().is_err(), "{text}");
        }
    }
}
