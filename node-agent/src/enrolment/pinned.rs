//! Pinned CA: the trust of a machine that knows only the pin in its token.
//!
//! A replica shows its CA beside its certificate. If that CA has the pinned key, it is trusted, and the certificate is
//! verified against it as usual, name included. Anything else ends the handshake before the token is sent.

use std::sync::Arc;

use muster_lifecycle::fingerprint::Fingerprint;
use muster_proto::token::sha256;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::credentials::provider;

/// The error of the failed handshake.
pub(super) const MISMATCH: &str = "it did not show the CA that the token pins";
const ALPN: &[u8] = b"h2";

#[derive(Debug)]
struct Pinned {
    pin: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A TLS client without a certificate that trusts only the pinned CA.
pub(super) fn tls(pin: Fingerprint) -> Result<Arc<ClientConfig>, Error> {
    let provider = provider();
    let verifier = Arc::new(Pinned { pin, algorithms: provider.signature_verification_algorithms });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Whether a PEM text is a certificate with the pinned key.
pub(super) fn has_pinned_key(pem: &str, pin: Fingerprint) -> bool {
    CertificateDer::from_pem_slice(pem.as_bytes()).is_ok_and(|der| key_print(&der) == Some(pin))
}

fn key_print(der: &CertificateDer<'_>) -> Option<Fingerprint> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(sha256(certificate.public_key().raw))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates.iter().find(|der| key_print(der) == Some(self.pin));
        let authority = authority.ok_or_else(|| Error::General(MISMATCH.to_owned()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
