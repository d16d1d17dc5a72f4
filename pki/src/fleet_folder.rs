//! The folder of a fleet: the list of its replicas, its two CAs, and the files of each replica and operator.
//!
//! ```text
//! DIR/pki/         fleet.toml, peer-ca.{crt,key}, client-ca.{crt,key}     stays with the person who may sign
//! DIR/replica-N/   config.toml, tls/ (with client-ca.key, to sign nodes)  goes to the machine of replica N
//! DIR/operator/    client.toml, tls/                                      goes to the first operator
//! ```
//! A fleet comes into being by one rename, that of `pki/`: everything is first written to `DIR/.init`. What an
//! interruption left there is either discarded (no `pki/` yet) or moved into place (`pki/` exists).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use muster_lifecycle::name;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::violation::NameViolation;
use muster_proto::certified_name::CertifiedName;
use muster_proto::token::sha256;
use serde::{Deserialize, Serialize};

use crate::FleetId;
use crate::authority::{
    self, AGENT_LIFETIME, AUTHORITY_LIFETIME, Authority, CertificateSubject, Issued, OPERATOR_LIFETIME,
    REPLICA_LIFETIME, Usage, Validity,
};
use crate::client_config::{ClientConfig, ClientTls};
use crate::identity;
use crate::member::{FleetMember, unique_members};
use crate::replica_plan::{self, ReplicaPlan};
use crate::secret::{self, Access};
use crate::settings;
use crate::tls::files;

const STAGING: &str = ".init";
const PKI: &str = "pki";
const RECORD: &str = "fleet.toml";
const OPERATOR: &str = "operator";
const FIRST_OPERATOR: &str = "operator";
const CLIENT_FILE: &str = "client.toml";

/// The rights that a person's certificate grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Operator,
    Viewer,
}

/// A fleet with the keys to sign for it.
#[derive(Debug)]
pub struct FleetFolder {
    dir: PathBuf,
    record: Record,
    peer_ca: Authority,
    client_ca: Authority,
}

