//! Rejections as gRPC statuses and back.
//!
//! The code and the message serve any gRPC client, the `muster` command among them. The rejection itself goes along in
//! metadata, for a program that wants the very value `apply` returned. Both are cut to what fits in response headers: a
//! larger status could not be delivered at all.

use muster_lifecycle::credential::Distrust;
use muster_lifecycle::rejection::Rejection;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::field::FieldError;

const REJECTION_KEY: &str = "muster-rejection-bin";
/// Percent-encoding may triple the message, and clients refuse headers from about 16 KiB on.
const MESSAGE_MAX_BYTES: usize = 2_048;
const REJECTION_MAX_BYTES: usize = 4_096;

/// The status that tells a client of `rejection`.
pub fn from_rejection(rejection: &Rejection) -> Status {
    let mut metadata = MetadataMap::new();
    if let Ok(encoded) = serde_json::to_vec(rejection)
        && encoded.len() <= REJECTION_MAX_BYTES
    {
        metadata.insert_bin(REJECTION_KEY, MetadataValue::from_bytes(&encoded));
    }
    Status::with_metadata(code(rejection), cut(rejection.to_string()), metadata)
}

/// The rejection behind a status; `None` if it was too long to travel, or if something else went wrong.
pub fn to_rejection(status: &Status) -> Option<Rejection> {
    let encoded = status.metadata().get_bin(REJECTION_KEY)?.to_bytes().ok()?;
    serde_json::from_slice(&encoded).ok()
}

// === impl Status ===

/// A message that could not be read is no command yet, so there is no rejection to go along.
impl From<FieldError> for Status {
    fn from(error: FieldError) -> Self {
        Status::invalid_argument(cut(error.to_string()))
    }
}

