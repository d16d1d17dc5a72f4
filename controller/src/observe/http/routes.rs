//! Routes of the HTTP door, and its refusal of every other request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, RawQuery, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Sources;
use super::health::{self, Check};
use crate::door::Limits;
use crate::door::listener::{DoorRefusal, Peer};
use crate::observe::metrics;

/// Every path, and its purpose.
const PATHS: [(&str, &str); 3] = [
    ("/metrics", "OpenMetrics for Prometheus"),
    ("/livez", "200 while this process serves"),
    ("/readyz", "200 while this replica knows a leader; ?verbose lists the checks"),
];
/// Scrapes that are put together at the same time; further ones wait.
const SCRAPES_AT_ONCE: usize = 2;
/// For a door without a limit of its own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

struct RouteContext {
    sources: Sources,
    scrapes: Semaphore,
    answer_timeout: Duration,
}

pub(super) fn router(sources: Sources, limits: Limits) -> Router {
    let answer_timeout = limits.call_timeout.unwrap_or(ANSWER_TIMEOUT);
    let shared = Arc::new(RouteContext { sources, scrapes: Semaphore::new(SCRAPES_AT_ONCE), answer_timeout });
    Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(unknown)
        .layer(DefaultBodyLimit::max(limits.message_bytes))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard))
        .with_state(shared)
}

/// Lets only GET through, within the time limit, and logs the caller and the path.
async fn guard(
    State(shared): State<Arc<RouteContext>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match method {
        _ if peer.validity.has_ended() => refuse(StatusCode::UNAUTHORIZED, DoorRefusal::Expired.to_string()),
        Method::GET => match timeout(shared.answer_timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "there was no answer in time; try again".into()),
        },
        _ => only_get(),
    };
    let (user, remote, status) = (&peer.identity.user, peer.remote, response.status().as_u16());
    tracing::debug!(%user, %remote, %method, path, status, "HTTP request answered");
    response
}

async fn scrape(State(shared): State<Arc<RouteContext>>) -> Response {
    let Ok(_turn) = shared.scrapes.acquire().await else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "this replica is stopping".into());
    };
    match shared.sources.metrics.render(&shared.sources.figures) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written as text".into()),
    }
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(shared): State<Arc<RouteContext>>, RawQuery(query): RawQuery) -> Response {
    let checks = (shared.sources.checks)();
    let status = if checks.iter().all(Check::passed) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, health::report(&checks, asks_for_detail(query.as_deref()))).into_response()
}

async fn unknown(uri: Uri) -> Response {
    let paths: String = PATHS.iter().map(|(path, purpose)| format!("  {path:<10} {purpose}\n")).collect();
    refuse(StatusCode::NOT_FOUND, format!("there is nothing at {}; there is\n{}", uri.path(), paths.trim_end()))
}

fn only_get() -> Response {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here".into());
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET"));
    response
}

fn refuse(status: StatusCode, reason: String) -> Response {
    (status, reason + "\n").into_response()
}

/// `?verbose`, `?verbose=...`, alone or among others.
fn asks_for_detail(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some("verbose"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbose_is_requested_by_a_query_parameter() {
        for query in ["verbose", "verbose=1", "a=b&verbose", "verbose&a"] {
            assert!(asks_for_detail(Some(query)), "{query}");
        }
        for query in [None, Some(""), Some("verbosely"), Some("a=verbose")] {
            assert!(!asks_for_detail(query), "{query:?}");
        }
    }
}
