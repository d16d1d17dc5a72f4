//! Tests of the pod core with a clock that the test sets.

use proptest::prelude::*;
use serde_json::json;

use super::*;

struct Bench {
    core: PodCore,
    now: Instant,
}

impl Bench {
    fn new(policy: &str, inits: usize, mains: usize) -> Self {
        Self::with(policy, inits, mains, json!({}))
    }

    fn with(policy: &str, inits: usize, mains: usize, more: serde_json::Value) -> Self {
        let named = |kind: &str, count: usize| -> Vec<_> {
            (0..count).map(|index| json!({ "name": format!("{kind}{index}"), "command": ["true"] })).collect()
        };
        let mut spec = json!({
            "restartPolicy": policy,
            "initContainers": named("i", inits),
            "containers": named("m", mains),
        });
        more.as_object().unwrap().iter().for_each(|(name, value)| spec[name] = value.clone());
        let plan = PodPlan::read(json!({ "spec": spec }).to_string().as_bytes(), true).unwrap();
        let now = Instant::now();
        Self { core: PodCore::new(&plan, now), now }
    }

    fn acts(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.core.next(self.now)).collect()
    }

    fn exit(&mut self, index: usize, code: i32) -> Vec<Action> {
        self.core.exited(index, Exit::Code(code), self.now);
        self.acts()
    }

    fn pass(&mut self, seconds: u64) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        self.acts()
    }

    fn phase(&self) -> (PodPhase, bool, bool) {
        let status = self.core.status();
        (status.phase, status.ready, self.core.is_over())
    }

    fn reason(&self) -> String {
        self.core.status().reason
    }
}

#[tokio::test]
async fn a_pod_with_probes_has_a_message_that_they_are_not_run() {
    let probed = json!({ "name": "m0", "command": ["true"], "readinessProbe": { "exec": { "command": ["true"] } } });
    let mut bench = Bench::with("Always", 0, 1, json!({ "containers": [probed] }));
    bench.acts();
    let status = bench.core.status();
    assert_eq!((status.phase, status.ready, status.reason.as_str()), (PodPhase::Running, true, ""));
    assert!(status.message.ends_with("this node does not run spec.containers[0].readinessProbe"), "{}", status.message);
    bench.exit(0, 1);
    bench.exit(0, 1);
    assert_eq!(bench.reason(), "CrashLoopBackOff", "the crash is the more important reason");
}

#[tokio::test]
async fn the_phase_after_one_container_ended_follows_policy_and_exit_code() {
    let table = [
        ("Always", 0, PodPhase::Running, false),
        ("Always", 3, PodPhase::Running, false),
        ("OnFailure", 0, PodPhase::Succeeded, true),
        ("OnFailure", 3, PodPhase::Running, false),
        ("Never", 0, PodPhase::Succeeded, true),
        ("Never", 3, PodPhase::Failed, true),
    ];
    for (policy, code, phase, over) in table {
        let mut bench = Bench::new(policy, 0, 1);
        assert_eq!((bench.acts(), bench.phase()), (vec![Action::Start(0)], (PodPhase::Running, true, false)));
        bench.core.exited(0, Exit::Code(code), bench.now);
        assert_eq!(bench.phase(), (phase, false, over), "{policy} {code}");
        let again = if over { vec![] } else { vec![Action::Start(0)] };
        assert_eq!((bench.acts(), bench.core.status().restarts), (again, u32::from(!over)), "{policy} {code}");
    }
}

#[tokio::test]
async fn a_pod_succeeds_if_all_containers_do_and_fails_if_one_fails() {
    for (codes, phase) in [([0, 0], PodPhase::Succeeded), ([0, 1], PodPhase::Failed), ([1, 0], PodPhase::Failed)] {
        let mut bench = Bench::new("Never", 0, 2);
        assert_eq!(bench.acts(), [Action::Start(0), Action::Start(1)]);
        bench.exit(0, codes[0]);
        assert_eq!(bench.phase(), (PodPhase::Running, false, false));
        bench.exit(1, codes[1]);
        assert_eq!(bench.phase(), (phase, false, true), "{codes:?}");
    }
}

#[tokio::test]
async fn init_containers_run_one_after_the_other_before_the_rest() {
    let mut bench = Bench::new("Always", 2, 1);
    assert_eq!((bench.acts(), bench.phase().0), (vec![Action::Start(0)], PodPhase::Pending));
    assert_eq!(bench.reason(), "PodInitializing");
    assert_eq!(bench.exit(0, 0), [Action::Start(1)]);
    assert_eq!(bench.exit(1, 5), [Action::Start(1)], "a failed init container runs again");
    assert_eq!((bench.core.status().restarts, bench.phase().0), (1, PodPhase::Pending));
    assert_eq!((bench.exit(1, 0), bench.phase()), (vec![Action::Start(2)], (PodPhase::Running, true, false)));
    assert_eq!(bench.core.status().restarts, 0, "now the restarts of the main containers count");
}

#[tokio::test]
async fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let mut bench = Bench::new("Never", 1, 1);
    bench.acts();
    assert_eq!((bench.exit(0, 2), bench.phase()), (vec![], (PodPhase::Failed, false, true)));
    assert_eq!(bench.core.status().message, "container i0 ended with exit code 2");
}

