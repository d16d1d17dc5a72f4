//! Tests of credentials on disk and in use.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A certificate for `user` with its key and CA.
fn texts(user: &str, until: SystemTime) -> PemTexts {
    texts_of(&CertifiedName { common_name: user.to_owned(), dns_names: vec![] }, until)
}

fn texts_of(name: &CertifiedName, until: SystemTime) -> PemTexts {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(name.dns_names.clone()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, &name.common_name);
    params.not_before = (until - 10 * HOUR).into();
    params.not_after = until.into();
    let certificate = params.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap().pem();
    PemTexts { ca: ca_pem, certificate, key: key.serialize_pem() }
}

/// Whole seconds, like in certificates.
fn later(by: Duration) -> SystemTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    UNIX_EPOCH + Duration::from_secs(now) + by
}

fn saved(user: &str, until: SystemTime) -> (TempDir, CredentialStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = CredentialStore::new(dir.path().join("state"));
    store.save(&texts(user, until)).unwrap();
    (dir, store)
}

#[test]
fn saved_credentials_load_and_only_their_owner_can_read_the_key() {
    let until = later(HOUR);
    let (_dir, store) = saved("system:node:rack-1", until);
    let credentials = NodeCredentials::load(&store).unwrap();
    assert_eq!((credentials.node(), credentials.expires()), ("rack-1", until));
    assert!(credentials.is_renewable() && !credentials.is_expired(until - HOUR));
    assert!(credentials.is_expired(until));
    let [node, _] = files(store.dir());
    assert_eq!(fs::metadata(&node).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(store.dir()).unwrap().mode() & 0o777, 0o700);
    assert!(!format!("{credentials:?}").contains("PRIVATE"));
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_remedy() {
    let (_dir, store) = saved("system:node:rack-1", later(HOUR));
    let [node, _] = files(store.dir());
    for mode in [0o640, 0o604, 0o644] {
        fs::set_permissions(&node, fs::Permissions::from_mode(mode)).unwrap();
        let message = NodeCredentials::load(&store).unwrap_err().to_string();
        assert!(message.contains(&format!("chmod 600 {}", node.display())), "{message}");
    }
    fs::remove_file(&node).unwrap();
    fs::create_dir(&node).unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o700)).unwrap();
    let message = NodeCredentials::load(&store).unwrap_err().to_string();
    assert!(message.contains("cannot read") && message.contains("chmod 600"), "{message}");
}

#[test]
fn a_key_certificate_and_ca_that_do_not_match_are_refused() {
    let good = texts("system:node:rack-1", later(HOUR));
    let other = texts("system:node:rack-1", later(HOUR));
    let long = CertifiedName::of(&"x".repeat(63));
    let other_hash = CertifiedName { dns_names: vec!["x".repeat(62)], ..long.clone() };
    let cases = [
        (PemTexts { key: other.key.clone(), ..good.clone() }, "the key does not belong to the certificate"),
        (PemTexts { key: "garbage".into(), ..good.clone() }, "the key does not belong to the certificate"),
        (PemTexts { certificate: "garbage".into(), ..good.clone() }, "the certificate file does not hold PEM"),
        (PemTexts { ca: "garbage".into(), ..good.clone() }, "the CA file does not hold PEM"),
        (texts("ada", later(HOUR)), "the certificate belongs to \"ada\" and not to a node"),
        (texts(&long.common_name, later(HOUR)), "the certificate has common name \"system:node:sha256:"),
        (texts_of(&other_hash, later(HOUR)), "the certificate has DNS name \"xxx"),
    ];
    for (texts, wanted) in cases {
        let message = NodeCredentials::new(&texts, None).unwrap_err().to_string();
        assert!(message.starts_with(wanted), "{message}");
    }
    let credentials = NodeCredentials::new(&good, None).unwrap();
    assert!(credentials.require_node("rack-1").is_ok());
    assert!(credentials.require_node("rack-2").unwrap_err().to_string().contains("is to be node \"rack-2\""));
}

#[test]
fn a_node_with_a_long_name_is_read_from_its_certificate() {
    let node = [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".");
    let credentials = NodeCredentials::new(&texts_of(&CertifiedName::of(&node), later(HOUR)), None).unwrap();
    assert_eq!(credentials.node(), node);
}

#[test]
fn a_renewal_changes_the_certificate_in_use_and_on_disk_but_not_the_configuration() {
    let (_dir, store) = saved("system:node:rack-1", later(HOUR));
    let (credentials, until) = (NodeCredentials::load(&store).unwrap(), later(5 * HOUR));
    let mut renewals = credentials.renewals();
    let (tls, shown) = (credentials.tls(), credentials.0.shown.held().key);
    let renewed = texts("system:node:rack-1", until);
    credentials.renew(renewed.certificate, renewed.key).unwrap();
    assert_eq!(credentials.expires(), until);
    assert!(renewals.has_changed().unwrap() && *renewals.borrow_and_update() == 1);
    assert!(Arc::ptr_eq(&tls, &credentials.tls()));
    assert!(!Arc::ptr_eq(&shown, &credentials.0.shown.held().key));
    assert_eq!(NodeCredentials::load(&store).unwrap().expires(), until);
    let other = texts("system:node:rack-2", later(HOUR));
    assert!(credentials.renew(other.certificate, other.key).is_err());
    assert!(credentials.expires() == until && !renewals.has_changed().unwrap());
}

/// As after a crash between saving the answer and discarding the key.
#[test]
fn the_key_of_a_join_is_not_used_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let store = CredentialStore::new(dir.path());
    let key = store.joining_key().unwrap().serialize_pem();
    store.save(&PemTexts { key: "other\n".into(), ..texts("system:node:rack-1", later(HOUR)) }).unwrap();
    store.forget_key_in_use().unwrap();
    assert_eq!(store.joining_key().unwrap().serialize_pem(), key, "the key of an unanswered join");
    store.save(&PemTexts { key: key.clone(), ..texts("system:node:rack-1", later(HOUR)) }).unwrap();
    store.forget_key_in_use().unwrap();
    assert_ne!(store.joining_key().unwrap().serialize_pem(), key);
}

#[test]
fn the_key_of_a_join_is_kept_until_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let store = CredentialStore::new(dir.path().join("state"));
    let first = store.joining_key().unwrap().serialize_pem();
    assert_eq!(store.joining_key().unwrap().serialize_pem(), first);
    assert!(!store.has_credentials());
    store.joined().unwrap();
    store.joined().unwrap();
    assert_ne!(store.joining_key().unwrap().serialize_pem(), first);
}
