//! Tests of the settings: files and flags together, and the messages for mistakes in them.

use super::*;

const FILE: &str = r#"
id = 1
fleet = "0f0e0d0c-0b0a-4909-8807-060504030201"
data_dir = "data"
tls_dir = "/etc/muster/tls"

[listen]
peer = "127.0.0.1:7400"
agent = "127.0.0.1:7401"
client = "127.0.0.1:7402"

[[initial_members]]
id = 1
peer = "127.0.0.1:7400"
agent = "127.0.0.1:7401"
client = "127.0.0.1:7402"
"#;

#[test]
fn a_file_alone_is_enough_and_its_folders_are_relative_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = ServerConfig::merge(Some(load(dir.path(), FILE).unwrap()), Layer::default()).unwrap();
    assert_eq!(config.id, ReplicaId(1));
    assert_eq!(config.data_dir, dir.path().join("data"));
    assert_eq!(config.tls_dir, Path::new("/etc/muster/tls"));
    assert_eq!(config.advertise.client.to_string(), "127.0.0.1:7402");
    assert_eq!(config.log_format, LogFormat::Text);
    assert_eq!(config.initial_members, [config.as_member()]);
}

#[test]
fn a_replica_reads_what_init_writes() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |id: u64| {
        let address = |door: u64| format!("127.0.0.1:{}", 7400 + 10 * id + door).parse().unwrap();
        let (id, hosts) = (ReplicaId(id), Vec::new());
        muster_pki::ReplicaPlan { id, hosts, peer: address(0), agent: address(1), client: address(2) }
    };
    let read = |folder: &Path| {
        let layer = Layer::load(&folder.join("config.toml")).unwrap();
        let config = ServerConfig::merge(Some(layer), Layer::default()).unwrap();
        assert_eq!((&config.data_dir, &config.tls_dir), (&folder.join("data"), &folder.join("tls")));
        config
    };
    let mut fleet = muster_pki::FleetFolder::create(dir.path(), &[plan(1), plan(2), plan(3)]).unwrap();
    for id in 1..=3 {
        let config = read(&fleet.replica_dir(ReplicaId(id)));
        assert_eq!((config.id, &config.fleet, config.join), (ReplicaId(id), fleet.id(), false));
        assert_eq!(config.as_member(), plan(id).member());
        assert_eq!(Some(config.listen.http), plan(id).http());
        assert_eq!(config.initial_members.len(), 3);
    }
    let joining = read(&fleet.add_replica(&plan(4)).unwrap());
    assert!(joining.join && joining.initial_members.is_empty());
}

#[test]
fn flags_win_over_the_file() {
    let flags =
        Layer { data_dir: Some("/var/lib/muster".into()), log_format: Some(LogFormat::Json), ..Layer::default() };
    let config = ServerConfig::merge(Some(layer(FILE)), flags).unwrap();
    assert_eq!(config.data_dir, Path::new("/var/lib/muster"));
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.id, ReplicaId(1));
}

#[test]
fn a_layer_reads_what_it_writes() {
    let layer = layer(FILE);
    assert_eq!(toml::from_str::<Layer>(&toml::to_string(&layer).unwrap()).unwrap(), layer);
}

#[test]
fn an_error_in_the_file_names_file_line_and_key() {
    for (from, to, expected) in [
        ("id = 1\nfleet", "idd = 1\nfleet", &["config.toml:2", "idd"][..]),
        ("id = 1\nfleet", "id = \"one\"\nfleet", &["config.toml:2", "`id`"]),
        ("0f0e0d0c", "0F0E0D0C", &["config.toml:3", "`fleet`", "not a fleet id"]),
        ("peer = \"127.0.0.1:7400\"\nagent", "peer = \"nowhere\"\nagent", &["config.toml:8", "`listen.peer`"]),
        ("client = \"127.0.0.1:7402\"\n\n", "client = \"127.0.0.1:7402\"\nadmin = 1\n\n", &["config.toml:11", "admin"]),
        ("[listen]", "[listen", &["config.toml:7"]),
    ] {
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE, "{from}");
        let dir = tempfile::tempdir().unwrap();
        let message = load(dir.path(), &text).unwrap_err().to_string();
        for part in expected {
            assert!(message.contains(part), "{to}: {message}");
        }
    }
}

#[test]
fn an_invalid_member_is_named_with_its_position() {
    let text = format!("{FILE}\n[[initial_members]]\nid = 2\npeer = \"host:0\"\nagent = \"a:1\"\nclient = \"a:2\"\n");
    let dir = tempfile::tempdir().unwrap();
    let message = load(dir.path(), &text).unwrap_err().to_string();
    assert!(message.contains("config.toml:20") && message.contains("initial_members[1].peer"), "{message}");
}

