//! Who opened a stream, as far as its nodes are concerned.

use std::net::SocketAddr;
use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_proto::v1;

use crate::session::entry::claim;

/// Clones are cheap.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) fleet: Arc<str>,
    pub(super) remote: SocketAddr,
    /// Which process of the agent, or of the aggregator, this is.
    pub(super) instance: u64,
    /// It still has a session elsewhere.
    pub(super) moving: bool,
    /// The highest revision of the orders it was given.
    pub(super) orders_revision: u64,
}

// === impl Caller ===

impl Caller {
    pub(super) fn claim(&self, slot: Slot, number: u64) -> v1::SessionClaim {
        claim(slot, (self.instance, self.remote), number)
    }
}
