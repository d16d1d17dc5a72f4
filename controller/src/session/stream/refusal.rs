//! A refusal: why this replica ends a stream, as its agent is told and as it is counted.

use muster_lifecycle::credential::Distrust;
use muster_lifecycle::rejection::Rejection;
use muster_proto::operation::FieldError;
use muster_proto::status::from_rejection;
use muster_raft::replica::RequestError;
use tonic::{Code, Status};

use crate::session::figures::RefusalReason;
use crate::session::wake::entry::Ending;
use crate::session::write::catch_up::NotCaughtUp;

#[derive(Debug)]
pub(crate) struct SessionRefusal {
    pub(crate) reason: RefusalReason,
    pub(crate) status: Box<Status>,
}

// === impl SessionRefusal ===

impl SessionRefusal {
    pub(crate) fn new(reason: RefusalReason, status: Status) -> Self {
        Self { reason, status: Box::new(status) }
    }

    /// A message that cannot be understood, or not at this point.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self::new(RefusalReason::Message, Status::invalid_argument(text))
    }

    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(RefusalReason::NoLeader, Status::unavailable(text))
    }

    pub(crate) fn stopping() -> Self {
        Self::new(RefusalReason::Stopping, Status::unavailable("this replica is stopping; attach to another"))
    }

    pub(crate) fn ended(ending: &Ending, node: &str) -> Self {
        Self::new(ending.reason(), ending.status(node))
    }
}

impl From<RequestError> for SessionRefusal {
    fn from(error: RequestError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<NotCaughtUp> for SessionRefusal {
    fn from(behind: NotCaughtUp) -> Self {
        Self::unavailable(behind.to_string())
    }
}

impl From<FieldError> for SessionRefusal {
    fn from(error: FieldError) -> Self {
        Self::new(RefusalReason::Message, error.into())
    }
}

impl From<&Distrust> for SessionRefusal {
    fn from(distrust: &Distrust) -> Self {
        Self::new(RefusalReason::Identity, Status::permission_denied(distrust.to_string()))
    }
}

impl From<&Rejection> for SessionRefusal {
    fn from(rejection: &Rejection) -> Self {
        let status = from_rejection(rejection);
        let denied = status.code() == Code::PermissionDenied;
        Self::new(if denied { RefusalReason::Identity } else { RefusalReason::Rejected }, status)
    }
}