#[test]
fn a_missing_key_is_named_with_its_flag() {
    for (key, flag) in [("id", "--id"), ("fleet", "--fleet"), ("data_dir", "--data-dir"), ("tls_dir", "--tls-dir")] {
        let line = FILE.lines().find(|line| line.starts_with(key)).unwrap();
        let message = merge(&FILE.replacen(line, "", 1)).unwrap_err().to_string();
        assert!(message.contains(&format!("`{key}`")) && message.contains(flag), "{message}");
    }
    let message = ServerConfig::merge(None, Layer::default()).unwrap_err().to_string();
    assert!(message.contains("listen.peer") && message.contains("--listen-peer"), "{message}");
}

#[test]
fn contradicting_settings_are_refused() {
    let second = "\n[[initial_members]]\nid = 1\npeer = \"b:1\"\nagent = \"b:2\"\nclient = \"b:3\"\n";
    let clash = "\n[[initial_members]]\nid = 2\npeer = \"127.0.0.1:7400\"\nagent = \"b:2\"\nclient = \"b:3\"\n";
    for (text, part) in [
        (FILE.replacen("id = 1", "id = 0", 1), "numbered from 1"),
        (FILE.replacen("id = 1", "id = 2", 1), "replica 2 is not among them"),
        (FILE.replacen("id = 1", "id = 1\njoin = true", 1), "not both"),
        (format!("{FILE}{second}"), "id 1 is given twice"),
        (format!("{FILE}{clash}"), "127.0.0.1:7400 is given twice"),
        (FILE.replacen("127.0.0.1:7401", "127.0.0.1:7400", 1), "four addresses"),
        (FILE.replacen("127.0.0.1:7401", "127.0.0.1:7411", 1), "differ from those it advertises"),
        (FILE.replacen("127.0.0.1:7400", "0.0.0.0:7400", 1), "--advertise-peer"),
    ] {
        let message = merge(&text).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn flags_win_over_the_file_setting_by_setting_and_only_what_was_written_is_explicit() {
    let file = format!("{FILE}\n[policy]\nnode-monitor-period = \"1s\"\nnode-eviction-rate = 1\n");
    let mut flags = PolicyLayer::default();
    flags.set("node-monitor-period", "2000ms").unwrap();
    let config = ServerConfig::merge(Some(layer(&file)), Layer { policy: flags, ..Layer::default() }).unwrap();
    let wanted = [("node-eviction-rate", "1"), ("node-monitor-period", "2s")];
    assert_eq!(config.explicit_policy, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(config.policy.node_monitor_period.to_string(), "2s");
    assert_eq!(config.policy.node_monitor_grace_period, Policy::default().node_monitor_grace_period);
}

#[test]
fn settings_that_contradict_each_other_are_refused_by_name() {
    let file = format!("{FILE}\n[policy]\nnode-monitor-period = \"50s\"\n");
    let wanted = "`policy.node-monitor-period` (--node-monitor-period): 50s is above node-monitor-grace-period (40s): \
                  shorten the period or lengthen the grace period";
    assert_eq!(merge(&file).unwrap_err().to_string(), wanted);
    assert_eq!(merge(FILE).unwrap().policy, Policy::default());
}

#[test]
fn the_http_port_follows_the_client_port_unless_it_is_set() {
    assert_eq!(merge(FILE).unwrap().listen.http.to_string(), "127.0.0.1:7403");
    let given = FILE.replacen("[listen]", "[listen]\nhttp = \"127.0.0.9:80\"", 1);
    assert_eq!(merge(&given).unwrap().listen.http.to_string(), "127.0.0.9:80");
    let flags = ListenLayer { http: "127.0.0.8:443".parse().ok(), ..ListenLayer::default() };
    let flags = Layer { listen: flags, ..Layer::default() };
    let flagged = ServerConfig::merge(Some(layer(&given)), flags).unwrap();
    assert_eq!(flagged.listen.http.to_string(), "127.0.0.8:443");
}

#[test]
fn the_http_port_has_to_be_set_if_the_client_port_is_the_last() {
    let last = FILE.replace("127.0.0.1:7402", "127.0.0.1:65535");
    let message = merge(&last).unwrap_err().to_string();
    assert!(message.contains("`listen.http`") && message.contains("--listen-http"), "{message}");
    let taken = FILE.replace("127.0.0.1:7400", "127.0.0.1:7403");
    assert!(merge(&taken).unwrap_err().to_string().contains("one port above `client`"));
}

#[test]
fn a_joining_replica_needs_no_members() {
    let members = FILE.find("[[initial_members]]").unwrap();
    let config = merge(&FILE[..members].replacen("id = 1", "id = 4\njoin = true", 1)).unwrap();
    assert!(config.join && config.initial_members.is_empty());
}

fn load(dir: &Path, text: &str) -> Result<Layer, Error> {
    let path = dir.join("config.toml");
    std::fs::write(&path, text).unwrap();
    Layer::load(&path)
}

fn layer(text: &str) -> Layer {
    toml::from_str(text).unwrap()
}

fn merge(text: &str) -> Result<ServerConfig, Error> {
    ServerConfig::merge(Some(layer(text)), Layer::default())
}
