//! Errors of a call to the cluster, with the reason of every replica.

use std::fmt;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};

#[derive(Debug, Error)]
pub enum Error {
    /// A replica answered, and another one would answer the same.
    #[error("{message}")]
    Refused { code: Code, message: String, address: String },
    /// No replica gave an answer before the deadline.
    #[error("{0}")]
    Exhausted(Exhausted),
}

/// Every replica that was tried, and why each failed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exhausted {
    pub deadline: Duration,
    pub tried: Vec<Tried>,
    /// A write was sent whose answer never came: it may have been applied.
    pub outcome_unknown: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    pub address: String,
    pub why: Why,
}

/// The reason why an attempt on one replica failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    NotTried,
    /// The machine answers that nothing listens at that port.
    Refused,
    /// No connection for another reason: unknown host, no route, TLS failure.
    NoConnection(String),
    /// No connection in time.
    ConnectTimeout(Duration),
    /// One end did not accept the other's certificate.
    Distrusted(String),
    /// The replica answered that it cannot serve, for example for want of a quorum.
    Unavailable(String),
    /// Connected, but no answer in time.
    Silent(Duration),
    /// The connection broke while it was in use.
    Broken(String),
}

// === impl Error ===

impl Error {
    /// The gRPC code of a final answer.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Exhausted(_) => None,
        }
    }
}

// === impl Exhausted ===

impl Exhausted {
    /// Every replica took the call and none answered: they are slow rather than unreachable.
    pub fn only_silence(&self) -> bool {
        !self.tried.is_empty() && self.tried.iter().all(|tried| matches!(tried.why, Why::Silent(_)))
    }

    /// At every address the connection was refused: no replica runs there.
    pub fn only_refusals(&self) -> bool {
        !self.tried.is_empty() && self.tried.iter().all(|tried| tried.why == Why::Refused)
    }

    /// Every replica was reached, and refused our certificate or had its own refused.
    pub fn only_distrust(&self) -> bool {
        !self.tried.is_empty() && self.tried.iter().all(|tried| matches!(tried.why, Why::Distrusted(_)))
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.only_refusals() {
            write!(f, "no replica is running at the addresses in client.toml: start them, or correct the addresses")?;
        } else {
            write!(f, "no replica could answer within {:?}", self.deadline)?;
        }
        for tried in &self.tried {
            write!(f, "\n  {}: {}", tried.address, tried.why)?;
        }
        if self.outcome_unknown {
            write!(f, "\nthe write was sent and may have been applied; read the object before sending it again")?;
        }
        Ok(())
    }
}

// === impl Why ===

impl Why {
    /// The reason is only that time ran out, not what is wrong.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Silent(_) | Self::ConnectTimeout(_) => true,
            Self::NotTried | Self::Refused | Self::NoConnection(_) => false,
            Self::Distrusted(_) | Self::Unavailable(_) | Self::Broken(_) => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTried => write!(f, "not tried before the deadline"),
            Self::Refused => write!(f, "connection refused: no replica listens there"),
            Self::NoConnection(reason) => write!(f, "cannot connect: {reason}"),
            Self::ConnectTimeout(patience) => write!(f, "cannot connect: timed out after {patience:.1?}"),
            Self::Distrusted(reason) => write!(f, "certificates do not match: {reason}"),
            Self::Unavailable(reason) => write!(f, "{reason}"),
            Self::Silent(patience) => write!(f, "connected, but no answer within {patience:.1?}"),
            Self::Broken(reason) => write!(f, "connection lost: {reason}"),
        }
    }
}

/// A stream that stopped in the middle of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("silent for {0:.1?} in the middle of the answer")]
pub(crate) struct Silence(pub(crate) Duration);

/// Whether every replica would answer with this code, so that trying another one is pointless.
pub(crate) fn is_final(code: Code) -> bool {
    match code {
        Code::Ok
        | Code::NotFound
        | Code::AlreadyExists
        | Code::Aborted
        | Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss => true,
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => false,
    }
}

/// The reason that a failed status stands for. A status with a source was made on our side, by the transport; one
/// without came over the wire.
pub(crate) fn why(status: &Status) -> Why {
    let Some(source) = std::error::Error::source(status) else {
        return match status.message() {
            "" => Why::Unavailable(format!("{:?}", status.code())),
            message => Why::Unavailable(message.into()),
        };
    };
    match (source.downcast_ref::<Silence>(), distrust(source)) {
        (Some(Silence(patience)), _) => Why::Silent(*patience),
        (None, Some(reason)) => Why::Distrusted(reason),
        (None, None) => Why::Broken(root_cause(source)),
    }
}

/// The innermost error of a chain; the outer ones only say that the call failed.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// True if the machine answered that nothing listens at the port.
pub(crate) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::ConnectionRefused;
        }
        link = error.source();
    }
    false
}

/// Finds a certificate complaint of TLS in a chain of errors. TLS 1.3 reports a refused client certificate only
/// after the handshake, as an alert on the first read.
pub(crate) fn distrust(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut link = Some(error);
    while let Some(error) = link {
        let tls = error.downcast_ref::<rustls::Error>().or_else(|| {
            error.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>())
        });
        if let Some(tls) = tls {
            return is_distrust(tls).then(|| tls.to_string());
        }
        link = error.source();
    }
    None
}

#[allow(clippy::wildcard_enum_match_arm)] // not our enum, and it grows
fn is_distrust(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => true,
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::DecryptError
                | Alert::CertificateRequired
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_lists_every_replica_and_its_reason() {
        let exhausted = Exhausted {
            deadline: Duration::from_secs(10),
            tried: vec![
                Tried { address: "a:1".into(), why: Why::NoConnection("connection refused".into()) },
                Tried { address: "b:1".into(), why: Why::Unavailable("no quorum: replicas 2, 3 unreachable".into()) },
            ],
            outcome_unknown: true,
        };
        let text = exhausted.to_string();
        assert!(text.contains("within 10s"), "{text}");
        assert!(text.contains("a:1: cannot connect: connection refused"), "{text}");
        assert!(text.contains("b:1: no quorum: replicas 2, 3 unreachable"), "{text}");
        assert!(text.contains("may have been applied"), "{text}");
        assert!(!exhausted.only_silence());
    }

    #[test]
    fn a_status_from_the_wire_is_unavailable_and_one_from_the_transport_is_broken() {
        assert_eq!(why(&Status::unavailable("no leader")), Why::Unavailable("no leader".into()));
        let broken = Status::from_error(Box::new(std::io::Error::other("reset by peer")));
        assert_eq!(why(&broken), Why::Broken("reset by peer".into()));
    }

    #[test]
    fn only_codes_that_another_replica_would_repeat_are_final() {
        for code in [Code::NotFound, Code::AlreadyExists, Code::Aborted, Code::PermissionDenied, Code::InvalidArgument]
        {
            assert!(is_final(code), "{code:?}");
        }
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Unknown, Code::Internal, Code::Cancelled] {
            assert!(!is_final(code), "{code:?}");
        }
    }
}
