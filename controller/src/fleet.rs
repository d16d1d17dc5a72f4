//! The folder of a fleet: who its replicas are, its two CAs, and what each replica and operator takes home.
//!
//! ```text
//! DIR/pki/         fleet.toml, peer-ca.{crt,key}, client-ca.{crt,key}     stays with whoever may sign
//! DIR/replica-N/   config.toml, tls/ (with client-ca.key, to sign nodes)  goes to the machine of replica N
//! DIR/operator/    client.toml, tls/                                      goes to the first operator
//! ```
//! A fleet comes into being by one rename, that of `pki/`: everything is first written to `DIR/.init`, and whatever an
//! interruption left there is either discarded (no `pki/` yet) or moved into place (`pki/` exists).

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::address::HostPort;
use crate::config::{self, AdvertiseLayer, ClientConfig, ClientTls, Layer, ListenLayer, Member};
use crate::identity::{self, Role};
use crate::pki::{
    self, AGENT_LIFETIME, AUTHORITY_LIFETIME, Authority, FleetId, Issued, OPERATOR_LIFETIME, REPLICA_LIFETIME, Subject,
    Usage, Validity,
};
use crate::secret::{self, Access};
use crate::tls::files;

const STAGING: &str = ".init";
const PKI: &str = "pki";
const RECORD: &str = "fleet.toml";
const OPERATOR: &str = "operator";
const FIRST_OPERATOR: &str = "operator";
const CLIENT_FILE: &str = "client.toml";

/// A replica to be: its number, where its doors are reached, and further names its certificates shall carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPlan {
    pub id: u64,
    #[serde(default)]
    pub hosts: Vec<String>,
    pub peer: HostPort,
    pub agent: HostPort,
    pub client: HostPort,
}

/// What a person may do with the certificate issued to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    Operator,
    Viewer,
}

