//! Load on etcd in closed loops: every client renews again as soon as it has its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{EtcdClient, KeepAlives};
use super::etcd::{EtcdCluster, Reach};
use super::wire::TxnRequest;
use crate::measure::latency::{Latencies, LatencySummary};
use crate::measure::usage::{ResourceUsage, UsageMeter};

/// So long that no lease expires.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The size of a Kubernetes node's lease in etcd.
const VALUE_BYTES: usize = 350;
/// The limit for answers that are due when time is up.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) struct EtcdLoad {
    pub(super) clients: usize,
    /// Shared by the clients.
    pub(super) connections: usize,
    /// Divided among the clients.
    pub(super) leases: usize,
    pub(super) length: Duration,
}

#[derive(Debug)]
pub(super) struct Measured {
    pub(super) operations: u64,
    pub(super) rate: f64,
    pub(super) latency: Option<LatencySummary>,
    pub(super) usage: ResourceUsage,
}

/// A client that renews its leases one after the other.
trait Renewing: Send + 'static {
    fn renew(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// A client of etcd's own leases.
struct KeepAliveClient {
    stream: KeepAlives,
    leases: Vec<i64>,
    turn: usize,
}

/// A client of leases as an API server stores them: values that no other client may have changed.
struct RenewalClient {
    client: EtcdClient,
    leases: Vec<StoredLease>,
    value: Bytes,
    turn: usize,
}

struct StoredLease {
    key: Bytes,
    revision: i64,
}

/// Lease keep-alives, each answered.
pub(super) async fn keep_alives(etcd: &EtcdCluster, load: EtcdLoad, reach: Reach) -> Result<Measured> {
    let clients = load.clients(etcd, reach).await?;
    let prepare = |(number, client)| KeepAliveClient::prepare(client, load.share(number).count());
    let clients = try_join_all(clients.into_iter().enumerate().map(prepare)).await?;
    load.drive(etcd, clients).await
}

/// Transactions that compare a key's revision and put a new value.
pub(super) async fn renewals(etcd: &EtcdCluster, load: EtcdLoad) -> Result<Measured> {
    let clients = load.clients(etcd, Reach::All).await?;
    let mut witness = clients[0].clone();
    let prepare = |(number, client)| RenewalClient::prepare(client, load.share(number));
    let clients = try_join_all(clients.into_iter().enumerate().map(prepare)).await?;
    let before = witness.revision().await?;
    let measured = load.drive(etcd, clients).await?;
    let changes = witness.revision().await? - before;
    // Each renewal is one revision, so etcd itself has counted them.
    ensure!(u64::try_from(changes)? == measured.operations, "{} renewals made {changes} changes", measured.operations);
    Ok(measured)
}

// === impl EtcdLoad ===

impl EtcdLoad {
    /// One connection for each client.
    async fn clients(self, etcd: &EtcdCluster, reach: Reach) -> Result<Vec<EtcdClient>> {
        let connections = etcd.connect(self.connections, reach).await?;
        Ok(connections.iter().cycle().take(self.clients).cloned().collect())
    }

    /// The leases of one client.
    fn share(self, client: usize) -> impl Iterator<Item = usize> {
        (client..self.leases.max(self.clients)).step_by(self.clients)
    }

    async fn drive<R: Renewing>(self, etcd: &EtcdCluster, clients: Vec<R>) -> Result<Measured> {
        let meter = UsageMeter::start(&etcd.processes());
        let start = Instant::now();
        // One for all clients: a histogram is too large for each to have its own.
        let latencies = Arc::<Mutex<Latencies>>::default();
        let mut running = JoinSet::new();
        for client in clients {
            running.spawn(timeout(self.length + TIMEOUT, repeat(client, start + self.length, Arc::clone(&latencies))));
        }
        while let Some(ended) = running.join_next().await {
            ended?.context("etcd did not answer in time")??;
        }
        let elapsed = start.elapsed();
        let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(latencies.len() > 0, "etcd answered nothing within {} s", self.length.as_secs());
        Ok(Measured {
            operations: latencies.len(),
            rate: latencies.len() as f64 / elapsed.as_secs_f64(),
            latency: latencies.summary(),
            usage: meter.stop(),
        })
    }
}

async fn repeat<R: Renewing>(mut client: R, end: Instant, latencies: Arc<Mutex<Latencies>>) -> Result<()> {
    let mut asked = Instant::now();
    while asked < end {
        client.renew().await?;
        let answered = Instant::now();
        latencies.lock().unwrap_or_else(PoisonError::into_inner).record(answered - asked);
        asked = answered;
    }
    Ok(())
}

// === impl KeepAliveClient ===

impl KeepAliveClient {
    async fn prepare(mut client: EtcdClient, share: usize) -> Result<Self> {
        let mut leases = Vec::new();
        for _ in 0..share {
            leases.push(client.grant(TTL).await?);
        }
        Ok(Self { stream: client.keep_alives(leases[0]).await?, leases, turn: 0 })
    }
}

impl Renewing for KeepAliveClient {
    async fn renew(&mut self) -> Result<()> {
        self.turn = (self.turn + 1) % self.leases.len();
        self.stream.keep(self.leases[self.turn]).await
    }
}

// === impl RenewalClient ===

impl RenewalClient {
    async fn prepare(client: EtcdClient, share: impl Iterator<Item = usize>) -> Result<Self> {
        let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
        let leases: Vec<StoredLease> = share.map(StoredLease::new).collect();
        let mut putter = Self { client, leases, value, turn: 0 };
        for _ in 0..putter.leases.len() {
            putter.renew().await?;
        }
        Ok(putter)
    }
}

impl Renewing for RenewalClient {
    async fn renew(&mut self) -> Result<()> {
        self.turn = (self.turn + 1) % self.leases.len();
        let stored = &mut self.leases[self.turn];
        let answer = self.client.transact(TxnRequest::renewal(&stored.key, stored.revision, &self.value)).await?;
        ensure!(answer.succeeded, "etcd refused to renew {:?}: not at revision {}", stored.key, stored.revision);
        stored.revision = answer.header.context("etcd answered a renewal without a header")?.revision;
        Ok(())
    }
}

// === impl StoredLease ===

impl StoredLease {
    /// A lease that does not exist in etcd yet.
    fn new(number: usize) -> Self {
        Self { key: format!("/registry/leases/kube-node-lease/node-{number:07}").into(), revision: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_has_one_client_and_every_client_a_lease() {
        for (clients, leases) in [(256, 10_000), (256, 256), (256, 3), (1, 5)] {
            let load = EtcdLoad { clients, connections: 1, leases, length: Duration::ZERO };
            let mut shared: Vec<usize> = (0..clients).flat_map(|client| load.share(client)).collect();
            shared.sort_unstable();
            assert_eq!(shared, (0..leases.max(clients)).collect::<Vec<_>>());
            assert!((0..clients).all(|client| load.share(client).next().is_some()));
        }
    }
}
