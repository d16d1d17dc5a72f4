//! Who opened a stream, as far as its nodes are concerned.

use std::net::SocketAddr;
use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_proto::v1;

use crate::session::wake::entry::claim;

/// Clones are cheap.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) fleet: Arc<str>,
    pub(crate) remote: SocketAddr,
    /// Which process of the agent, or of the aggregator, this is.
    pub(crate) instance: u64,
    /// It still has a session elsewhere.
    pub(crate) moving: bool,
    /// The highest revision of the orders it was given.
    pub(crate) orders_revision: u64,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn claim(&self, slot: Slot, number: u64) -> v1::SessionClaim {
        claim(slot, (self.instance, self.remote), number)
    }
}
