//! Custom checks with real programs: exit codes, floods, hangs, and files that are refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_lifecycle::node::ConditionStatus;
use muster_node_agent::conditions::{
    CHECKS_MAX, CustomChecks, Monitor, MonitorConfig, NETWORK_UNAVAILABLE, NetworkCheck, NetworkProbe, Thresholds,
};
use tempfile::TempDir;

use crate::watching::{eventually, frequent, start, until, until_reason, until_status};

fn check(directory: &TempDir, name: &str, script: &str) {
    put(directory.path(), name, script, 0o755);
}

fn put(directory: &Path, name: &str, script: &str, mode: u32) {
    // Written elsewhere and moved here, so that no monitor runs half a script.
    let draft = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(draft.path(), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(draft.path(), Permissions::from_mode(mode)).unwrap();
    let (_, path) = draft.keep().unwrap();
    std::fs::copy(&path, directory.join(format!("{name}.draft-"))).unwrap();
    std::fs::rename(directory.join(format!("{name}.draft-")), directory.join(name)).unwrap();
    std::fs::remove_file(path).unwrap();
}

fn custom(directory: &TempDir) -> CustomChecks {
    let often = Duration::from_millis(100);
    CustomChecks { interval: often, timeout: Duration::from_secs(20), ..CustomChecks::new(directory.path()) }
}

fn watch(custom: CustomChecks) -> Monitor {
    start(MonitorConfig { custom: Some(custom), ..frequent(Path::new("/")) })
}

/// A check that never ends. The child that it starts, whose process id it writes to `child`, does not end either.
fn hanging(child: &Path) -> String {
    format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", child.display())
}

async fn started(child: &Path) -> String {
    eventually("the check to run", || child.exists()).await;
    std::fs::read_to_string(child).unwrap().trim().to_owned()
}

fn is_alive(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A zombie stays until its parent reaps it.
    !status.is_empty() && !status.contains(") Z ")
}

#[tokio::test]
async fn exit_codes_have_the_meaning_of_node_problem_detector() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("Zero", "echo fine; echo more", ConditionStatus::False, "NoProblemReported", "fine"),
        ("One", "echo disk is dying; exit 1", ConditionStatus::True, "ProblemReported", "disk is dying"),
        ("Two", "echo cannot tell; exit 2", ConditionStatus::Unknown, "CheckUnusable", "cannot tell"),
        ("Mute", "exit 1", ConditionStatus::True, "ProblemReported", "the check found a problem"),
        ("Odd", "exit 77", ConditionStatus::Unknown, "CheckUnusable", "the check ended with exit code 77"),
        ("Shot", "kill -9 $$", ConditionStatus::Unknown, "CheckUnusable", "the check was ended by signal 9"),
    ];
    for (name, script, ..) in cases {
        check(&directory, name, script);
    }
    let monitor = watch(custom(&directory));
    for (name, _, status, reason, message) in cases {
        let found = until_reason(&monitor, name, reason).await.result;
        assert_eq!((found.status, &*found.message), (status, message), "{name}");
    }
    let conditions = monitor.conditions().borrow().clone();
    let kinds: Vec<_> = conditions.iter().map(|condition| condition.result.kind.as_str()).collect();
    let expected =
        ["MemoryPressure", "DiskPressure", "PIDPressure", "Mute", "Odd", "One", "Shot", "Two", "Zero", "Ready"];
    assert_eq!(kinds, expected, "pressures first, Ready last (S-5)");
}

