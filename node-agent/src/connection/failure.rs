//! Failures of a session: why an agent is not attached, or why a replica refused what it sent. The session's owner
//! sees them and decides whether an operator must act.

use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};

/// How much of a message from the other side is kept.
const QUOTED_MAX: usize = 512;
/// Status codes that refuse this agent, as opposed to those of a passing fault.
const REFUSALS: [Code; 5] =
    [Code::AlreadyExists, Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::Unimplemented];

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionFailure {
    #[error("cannot reach {endpoint}: {reason}; trying the next endpoint")]
    Unreachable { endpoint: String, reason: String },
    #[error("{endpoint} took longer than {limit:?} to {what}; trying the next endpoint")]
    Late { endpoint: String, what: &'static str, limit: Duration },
    #[error("{endpoint} has not answered for {silence:?}; staying there until another endpoint accepts")]
    Silent { endpoint: String, silence: Duration },
    #[error("{endpoint} refused: {message} ({code:?}); trying again slowly")]
    Refused { endpoint: String, code: Code, message: String },
    #[error("the connection to {endpoint} was lost: {reason}; attaching anew")]
    Lost { endpoint: String, reason: String },
    #[error(
        "{endpoint} belongs to fleet {theirs}, but this agent has joined fleet {ours}: correct its endpoints, or restart \
         it to join the other fleet"
    )]
    ForeignFleet { endpoint: String, ours: String, theirs: String },
    #[error("{endpoint} sent {heard} instead of a welcome: is it of another version?")]
    Unexpected { endpoint: String, heard: &'static str },
    #[error("the status of node {node} was refused: {reason}; posting it again later")]
    StatusRefused { node: String, reason: String },
    #[error("the labels of node {node} were refused: {reason}; sending them again later")]
    RegistrationRefused { node: String, reason: String },
    #[error("the pod report of node {node} was refused: {reason}; sending it again later")]
    PodsRefused { node: String, reason: String },
    #[error("the pod orders for node {node} were older than those of another replica; asking for them again")]
    StaleOrders { node: String },
    #[error("this aggregator may not bind node {node}: {reason}; trying again later")]
    NodeRefused { node: String, reason: String },
    #[error("node {node} does not exist and does not register itself: waiting for an operator to create it")]
    NotCreated { node: String },
}

impl SessionFailure {
    /// Turns the end of a call into a refusal of this agent or a passing fault.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Self {
        let (endpoint, message) = (endpoint.to_owned(), quoted(status.message()));
        if REFUSALS.contains(&status.code()) {
            Self::Refused { endpoint, code: status.code(), message }
        } else {
            Self::Lost { endpoint, reason: format!("{message} ({:?})", status.code()) }
        }
    }

    /// A refusal: trying again soon cannot help.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::ForeignFleet { .. } | Self::NotCreated { .. })
    }

    /// Whether another instance under this node's name has the session.
    pub(crate) fn is_displacement(&self) -> bool {
        matches!(self, Self::Refused { code: Code::AlreadyExists, .. })
    }
}

/// The beginning of a text from the other side.
pub(crate) fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX).collect()
}
