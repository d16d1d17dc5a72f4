//! Flags and keys of the file: valid values, and the error of each invalid one.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use muster_node_agent::agent::{AgentCli, AgentError, AgentSettings, Exit, RuntimeKind};

const SERVER: &str = "127.0.0.1:7401";

/// The settings that these flags give on a machine that calls itself `Host-1`.
pub(crate) fn settings(flags: &[&str]) -> Result<AgentSettings, AgentError> {
    let line = ["muster-agent"].iter().chain(flags);
    AgentSettings::new(AgentCli::try_parse_from(line).unwrap().agent, "Host-1\n")
}

fn with_server(flags: &[&str]) -> Result<AgentSettings, AgentError> {
    settings(&[&["--server", SERVER], flags].concat())
}

fn refused(flags: &[&str]) -> String {
    let failed = with_server(flags).err().unwrap_or_else(|| panic!("{flags:?} was taken"));
    assert_eq!(failed.exit, Exit::Usage, "{failed}");
    failed.message
}

#[test]
fn the_command_line_is_consistent() {
    AgentCli::command().debug_assert();
}

#[test]
fn without_flags_the_defaults_are_upstreams() {
    let settings = with_server(&[]).unwrap();
    assert_eq!((settings.node.as_str(), settings.register_node), ("host-1", true));
    assert_eq!((settings.update_every.as_secs(), settings.report_every.as_secs()), (10, 300), "S-1");
    assert_eq!((settings.state_dir, settings.runtime), (PathBuf::from("/var/lib/muster-agent"), RuntimeKind::Process));
    let metrics = settings.metrics.unwrap();
    assert!(metrics.address.ip().is_loopback() && metrics.tls.is_none());
    assert!(settings.taints.is_empty() && settings.labels.is_empty() && settings.provider_id.is_none());
    assert_eq!((settings.machine.max_pods, settings.machine.transition_period.as_secs()), (110, 300));
}

#[test]
fn flags_have_the_meaning_of_upstreams() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&[
        "--server",
        "a.example:1,[::1]:2",
        "--hostname-override=rack-1",
        "--register-node=false",
        "--register-with-taints=dedicated=db:NoSchedule,slow:PreferNoSchedule",
        "--node-labels=team=x,topology.kubernetes.io/zone=z1",
        "--node-status-update-frequency=1m30s",
        "--provider-id=cloud://eu/i-1",
        "--runtime=none",
        "--node-ip=10.0.0.7,fd00::7",
        "--node-external-ip=203.0.113.7",
        "--max-pods=20",
        "--metrics-address=none",
        "--eviction-pressure-transition-period=10s",
        "--network-check=tcp://10.0.0.1:53",
        "--condition-dir",
        dir.path().to_str().unwrap(),
    ])
    .unwrap();
    assert_eq!(settings.server, ["a.example:1", "[::1]:2"]);
    assert_eq!((settings.node.as_str(), settings.register_node), ("rack-1", false));
    let taints: Vec<_> = settings.taints.iter().map(ToString::to_string).collect();
    assert_eq!(taints, ["dedicated=db:NoSchedule", "slow:PreferNoSchedule"]);
    assert_eq!(
        (settings.labels["team"].as_str(), settings.labels["topology.kubernetes.io/zone"].as_str()),
        ("x", "z1")
    );
    let given = Duration::from_secs(90);
    assert_eq!((settings.update_every, settings.report_every), (given, given), "S-1: given, it is both");
    assert_eq!((settings.provider_id.as_deref(), settings.runtime), (Some("cloud://eu/i-1"), RuntimeKind::None));
    assert!(settings.metrics.is_none() && settings.machine.network.is_some());
    assert_eq!((settings.machine.node_ips.addresses().len(), settings.machine.max_pods), (2, 20));
    assert_eq!(settings.machine.external_ips, ["203.0.113.7".parse::<IpAddr>().unwrap()]);
    assert_eq!(settings.machine.condition_dir.as_deref(), Some(dir.path()));
    assert!(with_server(&["--register-node"]).unwrap().register_node);
}

