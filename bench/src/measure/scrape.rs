//! Metrics of a replica, read from `/metrics` as any scraper does: HTTP/1.1 over TLS with a client certificate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Far more than the metrics of a large fleet's replica.
const BODY_BYTES_MAX: u64 = 16 << 20;
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: replica\r\nconnection: close\r\n\r\n";

/// Samples by `name{labels}`, exactly as the replica writes them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScrapedMetrics(BTreeMap<String, f64>);

/// How many beats each replica received first-hand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedBeats {
    pub(crate) by_replica: BTreeMap<u64, u64>,
}

/// The metrics of the replica whose HTTP door is at `address`.
pub(crate) async fn metrics(tls: Arc<rustls::ClientConfig>, address: SocketAddr) -> Result<ScrapedMetrics> {
    let text = tokio::time::timeout(TIMEOUT, get(tls, address)).await;
    let text = text.with_context(|| format!("{address} did not answer within {} s", TIMEOUT.as_secs()))??;
    let (head, body) = text.split_once("\r\n\r\n").context("an answer without an end of its headers")?;
    let first = head.lines().next().unwrap_or_default();
    ensure!(first.starts_with("HTTP/1.1 200"), "{address} answered {first}");
    Ok(ScrapedMetrics::parse(body))
}

async fn get(tls: Arc<rustls::ClientConfig>, address: SocketAddr) -> Result<String> {
    let mut tls = rustls::ClientConfig::clone(&tls);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let tcp = TcpStream::connect(address).await.with_context(|| format!("cannot reach {address}"))?;
    let mut stream = TlsConnector::from(Arc::new(tls)).connect(address.ip().into(), tcp).await?;
    stream.write_all(REQUEST).await?;
    let mut answer = String::new();
    stream.take(BODY_BYTES_MAX).read_to_string(&mut answer).await?;
    Ok(answer)
}

// === impl ScrapedMetrics ===

impl ScrapedMetrics {
    /// Skips lines that are no samples, and timestamps and exemplars behind a value.
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(sample).collect())
    }

    /// The sample of exactly this name and these labels.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// The sum over all label sets of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let of_name = |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
        self.0.iter().filter(|(key, _)| of_name(key)).map(|(_, value)| value).sum()
    }

    /// Beats received first-hand, in sessions and from aggregators.
    pub(crate) fn beats(&self) -> u64 {
        self.sum("muster_beats_total") as u64
    }
}

fn sample(line: &str) -> Option<(String, f64)> {
    if line.starts_with('#') {
        return None;
    }
    // A label's value may hold a space or a brace, but never an unescaped quote: the last brace of the labels follows
    // one.
    let end = match line.find('{') {
        Some(open) => open + closing(&line[open..])? + 1,
        None => line.find(' ')?,
    };
    let value = line[end..].split_whitespace().next()?.parse().ok()?;
    Some((line[..end].to_owned(), value))
}

/// The place at which the labels end.
fn closing(labels: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (place, letter) in labels.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(place),
            _ => {}
        }
    }
    None
}

// === impl AcceptedBeats ===

impl AcceptedBeats {
    pub fn total(&self) -> u64 {
        self.by_replica.values().sum()
    }

    /// The beats accepted since `before`. A replica that was restarted counts from zero, so its whole count is new.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let since = |(id, now): (&u64, &u64)| {
            let then = before.by_replica.get(id).copied().unwrap_or(0);
            (*id, now.checked_sub(then).unwrap_or(*now))
        };
        Self { by_replica: self.by_replica.iter().map(since).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP muster_beats Heartbeats heard first-hand, by how they came.
# TYPE muster_beats counter
muster_beats_total{door="session"} 41.0
muster_beats_total{door="aggregator"} 1000.0
muster_beats_totally_other 7
muster_nodes 4.0
node_collector_zone_health{zone="a } \" b"} 50.0 1700000000
broken{zone="a" 3
broken_too nothing
muster_round_trip_bucket{le="+Inf"} 3 # {trace="x"} 0.5
# EOF
"#;

    #[test]
    fn metrics_are_read_by_name_and_labels() {
        let metrics = ScrapedMetrics::parse(TEXT);
        assert_eq!(metrics.get("muster_nodes"), Some(4.0));
        assert_eq!(metrics.get(r#"muster_beats_total{door="session"}"#), Some(41.0));
        assert_eq!(metrics.get(r#"node_collector_zone_health{zone="a } \" b"}"#), Some(50.0));
        assert_eq!(metrics.get(r#"muster_round_trip_bucket{le="+Inf"}"#), Some(3.0));
        assert_eq!(metrics.0.len(), 6);
        assert_eq!(metrics.beats(), 1041);
        assert_eq!(ScrapedMetrics::parse("").beats(), 0);
    }

    #[test]
    fn a_restarted_replica_counts_from_zero() {
        let of = |beats: [(u64, u64); 2]| AcceptedBeats { by_replica: beats.into() };
        let since = of([(1, 150), (2, 30)]).since(&of([(1, 100), (2, 900)]));
        assert_eq!(since, of([(1, 50), (2, 30)]));
        assert_eq!(since.total(), 80);
    }
}
