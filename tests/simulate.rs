//! `muster simulate`: every scenario gives what its golden file says, and the rules it stands for hold.
//!
//! The golden files in `scenarios/golden` were checked against the rules by hand. The tests below say the same again
//! where it matters: which moment follows from which rule.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable:NoExecute";
const NOT_READY: &str = "node.kubernetes.io/not-ready:NoExecute";

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/scenarios")
}

fn muster(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster")).arg("simulate").args(arguments).output().unwrap()
}

fn simulate(scenario: &Path, arguments: &[&str]) -> String {
    let output = muster(&[&[scenario.to_str().unwrap()], arguments].concat());
    assert!(output.status.success(), "{}: {}", scenario.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The output of a scenario of the folder, line by line.
fn happened(name: &str) -> Vec<Value> {
    let output = simulate(&scenarios().join(format!("{name}.yaml")), &["-o", "json"]);
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// When a node's Ready condition turned to this.
fn turned(lines: &[Value], node: &str, to: &str) -> Vec<f64> {
    let is_it = |line: &&Value| {
        line["event"] == "condition" && line["type"] == "Ready" && line["node"] == node && line["to"] == to
    };
    lines.iter().filter(is_it).map(at).collect()
}

/// When a taint was added to, or removed from, which node.
fn tainted<'a>(lines: &'a [Value], taint: &str, action: &str) -> Vec<(f64, &'a str)> {
    let is_it = |line: &&Value| line["event"] == "taint" && line["taint"] == taint && line["action"] == action;
    lines.iter().filter(is_it).map(|line| (at(line), line["node"].as_str().unwrap())).collect()
}

/// When a zone moved, and to which state.
fn moved<'a>(lines: &'a [Value], zone: &str) -> Vec<(f64, &'a str)> {
    let is_it = |line: &&Value| line["event"] == "zone" && line["zone"] == zone;
    lines.iter().filter(is_it).map(|line| (at(line), line["to"].as_str().unwrap())).collect()
}

fn rates(lines: &[Value], zone: &str) -> Vec<(f64, f64)> {
    let is_it = |line: &&Value| line["event"] == "rate" && line["zone"] == zone;
    lines.iter().filter(is_it).map(|line| (at(line), line["perSecond"].as_f64().unwrap())).collect()
}

/// When this action was taken on which pod.
fn pods<'a>(lines: &'a [Value], action: &str) -> Vec<(f64, &'a str)> {
    let is_it = |line: &&Value| line["event"] == "pod" && line["action"] == action;
    lines.iter().filter(is_it).map(|line| (at(line), line["pod"].as_str().unwrap())).collect()
}

/// The nodes on which pods were placed, and when.
fn bound(lines: &[Value]) -> Vec<(f64, &str)> {
    let is_it = |line: &&Value| line["event"] == "pod" && line["action"] == "bound";
    lines.iter().filter(is_it).map(|line| (at(line), line["node"].as_str().unwrap())).collect()
}

/// The line at which something first happened at this moment.
fn place(lines: &[Value], at: f64, is_it: impl Fn(&Value) -> bool) -> usize {
    lines.iter().position(|line| line["at"] == at && is_it(line)).unwrap()
}

fn at(line: &Value) -> f64 {
    line["at"].as_f64().unwrap()
}

// === all of them ===

