//! Tests of a fleet's folder: made, finished after an interruption, extended, and guarded.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::*;
use crate::identity::{Identity, Role};
use crate::tls::{self, ReplicaTls};

#[test]
fn a_fleet_folder_is_private_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    FleetFolder::create(dir.path(), &plans(3)).unwrap();
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
    let fleet = FleetFolder::create(dir.path(), &plans(3)).unwrap();
    for id in 1..=3 {
        let settings = settings(&fleet.replica_dir(ReplicaId(id)));
        assert_eq!(settings["id"].as_integer(), Some(id as i64));
        assert_eq!(settings["fleet"].as_str(), Some(fleet.id().as_str()));
        assert!(!settings.contains_key("join"));
        assert_eq!(settings["initial_members"].as_array().unwrap().len(), 3);
        ReplicaTls::load(&fleet.replica_dir(ReplicaId(id)).join("tls")).unwrap();
    }
    let client = ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap();
    assert_eq!(client.endpoints.len(), 3);
    tls::operator(&client.tls).unwrap();
    assert_eq!(FleetFolder::load(dir.path()).unwrap().id(), fleet.id());
}

#[test]
fn an_existing_fleet_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let id = FleetFolder::create(dir.path(), &plans(1)).unwrap().id().clone();
    assert!(matches!(FleetFolder::create(dir.path(), &plans(1)), Err(Error::Exists { .. })));
    assert_eq!(*FleetFolder::load(dir.path()).unwrap().id(), id);
}

#[test]
fn foreign_files_are_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("replica-1")).unwrap();
    fs::write(dir.path().join("replica-1/precious"), "data").unwrap();
    assert!(matches!(FleetFolder::create(dir.path(), &plans(1)), Err(Error::InTheWay { .. })));
    assert!(dir.path().join("replica-1/precious").exists() && !dir.path().join(PKI).exists());
}

#[test]
fn an_init_cut_short_before_its_commit_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(STAGING).join("replica-1/tls")).unwrap();
    fs::write(dir.path().join(STAGING).join("replica-1/tls/server.key"), "half").unwrap();
    assert!(matches!(FleetFolder::load(dir.path()), Err(Error::Absent { .. })));
    FleetFolder::create(dir.path(), &plans(1)).unwrap();
    ReplicaTls::load(&dir.path().join("replica-1/tls")).unwrap();
}

#[test]
fn an_init_cut_short_after_any_move_is_finished() {
    for moved in 1..=5 {
        for finish in [|dir: &Path| FleetFolder::create(dir, &plans(3)), FleetFolder::load as fn(&Path) -> _] {
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
    assert!(matches!(FleetFolder::create(dir.path(), &plans(1)), Err(Error::Exists { .. })));
}

#[test]
fn a_later_replica_is_added_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut fleet = FleetFolder::create(dir.path(), &plans(3)).unwrap();
    let folder = fleet.add_replica(&plan(4)).unwrap();
    let settings = settings(&folder);
    assert_eq!(settings["join"].as_bool(), Some(true));
    assert!(!settings.contains_key("initial_members"));
    ReplicaTls::load(&folder.join("tls")).unwrap();

    let mut fleet = FleetFolder::load(dir.path()).unwrap();
    assert_eq!(fleet.replicas().len(), 4);
    assert!(matches!(fleet.add_replica(&plan(4)), Err(Error::ReplicaExists(ReplicaId(4)))));
    let client = ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap();
    assert_eq!(client.endpoints.len(), 4);
}

#[test]
fn operators_get_certificates_but_not_under_names_of_machines() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(dir.path(), &plans(1)).unwrap();
    let home = dir.path().join("grace");
    fleet.issue_client(&home, "grace", Grant::Viewer, Duration::from_secs(3600)).unwrap();
    ClientConfig::load(&home.join("client.toml")).unwrap();
    let again = fleet.issue_client(&home, "grace", Grant::Viewer, Duration::from_secs(3600));
    assert!(matches!(again, Err(Error::InTheWay { .. })));
    let forged = fleet.issue_client(&dir.path().join("x"), "system:node:a", Grant::Viewer, Duration::ZERO);
    assert!(matches!(forged, Err(Error::Name(_))));
}

