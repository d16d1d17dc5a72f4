//! The agent or aggregator that opened a stream, as its certificate and its hello describe it.

use std::net::SocketAddr;
use std::sync::Arc;

use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::node::Slot;
use muster_proto::v1;

use crate::door::listener::CertificateLife;
use crate::session::wake::entry::claim;

/// The opener of a stream, as known before the hello.
#[derive(Debug, Clone)]
pub(crate) struct Opener {
    pub(crate) fleet: Arc<str>,
    pub(crate) remote: SocketAddr,
    /// The hash of the opener's public key.
    pub(crate) key: Fingerprint,
    pub(crate) certificate: CertificateLife,
}

/// The caller of a stream, as the stream's nodes need to know it. Clones are cheap.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) fleet: Arc<str>,
    pub(crate) remote: SocketAddr,
    /// The process of the agent or of the aggregator; zero before its hello.
    pub(crate) instance: u64,
    /// The caller still has a session elsewhere.
    pub(crate) moving: bool,
    /// The highest revision of the orders that the caller was given.
    pub(crate) orders_revision: u64,
    /// The caller has had no orders in an earlier session of its process.
    pub(crate) newcomer: bool,
}

// === impl Opener ===

impl Opener {
    pub(crate) fn into_caller(self) -> Caller {
        let Self { fleet, remote, .. } = self;
        Caller { fleet, remote, instance: 0, moving: false, orders_revision: 0, newcomer: true }
    }
}

// === impl Caller ===

impl Caller {
    pub(crate) fn claim(&self, slot: Slot, number: u64) -> v1::SessionClaim {
        v1::SessionClaim { newcomer: self.newcomer, ..claim(slot, (self.instance, self.remote), number) }
    }
}
