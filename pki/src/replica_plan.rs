//! The plan of a new replica: its number, its addresses, and the configuration it starts with.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use muster_lifecycle::replica::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::member::{FleetMember, http_beside};
use crate::settings::Error;
use crate::{FleetId, HostPort};

/// The addresses of the replica's doors, and further names that its certificates carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPlan {
    pub id: ReplicaId,
    #[serde(default)]
    pub hosts: Vec<String>,
    pub peer: HostPort,
    pub agent: HostPort,
    pub client: HostPort,
}

/// `config.toml` as a new replica gets it; the replica itself accepts more settings than these.
#[derive(Debug, Serialize)]
pub(crate) struct ReplicaSettings {
    id: ReplicaId,
    fleet: FleetId,
    data_dir: &'static str,
    tls_dir: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    join: Option<bool>,
    listen: ListenSettings,
    advertise: AdvertiseSettings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    initial_members: Vec<FleetMember>,
}

#[derive(Debug, Serialize)]
struct ListenSettings {
    peer: SocketAddr,
    agent: SocketAddr,
    client: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<SocketAddr>,
}

#[derive(Debug, Serialize)]
struct AdvertiseSettings {
    peer: HostPort,
    agent: HostPort,
    client: HostPort,
}

// === impl ReplicaPlan ===

impl ReplicaPlan {
    pub fn member(&self) -> FleetMember {
        FleetMember { id: self.id, peer: self.peer.clone(), agent: self.agent.clone(), client: self.client.clone() }
    }

    /// The address on which the replica listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        http_beside(self.client.listen())
    }

    pub(crate) fn certified_hosts(&self, fleet: &FleetId) -> Vec<String> {
        let addresses = [&self.peer, &self.agent, &self.client].map(|address| address.host().to_owned());
        self.hosts.iter().cloned().chain(addresses).chain([fleet.replica_name(self.id)]).collect()
    }

    /// The replica's configuration. Without members the replica joins a running fleet.
    pub(crate) fn settings(&self, fleet: &FleetId, members: &[FleetMember]) -> ReplicaSettings {
        ReplicaSettings {
            id: self.id,
            fleet: fleet.clone(),
            data_dir: "data",
            tls_dir: "tls",
            join: members.is_empty().then_some(true),
            listen: ListenSettings {
                peer: self.peer.listen(),
                agent: self.agent.listen(),
                client: self.client.listen(),
                http: self.http(),
            },
            advertise: AdvertiseSettings {
                peer: self.peer.clone(),
                agent: self.agent.clone(),
                client: self.client.clone(),
            },
            initial_members: members.to_vec(),
        }
    }
}

/// Refuses plans in which the HTTP door of a replica, right behind its client door, takes the port of another door.
pub(crate) fn require_room_for_http(plans: &[ReplicaPlan]) -> Result<(), Error> {
    let doors = plans.iter().flat_map(|plan| [&plan.peer, &plan.agent, &plan.client]);
    let taken: BTreeSet<(&str, u16)> = doors.map(|door| (door.host(), door.port())).collect();
    for ReplicaPlan { id, client, .. } in plans {
        let port = client.port().saturating_add(1);
        if taken.contains(&(client.host(), port)) {
            let reason = format!("replica {id} needs port {port} above its client door for HTTP: leave room for it");
            return Err(Error::Invalid { key: "replicas", reason });
        }
    }
    Ok(())
}