#[test]
fn every_scenario_gives_its_golden_output_twice() {
    let mut seen = 0;
    for entry in std::fs::read_dir(scenarios()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let golden = scenarios().join("golden").join(path.file_name().unwrap()).with_extension("jsonl");
            let golden = std::fs::read_to_string(golden).unwrap();
            let (first, second) = (simulate(&path, &["-o", "json"]), simulate(&path, &["-o", "json"]));
            for (number, (found, expected)) in first.lines().zip(golden.lines()).enumerate() {
                assert_eq!(found, expected, "{} line {}", path.display(), number + 1);
            }
            assert_eq!(first.len(), golden.len(), "{}", path.display());
            assert_eq!(first, second, "{} is not deterministic", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 20, "only {seen} scenarios");
}

#[test]
fn the_text_timeline_is_plain_and_bounded() {
    let output = simulate(&scenarios().join("zone-full.yaml"), &[]);
    assert!(output.is_ascii());
    assert!(output.lines().all(|line| line.len() <= 120), "{output}");
    for part in [
        "        time  r1/a    r1/b\n",
        "     1m500ms  N       >F!!    5 nodes: Ready True -> Unknown (NodeStatusUnknown)\n",
        "  1m10s500ms  N       F!!     b-1: + taint node.kubernetes.io/unreachable:NoExecute\n",
        "\nafter 2m: 3 of 8 nodes are ready\n",
        "  zone r1/b is in state FullDisruption\n",
    ] {
        assert!(output.contains(part), "{part:?} is not in\n{output}");
    }
}

#[test]
fn the_text_timeline_shows_pods() {
    let output = simulate(&scenarios().join("pods-dead-node.yaml"), &[]);
    for part in [
        "              N       4 pods: not ready\n",
        "  1m30s500ms  N       hasty: evicted from a-0 (node.kubernetes.io/unreachable:NoExecute)\n",
        "     6m500ms  N       plain-0, plain-1: evicted from a-0 (node.kubernetes.io/unreachable:NoExecute)\n",
        "  5 pods: 1 ready, 3 terminating\n",
    ] {
        assert!(output.contains(part), "{part:?} is not in\n{output}");
    }
}

// === the rules ===

#[test]
fn nh_6_a_node_is_silent_strictly_after_its_grace() {
    // Silenced at 30 s before its beat, so last heard at 20 s; 60 s is still within grace, 61 s is the next sweep.
    let lines = happened("appendix");
    let first = lines.iter().find(|line| line["event"] == "condition").unwrap();
    assert_eq!(
        first.to_string(),
        r#"{"at":60.5,"event":"condition","node":"a-0","type":"Ready","from":"True","to":"Unknown","reason":"NodeStatusUnknown"}"#
            .parse::<Value>()
            .unwrap()
            .to_string()
    );
    assert_eq!(turned(&lines, "a-2", "Unknown"), [60.5]);
    assert_eq!(turned(&lines, "a-3", "Unknown"), [0.0; 0]);
}

#[test]
fn nh_2_startup_grace_counts_from_creation() {
    let lines = happened("startup-grace");
    for (node, expected) in [("old", 0.0), ("new", 60.5), ("late", 90.5)] {
        assert_eq!(turned(&lines, node, "Unknown"), [expected], "{node}");
    }
    assert_eq!(lines.last().unwrap()["nodes"]["renewing"]["ready"], "none");
    let reasons = lines.iter().filter(|line| line["event"] == "condition").map(|line| &line["reason"]);
    assert!(reasons.clone().count() == 12 && reasons.clone().all(|reason| reason == "NodeStatusNeverUpdated"));
}

#[test]
fn either_signal_keeps_a_node_alive() {
    let lines = happened("either-signal");
    for node in ["both", "lease-only", "status-only"] {
        assert_eq!(turned(&lines, node, "Unknown"), [0.0; 0], "{node}");
    }
    assert_eq!(turned(&lines, "seldom", "Unknown"), [40.5, 160.5]);
    assert_eq!(turned(&lines, "seldom", "True"), [120.0, 240.0]);
}

#[test]
fn ne_7_swapping_one_taint_for_the_other_needs_no_token() {
    let lines = happened("swap");
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0"), (105.5, "a-0")]);
    assert_eq!(tainted(&lines, UNREACHABLE, "removed"), [(65.0, "a-0"), (120.0, "a-0")]);
    assert_eq!(tainted(&lines, NOT_READY, "added"), [(65.0, "a-0")]);
    assert_eq!(tainted(&lines, NOT_READY, "removed"), [(105.5, "a-0")]);
}

#[test]
fn z_5_a_small_zone_in_partial_disruption_evicts_no_node() {
    let lines = happened("zone-partial-small");
    assert_eq!(moved(&lines, "r1/a"), [(0.0, "Normal"), (60.5, "PartialDisruption")]);
    assert_eq!(rates(&lines, "r1/a"), [(60.5, 0.0)]);
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), []);
    assert_eq!(moved(&lines, "r1/b"), [(0.0, "Normal")]);
}