#[test]
fn machines_get_certificates_with_their_role() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(dir.path(), &plans(1)).unwrap();
    let canary = fs::read_to_string(dir.path().join("replica-1/tls/canary.crt")).unwrap();
    let longest = longest_name();
    let node = |name: &str| (fleet.issue_node(name).unwrap().certificate, Role::Node(name.into()));
    let cases = [
        node("rack-1.example.org"),
        node(&"x".repeat(52)),
        node(&"x".repeat(53)),
        node(&longest),
        (fleet.issue_aggregator("rack-1").unwrap().certificate, Role::Aggregator("rack-1".into())),
        (canary, Role::Canary(ReplicaId(1))),
    ];
    for (certificate, role) in cases {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let identity = Identity::from_certificate(&der).unwrap();
        assert_eq!((&identity.fleet, identity.kind), (fleet.id(), role));
    }
}

/// A file name has at most 255 bytes.
#[test]
fn a_machines_files_lie_in_a_folder_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(&dir.path().join("fleet"), &plans(1)).unwrap();
    let (machines, longest) = (dir.path().join("machines"), longest_name());
    fs::create_dir_all(machines.join("rack.new")).unwrap();
    for name in ["rack.a", "rack.b", &longest, &"x".repeat(63)] {
        let folder = machines.join(name);
        fleet.write_agent(&folder, &fleet.issue_node(name).unwrap()).unwrap();
        assert_eq!(walk(&folder).len(), 3, "{name}");
    }
    assert_eq!(fs::read_dir(&machines).unwrap().count(), 5, "and nothing else was left or removed");
}

#[test]
fn a_machine_with_an_invalid_name_gets_no_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(dir.path(), &plans(1)).unwrap();
    for name in ["", "Upper", "a/b", "a b", &"x".repeat(64), &format!("{}x", longest_name())] {
        assert!(matches!(fleet.issue_node(name), Err(Error::MachineName(_))), "{name:?}");
        assert!(matches!(fleet.issue_aggregator(name), Err(Error::MachineName(_))), "{name:?}");
    }
}

#[test]
fn an_agent_is_configured_without_files() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(dir.path(), &plans(1)).unwrap();
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
fn a_key_that_others_can_read_is_refused_by_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetFolder::create(dir.path(), &plans(1)).unwrap();
    let expose = |name: &str| {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o640)).unwrap();
    };
    expose("pki/client-ca.key");
    expose("replica-1/tls/server.key");
    expose("operator/tls/client.key");
    let messages = [
        FleetFolder::load(dir.path()).unwrap_err().to_string(),
        ReplicaTls::load(&fleet.replica_dir(ReplicaId(1)).join("tls")).unwrap_err().to_string(),
        ClientConfig::load(&fleet.operator_dir().join("client.toml")).unwrap_err().to_string(),
    ];
    for message in messages {
        assert!(message.contains("chmod 600"), "{message}");
    }
}

#[test]
fn plans_that_contradict_themselves_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(FleetFolder::create(dir.path(), &[]), Err(Error::NoReplicas)));
    assert!(matches!(FleetFolder::create(dir.path(), &[plan(1), plan(1)]), Err(Error::Plan(_))));
    assert!(matches!(FleetFolder::create(dir.path(), &[plan(0)]), Err(Error::Plan(_))));
    let in_the_way = ReplicaPlan { agent: "127.0.0.1:7413".parse().unwrap(), ..plan(2) };
    let message = FleetFolder::create(dir.path(), &[plan(1), in_the_way]).unwrap_err().to_string();
    assert!(message.contains("replica 1 needs port 7413"), "{message}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn longest_name() -> String {
    [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".")
}

fn plan(id: u64) -> ReplicaPlan {
    let address = |door: u64| format!("127.0.0.1:{}", 7400 + 10 * id + door).parse().unwrap();
    let (id, hosts) = (ReplicaId(id), vec!["localhost".into()]);
    ReplicaPlan { id, hosts, peer: address(0), agent: address(1), client: address(2) }
}

fn plans(count: u64) -> Vec<ReplicaPlan> {
    (1..=count).map(plan).collect()
}

/// A fleet of three whose publication stopped after `moved` of its five folders.
fn interrupted_after(dir: &Path, moved: usize) -> FleetId {
    let fleet = FleetFolder::create(dir, &plans(3)).unwrap();
    let staging = dir.join(STAGING);
    fs::create_dir(&staging).unwrap();
    for name in fleet.published().into_iter().skip(moved) {
        fs::rename(dir.join(&name), staging.join(&name)).unwrap();
    }
    fleet.id().clone()
}

/// The configuration in a replica's folder. The tests of the reader check its meaning.
fn settings(folder: &Path) -> toml::Table {
    fs::read_to_string(folder.join("config.toml")).unwrap().parse().unwrap()
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let children = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    children
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], walk(&path)].concat() } else { vec![path] })
        .collect()
}
