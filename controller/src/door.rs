//! The four doors of a replica: the roles that each admits, and the limits of its connections.
//!
//! Every limit is set here and explicitly: the transport library's defaults remove two that protect against floods
//! of resets and streams, and its windows would let each of a hundred thousand agents pin a megabyte.

pub mod agent;
pub(crate) mod agent_runtime;
pub mod certificate_clock;
pub mod connector;
mod fair_reader;
pub mod handshakes;
pub(crate) mod leaving;
pub mod listener;
mod strangers;

use std::fmt;
use std::time::Duration;

use tonic::transport::Server;

use muster_pki::identity::Role;

pub(crate) const KIB: u32 = 1024;
pub(crate) const MIB: u32 = 1024 * KIB;
pub(crate) const HEADERS_BYTES: u32 = 8 * KIB;
/// Streams that either side may reset before the connection is given up.
pub(crate) const LOCAL_RESETS: usize = 128;
pub(crate) const PENDING_RESETS: usize = 20;
/// A peer that does not answer a ping in time counts as gone, even while TCP holds the connection open.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(20);
pub(crate) const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// HTTP/2 and HTTP/1.1 as TLS names them.
pub(crate) const H2: &[u8] = b"h2";
pub(crate) const HTTP_1_1: &[u8] = b"http/1.1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorKind {
    Peer,
    Agent,
    Client,
    /// HTTPS for scrapers, probes and other clients that speak no gRPC.
    Http,
}

/// The limits of one connection, and of the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    pub handshakes: usize,
    /// Largest message in either direction; the services of the door must be built with it.
    pub message_bytes: usize,
    pub streams: u32,
    pub concurrent_calls: usize,
    pub stream_window: u32,
    pub connection_window: u32,
    /// The time within which a call must begin to answer. Peers have no such limit: a snapshot is one long call.
    pub call_timeout: Option<Duration>,
}

// === impl DoorKind ===

impl DoorKind {
    pub fn admits(self, role: &Role) -> bool {
        match role {
            Role::Replica(_) => self == Self::Peer,
            Role::Node(_) | Role::Aggregator(_) | Role::Canary(_) | Role::Lapsed(_) | Role::Stranger => {
                self == Self::Agent
            }
            Role::Operator | Role::Viewer => matches!(self, Self::Client | Self::Http),
        }
    }

    /// The flag that sets the door's listening address.
    pub fn listen_flag(self) -> &'static str {
        match self {
            Self::Peer => "--listen-peer",
            Self::Agent => "--listen-agent",
            Self::Client => "--listen-client",
            Self::Http => "--listen-http",
        }
    }

    /// The key in the configuration file that does the same.
    pub fn listen_key(self) -> &'static str {
        match self {
            Self::Peer => "listen.peer",
            Self::Agent => "listen.agent",
            Self::Client => "listen.client",
            Self::Http => "listen.http",
        }
    }

    /// The protocols spoken inside TLS, preferred first.
    pub fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Peer | Self::Agent | Self::Client => &[H2],
            Self::Http => &[H2, HTTP_1_1],
        }
    }

    pub fn limits(self) -> Limits {
        match self {
            Self::Peer => Limits {
                connections: 64,
                handshakes: 16,
                message_bytes: 8 * MIB as usize,
                streams: 1024,
                concurrent_calls: 1024,
                stream_window: 2 * MIB,
                connection_window: 8 * MIB,
                call_timeout: None,
            },
            Self::Agent => Limits {
                connections: 400_000,
                handshakes: 256,
                message_bytes: 256 * KIB as usize,
                streams: 32,
                concurrent_calls: 16,
                stream_window: 64 * KIB,
                connection_window: 128 * KIB,
                call_timeout: Some(Duration::from_secs(30)),
            },
            Self::Client => Limits {
                connections: 4096,
                handshakes: 64,
                message_bytes: MIB as usize,
                streams: 512,
                concurrent_calls: 512,
                stream_window: 256 * KIB,
                connection_window: MIB,
                call_timeout: Some(Duration::from_secs(300)),
            },
            Self::Http => Limits {
                connections: 1024,
                handshakes: 32,
                message_bytes: 64 * KIB as usize,
                streams: 64,
                concurrent_calls: 64,
                stream_window: 64 * KIB,
                connection_window: 256 * KIB,
                call_timeout: Some(Duration::from_secs(30)),
            },
        }
    }
}

impl fmt::Display for DoorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Agent => "agent",
            Self::Client => "client",
            Self::Http => "http",
        })
    }
}

/// Sets every limit of a door on the gRPC server that stands behind it.
pub fn door_limits(server: Server, kind: DoorKind) -> Server {
    let limits = kind.limits();
    let server = server
        .max_concurrent_streams(limits.streams)
        .concurrency_limit_per_connection(limits.concurrent_calls)
        .load_shed(true)
        .http2_max_local_error_reset_streams(Some(LOCAL_RESETS))
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .http2_adaptive_window(Some(false))
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .http2_max_header_list_size(HEADERS_BYTES)
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_TIMEOUT))
        .tcp_nodelay(true);
    match limits.call_timeout {
        Some(timeout) => server.timeout(timeout),
        None => server,
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::replica::ReplicaId;

    use super::*;

    const DOORS: [DoorKind; 4] = [DoorKind::Peer, DoorKind::Agent, DoorKind::Client, DoorKind::Http];

    #[test]
    fn machines_are_admitted_at_one_door_and_people_at_two() {
        let roles = [
            (Role::Replica(ReplicaId(1)), &[DoorKind::Peer][..]),
            (Role::Node("a".into()), &[DoorKind::Agent]),
            (Role::Aggregator("a".into()), &[DoorKind::Agent]),
            (Role::Canary(ReplicaId(1)), &[DoorKind::Agent]),
            (Role::Lapsed("a".into()), &[DoorKind::Agent]),
            (Role::Stranger, &[DoorKind::Agent]),
            (Role::Operator, &[DoorKind::Client, DoorKind::Http]),
            (Role::Viewer, &[DoorKind::Client, DoorKind::Http]),
        ];
        for (role, own) in roles {
            for door in DOORS {
                assert_eq!(door.admits(&role), own.contains(&door), "{role:?} at the {door} door");
            }
        }
    }

    #[test]
    fn the_limits_of_every_door_fit_together() {
        for door in DOORS {
            let limits = door.limits();
            assert!(limits.handshakes <= limits.connections);
            assert!(limits.stream_window <= limits.connection_window);
            assert!(limits.concurrent_calls <= limits.streams as usize);
        }
    }
}
