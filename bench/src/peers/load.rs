//! Closed loops against etcd: every client renews again as soon as it was answered.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{Caller, KeepAlives};
use super::etcd::{Etcd, Reach};
use super::histogram::{Histogram, Summary};
use super::wire::TxnRequest;
use crate::usage::{Meter, Usage};

/// No lease is to expire meanwhile.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// What a lease of a Kubernetes node weighs in etcd.
const VALUE_BYTES: usize = 350;
/// For answers that are due when time is up.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
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
    pub(super) latency: Option<Summary>,
    pub(super) usage: Usage,
}

/// Renews one lease after the other, for ever.
trait Renewing: Send + 'static {
    fn renew(&mut self) -> impl Future<Output = Result<()>> + Send;
}

/// Has leases of etcd's own kind.
struct Keeper {
    stream: KeepAlives,
    leases: Vec<i64>,
    turn: usize,
}

/// Has leases as an API server stores them: a value that must not have been changed by anybody else.
struct Putter {
    caller: Caller,
    leases: Vec<Stored>,
    value: Bytes,
    turn: usize,
}

struct Stored {
    key: Bytes,
    revision: i64,
}

/// Lease keep-alives, each answered.
pub(super) async fn keep_alives(etcd: &Etcd, load: Load, reach: Reach) -> Result<Measured> {
    let callers = load.callers(etcd, reach).await?;
    let prepare = |(number, caller)| Keeper::prepare(caller, load.share(number).count());
    let clients = try_join_all(callers.into_iter().enumerate().map(prepare)).await?;
    load.drive(etcd, clients).await
}

/// Transactions that compare a key's revision and put a new value.
pub(super) async fn renewals(etcd: &Etcd, load: Load) -> Result<Measured> {
    let callers = load.callers(etcd, Reach::All).await?;
    let mut witness = callers[0].clone();
    let prepare = |(number, caller)| Putter::prepare(caller, load.share(number));
    let clients = try_join_all(callers.into_iter().enumerate().map(prepare)).await?;
    let before = witness.revision().await?;
    let measured = load.drive(etcd, clients).await?;
    let changes = witness.revision().await? - before;
    // Each renewal is one revision, so etcd itself has counted them.
    ensure!(u64::try_from(changes)? == measured.operations, "{} renewals made {changes} changes", measured.operations);
    Ok(measured)
}

// === impl Load ===

impl Load {
    /// One for each client.
    async fn callers(self, etcd: &Etcd, reach: Reach) -> Result<Vec<Caller>> {
        let connections = etcd.connect(self.connections, reach).await?;
        Ok(connections.iter().cycle().take(self.clients).cloned().collect())
    }

    /// The leases of one client.
    fn share(self, client: usize) -> impl Iterator<Item = usize> {
        (client..self.leases.max(self.clients)).step_by(self.clients)
    }

    async fn drive<R: Renewing>(self, etcd: &Etcd, clients: Vec<R>) -> Result<Measured> {
        let meter = Meter::start(&etcd.processes());
        let start = Instant::now();
        let mut running = JoinSet::new();
        for client in clients {
            running.spawn(timeout(self.length + PATIENCE, repeat(client, start + self.length)));
        }
        let mut latencies = Histogram::default();
        while let Some(ended) = running.join_next().await {
            latencies.add(&ended?.context("etcd did not answer in time")??);
        }
        let elapsed = start.elapsed();
        ensure!(latencies.total() > 0, "etcd answered nothing within {} s", self.length.as_secs());
        Ok(Measured {
            operations: latencies.total(),
            rate: latencies.total() as f64 / elapsed.as_secs_f64(),
            latency: latencies.summary(),
            usage: meter.stop(),
        })
    }
}

async fn repeat<R: Renewing>(mut client: R, end: Instant) -> Result<Histogram> {
    let mut latencies = Histogram::default();
    let mut asked = Instant::now();
    while asked < end {
        client.renew().await?;
        let answered = Instant::now();
        latencies.record(answered - asked);
        asked = answered;
    }
    Ok(latencies)
}

// === impl Keeper ===

impl Keeper {
    async fn prepare(mut caller: Caller, share: usize) -> Result<Self> {
        let mut leases = Vec::new();
        for _ in 0..share {
            leases.push(caller.grant(TTL).await?);
        }
        Ok(Self { stream: caller.keep_alives(leases[0]).await?, leases, turn: 0 })
    }
}

impl Renewing for Keeper {
    async fn renew(&mut self) -> Result<()> {
        self.turn = (self.turn + 1) % self.leases.len();
        self.stream.keep(self.leases[self.turn]).await
    }
}

// === impl Putter ===

impl Putter {
    async fn prepare(caller: Caller, share: impl Iterator<Item = usize>) -> Result<Self> {
        let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
        let leases: Vec<Stored> = share.map(Stored::new).collect();
        let mut putter = Self { caller, leases, value, turn: 0 };
        for _ in 0..putter.leases.len() {
            putter.renew().await?;
        }
        Ok(putter)
    }
}

impl Renewing for Putter {
    async fn renew(&mut self) -> Result<()> {
        self.turn = (self.turn + 1) % self.leases.len();
        let stored = &mut self.leases[self.turn];
        let answer = self.caller.transact(TxnRequest::renewal(&stored.key, stored.revision, &self.value)).await?;
        ensure!(answer.succeeded, "etcd refused to renew {:?}: not at revision {}", stored.key, stored.revision);
        stored.revision = answer.header.context("etcd answered a renewal without a header")?.revision;
        Ok(())
    }
}

// === impl Stored ===

impl Stored {
    /// Not there yet.
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
            let load = Load { clients, connections: 1, leases, length: Duration::ZERO };
            let mut shared: Vec<usize> = (0..clients).flat_map(|client| load.share(client)).collect();
            shared.sort_unstable();
            assert_eq!(shared, (0..leases.max(clients)).collect::<Vec<_>>());
            assert!((0..clients).all(|client| load.share(client).next().is_some()));
        }
    }
}
