//! What the owner of a session can see of it.

use std::sync::Arc;

use crate::failure::Failure;
use crate::terms::Terms;

/// Only the newest is kept, so whatever must not be missed is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionState {
    /// The replica that welcomed this node and still holds its session.
    pub attached_to: Option<u64>,
    /// The fleet this agent has joined, for as long as its process lives.
    pub fleet: Option<Arc<str>>,
    /// Which life of the Node this is; 0 until welcomed, and between a removal and the next welcome.
    pub incarnation: u64,
    /// How often the Node was found removed. Each time, the pods of its former life are stopped before it registers.
    pub removals: u64,
    pub terms: Terms,
    /// What went wrong since the last welcome; refusals are given with the server's words.
    pub last_error: Option<Failure>,
}
