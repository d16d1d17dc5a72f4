//! Adoption of running pods: after a restart of the agent, after its kill, and after a reboot.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_node_agent::pods::{DurableNote, PodName, PodPhase, PodUid, Runtime};
use serde_json::Value;

use crate::bench::{Bench, HELPER, eventually, is_alive, kill, processes_of, shell, shim_of, spec};

const LONG: Duration = Duration::from_secs(600);

/// An agent in a process of its own.
fn agent(bench: &Bench, uid: PodUid, manifest: &Value) -> Child {
    let mut agent = Command::new(HELPER)
        .arg(bench.dir.path())
        .arg(uid.0.to_string())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    agent.stdin.take().unwrap().write_all(manifest.to_string().as_bytes()).unwrap();
    agent
}

fn fell(mut agent: Child) {
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Ends all processes of the pod, as a loss of power would.
async fn end_all(bench: &Bench, uid: PodUid) {
    kill(shim_of(&bench.pod_dir(uid)).unwrap());
    let gone = || {
        processes_of(uid).into_iter().for_each(kill);
        processes_of(uid).is_empty()
    };
    eventually("all of it is gone", gone).await;
}

#[tokio::test]
async fn a_pod_outlives_its_agent_and_is_adopted() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let first = agent(&bench, uid, &shell("Always", "echo before; sleep 600"));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    let pid = bench.pid(uid).unwrap();
    fell(first);
    bench.open().await;
    let told = bench.newest(uid).expect("told before the runtime goes on").clone();
    assert_eq!((told.status.phase, told.status.ready, told.stopped), (PodPhase::Running, true, false));
    assert!(is_alive(pid) && bench.pid(uid) == Some(pid), "the same process");
    bench.runtime().start(spec(uid, &shell("Always", "sleep 600")));
    bench.runtime().stop(uid, LONG);
    let news = bench.until_stopped(uid).await;
    assert_eq!((news.status.phase, news.status.restarts), (PodPhase::Failed, 0));
    assert!(processes_of(uid).is_empty() && bench.log(uid, "c").ends_with("before\n"));
}

#[tokio::test]
async fn a_pod_that_ended_while_no_agent_ran_is_reported_with_its_exit_code() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let gate = bench.dir.path().join("gate");
    let script = format!("until test -e {}; do sleep 0.05; done; echo late; exit 7", gate.display());
    let first = agent(&bench, uid, &shell("Never", &script));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    let shim = shim_of(&bench.pod_dir(uid)).unwrap();
    fell(first);
    std::fs::write(&gate, "").unwrap();
    eventually("its shim is done", || !is_alive(shim)).await;
    bench.open().await;
    let news = bench.until_stopped(uid).await;
    assert_eq!((news.status.phase, &*news.status.message), (PodPhase::Failed, "container c ended with exit code 7"));
    assert!(bench.log(uid, "c").ends_with("late\n"), "output goes on without an agent");
}

#[tokio::test]
async fn containers_are_restarted_while_no_agent_runs() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let gate = bench.dir.path().join("gate");
    let again = bench.dir.path().join("again");
    let (once, gated) = (again.display(), gate.display());
    let script = format!("test -e {once} && exec sleep 600; touch {once}; until test -e {gated}; do sleep 0.05; done");
    let first = agent(&bench, uid, &shell("Always", &script));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    let pid = bench.pid(uid);
    fell(first);
    std::fs::write(&gate, "").unwrap();
    eventually("it was restarted", || bench.pid(uid).is_some_and(|now| Some(now) != pid)).await;
    bench.open().await;
    let news = bench.until_ready(uid).await;
    assert_eq!(news.status.restarts, 1);
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
}

#[tokio::test]
async fn a_pod_does_not_survive_its_shim() {
    for cgroups in [false, true] {
        let mut bench = Bench::vacant();
        bench.config.cgroups = cgroups;
        bench.open().await;
        let uid = bench.start(&shell("Always", "setsid sleep 600 & sleep 600"));
        bench.until_ready(uid).await;
        kill(shim_of(&bench.pod_dir(uid)).unwrap());
        let news = bench.until_stopped(uid).await;
        assert_eq!((news.status.phase, &*news.status.reason), (PodPhase::Failed, "ShimLost"));
        assert_eq!(processes_of(uid), [0; 0], "cgroups: {cgroups}");
    }
}

#[tokio::test]
async fn a_shim_that_died_while_no_agent_ran_is_noticed() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let first = agent(&bench, uid, &shell("Always", "sleep 600"));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    let shim = shim_of(&bench.pod_dir(uid)).unwrap();
    fell(first);
    kill(shim);
    bench.open().await;
    let news = bench.until_stopped(uid).await;
    assert_eq!((&*news.status.reason, processes_of(uid)), ("ShimLost", vec![]));
}

#[tokio::test]
async fn after_a_reboot_no_process_is_killed_by_an_old_pid() {
    for (policy, told) in [("Always", None), ("Never", Some("Rebooted"))] {
        let mut bench = Bench::vacant();
        let uid = bench.uid();
        let first = agent(&bench, uid, &shell(policy, "sleep 600"));
        eventually("it runs", || bench.pid(uid).is_some()).await;
        let pid = bench.pid(uid).unwrap();
        fell(first);
        bench.config.boot_id = "another".to_owned();
        bench.open().await;
        assert!(bench.lost, "{policy}");
        let reason = bench.newest(uid).map(|news| (&*news.status.reason, news.stopped));
        assert_eq!(reason, told.map(|reason| (reason, true)), "{policy}");
        assert!(is_alive(pid), "the process with this pid now is not the pod's");
    }
}

