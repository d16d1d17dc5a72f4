//! Lifecycle of pods: start, restart and end.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use muster_node_agent::pods::{DurableNote, PodPhase, Runtime};
use muster_node_agent::process::{ProcessRuntime, RuntimeOpenError, RuntimeUnhealthy};
use serde_json::json;

use crate::bench::{Bench, HELPER, eventually, is_alive, processes_of, shell};

const LONG: Duration = Duration::from_secs(600);
/// Ignores SIGTERM, and so does the process that it leaves behind in a session of its own.
const STUBBORN: &str = r#"trap "" TERM; (setsid sh -c 'trap "" TERM; sleep 600 & wait' &) ; (sh -c 'sleep 600 & sleep 600' &) ; echo up; while :; do sleep 600; done"#;

#[tokio::test]
async fn a_pod_runs_until_it_is_stopped() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Always", "exec sleep 600"));
    let news = bench.until_ready(uid).await;
    assert_eq!((news.status.phase, news.status.restarts, news.stopped), (PodPhase::Running, 0, false));
    let pid = bench.pid(uid).unwrap();
    assert!(is_alive(pid));
    bench.runtime().stop(uid, LONG);
    let news = bench.until_stopped(uid).await;
    assert_eq!((news.status.phase, &*news.status.message), (PodPhase::Failed, "container c was ended by signal 15"));
    assert!(!is_alive(pid) && processes_of(uid).is_empty());
}

#[tokio::test]
async fn a_pod_that_ignores_the_stop_is_killed_with_all_its_descendants() {
    for cgroups in [false, true] {
        let mut bench = Bench::vacant();
        bench.config.cgroups = cgroups;
        bench.open().await;
        let uid = bench.start(&shell("Always", STUBBORN));
        bench.until_ready(uid).await;
        eventually("all of it runs", || processes_of(uid).len() >= 7).await;
        bench.runtime().stop(uid, LONG);
        bench.runtime().stop(uid, Duration::from_millis(100));
        let news = bench.until_stopped(uid).await;
        assert_eq!((news.status.phase, &*news.status.reason), (PodPhase::Failed, "Killed"), "{cgroups}");
        assert_eq!(processes_of(uid), [0; 0], "cgroups: {cgroups}");
    }
}

#[tokio::test]
async fn kill_does_not_wait() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Always", STUBBORN));
    bench.until_ready(uid).await;
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
    assert_eq!(processes_of(uid), [0; 0]);
}

#[tokio::test]
async fn a_pod_killed_before_its_start_never_runs() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Always", "exec sleep 600"));
    bench.runtime().kill(uid);
    let news = bench.until_stopped(uid).await;
    assert_eq!(news.status.phase, PodPhase::Failed);
    assert_eq!(processes_of(uid), [0; 0]);
}

#[tokio::test]
async fn a_container_that_ends_leaves_no_processes() {
    for cgroups in [false, true] {
        let mut bench = Bench::vacant();
        bench.config.cgroups = cgroups;
        bench.open().await;
        let flag = bench.dir.path().join("away");
        let away = flag.display();
        let script = format!("setsid sh -c 'touch {away}; sleep 600' & until test -e {away}; do sleep 0.05; done");
        let uid = bench.start(&shell("Never", &script));
        let news = bench.until_stopped(uid).await;
        assert_eq!((news.status.phase, &*news.status.reason), (PodPhase::Succeeded, "Completed"));
        assert_eq!(processes_of(uid), [0; 0], "cgroups: {cgroups}");
    }
}

#[tokio::test]
async fn phases_follow_exit_codes_and_failures_are_retried_by_policy() {
    let mut bench = Bench::new().await;
    let failed = bench.start(&shell("Never", "exit 3"));
    let missing = {
        let mut pod = shell("Never", "");
        pod["spec"]["containers"][0]["command"] = json!(["/does/not/exist"]);
        bench.start(&pod)
    };
    let flag = bench.dir.path().join("second-time");
    let script = format!("test -e {0} && exit 0; touch {0}; exit 1", flag.display());
    let retried = bench.start(&shell("OnFailure", &script));
    let news = bench.until_stopped(failed).await.status;
    assert_eq!((news.phase, &*news.message), (PodPhase::Failed, "container c ended with exit code 3"));
    let news = bench.until_stopped(missing).await.status;
    assert_eq!((news.phase, &*news.reason), (PodPhase::Failed, "StartError"));
    assert!(news.message.contains("/does/not/exist"), "{}", news.message);
    let news = bench.until_stopped(retried).await.status;
    assert_eq!((news.phase, news.restarts), (PodPhase::Succeeded, 1));
}