/// `fleet.toml`. Replicas are never removed from it: an id is not given twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    fleet: FleetId,
    replicas: Vec<ReplicaPlan>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} already holds a fleet: choose another folder, or add to this one with `muster member`", dir.display())]
    Exists { dir: PathBuf },
    #[error("{} holds no fleet: make one with `muster init`", dir.display())]
    Absent { dir: PathBuf },
    #[error("{} is in the way: move it aside and try again", path.display())]
    InTheWay { path: PathBuf },
    #[error("a fleet needs at least one replica")]
    NoReplicas,
    #[error("replica {0} already belongs to the fleet: ids are never reused, take a new one")]
    ReplicaExists(ReplicaId),
    #[error("{0:?} cannot name a person: names that begin with `system:` belong to machines")]
    Name(String),
    #[error("a node or an aggregator cannot have this name: {0}")]
    MachineName(NameViolation),
    #[error(transparent)]
    Plan(#[from] settings::Error),
    #[error(transparent)]
    Authority(#[from] authority::Error),
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("cannot write the configuration as TOML")]
    Toml(#[from] toml::ser::Error),
}

// === impl FleetFolder ===

impl FleetFolder {
    /// Makes a fleet in `dir`, or finishes making the same one after an interruption.
    pub fn create(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        if plans.is_empty() {
            return Err(Error::NoReplicas);
        }
        let members: Vec<FleetMember> = plans.iter().map(ReplicaPlan::member).collect();
        unique_members("replicas", &members)?;
        replica_plan::require_room_for_http(plans)?;
        if dir.join(PKI).exists() {
            return Self::resume(dir, plans);
        }
        let fleet = Self::generate(dir, plans)?;
        let staging = dir.join(STAGING);
        remove_tree(&staging)?;
        for name in fleet.published() {
            free(&dir.join(name))?;
        }
        fleet.stage(&staging, &members)?;
        fleet.finish()?;
        Ok(fleet)
    }

    pub fn load(dir: &Path) -> Result<Self, Error> {
        let pki = dir.join(PKI);
        if !pki.exists() {
            return Err(Error::Absent { dir: dir.to_owned() });
        }
        let path = pki.join(RECORD);
        let record: Record = settings::parse(&path, &secret::read(&path)?)?;
        let authority = |name: &str| -> Result<Authority, Error> {
            let certificate = secret::read(&pki.join(format!("{name}.crt")))?;
            let key = secret::read_private(&pki.join(format!("{name}.key")))?;
            Ok(Authority::from_pem(&certificate, &key)?)
        };
        let (peer_ca, client_ca) = (authority("peer-ca")?, authority("client-ca")?);
        let fleet = Self { dir: dir.to_owned(), record, peer_ca, client_ca };
        fleet.finish()?;
        Ok(fleet)
    }

    pub fn id(&self) -> &FleetId {
        &self.record.fleet
    }

    pub fn replicas(&self) -> &[ReplicaPlan] {
        &self.record.replicas
    }

    pub fn peer_authority(&self) -> &Authority {
        &self.peer_ca
    }

    pub fn client_authority(&self) -> &Authority {
        &self.client_ca
    }

    pub fn replica_dir(&self, id: ReplicaId) -> PathBuf {
        self.dir.join(replica_folder(id))
    }

    pub fn operator_dir(&self) -> PathBuf {
        self.dir.join(OPERATOR)
    }

    /// Prepares the folder of a replica that joins the running fleet; returns where it is.
    pub fn add_replica(&mut self, plan: &ReplicaPlan) -> Result<PathBuf, Error> {
        if self.record.replicas.iter().any(|known| known.id == plan.id) {
            return Err(Error::ReplicaExists(plan.id));
        }
        unique_members("replica", &[plan.member()])?;
        let dir = self.replica_dir(plan.id);
        free(&dir)?;
        let staging = self.dir.join(format!(".{}", replica_folder(plan.id)));
        remove_tree(&staging)?;
        self.write_replica(&staging, plan, &[])?;
        // The folder is published first: an id on record without its folder could be neither used nor given again.
        secret::publish(&staging, &dir)?;
        self.record.replicas.push(plan.clone());
        secret::replace(&self.dir.join(PKI).join(RECORD), &toml::to_string(&self.record)?, Access::Owner)?;
        self.refresh_endpoints()?;
        Ok(dir)
    }

    /// Issues a person's certificate into `dir`, which must not hold one yet.
    pub fn issue_client(&self, dir: &Path, name: &str, grant: Grant, lifetime: Duration) -> Result<(), Error> {
        if !identity::is_human(name) {
            return Err(Error::Name(name.to_owned()));
        }
        let (tls, file) = (dir.join("tls"), dir.join(CLIENT_FILE));
        free(&tls)?;
        free(&file)?;
        let issued = self.sign_client(name, grant.group(), &[], lifetime)?;
        secret::make_dir(dir)?;
        let staging = dir.join(".tls");
        remove_tree(&staging)?;
        secret::make_dir(&staging)?;
        secret::write_new(&staging.join("ca.crt"), self.client_ca.certificate_pem(), Access::Public)?;
        write_pair(&staging, ("client.crt", "client.key"), &issued)?;
        secret::publish(&staging, &tls)?;
        secret::replace(&file, &self.client_toml()?, Access::Owner)?;
        Ok(())
    }

    /// The certificate of a node's agent. No copy is kept here.
    pub fn issue_node(&self, name: &str) -> Result<Issued, Error> {
        name::host_name(name).map_err(Error::MachineName)?;
        let CertifiedName { common_name, dns_names } = CertifiedName::of(name);
        self.sign_client(&common_name, identity::NODES, &dns_names, AGENT_LIFETIME)
    }

    /// The certificate of an aggregator, which carries the nodes of its scope. No copy is kept here.
    pub fn issue_aggregator(&self, name: &str) -> Result<Issued, Error> {
        name::host_name(name).map_err(Error::MachineName)?;
        self.sign_client(&identity::aggregator_user(name), identity::AGGREGATORS, &[], AGENT_LIFETIME)
    }

    /// Writes a machine's certificate, its key and the CA of the replicas into `dir`, which must not exist yet.
    pub fn write_agent(&self, dir: &Path, issued: &Issued) -> Result<(), Error> {
        free(dir)?;
        let staging = beside(dir);
        remove_tree(&staging)?;
        secret::make_dir(&staging)?;
        secret::write_new(&staging.join("ca.crt"), self.client_ca.certificate_pem(), Access::Public)?;
        write_pair(&staging, ("agent.crt", "agent.key"), issued)?;
        Ok(secret::publish(&staging, dir)?)
    }

    fn sign_client(&self, user: &str, group: &str, hosts: &[String], lifetime: Duration) -> Result<Issued, Error> {
        let validity = Validity::starting(SystemTime::now(), lifetime);
        let (usage, group) = (Usage::Client, Some(group));
        Ok(self.client_ca.issue(&CertificateSubject { user, group, fleet: self.id(), usage, hosts, validity })?)
    }

    fn generate(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        let fleet = FleetId::random();
        let validity = Validity::starting(SystemTime::now(), AUTHORITY_LIFETIME);
        let peer_ca = Authority::generate("peer", &fleet, validity)?;
        let client_ca = Authority::generate("client", &fleet, validity)?;
        let record = Record { fleet, replicas: plans.to_vec() };
        Ok(Self { dir: dir.to_owned(), record, peer_ca, client_ca })
    }

    /// Called when `pki/` exists. It goes on only if the creation was interrupted, and was for the same plan.
    fn resume(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        let interrupted = dir.join(STAGING).exists();
        let fleet = Self::load(dir)?;
        if interrupted && fleet.record.replicas == plans {
            return Ok(fleet);
        }
        Err(Error::Exists { dir: dir.to_owned() })
    }

    fn stage(&self, staging: &Path, members: &[FleetMember]) -> Result<(), Error> {
        let pki = staging.join(PKI);
        secret::make_dir(&pki)?;
        secret::write_new(&pki.join(RECORD), &toml::to_string(&self.record)?, Access::Owner)?;
        for (name, authority) in [("peer-ca", &self.peer_ca), ("client-ca", &self.client_ca)] {
            let certificate = pki.join(format!("{name}.crt"));
            secret::write_new(&certificate, authority.certificate_pem(), Access::Public)?;
            secret::write_new(&pki.join(format!("{name}.key")), &authority.key_pem(), Access::Owner)?;
        }
        secret::sync_dir(&pki)?;
        for plan in &self.record.replicas {
            self.write_replica(&staging.join(replica_folder(plan.id)), plan, members)?;
        }
        let operator = staging.join(OPERATOR);
        self.issue_client(&operator, FIRST_OPERATOR, Grant::Operator, OPERATOR_LIFETIME)?;
        Ok(secret::sync_dir(staging)?)
    }

    /// Moves the staged folders into place. `pki/` goes first: from then on the rest can always be finished.
    fn finish(&self) -> Result<(), Error> {
        let staging = self.dir.join(STAGING);
        for name in self.published() {
            let staged = staging.join(&name);
            if staged.exists() {
                secret::publish(&staged, &self.dir.join(&name))?;
            }
        }
        remove_tree(&staging)
    }

    fn published(&self) -> Vec<String> {
        let replicas = self.record.replicas.iter().map(|plan| replica_folder(plan.id));
        std::iter::once(PKI.to_owned()).chain(replicas).chain([OPERATOR.to_owned()]).collect()
    }

    fn write_replica(&self, dir: &Path, plan: &ReplicaPlan, members: &[FleetMember]) -> Result<(), Error> {
        let tls = dir.join("tls");
        secret::make_dir(&tls)?;
        secret::write_new(&tls.join(files::PEER_CA), self.peer_ca.certificate_pem(), Access::Public)?;
        secret::write_new(&tls.join(files::CLIENT_CA), self.client_ca.certificate_pem(), Access::Public)?;
        secret::write_new(&tls.join(files::CLIENT_CA_KEY), &self.client_ca.key_pem(), Access::Owner)?;
        let hosts = plan.certified_hosts(self.id());
        let user = identity::replica_user(plan.id);
        let validity = Validity::starting(SystemTime::now(), REPLICA_LIFETIME);
        let server = CertificateSubject {
            user: &user,
            group: None,
            fleet: self.id(),
            usage: Usage::Server,
            hosts: &hosts,
            validity,
        };
        let client =
            CertificateSubject { group: Some(identity::REPLICAS), usage: Usage::Client, hosts: &[], ..server.clone() };
        write_pair(&tls, files::PEER_SERVER, &self.peer_ca.issue(&server)?)?;
        write_pair(&tls, files::PEER_CLIENT, &self.peer_ca.issue(&client)?)?;
        write_pair(&tls, files::SERVER, &self.client_ca.issue(&server)?)?;
        let canary = self.sign_client(&identity::canary_user(plan.id), identity::CANARIES, &[], REPLICA_LIFETIME)?;
        write_pair(&tls, files::CANARY, &canary)?;
        secret::sync_dir(&tls)?;
        let config = toml::to_string(&plan.settings(self.id(), members))?;
        secret::write_new(&dir.join("config.toml"), &config, Access::Owner)?;
        Ok(secret::sync_dir(dir)?)
    }

    fn client_toml(&self) -> Result<String, Error> {
        let tls = ClientTls { ca: "tls/ca.crt".into(), cert: "tls/client.crt".into(), key: "tls/client.key".into() };
        let endpoints = self.record.replicas.iter().map(|plan| plan.client.clone()).collect();
        Ok(toml::to_string(&ClientConfig { fleet: self.id().clone(), endpoints, tls })?)
    }

    /// The folder of the first operator may have been moved away; then there is nothing here to refresh.
    fn refresh_endpoints(&self) -> Result<(), Error> {
        let file = self.operator_dir().join(CLIENT_FILE);
        if file.exists() {
            secret::replace(&file, &self.client_toml()?, Access::Owner)?;
        }
        Ok(())
    }
}

// === impl Grant ===

impl Grant {
    fn group(self) -> &'static str {
        match self {
            Self::Operator => identity::OPERATORS,
            Self::Viewer => identity::VIEWERS,
        }
    }
}

fn replica_folder(id: ReplicaId) -> String {
    format!("replica-{id}")
}

/// Where a folder is made before it is moved into place. The folder may have a node's name, which can be so long that a
/// file name has no room for more, and names with the same beginning must not meet: hence the hash.
fn beside(dir: &Path) -> PathBuf {
    let name = dir.file_name().unwrap_or_default();
    dir.with_file_name(format!(".new-{}", sha256(name.as_encoded_bytes())))
}

fn write_pair(dir: &Path, (certificate, key): (&str, &str), issued: &Issued) -> Result<(), Error> {
    secret::write_new(&dir.join(certificate), &issued.certificate, Access::Public)?;
    Ok(secret::write_new(&dir.join(key), &issued.key, Access::Owner)?)
}

/// A dangling link counts as something in the way, hence the metadata of the link itself.
fn free(path: &Path) -> Result<(), Error> {
    if path.symlink_metadata().is_ok() { Err(Error::InTheWay { path: path.to_owned() }) } else { Ok(()) }
}

fn remove_tree(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(secret::failed("remove", path)(error).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
