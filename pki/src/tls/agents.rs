//! The certificate check of the agents' door: it admits certificates of the CA, and two kinds of callers that the other
//! doors turn away at once.
//!
//! A machine that wants to join has no certificate yet, and a node that was cut off for long has one that has expired.
//! Both pass the handshake and no more: their role decides what they may ask for. An expired certificate is checked as
//! of its last moment, and otherwise like any other.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

#[derive(Debug)]
pub(super) struct AgentVerifier {
    inner: Arc<dyn ClientCertVerifier>,
}

impl AgentVerifier {
    pub(super) fn new(inner: Arc<dyn ClientCertVerifier>) -> Self {
        Self { inner }
    }
}

impl ClientCertVerifier for AgentVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if is_expiry(&error) => match last_moment(end_entity) {
                Some(then) => self.inner.verify_client_cert(end_entity, intermediates, then),
                None => Err(error),
            },
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn is_expiry(error: &Error) -> bool {
    use CertificateError as Bad;
    matches!(error, Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }))
}

fn last_moment(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).ok()?;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}