#[test]
fn z_5_a_large_zone_in_partial_disruption_evicts_at_the_secondary_rate() {
    let lines = happened("zone-partial-large");
    assert_eq!(rates(&lines, "r1/a"), [(60.5, 0.01)]);
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0"), (160.5, "a-1"), (260.5, "a-10")]);
}

#[test]
fn z_3_the_number_of_lost_nodes_decides_about_a_disruption() {
    let lines = happened("zone-thresholds");
    let zones = &lines.last().unwrap()["zones"];
    for (zone, state) in [("/a", "Normal"), ("/b", "PartialDisruption"), ("/c", "Normal"), ("/d", "PartialDisruption")]
    {
        assert_eq!(zones[zone], state, "{zone}");
    }
}

#[test]
fn z_5_a_fully_disrupted_zone_beside_a_normal_one_is_evicted_at_the_full_rate() {
    let lines = happened("zone-full");
    let evicted = [(60.5, "b-0"), (70.5, "b-1"), (80.5, "b-2"), (90.5, "b-3"), (100.5, "b-4")];
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), evicted);
    assert_eq!(rates(&lines, "r1/b"), []);
}

#[test]
fn z_6_full_disruption_removes_eviction_taints_and_every_node_has_a_grace_afterwards() {
    let lines = happened("full-disruption");
    assert_eq!(tainted(&lines, UNREACHABLE, "removed"), [(130.5, "a-0")]);
    let states = [(0.0, "Normal"), (130.5, "FullDisruption"), (200.0, "PartialDisruption"), (230.0, "Normal")];
    assert_eq!(moved(&lines, "r1/z1"), states);
    assert_eq!(rates(&lines, "r1/z1"), [(130.5, 0.0), (230.0, 0.1)]);
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0"), (240.0, "a-0"), (250.0, "a-1")]);
}

#[test]
fn ne_3_only_a_status_makes_a_node_ready_again() {
    let lines = happened("recovery");
    assert_eq!(turned(&lines, "a-0", "True"), [80.0]);
    assert_eq!(tainted(&lines, UNREACHABLE, "removed"), [(80.0, "a-0")]);
    assert_eq!(lines.last().unwrap()["nodes"]["a-0"]["taints"], Value::Array(Vec::new()));
}

#[test]
fn a_failover_does_not_restart_graces() {
    let lines = happened("failover-grace");
    let leaders: Vec<f64> = lines.iter().filter(|line| line["event"] == "leader").map(at).collect();
    assert_eq!(leaders, [43.0]);
    for (node, expected) in [("a-0", 63.5), ("b-0", 81.5), ("b-1", 90.5)] {
        assert_eq!(turned(&lines, node, "Unknown"), [expected], "{node}");
    }
}

#[test]
fn i_04_the_eviction_rate_holds_over_leaders() {
    let lines = happened("failover-evictions");
    let evicted = [(60.5, "b-0"), (70.5, "b-1"), (80.5, "b-2"), (90.5, "b-3"), (100.5, "b-4"), (110.5, "b-5")];
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), evicted);
    let lines = happened("failover-at-once");
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(13.5, "a-0"), (23.5, "a-1")]);
    assert_eq!(tainted(&lines, "node.kubernetes.io/unschedulable:NoSchedule", "added"), [(14.5, "a-3")]);
}

#[test]
fn settings_of_a_scenarios_policy_take_effect() {
    let lines = happened("policy");
    assert_eq!(turned(&lines, "a-0", "Unknown"), [13.5]);
    assert_eq!(rates(&lines, "/z1"), [(23.5, 0.25)]);
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(13.5, "a-0"), (23.5, "a-1"), (27.5, "a-2")]);
}

#[test]
fn z_4_excluded_nodes_do_not_count_and_are_evicted_all_the_same() {
    let lines = happened("exclude-disruption");
    assert_eq!(moved(&lines, "r1/z1"), [(0.0, "Normal")]);
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "x-0"), (70.5, "x-1"), (80.5, "x-2")]);
}

// === pods ===