#[tokio::test]
async fn init_containers_come_first_and_output_is_kept_in_private_files() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&json!({
        "metadata": { "name": "web" },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [{ "name": "one", "command": ["sh", "-c", "date +%s%N"] }],
            "containers": [{
                "name": "main",
                "command": ["sh", "-c", "date +%s%N; pwd; echo $GREETING $(GREETING); env >&2; printf unfinished"],
                "env": [{ "name": "WHO", "value": "world" }, { "name": "GREETING", "value": "hello-$(WHO)" }],
                "workingDir": "/tmp",
            }],
        },
    }));
    assert_eq!(bench.until_stopped(uid).await.status.phase, PodPhase::Succeeded);
    let text = |line: &str| line.splitn(4, ' ').last().unwrap().to_owned();
    let (one, main) = (bench.log(uid, "one"), bench.log(uid, "main"));
    let out: Vec<_> = main.lines().filter(|line| line.contains(" stdout F ")).map(text).collect();
    assert!(text(one.trim_end()).parse::<u64>().unwrap() < out[0].parse().unwrap(), "{one} {main}");
    assert_eq!(out[1..], ["/tmp", "hello-world hello-world", "unfinished"]);
    let mut env: Vec<_> = main.lines().filter(|line| line.contains(" stderr F ")).map(text).collect();
    env.retain(|line| !line.starts_with("PWD=") && !line.starts_with("_=") && !line.starts_with("SHLVL="));
    env.sort();
    let names: Vec<_> = env.iter().filter_map(|line| line.split('=').next()).collect();
    let known = ["GREETING", "HOSTNAME", "MUSTER_CONTAINER", "MUSTER_POD_NAME", "MUSTER_POD_NAMESPACE"];
    assert_eq!(
        names,
        [&known[..], &["MUSTER_POD_UID", "OLDPWD", "PATH", "WHO"]]
            .concat()
            .into_iter()
            .filter(|name| *name != "OLDPWD" || names.contains(name))
            .collect::<Vec<_>>()
    );
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = bench.pod_dir(uid);
    assert_eq!((mode(&dir), mode(&dir.join("logs"))), (0o700, 0o700));
    for file in ["record.json", "state.json", "shim.log", "logs/main.log"] {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn logs_are_bounded() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Never", "seq 1 20000"));
    bench.until_stopped(uid).await;
    let files: Vec<_> = std::fs::read_dir(bench.pod_dir(uid).join("logs")).unwrap().flatten().collect();
    assert_eq!(files.len(), 3);
    assert!(files.iter().all(|file| file.metadata().unwrap().len() <= bench.config.log_bytes));
    assert!(bench.log(uid, "c").ends_with(" stdout F 20000\n"));
}

