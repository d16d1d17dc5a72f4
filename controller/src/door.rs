//! The three doors of a replica: who may come in, and how much they may ask for at once.
//!
//! Every limit is set here and explicitly: the transport library's defaults remove two that protect against floods
//! of resets and streams, and its windows would let each of a hundred thousand agents pin a megabyte.

use std::fmt;
use std::time::Duration;

use tonic::transport::Server;

use crate::identity::Role;

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorKind {
    Peer,
    Agent,
    Client,
}

/// What one connection may use, and how many connections there may be.
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
    /// Until a call must have begun to answer. Peers have none: a snapshot is one long call.
    pub call_timeout: Option<Duration>,
}

// === impl DoorKind ===

impl DoorKind {
    pub fn admits(self, role: &Role) -> bool {
        match role {
            Role::Replica(_) => self == Self::Peer,
            Role::Node(_) | Role::Aggregator => self == Self::Agent,
            Role::Operator | Role::Viewer => self == Self::Client,
        }
    }

    /// The flag that moves the door elsewhere.
    pub fn listen_flag(self) -> &'static str {
        match self {
            Self::Peer => "--listen-peer",
            Self::Agent => "--listen-agent",
            Self::Client => "--listen-client",
        }
    }

    /// The same in the configuration file.
    pub fn listen_key(self) -> &'static str {
        match self {
            Self::Peer => "listen.peer",
            Self::Agent => "listen.agent",
            Self::Client => "listen.client",
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
        }
    }
}

impl fmt::Display for DoorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Peer => "peer",
            Self::Agent => "agent",
            Self::Client => "client",
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
        .http2_max_local_error_reset_streams(Some(128))
        .http2_max_pending_accept_reset_streams(Some(20))
        .http2_adaptive_window(Some(false))
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .http2_max_header_list_size(8 * KIB)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .tcp_nodelay(true);
    match limits.call_timeout {
        Some(timeout) => server.timeout(timeout),
        None => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_exactly_one_door() {
        let roles = [
            (Role::Replica(1), DoorKind::Peer),
            (Role::Node("a".into()), DoorKind::Agent),
            (Role::Aggregator, DoorKind::Agent),
            (Role::Operator, DoorKind::Client),
            (Role::Viewer, DoorKind::Client),
        ];
        for (role, own) in roles {
            for door in [DoorKind::Peer, DoorKind::Agent, DoorKind::Client] {
                assert_eq!(door.admits(&role), door == own, "{role:?} at the {door} door");
            }
        }
    }

    #[test]
    fn a_message_fits_what_a_door_can_buffer() {
        for door in [DoorKind::Peer, DoorKind::Agent, DoorKind::Client] {
            let limits = door.limits();
            assert!(limits.handshakes <= limits.connections);
            assert!(limits.stream_window <= limits.connection_window);
            assert!(limits.concurrent_calls <= limits.streams as usize);
        }
    }
}