#[test]
fn te_13_pods_leave_a_dead_node_after_their_toleration() {
    // Last heard at 20 s; Unknown and tainted at 61 s; TE-11 gives 300 s.
    let lines = happened("pods-dead-node");
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0")]);
    assert_eq!(pods(&lines, "evicted"), [(90.5, "hasty"), (360.5, "plain-0"), (360.5, "plain-1")]);
    let unready = [(60.5, "hasty"), (60.5, "patient"), (60.5, "plain-0"), (60.5, "plain-1")];
    assert_eq!(pods(&lines, "unready"), unready, "PD-2");
    let end = &lines.last().unwrap()["pods"];
    assert_eq!(end["plain-0"]["terminating"], true, "no node confirms that it has stopped");
    assert_eq!(end["patient"]["terminating"], false, "an infinite toleration stays");
    assert_eq!(pods(&lines, "gone"), []);
}

#[test]
fn te_7_a_failover_does_not_restart_the_countdown() {
    let lines = happened("pods-failover");
    let leaders: Vec<f64> = lines.iter().filter(|line| line["event"] == "leader").map(at).collect();
    assert_eq!(leaders, [203.0]);
    // Three seconds after the take-over: the new leader had been told a moment before which nodes are back.
    assert_eq!(pods(&lines, "evicted"), [(205.5, "short"), (360.5, "long")]);
}

#[test]
fn te_6_a_node_that_returns_in_time_keeps_its_pods() {
    let lines = happened("pods-return");
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0"), (340.5, "a-0")]);
    assert_eq!(tainted(&lines, UNREACHABLE, "removed"), [(300.0, "a-0")]);
    assert_eq!(pods(&lines, "ready"), [(300.0, "p-0"), (300.0, "p-1")]);
    assert_eq!(pods(&lines, "evicted"), [(640.5, "p-0"), (640.5, "p-1")]);
}

#[test]
fn i_03_a_node_that_is_heard_again_gets_time_to_report() {
    let lines = happened("pods-heard-again");
    assert_eq!(tainted(&lines, UNREACHABLE, "added"), [(60.5, "a-0"), (60.5, "b-0")]);
    assert_eq!(pods(&lines, "evicted"), [(380.5, "q")]);
    assert_eq!(lines.last().unwrap()["pods"]["p"]["ready"], true);
}

#[test]
fn the_pods_of_a_replica_set_move_to_another_zone_and_those_of_a_daemon_set_stay() {
    let lines = happened("pods-replicas");
    assert_eq!(pods(&lines, "evicted"), [(360.5, "web-a-0-0"), (370.5, "web-a-1-0")]);
    assert_eq!(bound(&lines), [(360.5, "b-0"), (370.5, "b-1")]);
    assert_eq!(pods(&lines, "gone"), [(500.0, "web-a-0-0")]);
    let end = &lines.last().unwrap()["pods"];
    assert_eq!((&end["web-a-1-0"]["terminating"], &end["log-a-1-0"]["terminating"]), (&true.into(), &false.into()));
}

#[test]
fn i_12_evicted_pods_are_confirmed_stopped_before_their_node_is_ready() {
    let lines = happened("pods-replicas");
    let stopped = place(&lines, 500.0, |line| line["action"] == "gone");
    let ready = place(&lines, 500.0, |line| line["type"] == "Ready" && line["to"] == "True");
    let well = place(&lines, 500.0, |line| line["action"] == "ready" && line["pod"] == "log-a-0-0");
    assert!(stopped < ready && ready < well, "{stopped} {ready} {well}");
    let silent = "nodes: [{name: a, count: 2}]\npods: [{name: p, node: a-0}]\ntimeline:\n  \
                  - {at: 30s, do: silence, nodes: [a-0]}\n  \
                  - {at: 400s, do: post, nodes: [a-0], conditions: {Ready: \"True\"}}\nuntil: 7m\n";
    let output = output_of(silent);
    assert!(output.contains("report-status a-0: node \"a-0\" cannot be ready yet: 1 pods"), "{output}");
}

#[test]
fn the_pods_of_a_stateful_set_wait_until_their_node_returns_or_is_deleted() {
    let lines = happened("pods-stateful");
    assert_eq!(pods(&lines, "evicted"), [(360.5, "db-0"), (361.5, "db-1"), (362.5, "db-2")]);
    let again = [(500.0, "db-0"), (600.0, "db-1"), (700.0, "db-2")];
    for action in ["gone", "created", "bound"] {
        assert_eq!(pods(&lines, action), again, "{action}");
    }
    assert_eq!(bound(&lines), [(500.0, "a-0"), (600.0, "b-0"), (700.0, "b-1")]);
}

