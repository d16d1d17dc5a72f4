//! Credentials of etcd and its clients: certificates like those of a fleet, and TLS as our own clients use it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use muster_pki::secret::{self, Access};
use muster_pki::{Authority, CertificateSubject, FleetId, Issued, REPLICA_LIFETIME, Usage, Validity, tls};
use rustls::ClientConfig;

#[derive(Debug)]
pub(super) struct Credentials {
    authority: Authority,
    client: Issued,
    files: Files,
}

/// Files that etcd reads its own from.
#[derive(Debug)]
struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

// === impl Credentials ===

impl Credentials {
    pub(super) fn make(dir: &Path) -> Result<Self> {
        let (fleet, validity) = (FleetId::random(), Validity::starting(SystemTime::now(), REPLICA_LIFETIME));
        let authority = Authority::generate("etcd", &fleet, validity)?;
        let hosts = ["127.0.0.1".to_owned()];
        let server = CertificateSubject {
            user: "etcd",
            group: None,
            fleet: &fleet,
            usage: Usage::Server,
            hosts: &hosts,
            validity,
        };
        let client = CertificateSubject { user: "bench", usage: Usage::Client, hosts: &[], ..server.clone() };
        let (server, client) = (authority.issue(&server)?, authority.issue(&client)?);
        let files = Files { ca: dir.join("ca.crt"), certificate: dir.join("etcd.crt"), key: dir.join("etcd.key") };
        secret::write_new(&files.ca, authority.certificate_pem(), Access::Public)?;
        secret::write_new(&files.certificate, &server.certificate, Access::Public)?;
        secret::write_new(&files.key, &server.key, Access::Owner)?;
        Ok(Self { authority, client, files })
    }

    pub(super) fn client(&self) -> Result<Arc<ClientConfig>> {
        Ok(tls::agent(self.authority.certificate_pem(), &self.client.certificate, &self.client.key)?)
    }

    /// Both sides show certificates, as with us. etcd's gateway for JSON is off, because it would call its own member
    /// with a certificate that is only a server's.
    pub(super) fn flags(&self) -> Vec<OsString> {
        let files = [
            ("--trusted-ca-file", &self.files.ca),
            ("--cert-file", &self.files.certificate),
            ("--key-file", &self.files.key),
        ];
        let switches = ["--client-cert-auth", "--enable-grpc-gateway=false"].map(OsString::from);
        files.into_iter().flat_map(|(flag, file)| [flag.into(), file.into()]).chain(switches).collect()
    }
}
