//! Connections that end in order: a peer is told to send no more calls, and those under way finish.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::time::timeout;

/// Serves a connection until it ends or `leaving` does. The calls then under way have `leave_timeout` to finish.
pub(crate) async fn serve_until<C: GracefulConnection>(
    connection: C,
    leaving: impl Future<Output = ()>,
    leave_timeout: Duration,
) -> Result<(), C::Error> {
    let mut served = pin!(connection);
    tokio::select! {
        outcome = served.as_mut() => return outcome,
        () = leaving => {}
    }
    served.as_mut().graceful_shutdown();
    timeout(leave_timeout, served).await.unwrap_or(Ok(()))
}
