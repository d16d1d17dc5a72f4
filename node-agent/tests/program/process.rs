//! Tests of the real binary: exit codes, and mistakes that are found before anything is contacted.

use std::net::TcpListener;
use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-agent")).args(arguments).env_remove("RUST_LOG").output().unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bad_flag_ends_with_2_before_anything_is_contacted() {
    let replica = TcpListener::bind("127.0.0.1:0").unwrap();
    replica.set_nonblocking(true).unwrap();
    let server = replica.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let state_dir = dir.path().join("state");
    let state = state_dir.to_str().unwrap();
    let table: [(&[&str], &str); 4] = [
        (
            &["--register-with-taints", "a:b"],
            "error: --register-with-taints \"a:b\": effect must be NoSchedule, PreferNoSchedule or NoExecute\n",
        ),
        (&["--cloud-provider", "aws"], "error: --cloud-provider \"aws\": comes with cloud sync: leave the flag out\n"),
        (&["--no-such-flag"], "error: unexpected argument '--no-such-flag' found"),
        (&[], "error: this machine has not joined: give a token of `muster token create` with --join, and --server\n"),
    ];
    for (flags, expected) in table {
        let name = ["--hostname-override", "n1", "--metrics-address", "none"];
        let output = agent(&[&["--server", &server, "--state-dir", state], &name[..], flags].concat());
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {complaint}");
        assert!(complaint.contains(expected), "{flags:?}: {complaint}");
    }
    assert!(replica.accept().is_err(), "nothing connected");
}

#[test]
fn a_metrics_port_that_is_taken_ends_with_1_before_a_token_is_spent() {
    let (replica, taken) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    replica.set_nonblocking(true).unwrap();
    let [server, metrics] = [&replica, &taken].map(|door| door.local_addr().unwrap().to_string());
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let token = format!("{}.{}.{}", "a".repeat(10), "b".repeat(32), "c".repeat(64));
    let flags = ["--server", &server, "--state-dir", state, "--metrics-address", &metrics, "--join", &token];
    let output = agent(&flags);
    let complaint = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let expected = format!("error: --metrics-address \"{metrics}\": cannot listen there: Address already in use");
    assert!(complaint.contains(&expected), "{complaint}");
    assert!(replica.accept().is_err(), "nothing connected");
}

#[test]
fn help_explains_the_exit_codes_and_version_is_printed() {
    let output = agent(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && help.contains("Exit codes:") && help.contains("--register-with-taints"),
        "{help}"
    );
    assert!(agent(&["--version"]).status.success());
}

#[test]
fn the_status_of_an_agent_that_does_not_run_ends_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let output = agent(&["status", "--state-dir", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    let complaint = complaint(&output);
    assert!(complaint.starts_with("error: no agent answers at ") && complaint.contains("agent.sock"), "{complaint}");
}