/// A fleet with the keys to sign for it.
#[derive(Debug)]
pub struct Fleet {
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
    ReplicaExists(u64),
    #[error("{0:?} cannot name a person: names that begin with `system:` belong to machines")]
    Name(String),
    #[error("{0:?} cannot name a node or an aggregator: give a lower-case DNS name")]
    MachineName(String),
    #[error(transparent)]
    Plan(#[from] config::Error),
    #[error(transparent)]
    Pki(#[from] pki::Error),
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("cannot write the configuration as TOML")]
    Toml(#[from] toml::ser::Error),
}

// === impl Fleet ===

impl Fleet {
    /// Makes a fleet in `dir`, or finishes making the same one after an interruption.
    pub fn create(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        if plans.is_empty() {
            return Err(Error::NoReplicas);
        }
        let members: Vec<Member> = plans.iter().map(ReplicaPlan::member).collect();
        config::unique_members("replicas", &members)?;
        require_room_for_http(plans)?;
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
        let record: Record = config::parse(&path, &secret::read(&path)?)?;
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

    pub fn replica_dir(&self, id: u64) -> PathBuf {
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
        config::unique_members("replica", &[plan.member()])?;
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
        let issued = self.sign_client(name, grant.group(), lifetime)?;
        secret::make_dir(dir)?;
        let staging = dir.join(".tls");
        remove_tree(&staging)?;
        secret::make_dir(&staging)?;
        secret::write_new(&staging.join("ca.crt"), self.client_ca.certificate_pem(), Access::Everybody)?;
        write_pair(&staging, ("client.crt", "client.key"), &issued)?;
        secret::publish(&staging, &tls)?;
        secret::replace(&file, &self.client_toml()?, Access::Owner)?;
        Ok(())
    }

    /// The certificate of a node's agent. It is not kept anywhere here.
    pub fn issue_node(&self, name: &str) -> Result<Issued, Error> {
        self.issue_machine(name, &identity::node_user(name), identity::NODES)
    }

    /// The certificate of an aggregator, which carries the nodes of its scope. It is not kept anywhere here.
    pub fn issue_aggregator(&self, name: &str) -> Result<Issued, Error> {
        self.issue_machine(name, &identity::aggregator_user(name), identity::AGGREGATORS)
    }

    /// Writes a machine's certificate, its key and the CA of the replicas into `dir`, which must not exist yet.
    pub fn write_agent(&self, dir: &Path, issued: &Issued) -> Result<(), Error> {
        free(dir)?;
        let staging = dir.with_extension("new");
        remove_tree(&staging)?;
        secret::make_dir(&staging)?;
        secret::write_new(&staging.join("ca.crt"), self.client_ca.certificate_pem(), Access::Everybody)?;
        write_pair(&staging, ("agent.crt", "agent.key"), issued)?;
        Ok(secret::publish(&staging, dir)?)
    }

    fn issue_machine(&self, name: &str, user: &str, group: &str) -> Result<Issued, Error> {
        // What the doors would not recognise is not signed.
        if Role::decide(user, &[group.to_owned()]).is_err() {
            return Err(Error::MachineName(name.to_owned()));
        }
        self.sign_client(user, group, AGENT_LIFETIME)
    }

    fn sign_client(&self, user: &str, group: &str, lifetime: Duration) -> Result<Issued, Error> {
        let validity = Validity::starting(SystemTime::now(), lifetime);
        let (usage, group) = (Usage::Client, Some(group));
        Ok(self.client_ca.issue(&Subject { user, group, fleet: self.id(), usage, hosts: &[], validity })?)
    }

    fn generate(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        let fleet = FleetId::random();
        let validity = Validity::starting(SystemTime::now(), AUTHORITY_LIFETIME);
        let peer_ca = Authority::generate("peer", &fleet, validity)?;
        let client_ca = Authority::generate("client", &fleet, validity)?;
        let record = Record { fleet, replicas: plans.to_vec() };
        Ok(Self { dir: dir.to_owned(), record, peer_ca, client_ca })
    }

    /// `pki/` exists. Only if its making was cut short, and for the same plan, is there something to go on with.
    fn resume(dir: &Path, plans: &[ReplicaPlan]) -> Result<Self, Error> {
        let interrupted = dir.join(STAGING).exists();
        let fleet = Self::load(dir)?;
        if interrupted && fleet.record.replicas == plans {
            return Ok(fleet);
        }
        Err(Error::Exists { dir: dir.to_owned() })
    }

    fn stage(&self, staging: &Path, members: &[Member]) -> Result<(), Error> {
        let pki = staging.join(PKI);
        secret::make_dir(&pki)?;
        secret::write_new(&pki.join(RECORD), &toml::to_string(&self.record)?, Access::Owner)?;
        for (name, authority) in [("peer-ca", &self.peer_ca), ("client-ca", &self.client_ca)] {
            let certificate = pki.join(format!("{name}.crt"));
            secret::write_new(&certificate, authority.certificate_pem(), Access::Everybody)?;
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

    /// Moves what is staged into place. `pki/` goes first: from then on the rest can always be finished.
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

    fn write_replica(&self, dir: &Path, plan: &ReplicaPlan, members: &[Member]) -> Result<(), Error> {
        let tls = dir.join("tls");
        secret::make_dir(&tls)?;
        secret::write_new(&tls.join(files::PEER_CA), self.peer_ca.certificate_pem(), Access::Everybody)?;
        secret::write_new(&tls.join(files::CLIENT_CA), self.client_ca.certificate_pem(), Access::Everybody)?;
        secret::write_new(&tls.join(files::CLIENT_CA_KEY), &self.client_ca.key_pem(), Access::Owner)?;
        let hosts = plan.certified_hosts(self.id());
        let user = identity::replica_user(plan.id);
        let validity = Validity::starting(SystemTime::now(), REPLICA_LIFETIME);
        let server =
            Subject { user: &user, group: None, fleet: self.id(), usage: Usage::Server, hosts: &hosts, validity };
        let client = Subject { group: Some(identity::REPLICAS), usage: Usage::Client, hosts: &[], ..server.clone() };
        write_pair(&tls, files::PEER_SERVER, &self.peer_ca.issue(&server)?)?;
        write_pair(&tls, files::PEER_CLIENT, &self.peer_ca.issue(&client)?)?;
        write_pair(&tls, files::SERVER, &self.client_ca.issue(&server)?)?;
        let canary = self.sign_client(&identity::canary_user(plan.id), identity::CANARIES, REPLICA_LIFETIME)?;
        write_pair(&tls, files::CANARY, &canary)?;
        secret::sync_dir(&tls)?;
        let config = toml::to_string(&plan.layer(self.id(), members))?;
        secret::write_new(&dir.join("config.toml"), &config, Access::Owner)?;
        Ok(secret::sync_dir(dir)?)
    }

    fn client_toml(&self) -> Result<String, Error> {
        let tls = ClientTls { ca: "tls/ca.crt".into(), cert: "tls/client.crt".into(), key: "tls/client.key".into() };
        let endpoints = self.record.replicas.iter().map(|plan| plan.client.clone()).collect();
        Ok(toml::to_string(&ClientConfig { fleet: self.id().clone(), endpoints, tls })?)
    }

    /// The first operator may have moved away; then there is nothing here to refresh.
    fn refresh_endpoints(&self) -> Result<(), Error> {
        let file = self.operator_dir().join(CLIENT_FILE);
        if file.exists() {
            secret::replace(&file, &self.client_toml()?, Access::Owner)?;
        }
        Ok(())
    }
}

// === impl ReplicaPlan ===

impl ReplicaPlan {
    pub fn member(&self) -> Member {
        Member { id: self.id, peer: self.peer.clone(), agent: self.agent.clone(), client: self.client.clone() }
    }

    /// Where the replica listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        config::http_beside(self.client.listen())
    }

    fn certified_hosts(&self, fleet: &FleetId) -> Vec<String> {
        let addresses = [&self.peer, &self.agent, &self.client].map(|address| address.host().to_owned());
        self.hosts.iter().cloned().chain(addresses).chain([fleet.replica_name(self.id)]).collect()
    }

    /// The replica's configuration; without members it is one that joins.
    fn layer(&self, fleet: &FleetId, members: &[Member]) -> Layer {
        Layer {
            id: Some(self.id),
            fleet: Some(fleet.clone()),
            data_dir: Some("data".into()),
            tls_dir: Some("tls".into()),
            join: members.is_empty().then_some(true),
            listen: ListenLayer {
                peer: Some(self.peer.listen()),
                agent: Some(self.agent.listen()),
                client: Some(self.client.listen()),
                http: self.http(),
            },
            advertise: AdvertiseLayer {
                peer: Some(self.peer.clone()),
                agent: Some(self.agent.clone()),
                client: Some(self.client.clone()),
            },
            initial_members: members.to_vec(),
            ..Layer::default()
        }
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

/// Replicas on one machine, each right behind the other, would find their HTTP doors taken.
fn require_room_for_http(plans: &[ReplicaPlan]) -> Result<(), Error> {
    let doors = plans.iter().flat_map(|plan| [&plan.peer, &plan.agent, &plan.client]);
    let taken: BTreeSet<(&str, u16)> = doors.map(|door| (door.host(), door.port())).collect();
    for ReplicaPlan { id, client, .. } in plans {
        let port = client.port().saturating_add(1);
        if taken.contains(&(client.host(), port)) {
            let reason = format!("replica {id} needs port {port} above its client door for HTTP: leave room for it");
            return Err(config::Error::Invalid { key: "replicas", reason }.into());
        }
    }
    Ok(())
}

fn replica_folder(id: u64) -> String {
    format!("replica-{id}")
}

fn write_pair(dir: &Path, (certificate, key): (&str, &str), issued: &Issued) -> Result<(), Error> {
    secret::write_new(&dir.join(certificate), &issued.certificate, Access::Everybody)?;
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
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::config::ServerConfig;
    use crate::identity::Identity;
    use crate::tls::{self, ReplicaTls};

    #[test]
    fn a_fleet_is_laid_out_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        Fleet::create(dir.path(), &plans(3)).unwrap();
        let mut keys = 0;
        for path in walk(dir.path()) {
            let mode = fs::metadata(&path).unwrap().mode() & 0o777;
            if path.is_dir() {
                assert_eq!(mode, 0o700, "{}", path.display());
            } else if path.extension().is_some_and(|extension| extension == "key") {
                keys += 1;
                assert_eq!(mode, 0o600, "{}", path.display());
            }
        }
        assert_eq!(keys, 2 + 3 * 5 + 1);
        assert!(!dir.path().join(STAGING).exists());
    }

    #[test]
    fn what_was_written_can_be_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(3)).unwrap();
        for id in 1..=3 {
            let layer = Layer::load(&fleet.replica_dir(id).join("config.toml")).unwrap();
            let config = ServerConfig::merge(Some(layer), Layer::default()).unwrap();
            assert_eq!((config.id, &config.fleet, config.join), (id, fleet.id(), false));
            assert_eq!(config.initial_members.len(), 3);
            ReplicaTls::load(&config.tls_dir).unwrap();
        }
        let client = ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap();
        assert_eq!(client.endpoints.len(), 3);
        tls::operator(&client.tls).unwrap();
        assert_eq!(Fleet::load(dir.path()).unwrap().id(), fleet.id());
    }

    #[test]
    fn an_existing_fleet_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let id = Fleet::create(dir.path(), &plans(1)).unwrap().id().clone();
        assert!(matches!(Fleet::create(dir.path(), &plans(1)), Err(Error::Exists { .. })));
        assert_eq!(*Fleet::load(dir.path()).unwrap().id(), id);
    }

    #[test]
    fn foreign_files_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("replica-1")).unwrap();
        fs::write(dir.path().join("replica-1/precious"), "data").unwrap();
        assert!(matches!(Fleet::create(dir.path(), &plans(1)), Err(Error::InTheWay { .. })));
        assert!(dir.path().join("replica-1/precious").exists() && !dir.path().join(PKI).exists());
    }

