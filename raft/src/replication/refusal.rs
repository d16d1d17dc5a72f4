//! Refusals of the leader on the wire: what it says to one forwarded command, and what the follower makes of it.
//!
//! gRPC's codes are the vocabulary. Whether a write certainly did not happen, may be tried again, or is refused for
//! good must survive the way back: a refusal for good that is tried again until the deadline looks like a lost quorum.

use tonic::{Code, Status};

use crate::replica::RequestError;
use crate::write::proposer::ProposeError;

/// The leader's answer.
pub(crate) fn propose_status(error: ProposeError) -> Status {
    let text = error.to_string();
    match error {
        ProposeError::NotLeader { .. } => Status::failed_precondition(text),
        ProposeError::HandingOver(_) => Status::aborted(text),
        ProposeError::Overloaded(_) => Status::resource_exhausted(text),
        ProposeError::Exhausted(_) => Status::out_of_range(text),
        ProposeError::Unknown | ProposeError::Stopped => Status::unavailable(text),
    }
}

pub(crate) fn request_status(error: RequestError) -> Status {
    match error {
        RequestError::NoQuorum(text) | RequestError::Forwarding(text) | RequestError::TurnedAway(text) => {
            Status::unavailable(text)
        }
        RequestError::Denied(text) => Status::permission_denied(text),
        RequestError::Refused(error) => propose_status(error),
    }
}

/// The answer to one command, as an error of the follower that forwarded it.
pub(crate) fn command_refused(status: &Status) -> RequestError {
    let said = || status.message().to_owned();
    match status.code() {
        Code::FailedPrecondition => ProposeError::NotLeader { leader: None }.into(),
        Code::Aborted => ProposeError::HandingOver(said()).into(),
        Code::ResourceExhausted => ProposeError::Overloaded(said()).into(),
        Code::OutOfRange => ProposeError::Exhausted(said()).into(),
        Code::PermissionDenied
        | Code::InvalidArgument
        | Code::Unauthenticated
        | Code::Unimplemented
        | Code::NotFound
        | Code::AlreadyExists => RequestError::Denied(said()),
        Code::Unavailable
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::DataLoss => RequestError::Forwarding(asking(status)),
    }
}

/// The failure of a whole call to the leader. If the leader does not take calls from this replica, another replica may
/// do better, and asking again does not help.
pub(crate) fn call_failed(status: &Status) -> RequestError {
    match status.code() {
        Code::PermissionDenied | Code::InvalidArgument | Code::Unauthenticated | Code::Unimplemented => {
            RequestError::TurnedAway(asking(status))
        }
        Code::FailedPrecondition
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Unavailable
        | Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::DataLoss => command_refused(status),
    }
}

fn asking(status: &Status) -> String {
    format!("asking the leader: {}", status.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_of_the_leader_means_the_same_at_the_follower() {
        let survive = [
            ProposeError::NotLeader { leader: None },
            ProposeError::HandingOver("the disk is nearly full".into()),
            ProposeError::Overloaded("too many".into()),
            ProposeError::Exhausted("the disk is nearly full".into()),
        ];
        for error in survive {
            assert_eq!(command_refused(&propose_status(error.clone())), RequestError::Refused(error));
        }
        // The outcome of these is not known, and a retry needs a request id.
        for error in [ProposeError::Unknown, ProposeError::Stopped] {
            assert!(matches!(command_refused(&propose_status(error)), RequestError::Forwarding(_)));
        }
    }

    #[test]
    fn a_command_that_is_denied_is_final_and_a_call_that_is_denied_is_for_another_replica() {
        let denied = Status::permission_denied("not yours");
        assert_eq!(command_refused(&denied), RequestError::Denied("not yours".into()));
        assert_eq!(call_failed(&denied), RequestError::TurnedAway("asking the leader: not yours".into()));
        let down = Status::unavailable("connection refused");
        assert!(matches!(call_failed(&down), RequestError::Forwarding(_)));
    }
}
