//! Metrics of the agent in Prometheus' text format, and the HTTP server that serves them.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::exit::AgentError;
use super::flag::BadFlag;
use super::kubeconfig::require_secret;
use super::settings::{MetricsEndpoint, read_bounded};
use super::view::{AgentView, AttachmentState, StatusSource};
use crate::pods::PodPhase;

/// Scrapers are few.
const CONNECTIONS_MAX: usize = 8;
/// For one connection, the handshake included.
const TIMEOUT: Duration = Duration::from_secs(30);
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADER_BYTES_MAX: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// An open listener for metrics that is not served yet.
pub struct AgentMetrics {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

// === impl AgentMetrics ===

impl AgentMetrics {
    /// Opens the listener. An address in use is not a usage error: its owner may release it.
    pub async fn open(door: &MetricsEndpoint) -> Result<Self, AgentError> {
        let tls = door.tls.as_ref().map(|(certificate, key)| acceptor(certificate, key)).transpose()?;
        let listener = TcpListener::bind(door.address).await.map_err(|error| {
            let rule = format!("cannot listen there: {error}; give another address, or none");
            AgentError::other(BadFlag::new("metrics-address", door.address.to_string(), rule))
        })?;
        Ok(Self { listener, tls })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(super) async fn serve(self, source: StatusSource) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((tcp, _)) => {
                    let (tls, source) = (self.tls.clone(), source.clone());
                    tokio::spawn(async move {
                        let _ = timeout(TIMEOUT, serve_connection(tcp, tls, source)).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection for metrics");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn serve_connection(tcp: TcpStream, tls: Option<TlsAcceptor>, source: StatusSource) {
    match tls {
        None => answer(tcp, source).await,
        Some(tls) => match tls.accept(tcp).await {
            Ok(stream) => answer(stream, source).await,
            Err(error) => tracing::debug!(%error, "TLS handshake of a metrics client failed"),
        },
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, source: StatusSource) {
    let service = service_fn(|request| {
        let source = source.clone();
        async move { Ok::<_, Infallible>(respond(&request, &source).await) }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(HEADER_BYTES_MAX);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection of a metrics client failed");
    }
}

async fn respond(request: &Request<Incoming>, source: &StatusSource) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, exposition(&source.view().await, resident_bytes())),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "use GET to read metrics\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "not found: use /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(TEXT_FORMAT));
    response
}

fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, BadFlag> {
    let bad_certificate = |rule: String| BadFlag::new("metrics-tls-cert", certificate.display().to_string(), rule);
    let bad_key = |rule: String| BadFlag::new("metrics-tls-key", key.display().to_string(), rule);
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(read_bounded(certificate).map_err(bad_certificate)?.as_bytes()).collect();
    let chain =
        chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| bad_certificate("holds no certificate".into()))?;
    require_secret(key).map_err(bad_key)?;
    let secret = PrivateKeyDer::from_pem_slice(read_bounded(key).map_err(bad_key)?.as_bytes());
    let secret = secret.map_err(|_| bad_key("holds no key".into()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |error: rustls::Error| bad_certificate(format!("cannot be used: {error}"));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The resident memory of this process.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn exposition(view: &AgentView, resident_bytes: Option<u64>) -> String {
    let mut page = Page::default();
    let session = &view.session;
    page.metric("build_info", "gauge", "The agent's version.", &format!("{{version=\"{}\"}}", view.version), 1.0);
    page.value(
        "attached",
        "gauge",
        "Whether a replica holds this node's session.",
        truth(session.state == AttachmentState::Attached),
    );
    page.value(
        "session_answers",
        "gauge",
        "Whether the session's task answers.",
        truth(session.state != AttachmentState::Hung),
    );
    page.maybe("replica", "gauge", "The replica that holds it.", session.replica.map(|replica| replica as f64));
    page.value("incarnation", "gauge", "The incarnation of the Node; 0 if none.", session.incarnation as f64);
    page.value("beats_total", "counter", "Beats sent.", session.beats as f64);
    page.value("statuses_total", "counter", "Statuses sent.", session.statuses as f64);
    page.value("failures_total", "counter", "Failed attempts to attach, and lost sessions.", session.failures as f64);
    page.value("removals_total", "counter", "How often the Node was found removed.", session.removals as f64);
    let ages = [
        ("last_beat_age_seconds", "Since the last beat was sent.", session.last_beat_sent_age),
        ("last_heard_age_seconds", "Since the last message of a replica.", session.last_heard_age),
        ("last_acknowledged_age_seconds", "Since a beat was last acknowledged.", session.last_acknowledged_age),
    ];
    ages.into_iter().for_each(|(name, help, age)| page.maybe(name, "gauge", help, age));
    let expires = view.certificate_expires.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    let help = "When the node's certificate expires.";
    page.maybe("certificate_expiry_timestamp_seconds", "gauge", help, expires.map(|at| at.as_second() as f64));
    page.maybe("resident_bytes", "gauge", "Resident memory of this process.", resident_bytes.map(|bytes| bytes as f64));
    page.head("pods", "gauge", "Pods known to this node.");
    for phase in PodPhase::ALL.map(PodPhase::as_str) {
        let count = view.pods.iter().filter(|pod| pod.phase == phase).count();
        page.sample("pods", &format!("{{phase=\"{phase}\"}}"), count as f64);
    }
    page.0
}

fn truth(truth: bool) -> f64 {
    if truth { 1.0 } else { 0.0 }
}

/// Builder of a metrics page; every name gets the same prefix.
#[derive(Default)]
struct Page(String);

// Writing to a string cannot fail.
impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP muster_agent_{name} {help}\n# TYPE muster_agent_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "muster_agent_{name}{labels} {value}");
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: f64) {
        self.head(name, kind, help);
        self.sample(name, labels, value);
    }

    fn value(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.metric(name, kind, help, "", value);
    }

    fn maybe(&mut self, name: &str, kind: &str, help: &str, value: Option<f64>) {
        value.into_iter().for_each(|value| self.value(name, kind, help, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::view::sample;

    #[test]
    fn every_metric_has_its_help_its_type_and_its_prefix() {
        let page = exposition(&sample(), Some(4096));
        let expected = [
            "muster_agent_build_info{version=\"0.1.0\"} 1",
            "muster_agent_attached 1",
            "muster_agent_session_answers 1",
            "muster_agent_replica 2",
            "muster_agent_incarnation 7",
            "muster_agent_beats_total 10",
            "muster_agent_statuses_total 2",
            "muster_agent_failures_total 3",
            "muster_agent_removals_total 1",
            "muster_agent_last_beat_age_seconds 1.25",
            "muster_agent_last_heard_age_seconds 0.5",
            "muster_agent_certificate_expiry_timestamp_seconds 1796083200",
            "muster_agent_resident_bytes 4096",
            "muster_agent_pods{phase=\"Pending\"} 0",
            "muster_agent_pods{phase=\"Running\"} 1",
            "muster_agent_pods{phase=\"Succeeded\"} 0",
            "muster_agent_pods{phase=\"Failed\"} 0",
            "muster_agent_pods{phase=\"Unknown\"} 0",
        ];
        let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, expected);
        for line in samples {
            let name = line.split(['{', ' ']).next().unwrap();
            let heads = ["HELP", "TYPE"].map(|head| page.matches(&format!("# {head} {name} ")).count());
            assert_eq!(heads, [1, 1], "{name}");
        }
    }

    #[test]
    fn the_documented_metrics_are_the_exposed_ones() {
        let operations = include_str!("../../../docs/operations.md");
        let rows = operations.lines().filter_map(|line| line.strip_prefix("| `muster_agent_")?.split_once("` | "));
        let documented: Vec<_> = rows.map(|(name, rest)| (name, rest.split(" |").next().unwrap())).collect();
        let mut view = sample();
        view.session.last_acknowledged_age = Some(1.0);
        let page = exposition(&view, Some(4096));
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE muster_agent_")?.split_once(' '));
        assert_eq!(documented, types.collect::<Vec<_>>());
    }
}