fn code(rejection: &Rejection) -> Code {
    match rejection {
        Rejection::Invalid(_) => Code::InvalidArgument,
        Rejection::NotFound { .. }
        | Rejection::NoSuchToken { .. }
        | Rejection::Distrusted(Distrust::UnknownToken { .. }) => Code::NotFound,
        Rejection::AlreadyExists { .. } => Code::AlreadyExists,
        Rejection::Conflict { .. }
        | Rejection::OtherUid { .. }
        | Rejection::OtherIncarnation { .. }
        | Rejection::ReadyMoved { .. }
        | Rejection::ForeignTerm { .. }
        | Rejection::Stale { .. }
        | Rejection::Overtaken { .. } => Code::Aborted,
        Rejection::ReplicaStoreChanged { .. }
        | Rejection::ReplicaRetired { .. }
        | Rejection::NotWaiting { .. }
        | Rejection::ZonesMoved
        | Rejection::NoToken { .. }
        | Rejection::Spared
        | Rejection::NotLeaving { .. }
        | Rejection::NotUnplaced { .. }
        | Rejection::Unfit { .. }
        | Rejection::NotGarbage { .. }
        | Rejection::StillRunning { .. }
        | Rejection::NoAddressing
        | Rejection::Distrusted(_)
        | Rejection::TokenSpent { .. }
        | Rejection::NotAllDisrupted => Code::FailedPrecondition,
        Rejection::LimitReached { .. } => Code::ResourceExhausted,
        Rejection::LevelHeldBack { .. } | Rejection::LevelNotRaised { .. } | Rejection::LevelNotSpoken { .. } => {
            Code::Unimplemented
        }
        Rejection::NotEntitled { .. } | Rejection::Forbidden(_) => Code::PermissionDenied,
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_MAX_BYTES {
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
        message.push_str("...");
    }
    message
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::author::Author;
    use muster_lifecycle::invalid::Invalid;
    use muster_lifecycle::kind::Kind;
    use muster_lifecycle::level::Level;
    use muster_lifecycle::meta::{Revision, Uid};
    use muster_lifecycle::node::{ConditionStatus, Incarnation};
    use muster_lifecycle::rejection::Limit;
    use muster_lifecycle::replica::ReplicaId;
    use muster_lifecycle::violation::NameViolation;

    use super::*;

    fn every_rejection() -> Vec<(Rejection, Code)> {
        let invalid = Invalid::new("metadata.name", NameViolation::Subdomain { value: "Ä".into() });
        let (expected, actual) = (Incarnation(3), Incarnation(u64::MAX));
        let other_incarnation = Rejection::OtherIncarnation { name: "n1".into(), expected, actual };
        let (expected, actual) = (None, Some(ConditionStatus::True));
        let ready_moved = Rejection::ReadyMoved { name: "n1".into(), expected, actual };
        vec![
            (Rejection::Forbidden(invalid.clone()), Code::PermissionDenied),
            (Rejection::Invalid(invalid), Code::InvalidArgument),
            (Rejection::NotFound { kind: Kind::Node, name: "n1".into() }, Code::NotFound),
            (Rejection::AlreadyExists { kind: Kind::Node, name: "n1".into() }, Code::AlreadyExists),
            (
                Rejection::Conflict { kind: Kind::Node, name: "n1".into(), expected: Revision(4), actual: Revision(9) },
                Code::Aborted,
            ),
            (
                Rejection::OtherUid { kind: Kind::Node, name: "n1".into(), expected: Uid(u128::MAX), actual: Uid(1) },
                Code::Aborted,
            ),
            (Rejection::ForeignTerm { proposed: 1, committed: 2 }, Code::Aborted),
            (Rejection::Overtaken { sequence: 1, latest: u64::MAX }, Code::Aborted),
            (Rejection::ReplicaStoreChanged { id: ReplicaId(3) }, Code::FailedPrecondition),
            (Rejection::ReplicaRetired { id: ReplicaId(3) }, Code::FailedPrecondition),
            (Rejection::LimitReached { what: Limit::Nodes, limit: 5 }, Code::ResourceExhausted),
            (
                Rejection::NotEntitled { what: "evict-node".into(), origin: Author::operator("alice") },
                Code::PermissionDenied,
            ),
            (other_incarnation, Code::Aborted),
            (ready_moved, Code::Aborted),
            (Rejection::NotWaiting { name: "n1".into() }, Code::FailedPrecondition),
            (Rejection::ZonesMoved, Code::FailedPrecondition),
            (Rejection::NoToken { zone: "r1/z1".parse().unwrap() }, Code::FailedPrecondition),
            (Rejection::Spared, Code::FailedPrecondition),
            (Rejection::Stale { age: muster_lifecycle::time::Period(6_000) }, Code::Aborted),
            (Rejection::NotAllDisrupted, Code::FailedPrecondition),
            (Rejection::Distrusted(Distrust::UnknownToken { id: "t".into() }), Code::NotFound),
            (Rejection::Distrusted(Distrust::ExpiredToken { id: "t".into() }), Code::FailedPrecondition),
            (Rejection::NoSuchToken { id: "t".into() }, Code::NotFound),
            (Rejection::TokenSpent { id: "t".into(), node: "n1".into() }, Code::FailedPrecondition),
            (Rejection::LevelNotRaised { needs: Level(2), in_force: Level(1) }, Code::Unimplemented),
        ]
    }

    /// The status as a client gets it: through response headers.
    fn delivered(status: Status) -> Status {
        let response = status.into_http::<()>();
        Status::from_header_map(response.headers()).unwrap()
    }

    #[test]
    fn every_rejection_survives_the_wire() {
        for (rejection, code) in every_rejection() {
            let status = delivered(from_rejection(&rejection));
            assert_eq!(status.code(), code, "{rejection:?}");
            assert_eq!(status.message(), rejection.to_string());
            assert_eq!(to_rejection(&status), Some(rejection));
        }
    }

    #[test]
    fn a_long_rejection_still_fits_in_headers() {
        let value = "ä".repeat(100_000).into();
        let invalid = Invalid::new("metadata.annotations", NameViolation::Qualified { value });
        let status = delivered(from_rejection(&Rejection::Invalid(invalid)));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with("metadata.annotations: \"ä") && status.message().ends_with("..."));
        assert!(status.message().len() <= MESSAGE_MAX_BYTES + 3);
        assert_eq!(to_rejection(&status), None);
    }

    #[test]
    fn a_field_error_is_an_invalid_argument() {
        let status = Status::from(FieldError::new("delete.kind", "\"pods\" is not known here; only nodes"));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "delete.kind: \"pods\" is not known here; only nodes");
        assert_eq!(to_rejection(&status), None);
    }

    #[test]
    fn other_statuses_carry_no_rejection() {
        assert_eq!(to_rejection(&Status::unavailable("no quorum: replicas 2, 3 unreachable")), None);
    }
}
