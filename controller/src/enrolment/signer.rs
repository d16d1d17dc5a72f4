//! The signer of node certificates: the client CA's key, and the lifetime of what it signs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_lifecycle::credential::SignedKey;
use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::time::WallTime;
use muster_proto::certified_name::CertifiedName;
use muster_proto::token::sha256;
use muster_proto::v1;
use rcgen::{CertificateSigningRequestParams, PKCS_ECDSA_P256_SHA256, PublicKey, PublicKeyData};

use muster_pki::identity;
use muster_pki::{Authority, CLOCK_SKEW, CertificateSubject, FleetId, SigningError, Usage, Validity};

/// A request with a P-256 key is a few hundred bytes.
const CSR_BYTES_MAX: usize = 8 * 1024;
/// A P-256 point, not compressed.
const POINT_BYTES: usize = 65;

#[derive(Debug)]
pub struct Signer {
    authority: Arc<Authority>,
    pin: Fingerprint,
    fleet: FleetId,
    lifetime: Duration,
}

/// This replica cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this replica cannot sign for nodes: {} is missing; copy client-ca.key there from the fleet's pki folder (mode \
     0600), restart the replica, or ask another",
    path.display()
)]
pub struct Missing {
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    #[error("{0} bytes are too many: at most {CSR_BYTES_MAX}")]
    TooLarge(usize),
    #[error("is not a PKCS#10 request (DER) signed by its own key")]
    Unreadable,
    #[error("the key must be of ECDSA P-256")]
    Algorithm,
}

/// A public key whose owner has proved that it holds the private key.
#[derive(Debug, Clone)]
pub struct CsrKey {
    key: PublicKey,
    pub(crate) print: Fingerprint,
}

// === impl Signer ===

impl Signer {
    pub fn new(authority: Arc<Authority>, fleet: FleetId, lifetime: Duration) -> Result<Self, SigningError> {
        let pin = authority.public_key_print()?;
        Ok(Self { authority, pin, fleet, lifetime })
    }

    /// The signer of a replica: it can sign only if the replica's folder holds the key.
    pub fn of(
        authority: Option<&Arc<Authority>>,
        tls_dir: &Path,
        fleet: &FleetId,
        lifetime: Duration,
    ) -> Result<Arc<Self>, Missing> {
        let missing = || Missing { path: tls_dir.join(muster_pki::tls::files::CLIENT_CA_KEY) };
        let authority = authority.ok_or_else(missing)?;
        Self::new(Arc::clone(authority), fleet.clone(), lifetime).map(Arc::new).map_err(|_| missing())
    }

    /// The fingerprint of the CA, as tokens carry it.
    pub fn pin(&self) -> Fingerprint {
        self.pin
    }

    /// The validity of a certificate for this key.
    pub fn term(&self, key: &CsrKey, now: SystemTime) -> SignedKey {
        SignedKey { key: key.print, issued: wall(now), expires: wall(now + self.lifetime) }
    }

    pub fn certify(&self, node: &str, key: &CsrKey, signed: &SignedKey) -> Result<v1::Certified, SigningError> {
        let (from, until) = (moment(signed.issued), moment(signed.expires));
        // A node renews by the life of its certificate: if that is short, little of it may lie before its beginning.
        let skew = CLOCK_SKEW.min(until.duration_since(from).unwrap_or_default() / 10);
        let validity = Validity { from: from - skew, until };
        let CertifiedName { common_name, dns_names } = CertifiedName::of(node);
        let (usage, group) = (Usage::Client, Some(identity::NODES));
        let subject =
            CertificateSubject { user: &common_name, group, fleet: &self.fleet, usage, hosts: &dns_names, validity };
        Ok(v1::Certified {
            certificate: self.authority.certify(&subject, &key.key)?,
            ca: self.authority.certificate_pem().to_owned(),
            fleet: self.fleet.to_string(),
        })
    }
}

/// Reads a certificate request. Only the key in it counts.
pub fn read_csr(der: &[u8]) -> Result<CsrKey, CsrError> {
    if der.len() > CSR_BYTES_MAX {
        return Err(CsrError::TooLarge(der.len()));
    }
    let request = CertificateSigningRequestParams::from_der(&der.into()).map_err(|_| CsrError::Unreadable)?;
    let key = request.public_key;
    if key.algorithm() != &PKCS_ECDSA_P256_SHA256 || key.der_bytes().len() != POINT_BYTES {
        return Err(CsrError::Algorithm);
    }
    let print = sha256(&key.subject_public_key_info());
    Ok(CsrKey { key, print })
}

fn wall(at: SystemTime) -> WallTime {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn moment(at: WallTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at.0).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use muster_pki::identity::Identity;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn csr(key: &KeyPair) -> Vec<u8> {
        // The request asks for more than its key; the certificate must not contain it.
        let mut params = CertificateParams::new(vec!["replica-1.example.org".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:masters");
        params.serialize_request(key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_has_the_subject_and_validity_that_were_signed() {
        let fleet = FleetId::random();
        let validity = Validity::starting(SystemTime::now(), 100 * DAY);
        let authority = Arc::new(Authority::generate("client", &fleet, validity).unwrap());
        let signer = Signer::new(authority, fleet.clone(), 30 * DAY).unwrap();
        let key = KeyPair::generate().unwrap();
        let read = read_csr(&csr(&key)).unwrap();
        let signed = signer.term(&read, SystemTime::now());
        assert_eq!(signed.expires.0 - signed.issued.0, 30 * 24 * 3_600_000);
        for node in ["rack-1", &"x".repeat(63)] {
            let certified = signer.certify(node, &read, &signed).unwrap();
            let der = CertificateDer::from_pem_slice(certified.certificate.as_bytes()).unwrap();
            let identity = Identity::from_certificate(&der).unwrap();
            assert_eq!((identity.user, &identity.fleet), (format!("system:node:{node}"), &fleet));
            assert_eq!(identity.groups, [identity::NODES]);
            assert_eq!(identity.key, read.print, "the key that was shown, hashed alike on both sides");
            assert_eq!(identity.key, sha256(&key.subject_public_key_info()));
        }
    }

    #[test]
    fn an_invalid_certificate_request_is_refused() {
        let key = KeyPair::generate().unwrap();
        let mut forged = csr(&key);
        let last = forged.len() - 1;
        forged[last] ^= 1;
        let strong = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let cases = [
            (vec![], CsrError::Unreadable),
            (vec![0x30; 100], CsrError::Unreadable),
            (forged, CsrError::Unreadable),
            (csr(&strong), CsrError::Algorithm),
            (vec![0; CSR_BYTES_MAX + 1], CsrError::TooLarge(CSR_BYTES_MAX + 1)),
        ];
        for (der, wanted) in cases {
            assert_eq!(read_csr(&der).unwrap_err(), wanted);
        }
    }
}
