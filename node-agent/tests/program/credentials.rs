//! Credentials issued elsewhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::flags::settings;

struct Kubeconfig {
    dir: tempfile::TempDir,
    ca: String,
    certificate: String,
    key: String,
}

impl Kubeconfig {
    fn new() -> Self {
        let authority = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&authority).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::default();
        own.distinguished_name.push(DnType::CommonName, "system:node:host-1");
        own.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        let certificate = own.signed_by(&key, &Issuer::new(params, authority)).unwrap().pem();
        Self { dir: tempfile::tempdir().unwrap(), ca, certificate, key: key.serialize_pem() }
    }

    fn embedded(&self) -> String {
        let [ca, certificate, key] = [&self.ca, &self.certificate, &self.key].map(|pem| STANDARD.encode(pem));
        let cluster = format!("certificate-authority-data: {ca}");
        text(&cluster, &format!("client-certificate-data: {certificate}, client-key-data: {key}"))
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn refused(&self, text: &str) -> String {
        let path = self.write("kubeconfig", text, 0o600);
        let message = read(&path).unwrap_err();
        message.strip_prefix(&format!("--kubeconfig {path:?}: ")).expect(&message).to_owned()
    }
}

fn text(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts:\n- name: c\n  context: {{ cluster: k, user: u }}\n\
         clusters:\n- name: k\n  cluster: {{ server: 'https://replica-1.example:7401', {cluster} }}\n\
         users:\n- name: u\n  user: {{ {user} }}\n"
    )
}

fn read(path: &Path) -> Result<Vec<String>, String> {
    let read = settings(&["--kubeconfig", path.to_str().unwrap()]);
    read.map(|settings| settings.server).map_err(|failed| failed.message)
}

#[test]
fn certificates_are_embedded_or_read_from_files() {
    let kubeconfig = Kubeconfig::new();
    let path = kubeconfig.write("embedded", &kubeconfig.embedded(), 0o600);
    assert_eq!(read(&path), Ok(vec!["replica-1.example:7401".to_owned()]), "it says where to go, too");
    kubeconfig.write("ca.pem", &kubeconfig.ca, 0o644);
    kubeconfig.write("own.pem", &kubeconfig.certificate, 0o644);
    kubeconfig.write("own.key", &kubeconfig.key, 0o600);
    let named = text("certificate-authority: ca.pem", "client-certificate: own.pem, client-key: own.key");
    let path = kubeconfig.write("named", &named, 0o644);
    assert!(read(&path).is_ok(), "{:?}", read(&path));
    let settings = settings(&["--kubeconfig", path.to_str().unwrap(), "--server", "other:1"]).unwrap();
    assert_eq!(settings.server, ["other:1"], "the flag wins");
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_command_that_fixes_it() {
    let kubeconfig = Kubeconfig::new();
    let path = kubeconfig.write("embedded", &kubeconfig.embedded(), 0o644);
    let message = read(&path).unwrap_err();
    assert!(message.ends_with(&format!("run `chmod 600 {}`", path.display())), "{message}");
    kubeconfig.write("ca.pem", &kubeconfig.ca, 0o644);
    kubeconfig.write("own.pem", &kubeconfig.certificate, 0o644);
    let key = kubeconfig.write("own.key", &kubeconfig.key, 0o640);
    let named = text("certificate-authority: ca.pem", "client-certificate: own.pem, client-key: own.key");
    let message = read(&kubeconfig.write("named", &named, 0o644)).unwrap_err();
    assert!(message.ends_with(&format!("run `chmod 600 {}`", key.display())), "{message}");
}

#[test]
fn missing_and_invalid_credentials_are_named() {
    let kubeconfig = Kubeconfig::new();
    let whole = kubeconfig.embedded();
    let key = STANDARD.encode(&kubeconfig.key);
    let table = [
        ("[]".to_owned(), "is no kubeconfig: "),
        (whole.replace("current-context: c", "current-context: d"), "has no context \"d\", which it refers to"),
        (whole.replace("user: u }", "user: v }"), "has no user \"v\", which it refers to"),
        (
            whole.replace("https://", "http://"),
            "has the server \"http://replica-1.example:7401\": write https://HOST:PORT",
        ),
        (whole.replace("client-key-data", "token"), "has neither client-key nor client-key-data"),
        (whole.replace(&key, "'%%%'"), "has a client-key-data that is no base64: "),
        (whole.replace(&key, &STANDARD.encode("nothing")), "has no client-key that belongs to its client-certificate"),
        (whole.replace("certificate-authority-data", "certificate-authority"), "refers to "),
    ];
    for (text, expected) in table {
        let message = kubeconfig.refused(&text);
        assert!(message.starts_with(expected), "wanted {expected:?}, got {message:?}");
    }
    let stranger = Kubeconfig::new();
    let mixed = whole.replace(&key, &STANDARD.encode(&stranger.key));
    assert_eq!(kubeconfig.refused(&mixed), "has no client-key that belongs to its client-certificate");
}
