//! The HTTP door: metrics and probes for callers with a reader's certificate.
//!
//! Connections come from the same accept loop as those of every other door ([`crate::door::listener`]), so they are
//! counted, authenticated and bounded before a byte of HTTP is read. The rest is bounded here: headers, streams, idle
//! time, and the life of a connection, so that a silent or unwilling reader does not keep its place for ever.

mod health;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use self::health::Check;
use crate::door::leaving::serve_until;
use crate::door::listener::{Connection, Incoming};
use crate::door::{self, DoorKind};
use crate::observe::metrics::{Figures, Metrics, Source};

/// The time until a request's headers are complete, counted from the end of the one before: longer than scrapers pause.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(90);
const HEADERS_LIMIT: usize = 64;
/// The age at which a connection ends, after the answers under way. Clients connect anew without noticing.
const CONNECTION_AGE: Duration = Duration::from_secs(60 * 60);
/// The time that those answers may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sources of the answers.
#[derive(Clone)]
pub struct Sources {
    pub metrics: Arc<Metrics>,
    pub figures: Figures,
    /// The checks that must pass before this replica may be sent requests.
    pub checks: Source<Vec<Check>>,
}

/// Serves every admitted connection until `closing`, then lets the answers under way finish.
pub async fn serve(incoming: Incoming, sources: Sources, closing: CancellationToken) {
    let router = routes::router(sources, DoorKind::Http.limits());
    let serve = |connection| serve_connection(connection, router.clone(), closing.clone());
    incoming.serve_each(&closing, serve).await;
}

async fn serve_connection(connection: Connection, router: Router, closing: CancellationToken) {
    let peer = connection.peer().clone();
    let builder = builder(connection.protocol());
    let service = TowerToHyperService::new(router.layer(Extension(peer.clone())));
    let served = builder.serve_connection(TokioIo::new(connection), service);
    let leaving = async { drop(timeout(CONNECTION_AGE, closing.cancelled()).await) };
    if let Err(error) = serve_until(served, leaving, LEAVE_TIMEOUT).await {
        tracing::debug!(user = %peer.identity.user, remote = %peer.remote, error, "HTTP connection failed");
    }
}

/// Over TLS only connections that agreed on HTTP/2 may speak it.
fn builder(protocol: Option<&[u8]>) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let limits = DoorKind::Http.limits();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .max_headers(HEADERS_LIMIT)
        .max_buf_size(door::HEADERS_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_local_error_reset_streams(door::LOCAL_RESETS)
        .max_pending_accept_reset_streams(door::PENDING_RESETS)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_header_list_size(door::HEADERS_BYTES)
        .keep_alive_interval(door::PING_INTERVAL)
        .keep_alive_timeout(door::PING_TIMEOUT);
    if protocol == Some(door::H2) { builder.http2_only() } else { builder.http1_only() }
}