#[tokio::test]
async fn a_pod_that_cannot_run_fails_at_once_with_the_reason() {
    let mut bench = Bench::new().await;
    let mut pod = shell("Always", "true");
    pod["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    let uid = bench.start(&pod);
    let news = bench.until_stopped(uid).await;
    assert_eq!((news.status.phase, &*news.status.reason), (PodPhase::Failed, "Unsupported"));
    assert!(news.status.message.starts_with("spec.volumes: "), "{}", news.status.message);
    assert!(!bench.pod_dir(uid).exists());
}

#[tokio::test]
async fn the_directories_of_ended_pods_are_bounded() {
    let mut bench = Bench::vacant();
    bench.config.keep_ended = 2;
    bench.open().await;
    for _ in 0..6 {
        let uid = bench.start(&shell("Never", "true"));
        let status = bench.until_stopped(uid).await.status;
        bench.runtime().note(DurableNote::Ended { uid, status });
    }
    // The last two may have ended before the records of those before them were on disk.
    let dirs = || std::fs::read_dir(bench.dir.path().join("pods")).unwrap().count();
    eventually("directories are removed", || dirs() <= 4).await;
}

/// A bench whose shim is started from a script, which runs `prelude` first.
async fn with_shim(prelude: &str) -> Bench {
    let mut bench = Bench::vacant();
    let script = bench.dir.path().join("shim");
    std::fs::write(&script, format!("#!/bin/sh\n{prelude}\nexec {HELPER} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    bench.config.shim = script;
    bench.open().await;
    bench
}

#[tokio::test]
async fn a_shim_survives_a_full_disk() {
    let mut bench = with_shim("exec 2>/dev/full").await;
    let [begun, gate] = ["begun", "gate"].map(|name| bench.dir.path().join(name));
    // The pod is ready as soon as it is started: whether it runs for the first time must not depend on the gate.
    let script = format!(
        "test -e {begun} && exec sleep 600; : > {begun}; until test -e {gate}; do sleep 0.05; done",
        begun = begun.display(),
        gate = gate.display()
    );
    let uid = bench.start(&shell("Always", &script));
    bench.until_ready(uid).await;
    // Nothing can be written where its next state is drafted.
    let draft = bench.pod_dir(uid).join("state.json.new");
    std::fs::create_dir(&draft).unwrap();
    std::fs::write(&gate, "").unwrap();
    bench.until(uid, |news| news.status.ready && news.status.restarts == 1).await;
    std::fs::remove_dir(&draft).unwrap();
    bench.runtime().stop(uid, LONG);
    assert_eq!(bench.until_stopped(uid).await.status.message, "container c was ended by signal 15");
}

/// The kernel spares an agent and its shims when memory runs out.
#[tokio::test]
async fn pods_do_not_inherit_the_oom_score_of_the_shim() {
    let mut bench = with_shim("echo 500 > /proc/self/oom_score_adj").await;
    let uid = bench.start(&shell("Always", "exec sleep 600"));
    bench.until_ready(uid).await;
    let pid = bench.pid(uid).unwrap();
    let score = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    assert_eq!(score(crate::bench::shim_of(&bench.pod_dir(uid)).unwrap()).trim(), "500");
    eventually("its score is its own", || score(pid).trim() == "0").await;
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
}

/// A shim that ends before it has begun, as it does on a full disk.
#[tokio::test]
async fn a_pod_that_cannot_start_for_now_is_retried_unless_it_never_restarts() {
    let mut bench = Bench::vacant();
    bench.config.shim = "/bin/false".into();
    bench.open().await;
    let [always, once] = ["Always", "Never"].map(|policy| bench.start(&shell(policy, "true")));
    let news = bench.until_stopped(once).await.status;
    assert_eq!((news.phase, &*news.reason), (PodPhase::Failed, "StartError"));
    let news = bench.until(always, |news| news.status.message.ends_with("tried again after 10s")).await;
    assert_eq!((news.status.phase, &*news.status.reason, news.stopped), (PodPhase::Pending, "StartError", false));
    bench.runtime().stop(always, LONG);
    assert_eq!(bench.until_stopped(always).await.status.reason, "Terminated");
}

#[tokio::test]
async fn a_directory_has_one_runtime_and_a_missing_shim_is_unhealthy() {
    let mut bench = Bench::new().await;
    let second = ProcessRuntime::open(bench.dir.path(), bench.config.clone());
    assert!(matches!(second, Err(RuntimeOpenError::InUse { .. })));
    bench.runtime().health().unwrap();
    bench.close();
    bench.config.shim = bench.dir.path().join("nowhere");
    bench.open().await;
    assert!(matches!(bench.runtime().health(), Err(RuntimeUnhealthy::NoShim { .. })));
    let uid = bench.start(&shell("Always", "true"));
    let news = bench.until_stopped(uid).await;
    assert_eq!((news.status.phase, &*news.status.reason), (PodPhase::Failed, "StartError"));
}