#[tokio::test]
async fn a_check_that_hangs_is_killed_with_everything_it_started() {
    let (directory, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let child = scratch.path().join("child");
    check(&directory, "Hangs", &hanging(&child));
    let monitor = watch(CustomChecks { timeout: Duration::from_secs(2), ..custom(&directory) });
    let child = started(&child).await;
    let found = until_reason(&monitor, "Hangs", "CheckTimedOut").await.result;
    assert_eq!(found.status, ConditionStatus::Unknown);
    assert_eq!(found.message, "the check did not end within 2s and was killed");
    eventually("the descendants to be gone", || !is_alive(&child)).await;
}

#[tokio::test]
async fn a_check_that_is_cut_short_by_the_end_of_the_agent_is_killed_too() {
    let (directory, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let child = scratch.path().join("child");
    check(&directory, "Hangs", &hanging(&child));
    let monitor = watch(custom(&directory));
    let child = started(&child).await;
    assert!(is_alive(&child));
    drop(monitor);
    eventually("the descendants to be gone", || !is_alive(&child)).await;
}

#[tokio::test]
async fn output_is_bounded_and_a_check_ends_before_processes_that_inherited_it() {
    let directory = tempfile::tempdir().unwrap();
    check(&directory, "Floods", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; exit 1");
    check(&directory, "OneLongLine", "head -c 300000 /dev/zero | tr '\\0' x; exit 1");
    check(&directory, "Lingers", "echo gone; sleep 3 & exit 1");
    let monitor = watch(custom(&directory));
    assert_eq!(until_status(&monitor, "Floods", ConditionStatus::True).await.result.message, "0123456789");
    let long = until_status(&monitor, "OneLongLine", ConditionStatus::True).await.result.message;
    assert_eq!(long, "x".repeat(1024));
    assert_eq!(until_status(&monitor, "Lingers", ConditionStatus::True).await.result.message, "gone");
}

#[tokio::test]
async fn conditions_follow_the_files_and_results_of_their_checks() {
    let directory = tempfile::tempdir().unwrap();
    let monitor = watch(custom(&directory));
    monitor.first_sample().await;
    check(&directory, "Late", "echo 1; exit 0");
    let calm = until_status(&monitor, "Late", ConditionStatus::False).await;
    check(&directory, "Late", "echo 2; exit 1");
    let problem = until_status(&monitor, "Late", ConditionStatus::True).await;
    assert!(problem.last_transition > calm.last_transition);
    std::fs::remove_file(directory.path().join("Late")).unwrap();
    until(&monitor, "Late to be gone", |conditions| conditions.get("Late").is_none()).await;
}

#[test]
fn files_that_are_not_checks_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("Directory")).unwrap();
    check(&directory, "Fine", "");
    let cases = [
        ("Ready", 0o755, "Ready is reserved"),
        ("MemoryPressure", 0o755, "is reserved"),
        ("NetworkUnavailable", 0o755, "is reserved"),
        ("Drained", 0o755, "is reserved"),
        ("not a name", 0o755, "is not a qualified name"),
        (".hidden", 0o755, "is not a qualified name"),
        ("Writable", 0o757, "every user may write to it: run chmod o-w"),
        ("Plain", 0o644, "it is not executable: run chmod +x"),
    ];
    for (name, mode, _) in cases {
        put(directory.path(), name, "", mode);
    }
    let scan = custom(&directory).scan().unwrap();
    assert_eq!(scan.checks.iter().map(|check| check.kind.as_str()).collect::<Vec<_>>(), ["Fine"]);
    assert_eq!(scan.refused.len(), cases.len());
    for (name, _, rule) in cases {
        let path = directory.path().join(name);
        let refused = scan.refused.iter().find(|refused| refused.path == path).unwrap().to_string();
        assert!(refused.contains(rule) && refused.contains(name), "{refused}");
    }
}

#[test]
fn a_world_writable_directory_of_checks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    check(&directory, "Fine", "");
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    assert!(custom(&directory).scan().unwrap_err().to_string().contains("chmod o-w"));
    assert!(CustomChecks::new("/nowhere").scan().is_err());
}

#[test]
fn the_number_of_checks_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..=CHECKS_MAX {
        check(&directory, &format!("Check{number:03}"), "");
    }
    let scan = custom(&directory).scan().unwrap();
    assert_eq!((scan.checks.len(), scan.refused.len()), (CHECKS_MAX, 1));
    assert!(scan.refused[0].path.ends_with(format!("Check{CHECKS_MAX:03}")));
}

