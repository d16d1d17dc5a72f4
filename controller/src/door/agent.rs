//! The agents' door behind its accept loop: gRPC over connections whose limits depend on the caller's role.
//!
//! The transport library's server has one set of limits for all connections. A node needs one stream, and a hundred
//! thousand nodes must not be able to pin much memory. An aggregator may have a stream for each of its nodes. Many
//! streams of small messages also need a large window: HTTP/2 ends a connection with too many unread small frames, and
//! every stream on it.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming as Body;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use muster_pki::identity::Role;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use tower::Service;

use crate::door::fair_reader::FairReader;
use crate::door::leaving::serve_until;
use crate::door::listener::{Connection, Incoming, Peer};
use crate::door::{self, DoorKind, KIB, MIB};

/// The time within which a call must begin to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that calls under way may take once the door closes.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

/// Of the smallest messages, one piece wakes about two hundred tasks.
const PIECE_OF_MANY: usize = 4 << 10;
/// Most messages of a node are beats of a few bytes; a status takes several pieces.
const PIECE_OF_ONE: usize = 1 << 10;

/// The limits of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    pub streams: u32,
    pub stream_window: u32,
    /// Unread small frames may take up half of it, each counted as a quarter of a KiB.
    pub connection_window: u32,
    /// The bytes read before the connection yields to other tasks.
    pub piece: usize,
}

type Answer = hyper::Response<tonic::body::Body>;

/// Serves every admitted connection until `closing`, then lets the calls under way finish.
pub async fn serve(incoming: Incoming, routes: Routes, closing: CancellationToken) {
    let routes = routes.prepare();
    let serve = |connection| serve_connection(connection, routes.clone(), closing.clone());
    incoming.serve_each(&closing, serve).await;
}

async fn serve_connection(connection: Connection, routes: Routes, closing: CancellationToken) {
    let peer = connection.peer().clone();
    let allowance = Allowance::of(&peer.identity.kind);
    let service = {
        let peer = peer.clone();
        service_fn(move |request| call(routes.clone(), peer.clone(), request))
    };
    let io = TokioIo::new(FairReader::new(connection, allowance.piece));
    let served = builder(allowance).serve_connection(io, service);
    if let Err(error) = serve_until(served, closing.cancelled(), LEAVE_TIMEOUT).await {
        tracing::debug!(user = %peer.identity.user, remote = %peer.remote, %error, "agent's connection ended");
    }
}

/// The number of concurrent calls is bounded by the connection's stream limit.
async fn call(mut routes: Routes, peer: Peer, mut request: hyper::Request<Body>) -> Result<Answer, Infallible> {
    request.extensions_mut().insert(peer);
    match timeout(CALL_TIMEOUT, routes.call(request)).await {
        Ok(answered) => answered,
        Err(_) => Ok(Status::cancelled("the call took too long to begin to answer").into_http()),
    }
}

fn builder(allowance: Allowance) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .max_concurrent_streams(allowance.streams)
        .initial_stream_window_size(allowance.stream_window)
        .initial_connection_window_size(allowance.connection_window)
        .max_local_error_reset_streams(door::LOCAL_RESETS)
        .max_pending_accept_reset_streams(door::PENDING_RESETS)
        .max_header_list_size(door::HEADERS_BYTES)
        .keep_alive_interval(door::PING_INTERVAL)
        .keep_alive_timeout(door::PING_TIMEOUT);
    builder
}

// === impl Allowance ===

impl Allowance {
    pub fn of(role: &Role) -> Self {
        match role {
            Role::Aggregator(_) => {
                Self { streams: 2_048, stream_window: 256 * KIB, connection_window: 16 * MIB, piece: PIECE_OF_MANY }
            }
            Role::Node(_)
            | Role::Canary(_)
            | Role::Lapsed(_)
            | Role::Stranger
            | Role::Replica(_)
            | Role::Operator
            | Role::Viewer => {
                let limits = DoorKind::Agent.limits();
                Self {
                    streams: limits.streams,
                    stream_window: limits.stream_window,
                    connection_window: limits.connection_window,
                    piece: PIECE_OF_ONE,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weight that HTTP/2 gives to an unread small frame.
    const SMALL_FRAME: u32 = 256;

    #[test]
    fn every_stream_of_an_aggregator_has_room_for_unread_beats() {
        let allowance = Allowance::of(&Role::Aggregator("a".into()));
        assert!(allowance.connection_window / 2 / SMALL_FRAME >= 4 * allowance.streams);
        assert!(allowance.stream_window <= allowance.connection_window);
    }

    #[test]
    fn a_node_has_the_limits_of_the_agents_door() {
        let (node, limits) = (Allowance::of(&Role::Node("a".into())), DoorKind::Agent.limits());
        assert_eq!((node.streams, node.connection_window), (limits.streams, limits.connection_window));
    }
}