#[test]
fn gc_3_a_pod_waits_for_a_node_that_beats_and_is_removed_two_minutes_after_its_node() {
    let lines = happened("pods-waiting");
    assert_eq!(bound(&lines), [(0.0, "a-0"), (0.0, "a-1"), (180.0, "late"), (300.0, "a-1"), (380.5, "a-1")]);
    let created: Vec<f64> = pods(&lines, "created").iter().map(|(at, _)| *at).collect();
    assert_eq!(created, [62.0, 240.0, 380.5]);
    let gone: Vec<f64> = pods(&lines, "gone").iter().map(|(at, _)| *at).collect();
    assert_eq!(gone, [62.0, 360.0]);
    assert_eq!(pods(&lines, "evicted"), [(62.0, "web-1"), (380.5, "web-0")]);
}

// === files ===

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The output for people of a scenario that is in no file.
fn output_of(text: &str) -> String {
    simulate(file(text).path(), &[])
}

fn fault(text: &str) -> (i32, String) {
    let file = file(text);
    let path = file.path().to_str().unwrap();
    let output = muster(&[path]);
    let message = String::from_utf8(output.stderr).unwrap().replace(path, "FILE");
    (output.status.code().unwrap(), message)
}

#[test]
fn an_invalid_file_is_reported_with_file_line_and_field() {
    let (code, message) = fault("nodes:\n  - {name: a}\ntimeline:\n  - {at: 1s, do: silence, nodes: [b]}\nuntil: 1m\n");
    assert_eq!(
        message.lines().next().unwrap(),
        "error: FILE:4: timeline[0].nodes[0]: there is no node \"b\": name one of the nodes section"
    );
    assert_eq!(code, 1);
    let (code, message) = fault("nodes: [\n");
    assert!(message.starts_with("error: FILE:") && message.contains("not YAML"), "{message}");
    assert_eq!(code, 1);
}

#[test]
fn a_rejection_at_the_start_is_reported() {
    let labels: Vec<String> = (0..2_000).map(|index| format!("l{index}: {}", "v".repeat(60))).collect();
    let (code, message) = fault(&format!("nodes:\n  - {{name: a, labels: {{{}}}}}\nuntil: 1m\n", labels.join(", ")));
    assert!(message.contains("FILE: the scenario cannot start: "), "{message}");
    assert_eq!(code, 1);
}

#[test]
fn a_rejection_during_the_run_is_noted_and_the_rest_continues() {
    let text = "nodes:\n  - {name: a}\ntimeline:\n  - {at: 1s, do: untaint, nodes: [a], taints: [\"k:NoExecute\"]}\nuntil: 5s\n";
    let (code, message) = fault(text);
    assert_eq!((code, message.as_str()), (0, ""), "the timeline itself shows it");
    let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["simulate", "-", "-o", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(stderr.contains("note: at 1 s taint-node a was refused: spec.taints: taint"), "{stderr}");
    assert!(stdout.lines().last().unwrap().starts_with(r#"{"at":5.0,"event":"end","nodes":{"a":"#), "{stdout}");
}

#[test]
fn entries_that_select_no_node_and_nodes_that_never_appear_are_noted() {
    let entry = "{at: 30s, do: silence, nodes: {all: true, percent: 10}}";
    let text = format!("nodes:\n  - {{name: a}}\n  - {{name: b, created: 2m}}\ntimeline:\n  - {entry}\nuntil: 1m\n");
    let (code, message) = fault(&text);
    assert_eq!(code, 0);
    assert!(message.contains("note: nodes that are `created` after `until` and never appear: 1"), "{message}");
    assert!(message.contains("note: the entry of the timeline at 30s selects no node"), "{message}");
}

#[test]
fn entries_after_the_end_are_noted() {
    let (code, message) = fault("nodes:\n  - {name: a}\ntimeline:\n  - {at: 2m, do: renew, nodes: [a]}\nuntil: 1m\n");
    assert_eq!(code, 0);
    assert!(message.contains("entries of the timeline that lie after `until` and do not happen: 1"), "{message}");
}
