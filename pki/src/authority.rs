//! The fleet's two certificate authorities and the certificates that they sign.
//!
//! The peer CA signs the certificates that replicas show each other, the client CA all others, so that no credential of
//! a node or an operator can ever open the peer door. A certificate is a server's or a client's, never both: a stolen
//! client key cannot pose as a replica's listener. A URI name carries the fleet id, so that one fleet refuses
//! another's.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use muster_lifecycle::fingerprint::Fingerprint;
use muster_proto::certified_name::COMMON_NAME_MAX;
use muster_proto::token::sha256;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
};

use crate::FleetId;
use crate::address;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Replacing a CA means touching every machine, so it outlives the hardware it starts on.
pub const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3653);
pub const REPLICA_LIFETIME: Duration = DAY.saturating_mul(365);
pub const OPERATOR_LIFETIME: Duration = DAY.saturating_mul(365);
/// The replicated state uses the same value, so that it does not forget too early which nodes it shut out.
pub const AGENT_LIFETIME: Duration = muster_lifecycle::credential::BY_HAND_LIFE;
/// A machine whose clock runs behind must still accept a certificate made a moment ago.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);
/// It also keeps log lines and audit records short.
pub const USER_LIMIT: usize = COMMON_NAME_MAX;
const HOSTS_LIMIT: usize = 64;

/// The use of a certificate. Deliberately not a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
}

/// The span in which a certificate is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

/// The statements of a certificate about one key.
#[derive(Debug, Clone)]
pub struct CertificateSubject<'a> {
    pub user: &'a str,
    /// Grants a role. Servers have none, so that their certificates identify no client.
    pub group: Option<&'a str>,
    pub fleet: &'a FleetId,
    pub usage: Usage,
    /// DNS names and IP addresses under which a server is reached, or the DNS name that a node's long name is.
    pub hosts: &'a [String],
    pub validity: Validity,
}

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

/// A certificate authority with its key.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} cannot be a user name: give 1 to {USER_LIMIT} printable characters")]
    User(String),
    #[error("{0:?} cannot stand in a certificate: give a DNS name or an IP address")]
    Host(String),
    #[error("{0} hosts are too many for one certificate: the limit is {HOSTS_LIMIT}")]
    Hosts(usize),
    #[error("the CA certificate or its key cannot be used: restore both from the same backup")]
    Authority(#[source] rcgen::Error),
    #[error("cannot sign the certificate of {user}")]
    Sign { user: String, source: rcgen::Error },
}

// === impl Validity ===

impl Validity {
    pub fn starting(now: SystemTime, lifetime: Duration) -> Self {
        Self { from: now - CLOCK_SKEW, until: now + lifetime }
    }
}

// === impl Authority ===

impl Authority {
    /// Makes a CA that signs end certificates only: path length 0, no usage but signing certificates.
    pub fn generate(role: &str, fleet: &FleetId, validity: Validity) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Authority)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        // The fleet is in the name, so that a wrong CA is told apart by its name before any signature is tried.
        params.distinguished_name.push(DnType::CommonName, format!("muster {role} CA {fleet}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = validity.from.into();
        params.not_after = validity.until.into();
        let certificate = params.self_signed(&key).map_err(Error::Authority)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key).map_err(Error::Authority)?;
        require_same_key(certificate, &key)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(Error::Authority)?;
        Ok(Self { certificate: certificate.to_owned(), issuer })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Certifies a key that was made and is kept elsewhere.
    pub fn certify(&self, subject: &CertificateSubject<'_>, key: &impl PublicKeyData) -> Result<String, Error> {
        let signing = |source| Error::Sign { user: subject.user.to_owned(), source };
        Ok(subject.params()?.signed_by(key, &self.issuer).map_err(signing)?.pem())
    }

    /// The permanent name of the CA: the hash of its public key, as join tokens carry it.
    pub fn public_key_print(&self) -> Result<Fingerprint, Error> {
        authority_print(&self.certificate)
    }

    /// Makes a key and certifies it.
    pub fn issue(&self, subject: &CertificateSubject<'_>) -> Result<Issued, Error> {
        let params = subject.params()?;
        let signing = |source| Error::Sign { user: subject.user.to_owned(), source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(signing)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(signing)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// The hash of the public key in a CA's certificate.
pub fn authority_print(certificate: &str) -> Result<Fingerprint, Error> {
    let unusable = || Error::Authority(rcgen::Error::CouldNotParseCertificate);
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|_| unusable())?;
    let parsed = pem.parse_x509().map_err(|_| unusable())?;
    Ok(sha256(parsed.public_key().raw))
}

/// A CA whose key belongs to another certificate signs what no door accepts, so it is refused at once.
fn require_same_key(certificate: &str, key: &KeyPair) -> Result<(), Error> {
    let unusable = || Error::Authority(rcgen::Error::CouldNotParseCertificate);
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).map_err(|_| unusable())?;
    let parsed = pem.parse_x509().map_err(|_| unusable())?;
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(unusable());
    }
    Ok(())
}

// === impl CertificateSubject ===