    #[test]
    fn an_init_cut_short_before_its_commit_starts_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(STAGING).join("replica-1/tls")).unwrap();
        fs::write(dir.path().join(STAGING).join("replica-1/tls/server.key"), "half").unwrap();
        assert!(matches!(Fleet::load(dir.path()), Err(Error::Absent { .. })));
        Fleet::create(dir.path(), &plans(1)).unwrap();
        ReplicaTls::load(&dir.path().join("replica-1/tls")).unwrap();
    }

    #[test]
    fn an_init_cut_short_after_any_move_is_finished() {
        for moved in 1..=5 {
            for finish in [|dir: &Path| Fleet::create(dir, &plans(3)), Fleet::load as fn(&Path) -> _] {
                let dir = tempfile::tempdir().unwrap();
                let id = interrupted_after(dir.path(), moved);
                assert_eq!(*finish(dir.path()).unwrap().id(), id);
                assert!(!dir.path().join(STAGING).exists());
                for replica in 1..=3 {
                    ReplicaTls::load(&dir.path().join(format!("replica-{replica}/tls"))).unwrap();
                }
                ClientConfig::load(&dir.path().join("operator/client.toml")).unwrap();
            }
        }
    }

    #[test]
    fn an_interrupted_init_with_another_plan_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        interrupted_after(dir.path(), 2);
        assert!(matches!(Fleet::create(dir.path(), &plans(1)), Err(Error::Exists { .. })));
    }

    #[test]
    fn a_later_replica_joins_and_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut fleet = Fleet::create(dir.path(), &plans(3)).unwrap();
        let folder = fleet.add_replica(&plan(4)).unwrap();
        let layer = Layer::load(&folder.join("config.toml")).unwrap();
        let config = ServerConfig::merge(Some(layer), Layer::default()).unwrap();
        assert!(config.join && config.initial_members.is_empty());
        ReplicaTls::load(&config.tls_dir).unwrap();

        let mut fleet = Fleet::load(dir.path()).unwrap();
        assert_eq!(fleet.replicas().len(), 4);
        assert!(matches!(fleet.add_replica(&plan(4)), Err(Error::ReplicaExists(4))));
        let client = ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap();
        assert_eq!(client.endpoints.len(), 4);
    }

    #[test]
    fn people_get_certificates_and_machines_names_are_kept_from_them() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(1)).unwrap();
        let home = dir.path().join("grace");
        fleet.issue_client(&home, "grace", Grant::Viewer, Duration::from_secs(3600)).unwrap();
        ClientConfig::load(&home.join("client.toml")).unwrap();
        let again = fleet.issue_client(&home, "grace", Grant::Viewer, Duration::from_secs(3600));
        assert!(matches!(again, Err(Error::InTheWay { .. })));
        let forged = fleet.issue_client(&dir.path().join("x"), "system:node:a", Grant::Viewer, Duration::ZERO);
        assert!(matches!(forged, Err(Error::Name(_))));
    }

    #[test]
    fn machines_get_certificates_that_their_role_is_read_from() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(1)).unwrap();
        let canary = fs::read_to_string(dir.path().join("replica-1/tls/canary.crt")).unwrap();
        let cases = [
            (fleet.issue_node("rack-1.example.org").unwrap().certificate, Role::Node("rack-1.example.org".into())),
            (fleet.issue_aggregator("rack-1").unwrap().certificate, Role::Aggregator("rack-1".into())),
            (canary, Role::Canary(1)),
        ];
        for (certificate, role) in cases {
            let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let identity = Identity::from_certificate(&der).unwrap();
            assert_eq!((&identity.fleet, identity.kind), (fleet.id(), role));
        }
    }

    #[test]
    fn a_machine_that_no_door_would_recognise_gets_no_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(1)).unwrap();
        for name in ["", "Upper", "a/b", "a b"] {
            assert!(matches!(fleet.issue_node(name), Err(Error::MachineName(_))), "{name:?}");
            assert!(matches!(fleet.issue_aggregator(name), Err(Error::MachineName(_))), "{name:?}");
        }
    }

    #[test]
    fn an_agent_is_configured_without_files() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(1)).unwrap();
        let (ca, issued) = (fleet.client_authority().certificate_pem(), fleet.issue_node("a").unwrap());
        tls::agent(ca, &issued.certificate, &issued.key).unwrap();
        let other = fleet.issue_node("b").unwrap();
        for (ca, certificate, key) in [
            ("garbage", &issued.certificate, &issued.key),
            (ca, &"garbage".to_owned(), &issued.key),
            (ca, &issued.certificate, &"garbage".to_owned()),
            (ca, &issued.certificate, &other.key),
        ] {
            let message = tls::agent(ca, certificate, key).unwrap_err().to_string();
            assert!(message.contains("the agent's"), "{message}");
            assert!(!message.contains("PRIVATE KEY"));
        }
    }

    #[test]
    fn an_exposed_key_stops_everybody_who_would_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let fleet = Fleet::create(dir.path(), &plans(1)).unwrap();
        let expose = |name: &str| {
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o640)).unwrap();
        };
        expose("pki/client-ca.key");
        expose("replica-1/tls/server.key");
        expose("operator/tls/client.key");
        let messages = [
            Fleet::load(dir.path()).unwrap_err().to_string(),
            ReplicaTls::load(&fleet.replica_dir(1).join("tls")).unwrap_err().to_string(),
            ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap_err().to_string(),
        ];
        for message in messages {
            assert!(message.contains("chmod 600"), "{message}");
        }
    }

    #[test]
    fn plans_that_contradict_themselves_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Fleet::create(dir.path(), &[]), Err(Error::NoReplicas)));
        assert!(matches!(Fleet::create(dir.path(), &[plan(1), plan(1)]), Err(Error::Plan(_))));
        assert!(matches!(Fleet::create(dir.path(), &[plan(0)]), Err(Error::Plan(_))));
        let in_the_way = ReplicaPlan { agent: "127.0.0.1:7413".parse().unwrap(), ..plan(2) };
        let message = Fleet::create(dir.path(), &[plan(1), in_the_way]).unwrap_err().to_string();
        assert!(message.contains("replica 1 needs port 7413"), "{message}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    fn plan(id: u64) -> ReplicaPlan {
        let address = |door: u64| format!("127.0.0.1:{}", 7400 + 10 * id + door).parse().unwrap();
        ReplicaPlan { id, hosts: vec!["localhost".into()], peer: address(0), agent: address(1), client: address(2) }
    }

    fn plans(count: u64) -> Vec<ReplicaPlan> {
        (1..=count).map(plan).collect()
    }

    /// A fleet of three whose publication stopped after `moved` of its five folders.
    fn interrupted_after(dir: &Path, moved: usize) -> FleetId {
        let fleet = Fleet::create(dir, &plans(3)).unwrap();
        let staging = dir.join(STAGING);
        fs::create_dir(&staging).unwrap();
        for name in fleet.published().into_iter().skip(moved) {
            fs::rename(dir.join(&name), staging.join(&name)).unwrap();
        }
        fleet.id().clone()
    }

    fn walk(dir: &Path) -> Vec<PathBuf> {
        let children = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        children
            .flat_map(|path| if path.is_dir() { [vec![path.clone()], walk(&path)].concat() } else { vec![path] })
            .collect()
    }
}