#[tokio::test]
async fn crashes_back_off_and_ten_minutes_of_running_reset_it() {
    let mut bench = Bench::new("Always", 0, 1);
    bench.acts();
    assert_eq!(bench.exit(0, 1), [Action::Start(0)], "the first time at once");
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        assert_eq!(bench.exit(0, 1), []);
        assert_eq!((bench.reason().as_str(), bench.phase().0), ("CrashLoopBackOff", PodPhase::Running));
        assert_eq!(bench.core.deadline(), Some(bench.now + Duration::from_secs(pause)));
        assert_eq!((bench.pass(pause - 1), bench.pass(1)), (vec![], vec![Action::Start(0)]), "{pause}");
    }
    assert_eq!(bench.core.status().restarts, 8);
    bench.pass(599);
    assert_eq!(bench.exit(0, 0), [], "not quite");
    bench.pass(300);
    bench.pass(600);
    assert_eq!(bench.exit(0, 0), [Action::Start(0)]);
}

#[tokio::test]
async fn a_container_that_cannot_start_backs_off_like_a_crash() {
    let mut bench = Bench::new("OnFailure", 0, 1);
    bench.acts();
    let missing = || Exit::NotStarted("no such file".to_owned());
    bench.core.exited(0, missing(), bench.now);
    assert_eq!(bench.acts(), [Action::Start(0)]);
    bench.core.exited(0, missing(), bench.now);
    assert_eq!(bench.acts(), []);
    let status = bench.core.status();
    assert_eq!(status.message, "container m0 could not be started: no such file; it is started again after 10s");
}

#[tokio::test]
async fn stopping_asks_once_and_kills_when_the_grace_is_over() {
    let mut bench = Bench::new("Always", 0, 2);
    bench.acts();
    bench.core.stop(Duration::from_secs(30), bench.now);
    assert_eq!((bench.acts(), bench.acts()), (vec![Action::Terminate], vec![]));
    assert_eq!(bench.exit(0, 0), [], "nothing is started again");
    bench.core.stop(Duration::from_secs(60), bench.now);
    assert_eq!(bench.core.deadline(), Some(bench.now + Duration::from_secs(30)), "a longer grace does not count");
    bench.core.stop(Duration::from_secs(5), bench.now);
    assert_eq!((bench.pass(4), bench.pass(1)), (vec![], vec![Action::Kill]));
    assert_eq!(bench.pass(1), [Action::Kill], "until it is gone");
    bench.core.exited(1, Exit::Signal(9), bench.now);
    assert_eq!((bench.acts(), bench.phase()), (vec![], (PodPhase::Failed, false, true)));
    assert_eq!((bench.reason().as_str(), bench.core.deadline()), ("Killed", None));
}

#[tokio::test]
async fn the_phase_of_a_stopped_pod_follows_its_exit_code() {
    let table = [(Exit::Code(0), PodPhase::Succeeded, "Completed"), (Exit::Signal(15), PodPhase::Failed, "Error")];
    for (exit, phase, reason) in table {
        let mut bench = Bench::new("Always", 0, 1);
        bench.acts();
        bench.core.stop(Duration::from_secs(1), bench.now);
        bench.acts();
        bench.core.exited(0, exit, bench.now);
        assert_eq!((bench.phase(), bench.reason().as_str()), ((phase, false, true), reason));
    }
}

#[tokio::test]
async fn a_pod_stopped_during_back_off_ends_at_once() {
    let mut bench = Bench::new("Always", 0, 1);
    bench.acts();
    bench.exit(0, 1);
    bench.exit(0, 1);
    bench.core.stop(Duration::from_secs(30), bench.now);
    assert_eq!((bench.acts(), bench.phase()), (vec![], (PodPhase::Failed, false, true)));
}

#[tokio::test]
async fn a_pod_killed_before_it_started_has_ended() {
    let mut bench = Bench::new("Always", 1, 1);
    bench.core.stop(Duration::ZERO, bench.now);
    assert_eq!((bench.acts(), bench.phase()), (vec![], (PodPhase::Failed, false, true)));
    assert_eq!(bench.reason(), "Terminated");
}

#[tokio::test]
async fn an_active_deadline_ends_the_pod() {
    let more = json!({ "activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 5 });
    let mut bench = Bench::with("Always", 0, 1, more);
    bench.acts();
    assert_eq!(bench.core.deadline(), Some(bench.now + Duration::from_secs(60)));
    assert_eq!((bench.pass(59), bench.pass(1), bench.pass(5)), (vec![], vec![Action::Terminate], vec![Action::Kill]));
    assert_eq!((bench.exit(0, 0), bench.phase()), (vec![], (PodPhase::Failed, false, true)));
    assert_eq!(bench.reason(), "DeadlineExceeded");
}

proptest! {
    /// In any order of events: nothing starts after a stop, and an ended pod stays ended.
    #[test]
    fn an_end_is_final(
        policy in prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")],
        steps in prop::collection::vec((0..4_u8, 0..4_usize, 0..2_i32, 0..400_u64), 0..60),
    ) {
        let mut bench = Bench::new(policy, 1, 2);
        let (mut stopped, mut over) = (false, false);
        for (step, index, code, seconds) in steps {
            let acts = match step {
                0 | 1 => bench.exit(index, code),
                2 => bench.pass(seconds),
                _ => {
                    stopped = true;
                    bench.core.stop(Duration::from_secs(seconds), bench.now);
                    bench.acts()
                }
            };
            let started = acts.iter().any(|act| matches!(act, Action::Start(_)));
            prop_assert!(!(started && (stopped || over)));
            prop_assert!(!over || bench.core.is_over());
            over = bench.core.is_over();
            let phase = bench.core.status().phase;
            prop_assert_eq!(over, matches!(phase, PodPhase::Succeeded | PodPhase::Failed));
        }
    }
}