impl CertificateSubject<'_> {
    fn params(&self) -> Result<CertificateParams, Error> {
        if self.user.is_empty() || self.user.len() > USER_LIMIT || self.user.chars().any(char::is_control) {
            return Err(Error::User(self.user.to_owned()));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.user);
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.subject_alt_names = self.names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.usage {
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        params.not_before = self.validity.from.into();
        params.not_after = self.validity.until.into();
        Ok(params)
    }

    fn names(&self) -> Result<Vec<SanType>, Error> {
        if self.hosts.len() > HOSTS_LIMIT {
            return Err(Error::Hosts(self.hosts.len()));
        }
        let mut names = vec![SanType::URI(ia5(&self.fleet.uri())?)];
        for host in self.hosts {
            let name = match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) if address::is_host_name(host) => SanType::DnsName(ia5(host)?),
                Err(_) => return Err(Error::Host(host.clone())),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn ia5(text: &str) -> Result<Ia5String, Error> {
    Ia5String::try_from(text).map_err(|_| Error::Host(text.to_owned()))
}

impl fmt::Debug for Issued {
    /// A key must not reach a log by way of a derived `Debug`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use x509_parser::certificate::X509Certificate;
    use x509_parser::extensions::GeneralName;

    use super::*;

    fn year() -> Validity {
        Validity::starting(SystemTime::now(), REPLICA_LIFETIME)
    }

    fn with_parsed(pem: &str, check: impl FnOnce(&X509Certificate<'_>)) {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        check(&pem.parse_x509().unwrap());
    }

    fn subject<'a>(fleet: &'a FleetId, usage: Usage, hosts: &'a [String]) -> CertificateSubject<'a> {
        CertificateSubject { user: "ada", group: Some("muster:operators"), fleet, usage, hosts, validity: year() }
    }

    #[test]
    fn an_authority_signs_end_certificates_and_nothing_else() {
        let authority = Authority::generate("peer", &FleetId::random(), year()).unwrap();
        with_parsed(authority.certificate_pem(), |certificate| {
            let constraints = certificate.basic_constraints().unwrap().unwrap().value;
            assert!(constraints.ca);
            assert_eq!(constraints.path_len_constraint, Some(0));
            let usage = certificate.key_usage().unwrap().unwrap().value;
            assert!(usage.key_cert_sign() && !usage.crl_sign() && !usage.digital_signature());
        });
    }

    #[test]
    fn a_certificate_has_one_usage_and_names_its_fleet() {
        let fleet = FleetId::random();
        let authority = Authority::generate("client", &fleet, year()).unwrap();
        for (usage, server) in [(Usage::Server, true), (Usage::Client, false)] {
            let hosts = ["127.0.0.1".to_owned(), "a.example.org".to_owned(), "127.0.0.1".to_owned()];
            let issued = authority.issue(&subject(&fleet, usage, &hosts)).unwrap();
            with_parsed(&issued.certificate, |certificate| {
                let extended = certificate.extended_key_usage().unwrap().unwrap().value;
                assert_eq!((extended.server_auth, extended.client_auth), (server, !server));
                assert!(!certificate.is_ca());
                let names = &certificate.subject_alternative_name().unwrap().unwrap().value.general_names;
                assert_eq!(names.len(), 3);
                assert_eq!(names[0], GeneralName::URI(&fleet.uri()));
            });
        }
    }

    #[test]
    fn an_authority_loaded_from_its_files_issues_the_same() {
        let fleet = FleetId::random();
        let made = Authority::generate("client", &fleet, year()).unwrap();
        let loaded = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
        let issued = loaded.issue(&subject(&fleet, Usage::Client, &[])).unwrap();
        with_parsed(&issued.certificate, |leaf| {
            with_parsed(made.certificate_pem(), |ca| assert_eq!(leaf.issuer(), ca.subject()));
        });
    }

    #[test]
    fn an_authority_with_the_key_of_another_is_refused() {
        let fleet = FleetId::random();
        let (one, two) = (Authority::generate("a", &fleet, year()), Authority::generate("b", &fleet, year()));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(Authority::from_pem(one.certificate_pem(), &two.key_pem()).is_err());
        assert!(Authority::from_pem("garbage", &one.key_pem()).is_err());
        assert!(Authority::from_pem(one.certificate_pem(), "garbage").is_err());
    }

    #[test]
    fn bad_names_are_refused() {
        let fleet = FleetId::random();
        let authority = Authority::generate("client", &fleet, year()).unwrap();
        let long = "x".repeat(USER_LIMIT + 1);
        for user in ["", "tab\t", long.as_str()] {
            let bad = CertificateSubject { user, ..subject(&fleet, Usage::Client, &[]) };
            assert!(matches!(authority.issue(&bad), Err(Error::User(_))), "{user:?}");
        }
        for host in ["", "a b", "*.example.org", "https://x"] {
            let hosts = [host.to_owned()];
            let bad = subject(&fleet, Usage::Server, &hosts);
            assert!(matches!(authority.issue(&bad), Err(Error::Host(_))), "{host:?}");
        }
        let crowd = vec!["a.example.org".to_owned(); HOSTS_LIMIT + 1];
        assert!(matches!(authority.issue(&subject(&fleet, Usage::Server, &crowd)), Err(Error::Hosts(_))));
    }

    #[test]
    fn debug_output_holds_no_key() {
        let fleet = FleetId::random();
        let authority = Authority::generate("client", &fleet, year()).unwrap();
        let issued = authority.issue(&subject(&fleet, Usage::Client, &[])).unwrap();
        assert!(!format!("{authority:?}{issued:?}").contains("PRIVATE KEY"));
    }
}
