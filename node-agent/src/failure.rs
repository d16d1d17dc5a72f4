//! Why an agent is not attached, or is not believed: said to its owner, who decides whether to bother a person.

use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};

/// How much of the other side's words is kept.
const QUOTED_MAX: usize = 512;
/// The answers that are about this agent and not about the moment.
const VERDICTS: [Code; 5] =
    [Code::AlreadyExists, Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::Unimplemented];

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    #[error("cannot reach {door}: {reason}; trying the next endpoint")]
    Unreachable { door: String, reason: String },
    #[error("{door} took longer than {patience:?} to {what}; trying the next endpoint")]
    Late { door: String, what: &'static str, patience: Duration },
    #[error("{door} has said nothing for {silence:?}, although asked; staying there until another endpoint accepts")]
    Silent { door: String, silence: Duration },
    #[error("{door} refused: {message} ({code:?}); trying again slowly")]
    Refused { door: String, code: Code, message: String },
    #[error("the connection to {door} was lost: {reason}; attaching anew")]
    Lost { door: String, reason: String },
    #[error(
        "{door} belongs to fleet {theirs}, but this agent has joined fleet {ours}: correct its endpoints, or restart \
         it to join the other fleet"
    )]
    ForeignFleet { door: String, ours: String, theirs: String },
    #[error("{door} said {heard} where a welcome was due: is it of another version?")]
    Unexpected { door: String, heard: &'static str },
    #[error("the status of {node} was not taken: {reason}; posting it again later")]
    StatusRefused { node: String, reason: String },
    #[error("the labels of the machine under {node} were not taken: {reason}; saying them again later")]
    RegistrationRefused { node: String, reason: String },
    #[error("what was said of the pods of {node} was not taken: {reason}; saying it again later")]
    PodsRefused { node: String, reason: String },
    #[error("the orders for the pods of {node} were older than those of another replica; asking for them anew")]
    StaleOrders { node: String },
    #[error("{node} may not be carried: {reason}; binding it again later")]
    NodeRefused { node: String, reason: String },
    #[error("{node} does not exist and does not register itself: waiting for an operator to create it")]
    NotCreated { node: String },
}

impl Failure {
    /// What the end of a call means: a decision against this agent, or an accident.
    pub(crate) fn from_status(door: &str, status: &Status) -> Self {
        let (door, message) = (door.to_owned(), quoted(status.message()));
        if VERDICTS.contains(&status.code()) {
            Self::Refused { door, code: status.code(), message }
        } else {
            Self::Lost { door, reason: format!("{message} ({:?})", status.code()) }
        }
    }

    /// Trying again soon cannot help.
    pub(crate) fn is_verdict(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::ForeignFleet { .. } | Self::NotCreated { .. })
    }
}

/// The beginning of what somebody else wrote.
pub(crate) fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX).collect()
}
