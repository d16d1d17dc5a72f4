//! State of a session, as its owner sees it.

use std::sync::Arc;

use crate::connection::{SessionFailure, SessionTerms};

/// A slow reader sees only the newest state, so events that must not be missed are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionState {
    /// The replica that welcomed this node and still holds its session.
    pub attached_to: Option<u64>,
    /// The fleet this agent has joined; it stays the same for as long as the process lives.
    pub fleet: Option<Arc<str>>,
    /// The incarnation of the Node; 0 until welcomed, and between a removal and the next welcome.
    pub incarnation: u64,
    /// How often the Node was found removed. Each time, the pods of its former incarnation stop before it registers.
    pub removals: u64,
    pub terms: SessionTerms,
    /// The last failure since the last welcome; a refusal quotes the replica.
    pub last_error: Option<SessionFailure>,
    /// What the replica lacks of the protocol that this agent speaks.
    pub lacking: Option<Arc<str>>,
}