#[tokio::test]
async fn the_network_is_available_while_the_address_answers_or_the_command_succeeds() {
    let often = |probe| NetworkCheck { interval: Duration::from_millis(50), ..NetworkCheck::new(probe) };
    let watch = |probe| start(MonitorConfig { network: Some(often(probe)), ..frequent(Path::new("/")) });

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let monitor = watch(NetworkProbe::Tcp(listener.local_addr().unwrap().to_string()));
    until_status(&monitor, NETWORK_UNAVAILABLE, ConditionStatus::False).await;
    drop(listener);
    let lost = until_status(&monitor, NETWORK_UNAVAILABLE, ConditionStatus::True).await.result;
    assert!(lost.message.contains("cannot be reached"), "{}", lost.message);

    let scratch = tempfile::tempdir().unwrap();
    let flag = scratch.path().join("up");
    let arguments = vec!["-c".into(), format!("test -e {} || {{ echo no carrier; exit 7; }}", flag.display())];
    let monitor = watch(NetworkProbe::Command { program: "sh".into(), arguments });
    let down = until_status(&monitor, NETWORK_UNAVAILABLE, ConditionStatus::True).await.result;
    assert_eq!((&*down.reason, &*down.message), ("NetworkCheckFailed", "sh: no carrier"));
    std::fs::write(flag, "").unwrap();
    until_status(&monitor, NETWORK_UNAVAILABLE, ConditionStatus::False).await;

    let monitor = watch(NetworkProbe::Command { program: "/no/such/program".into(), arguments: Vec::new() });
    until_status(&monitor, NETWORK_UNAVAILABLE, ConditionStatus::Unknown).await;
}

#[tokio::test]
async fn without_a_network_check_there_is_no_network_condition() {
    let monitor = start(frequent(Path::new("/")));
    assert!(monitor.first_sample().await.get(NETWORK_UNAVAILABLE).is_none());
}

#[tokio::test]
async fn readiness_follows_the_runtime_and_the_first_sample() {
    let can_run = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&can_run);
    let readiness = move || asked.load(Ordering::Relaxed).then_some(()).ok_or_else(|| "no runtime".to_owned());
    let monitor = Monitor::start(MonitorConfig::this_machine("/"), Arc::new(readiness));
    let not_ready = monitor.first_sample().await.get("Ready").unwrap().result.clone();
    assert_eq!((&*not_ready.reason, &*not_ready.message), ("KubeletNotReady", "no runtime"));
    can_run.store(true, Ordering::Relaxed);
    monitor.refresh();
    let ready = until_status(&monitor, "Ready", ConditionStatus::True).await.result;
    assert_eq!((&*ready.reason, &*ready.message), ("KubeletReady", "kubelet is posting ready status"));

    let monitor = start(frequent(Path::new("/no/such/directory")));
    let conditions = monitor.first_sample().await;
    let ready = &conditions.get("Ready").unwrap().result;
    assert_eq!(ready.status, ConditionStatus::False);
    assert!(ready.message.contains("/no/such/directory"), "{}", ready.message);
    assert_eq!(conditions.status("DiskPressure"), Some(ConditionStatus::Unknown));
    assert_eq!(conditions.status("MemoryPressure"), Some(ConditionStatus::False));
}

#[tokio::test]
async fn s_1_repeated_samples_renew_heartbeats_and_are_not_a_change() {
    let thresholds = Thresholds::parse(Some("memory.available<1"), None, None, None).unwrap();
    let monitor = start(MonitorConfig { thresholds, ..frequent(Path::new("/")) });
    let first = monitor.first_sample().await.get("Ready").unwrap().clone();
    let mut conditions = monitor.conditions();
    conditions.mark_unchanged();
    let beats = conditions.clone();
    let renewed = || beats.borrow().get("Ready").is_some_and(|ready| ready.last_heartbeat > first.last_heartbeat);
    eventually("another heartbeat", renewed).await;
    assert!(!conditions.has_changed().unwrap());
    assert_eq!(conditions.borrow().get("Ready").unwrap().last_transition, first.last_transition);
}