#[tokio::test]
async fn after_a_reboot_a_pod_is_restarted_if_its_policy_allows_it() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let pod = shell("Always", "exec sleep 600");
    let first = agent(&bench, uid, &pod);
    eventually("it runs", || bench.pid(uid).is_some()).await;
    fell(first);
    end_all(&bench, uid).await;
    bench.config.boot_id = "another".to_owned();
    bench.open().await;
    assert!(bench.lost && bench.newest(uid).is_none());
    bench.runtime().start(spec(uid, &pod));
    bench.until_ready(uid).await;
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
}

#[tokio::test]
async fn a_running_pod_with_a_damaged_record_is_found() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let first = agent(&bench, uid, &shell("Always", "exec sleep 600"));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    fell(first);
    std::fs::write(bench.pod_dir(uid).join("record.json"), "{").unwrap();
    bench.open().await;
    bench.until_ready(uid).await;
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
    assert_eq!(processes_of(uid), [0; 0]);
}

#[tokio::test]
async fn a_shim_that_is_told_to_end_ends_its_pod() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Always", "exec sleep 600"));
    bench.until_ready(uid).await;
    let shim = rustix::process::Pid::from_raw(shim_of(&bench.pod_dir(uid)).unwrap()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::TERM).unwrap();
    let news = bench.until_stopped(uid).await;
    assert_eq!((&*news.status.message, processes_of(uid)), ("container c was ended by signal 15", vec![]));
}

#[tokio::test]
async fn a_pod_that_never_started_is_removed() {
    let mut bench = Bench::vacant();
    let uid = bench.uid();
    let first = agent(&bench, uid, &shell("Never", "sleep 600"));
    eventually("it runs", || bench.pid(uid).is_some()).await;
    fell(first);
    end_all(&bench, uid).await;
    std::fs::remove_file(bench.pod_dir(uid).join("state.json")).unwrap();
    bench.open().await;
    assert!(bench.newest(uid).is_none() && !bench.pod_dir(uid).exists());
}

#[tokio::test]
async fn ended_pods_and_the_revision_of_orders_are_recalled() {
    let mut bench = Bench::new().await;
    let uid = bench.start(&shell("Never", "exit 3"));
    let status = bench.until_stopped(uid).await.status;
    bench.runtime().note(DurableNote::Ended { uid, status: status.clone() });
    bench.runtime().note(DurableNote::Orders { fleet: "f".to_owned(), revision: 42 });
    bench.open().await;
    let recalled = bench.runtime().recall();
    assert_eq!((recalled.revision, recalled.ended), (42, vec![(uid, status)]));
    assert!(bench.newest(uid).is_some_and(|news| news.stopped), "what an agent did not hear of is told again");
}

/// The agent's directory was wiped while a pod ran.
async fn wiped(bench: &mut Bench, manifest: &Value) -> PodUid {
    let uid = bench.uid();
    let first = agent(bench, uid, manifest);
    eventually("it runs", || bench.pid(uid).is_some()).await;
    fell(first);
    for entry in std::fs::read_dir(bench.dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    }
    uid
}

#[tokio::test]
async fn i_12_a_pod_whose_record_was_wiped_is_stopped_before_it_is_reported_as_stopped() {
    for (script, grace) in [("sleep 600", LONG), ("trap '' TERM; while :; do sleep 0.1; done", Duration::from_secs(1))]
    {
        let mut bench = Bench::vacant();
        let uid = wiped(&mut bench, &shell("Always", script)).await;
        bench.open().await;
        let told = bench.newest(uid).expect("its processes are found").clone();
        assert_eq!((told.status.phase, told.stopped), (PodPhase::Unknown, false));
        assert_eq!(bench.runtime().name_of(uid).map(|name| name.name), Some("web".to_owned()));
        assert!(!processes_of(uid).is_empty(), "an order to run it may still come");
        bench.runtime().stop(uid, grace);
        let news = bench.until_stopped(uid).await;
        assert_eq!((&*news.status.reason, processes_of(uid)), ("RecordLost", vec![]), "{script}");
    }
}

/// The new state directory is elsewhere, so nothing says that the pod is this agent's until it is told to stop it.
#[tokio::test]
async fn i_12_a_pod_of_another_directory_is_searched_for_when_it_has_to_stop() {
    let mut bench = Bench::vacant();
    let uid = wiped(&mut bench, &shell("Always", "sleep 600")).await;
    bench.dir = tempfile::tempdir().unwrap();
    bench.open().await;
    assert!(bench.newest(uid).is_none(), "it may be another agent's");
    let name = PodName { namespace: "default".to_owned(), name: "web".to_owned() };
    assert!(bench.runtime().stop_unrecorded(&name, uid, Duration::from_secs(5)));
    bench.until_stopped(uid).await;
    assert_eq!(processes_of(uid), [0; 0]);
    let never = bench.uid();
    assert!(bench.runtime().stop_unrecorded(&name, never, LONG));
    assert_eq!(bench.until_stopped(never).await.status.reason, "NotRunning");
}

#[tokio::test]
async fn i_12_a_pod_whose_record_was_wiped_does_not_run_twice() {
    let mut bench = Bench::vacant();
    let uid = wiped(&mut bench, &shell("Always", "sleep 600")).await;
    let before = processes_of(uid);
    bench.dir = tempfile::tempdir().unwrap();
    bench.open().await;
    bench.runtime().start(spec(uid, &shell("Always", "sleep 600")));
    bench.until_ready(uid).await;
    assert!(before.iter().all(|pid| !is_alive(*pid)), "the former processes have ended");
    bench.runtime().kill(uid);
    bench.until_stopped(uid).await;
}