/// The flags, and the error for them.
const BAD_VALUES: &[(&[&str], &str)] = &[
    (
        &["--register-with-taints", "a:b"],
        r#"--register-with-taints "a:b": effect must be NoSchedule, PreferNoSchedule or NoExecute"#,
    ),
    (&["--register-with-taints", "a"], r#"--register-with-taints "a": write key=value:Effect or key:Effect"#),
    (
        &["--register-with-taints", "a:NoExecute,a=1:NoExecute"],
        r#"--register-with-taints "a=1:NoExecute": this key and effect are given twice"#,
    ),
    (&["--node-labels", "team"], r#"--node-labels "team": write key=value"#),
    (&["--node-labels", "a=1,a=2"], r#"--node-labels "a=2": this key is given twice"#),
    (
        &["--node-labels", "node-role.kubernetes.io/db=yes"],
        r#"--node-labels "node-role.kubernetes.io/db=yes": a node may not give itself this label (NR-4): an operator can, with `muster label node`"#,
    ),
    (
        &["--node-labels", "node-restriction.kubernetes.io/x=y"],
        r#"--node-labels "node-restriction.kubernetes.io/x=y": a node may not give itself this label (NR-4): an operator can, with `muster label node`"#,
    ),
    (
        &["--join", "a.b"],
        r#"--join "…": a token has three parts, ID.SECRET.PIN; this has 2: copy the whole last line of `muster token create`"#,
    ),
    (
        &["--join", "@/nowhere"],
        r#"--join "@/nowhere": the secret in /nowhere cannot be read: No such file or directory (os error 2)"#,
    ),
    (&["--register-node=maybe"], r#"--register-node "maybe": must be true or false"#),
    (
        &["--node-status-update-frequency", "often"],
        r#"--node-status-update-frequency "often": write a duration such as 10s or 1m30s"#,
    ),
    (&["--node-status-update-frequency", "10ms"], r#"--node-status-update-frequency "10ms": must be from 1s to 1h"#),
    (
        &["--node-status-update-frequency=-10s"],
        r#"--node-status-update-frequency "-10s": write a duration such as 10s or 1m30s"#,
    ),
    (&["--provider-id", ""], r#"--provider-id "": must not be empty: leave the flag out"#),
    (&["--provider-id", "i-1"], r#"--provider-id "i-1": write PROVIDER://ID, as clouds name their machines"#),
    (&["--cloud-provider", "external"], r#"--cloud-provider "external": comes with cloud sync: leave the flag out"#),
    (&["--runtime", "docker"], r#"--runtime "docker": must be process or none"#),
    (&["--log-format", "xml"], r#"--log-format "xml": must be text or json"#),
    (&["--server", "replica"], r#"--server "replica": write HOST:PORT, or [HOST]:PORT for IPv6"#),
    (&["--server", "a:1,::1:2"], r#"--server "::1:2": write HOST:PORT, or [HOST]:PORT for IPv6"#),
    (&["--server", ","], r#"--server ",": no endpoints: give the agent address of at least one replica, as HOST:PORT"#),
    (&["--state-dir", ""], r#"--state-dir "": must not be empty"#),
    (&["--metrics-address", "7490"], r#"--metrics-address "7490": write IP:PORT, or none to serve no metrics"#),
    (
        &["--metrics-address", "0.0.0.0:7490"],
        r#"--metrics-address "0.0.0.0:7490": is not a loopback address and needs --metrics-tls-cert and --metrics-tls-key"#,
    ),
    (&["--metrics-tls-cert", "c.pem"], r#"--metrics-tls-cert "c.pem": needs --metrics-tls-key beside it"#),
    (&["--metrics-tls-key", "k.pem"], r#"--metrics-tls-key "k.pem": needs --metrics-tls-cert beside it"#),
    (&["--node-ip", "10.0.0.1,x"], r#"--node-ip "x": it must be an IP address"#),
    (
        &["--node-ip", "127.0.0.1"],
        r#"--node-ip "127.0.0.1": it must not be a loopback address, which others cannot reach"#,
    ),
    (
        &["--node-ip", "10.0.0.1,10.0.0.2"],
        r#"--node-ip "10.0.0.2": one address of each family can be given, and 10.0.0.1 came before"#,
    ),
    (&["--node-external-ip", "x"], r#"--node-external-ip "x": it must be an IP address"#),
    (
        &["--node-external-ip", "10.0.0.1,10.0.0.2"],
        r#"--node-external-ip "10.0.0.2": one address of each family can be given, and 10.0.0.1 came before"#,
    ),
    (
        &["--node-external-ip", "0.0.0.0"],
        r#"--node-external-ip "0.0.0.0": it must be an address that others can reach"#,
    ),
    (&["--max-pods", "many"], r#"--max-pods "many": must be a number from 0 to 1024"#),
    (&["--max-pods", "1025"], r#"--max-pods "1025": must be a number from 0 to 1024"#),
    (&["--system-reserved", "cpu"], r#"--system-reserved "cpu": it must be RESOURCE=QUANTITY, as in memory=200Mi"#),
    (
        &["--kube-reserved", "gpu=1"],
        r#"--kube-reserved "gpu=1": only cpu, memory, ephemeral-storage, pid can be reserved"#,
    ),
    (&["--eviction-hard", "memory.available"], r#"--eviction-hard "memory.available": it must be SIGNAL<VALUE"#),
    (
        &["--eviction-soft", "memory.available<1Gi"],
        r#"--eviction-soft "memory.available<1Gi": a soft threshold needs a grace period: give --eviction-soft-grace-period memory.available=1m30s"#,
    ),
    (
        &["--eviction-soft-grace-period", "memory.available"],
        r#"--eviction-soft-grace-period "memory.available": it must be SIGNAL=VALUE"#,
    ),
    (&["--eviction-minimum-reclaim", "nodefs"], r#"--eviction-minimum-reclaim "nodefs": it must be SIGNAL=VALUE"#),
    (
        &["--eviction-pressure-transition-period", "soon"],
        r#"--eviction-pressure-transition-period "soon": write a duration such as 10s or 1m30s"#,
    ),
    (&["--condition-dir", "/nowhere/at/all"], r#"--condition-dir "/nowhere/at/all": is not a directory"#),
    (
        &["--network-check", "tcp://host"],
        r#"--network-check "tcp://host": write tcp://HOST:PORT, or a program with its arguments"#,
    ),
    (&["--network-check", " "], r#"--network-check " ": write tcp://HOST:PORT, or a program with its arguments"#),
    (&["--kubeconfig", "/nowhere"], r#"--kubeconfig "/nowhere": No such file or directory (os error 2)"#),
    (&["--config", "/nowhere"], r#"--config "/nowhere": No such file or directory (os error 2)"#),
];

#[test]
fn an_invalid_value_is_named_with_its_flag() {
    for (flags, expected) in BAD_VALUES {
        // The table's own server goes before the usual one.
        let message = match flags.contains(&"--server") {
            true => settings(flags).err().map(|failed| failed.message).unwrap_or_default(),
            false => refused(flags),
        };
        assert_eq!(message, *expected, "{flags:?}");
    }
}

#[test]
fn the_host_name_must_be_a_valid_node_name() {
    for name in ["Node_1", "", "a..b", "-a"] {
        let message = refused(&[&format!("--hostname-override={name}")]);
        assert!(message.starts_with(&format!("--hostname-override {name:?}: ")), "{message}");
    }
    assert_eq!(with_server(&["--hostname-override=Rack-1"]).unwrap().node, "rack-1");
    let longest = [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".");
    assert_eq!(with_server(&[&format!("--hostname-override={longest}")]).unwrap().node, longest);
    let message = refused(&[&format!("--hostname-override={longest}x")]);
    assert!(message.ends_with("has 254 characters: at most 253 are possible"), "{message}");
    let message = refused(&[&format!("--hostname-override={}", "x".repeat(64))]);
    assert!(message.contains("has a label of 64 characters: between two dots at most 63"), "{message}");
    let args = AgentCli::try_parse_from(["muster-agent", "--server", SERVER]).unwrap().agent;
    let message = AgentSettings::new(args, "my_laptop").unwrap_err().message;
    assert!(message.starts_with("this machine's host name \"my_laptop\""), "{message}");
    assert!(message.ends_with("give the node a name with --hostname-override"), "{message}");
}

/// The output of `muster token create` may be written to it as it is.
#[test]
fn a_token_file_is_read_only_if_others_cannot_read_it() {
    let token = format!("{}.{}.{}", "a".repeat(10), "b".repeat(32), "c".repeat(64));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let flag = format!("--join=@{}", path.display());
    let write = |text: &str, mode: u32| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write(&format!("This token lets one machine join.\n\n{token}\n"), 0o600);
    assert_eq!(with_server(&[&flag]).unwrap().join.unwrap().to_string(), token);
    write(&token, 0o644);
    assert!(refused(&[&flag]).ends_with(&format!("run `chmod 600 {}`", path.display())));
    write("", 0o600);
    assert!(refused(&[&flag]).starts_with(&format!("--join \"@{}\": a token has three parts", path.display())));
    let args = AgentCli::try_parse_from(["muster-agent", "--join", &token]).unwrap();
    assert!(!format!("{args:?}").contains("bbbb"), "{args:?}");
}

#[test]
fn without_a_server_flag_the_agent_does_not_start() {
    let failed = settings(&[]).unwrap_err();
    assert_eq!(failed.exit, Exit::Usage);
    assert!(failed.message.starts_with("--server is needed"), "{failed}");
}

#[test]
fn a_file_has_the_names_of_the_flags_and_flags_win() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.toml");
    let file = r#"
        server = ["a:1", "b:2"]
        register-node = false
        max-pods = 50
        node-labels = "team=x"
        hostname-override = "from-file"
    "#;
    std::fs::write(&path, file).unwrap();
    let config = path.to_str().unwrap();
    let settings = settings(&["--config", config, "--hostname-override", "from-flag", "--server", "c:3"]).unwrap();
    assert_eq!((settings.node.as_str(), settings.server), ("from-flag", vec!["c:3".to_owned()]));
    assert_eq!((settings.register_node, settings.machine.max_pods, settings.labels["team"].as_str()), (false, 50, "x"));
}

#[test]
fn the_shipped_file_and_all_its_suggestions_are_valid() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/agent.toml");
    assert_eq!(settings(&["--config", shipped]).unwrap().server.len(), 3);
    let dir = tempfile::tempdir().unwrap();
    let suggested: String = std::fs::read_to_string(shipped)
        .unwrap()
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line).to_owned() + "\n")
        .map(|line| line.replace("/etc/muster/conditions", dir.path().to_str().unwrap()))
        .collect();
    let path = dir.path().join("agent.toml");
    std::fs::write(&path, suggested).unwrap();
    let settings = settings(&["--config", path.to_str().unwrap()]).unwrap();
    assert_eq!((settings.node.as_str(), settings.labels.len(), settings.taints.len()), ("rack-1", 2, 1));
}

#[test]
fn an_error_in_a_file_is_named_with_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.toml");
    let config = path.to_str().unwrap();
    let place = format!("--config {config:?}: ");
    let table = [
        (
            "server = \"a:1\"\n\nserver-port = 3\n",
            format!("{place}line 3: unknown field `server-port`, expected one of "),
        ),
        ("join = \"token\"", format!("{place}line 1: unknown field `join`, expected one of ")),
        ("server = \"a:1\"\nserver = \"b:1\"", format!("{place}line 2: duplicate key")),
        ("server = 1.5", format!("{place}line 1: invalid type: floating point `1.5`, expected a text, a number, ")),
        ("runtime = \"docker\"", format!("--runtime \"docker\": must be process or none (set in {config})")),
        ("register-node = 3", format!("--register-node \"3\": must be true or false (set in {config})")),
    ];
    for (file, expected) in table {
        std::fs::write(&path, file).unwrap();
        let message = refused(&["--config", config]);
        assert!(message.starts_with(&expected), "{file:?}: {message}");
    }
}
