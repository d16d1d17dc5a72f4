//! Tests of a node's pods with a clock that the test sets, and a runtime that records its calls.

use std::sync::Mutex;

use bytes::Bytes;
use muster_proto::v1::pod_order::Action;

use super::super::{PodInbox, PodToStart, RecalledNotes};
use super::*;

const A: PodUid = PodUid(0xa);
const B: PodUid = PodUid(0xb);
const GRACE: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Start(PodUid),
    Stop(PodUid, Duration),
    Kill(PodUid),
}

#[derive(Default)]
struct Notes(Mutex<Vec<Told>>, Mutex<Vec<DurableNote>>, RecalledNotes);

impl Notes {
    fn add(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }

    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Runtime for Notes {
    fn report_to(&self, _news: PodUpdateSender) {}

    fn start(&self, pod: PodToStart) {
        self.add(Told::Start(pod.uid));
    }

    fn stop(&self, uid: PodUid, grace: Duration) {
        self.add(Told::Stop(uid, grace));
    }

    fn kill(&self, uid: PodUid) {
        self.add(Told::Kill(uid));
    }

    fn name_of(&self, uid: PodUid) -> Option<PodName> {
        let v1::PodOrder { namespace, name, .. } = run(uid);
        Some(PodName { namespace, name })
    }

    fn recall(&self) -> RecalledNotes {
        self.2.clone()
    }

    fn note(&self, note: DurableNote) {
        self.1.lock().unwrap().push(note);
    }
}

struct Bench {
    pods: NodePods,
    runtime: Arc<Notes>,
    now: Instant,
    sequence: u64,
}

impl Bench {
    fn new() -> Self {
        let (runtime, now) = (Arc::new(Notes::default()), Instant::now());
        let updates = Arc::new(PodInbox::default()).sender(0);
        let mut pods = NodePods::new(Some(Arc::clone(&runtime) as _), updates, now);
        pods.begin_stream();
        Self { pods, runtime, now, sequence: 0 }
    }

    /// With this pod running, reported and accepted.
    fn running(uid: PodUid) -> Self {
        let mut bench = Self::new();
        bench.order(1, vec![run(uid)], true);
        bench.update(uid, LocalPodStatus::ready(), false);
        bench.report_and_take();
        bench.runtime.take();
        bench
    }

    fn order(&mut self, revision: u64, orders: Vec<v1::PodOrder>, complete: bool) {
        self.pods.apply_orders(v1::PodOrders { revision, orders, complete }, self.now).unwrap();
    }

    fn update(&mut self, uid: PodUid, status: LocalPodStatus, stopped: bool) {
        let pods = [(uid, PodUpdate { uid, status, stopped })].into();
        self.pods.take_updates(PodUpdates { lost: false, pods }, self.now);
    }

    fn ends(&mut self, uid: PodUid, phase: PodPhase) {
        self.update(uid, LocalPodStatus::new(phase, "Completed", ""), true);
    }

    /// The pods of the next report, in order of uid: phase, and whether it has stopped.
    fn report(&mut self) -> Vec<(PodUid, String, bool)> {
        self.sequence += 1;
        let report = self.pods.report(self.sequence, self.now, &SessionTerms::default());
        let pods = report.into_iter().flat_map(|report| report.pods);
        let mut said: Vec<_> = pods.map(|pod| (PodUid::from_wire(&pod.uid).unwrap(), pod.phase, pod.stopped)).collect();
        said.sort();
        said
    }

    fn report_and_take(&mut self) -> bool {
        self.report();
        self.pods.taken(self.sequence)
    }

    fn runs(&self) -> Vec<PodUid> {
        self.pods.running().uids.iter().map(|uid| PodUid::from_wire(uid).unwrap()).collect()
    }
}

fn order(action: Action, uid: PodUid) -> v1::PodOrder {
    v1::PodOrder {
        action: action.into(),
        namespace: "default".into(),
        name: format!("pod-{:x}", uid.0),
        uid: uid.to_wire(),
        manifest: Bytes::from_static(br#"{"spec":{"terminationGracePeriodSeconds":5}}"#),
        grace_seconds: GRACE,
    }
}

fn run(uid: PodUid) -> v1::PodOrder {
    order(Action::Run, uid)
}

fn stop(uid: PodUid) -> v1::PodOrder {
    order(Action::Stop, uid)
}

fn forget(uid: PodUid) -> v1::PodOrder {
    order(Action::Forget, uid)
}

fn reported(uid: PodUid, phase: &str, stopped: bool) -> (PodUid, String, bool) {
    (uid, phase.to_owned(), stopped)
}

#[tokio::test]
async fn a_pod_is_started_once_and_reported_until_it_has_stopped() {
    let mut bench = Bench::new();
    bench.order(1, vec![run(A)], true);
    bench.order(2, vec![run(A)], true);
    assert_eq!(bench.runtime.take(), [Told::Start(A)]);
    assert_eq!(bench.report(), [reported(A, "Pending", false)]);
    bench.update(A, LocalPodStatus::ready(), false);
    assert!(!bench.pods.taken(bench.sequence));
    assert_eq!(bench.report(), [reported(A, "Running", false)]);
    assert!(!bench.pods.taken(bench.sequence) && bench.pods.report_due().is_none());

    bench.order(3, vec![stop(A)], true);
    assert_eq!(bench.runtime.take(), [Told::Stop(A, Duration::from_secs(GRACE.into()))]);
    assert_eq!((bench.runs(), bench.pods.report_due()), (vec![A], None), "it has not stopped yet");
    bench.ends(A, PodPhase::Succeeded);
    assert!(bench.pods.is_idle());
    assert_eq!(bench.report(), [reported(A, "Succeeded", true)]);
    assert!(bench.pods.taken(bench.sequence), "a stop was confirmed");
    assert_eq!((bench.pods.report_due(), bench.pods.pods.len()), (None, 0));
}

/// Another pod of the same name as A.
fn successor(action: Action, uid: PodUid) -> v1::PodOrder {
    v1::PodOrder { name: run(A).name, ..order(action, uid) }
}

#[tokio::test]
async fn no_two_pods_run_under_one_name() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![stop(A), successor(Action::Run, B)], true);
    bench.order(3, vec![successor(Action::Run, B)], true);
    let stopped = Told::Stop(A, Duration::from_secs(GRACE.into()));
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![stopped], vec![A]));
    assert_eq!(bench.report(), [reported(B, "Pending", false)]);
    assert_eq!(bench.pods.snapshot()[1].reason, "NameInUse");
    bench.ends(A, PodPhase::Succeeded);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Start(B)], vec![B]));
    assert_eq!(bench.report(), [reported(A, "Succeeded", true), reported(B, "Pending", false)]);
    bench.update(B, LocalPodStatus::ready(), false);
    bench.order(4, vec![run(A)], true);
    assert_eq!(bench.runtime.take(), [], "the former has ended for good");
}

/// The old pod was forgotten, or left by an earlier process of the agent: it still has its name.
#[tokio::test]
async fn a_pod_that_is_no_longer_wanted_keeps_its_name_until_it_ends() {
    let mut forgotten = Bench::running(A);
    forgotten.order(2, vec![forget(A), successor(Action::Run, B)], true);
    let mut found = Bench::new();
    found.update(A, LocalPodStatus::ready(), false);
    found.order(1, vec![successor(Action::Run, B)], true);
    for mut bench in [forgotten, found] {
        assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Kill(A)], vec![A]));
        bench.ends(A, PodPhase::Failed);
        assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Start(B)], vec![B]));
    }
}

#[tokio::test]
async fn one_pod_that_waits_for_a_name_gets_it_and_pods_told_to_stop_do_not() {
    let mut bench = Bench::running(A);
    let (c, d) = (PodUid(0xc), PodUid(0xd));
    let waiting = [B, c, d].map(|uid| successor(Action::Run, uid));
    bench.order(2, [vec![stop(A)], waiting.to_vec()].concat(), true);
    bench.order(3, vec![successor(Action::Stop, B)], true);
    bench.report_and_take();
    bench.runtime.take();
    bench.ends(A, PodPhase::Succeeded);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Start(c)], vec![c]));
    bench.order(4, vec![successor(Action::Forget, c), successor(Action::Run, d)], true);
    bench.ends(c, PodPhase::Failed);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Kill(c), Told::Start(d)], vec![d]));
}

#[tokio::test]
async fn an_ended_pod_is_never_started_again() {
    let mut bench = Bench::running(A);
    bench.ends(A, PodPhase::Succeeded);
    bench.order(2, vec![run(A)], true);
    assert_eq!(bench.report(), [reported(A, "Succeeded", true)], "before it was taken");
    bench.pods.taken(bench.sequence);
    bench.order(3, vec![run(A)], true);
    assert_eq!(bench.report(), [reported(A, "Succeeded", true)], "and after");
    bench.pods.taken(bench.sequence);
    bench.order(4, vec![stop(A)], true);
    assert_eq!(bench.report(), [reported(A, "Succeeded", true)]);
    bench.update(A, LocalPodStatus::ready(), false);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![], vec![]));
}

#[tokio::test]
async fn an_order_to_run_does_not_save_a_stopping_pod() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![stop(A)], true);
    bench.order(3, vec![run(A)], true);
    bench.ends(A, PodPhase::Running);
    assert_eq!(bench.report(), [reported(A, "Failed", true)], "what has stopped does not run");
    assert_eq!(bench.runtime.take().len(), 1);
}

#[tokio::test]
async fn a_pod_that_never_ran_here_has_stopped_at_once() {
    let mut bench = Bench::new();
    bench.order(1, vec![stop(A)], true);
    assert_eq!(bench.report(), [reported(A, "Failed", true)]);
    assert!(bench.pods.taken(bench.sequence));
    bench.order(2, vec![run(A)], true);
    assert_eq!((bench.report(), bench.runtime.take()), (vec![reported(A, "Failed", true)], vec![]));
}

#[tokio::test]
async fn a_pod_ordered_to_be_forgotten_is_killed_and_counts_as_running_until_it_stopped() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![forget(A), forget(B)], true);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![Told::Kill(A)], vec![A]));
    bench.update(A, LocalPodStatus::new(PodPhase::Running, "Terminating", ""), false);
    bench.ends(A, PodPhase::Failed);
    assert_eq!((bench.runs(), bench.pods.report_due()), (vec![], None), "it is not reported");
}

#[tokio::test]
async fn orders_of_a_lagging_replica_are_ignored() {
    let mut bench = Bench::running(A);
    bench.order(7, vec![run(B)], true);
    bench.order(6, vec![], true);
    assert_eq!(bench.pods.orders_revision(), 7, "of one stream every order counts");
    bench.pods.begin_stream();
    bench.runtime.take();
    let stale = v1::PodOrders { revision: 6, orders: vec![forget(A)], complete: true };
    assert_eq!(bench.pods.apply_orders(stale, bench.now), Err(StaleOrders));
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![], vec![A, B]));
    bench.order(7, vec![run(A), run(B)], true);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![], vec![A, B]));
}

#[tokio::test]
async fn after_complete_orders_every_other_pod_stops() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![run(B)], true);
    bench.runtime.take();
    bench.pods.begin_stream();
    bench.order(3, vec![], false);
    assert_eq!(bench.runtime.take(), [], "not before everything was said");
    bench.order(3, vec![run(B)], true);
    assert_eq!(bench.runtime.take(), [Told::Kill(A)]);
    assert_eq!(bench.report(), [reported(B, "Pending", false)]);
    bench.ends(A, PodPhase::Failed);
    bench.pods.taken(bench.sequence);
    assert_eq!(bench.pods.report_due(), None, "the other pod was not ordered");
}

#[tokio::test]
async fn a_pod_found_running_is_kept_until_the_orders_are_complete() {
    let mut bench = Bench::new();
    bench.update(A, LocalPodStatus::ready(), false);
    bench.update(B, LocalPodStatus::ready(), false);
    assert_eq!((bench.runs(), bench.pods.report_due()), (vec![A, B], None));
    bench.order(1, vec![run(A)], true);
    assert_eq!(bench.runtime.take(), [Told::Kill(B)], "it runs already");
    assert_eq!(bench.report(), [reported(A, "Running", false)]);
    let late = PodUid(0xc);
    bench.update(late, LocalPodStatus::ready(), false);
    assert_eq!(bench.runtime.take(), [Told::Kill(late)]);
}

#[tokio::test]
async fn a_pod_that_does_not_end_within_its_grace_is_killed_once() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![stop(A)], true);
    let due = bench.now + Duration::from_secs(GRACE.into());
    assert_eq!(bench.pods.deadline(), Some(due));
    bench.runtime.take();
    bench.pods.turn(bench.now);
    assert_eq!(bench.runtime.take(), []);
    bench.pods.turn(due);
    assert_eq!((bench.runtime.take(), bench.pods.deadline()), (vec![Told::Kill(A)], None));
    bench.now = due;
    bench.order(3, vec![stop(A)], true);
    assert_eq!((bench.runtime.take(), bench.runs()), (vec![], vec![A]));
}

#[tokio::test]
async fn a_shorter_grace_counts_and_a_longer_does_not() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![stop(A)], true);
    bench.order(3, vec![v1::PodOrder { grace_seconds: 60, ..stop(A) }], true);
    bench.order(4, vec![v1::PodOrder { grace_seconds: 1, ..stop(A) }], true);
    let stops = [GRACE, 1].map(|grace| Told::Stop(A, Duration::from_secs(grace.into())));
    assert_eq!(bench.runtime.take(), stops);
    bench.order(5, vec![v1::PodOrder { grace_seconds: 0, ..stop(A) }], true);
    assert_eq!((bench.runtime.take(), bench.pods.deadline()), (vec![Told::Kill(A)], None));
}

#[tokio::test]
async fn a_new_stream_gets_a_report_of_all_pods() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![run(B)], true);
    bench.report();
    assert!(bench.pods.report_due() > Some(bench.now), "it waits for an answer");
    bench.pods.begin_stream();
    assert!(bench.pods.report_due() <= Some(bench.now));
    assert_eq!(bench.report(), [reported(A, "Running", false), reported(B, "Pending", false)]);
}

#[tokio::test]
async fn an_unchanged_state_is_not_reported_again() {
    let mut bench = Bench::running(A);
    bench.update(A, LocalPodStatus::ready(), false);
    assert_eq!(bench.pods.report_due(), None);
    bench.update(A, LocalPodStatus { restarts: 1, ..LocalPodStatus::ready() }, false);
    assert_eq!(bench.report(), [reported(A, "Running", false)]);
}

#[tokio::test]
async fn a_former_incarnation_ends_with_each_pods_grace_and_is_not_reported() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![v1::PodOrder { manifest: Bytes::new(), ..run(B) }], true);
    bench.runtime.take();
    bench.pods.end_incarnation(bench.now);
    let stops = [(A, Duration::from_secs(5)), (B, LAST_GRACE_MAX)].map(|(uid, grace)| Told::Stop(uid, grace));
    assert_eq!((bench.runtime.take(), bench.pods.report_due()), (stops.to_vec(), None));
    bench.pods.end_incarnation(bench.now);
    bench.ends(A, PodPhase::Succeeded);
    assert!(!bench.pods.is_idle());
    bench.pods.turn(bench.now + LAST_GRACE_MAX);
    assert_eq!(bench.runtime.take(), [Told::Kill(B)]);
    bench.ends(B, PodPhase::Failed);
    assert!(bench.pods.is_idle() && bench.pods.report_due().is_none());
}

#[tokio::test]
async fn a_pod_lost_without_an_end_starts_again() {
    let mut bench = Bench::running(A);
    bench.order(2, vec![run(B), stop(B)], true);
    let fate = bench.pods.take_updates(PodUpdates { lost: true, ..PodUpdates::default() }, bench.now);
    assert_eq!((fate, bench.runs(), bench.pods.report_due()), (PodsFate::Lost, vec![], None));
    bench.runtime.take();
    bench.pods.begin_stream();
    bench.order(2, vec![run(A), stop(B)], true);
    assert_eq!(bench.runtime.take(), [Told::Start(A)]);
    assert_eq!(bench.report(), [reported(A, "Pending", false), reported(B, "Failed", true)]);
}

#[tokio::test]
async fn a_machine_without_a_runtime_keeps_pods_pending() {
    let now = Instant::now();
    let mut pods = NodePods::new(None, Arc::new(PodInbox::default()).sender(0), now);
    pods.apply_orders(v1::PodOrders { revision: 1, orders: vec![run(A)], complete: true }, now).unwrap();
    let report = pods.report(1, now, &SessionTerms::default()).unwrap();
    assert_eq!((report.pods[0].phase.as_str(), report.pods[0].reason.as_str()), ("Pending", "NoRuntime"));
    assert!(pods.is_idle());
    pods.apply_orders(v1::PodOrders { revision: 2, orders: vec![stop(A)], complete: true }, now).unwrap();
    pods.taken(1);
    assert!(pods.report(2, now, &SessionTerms::default()).unwrap().pods[0].stopped);
}

#[tokio::test]
async fn pods_are_bounded_and_so_are_reports() {
    let mut bench = Bench::new();
    let pods = |count: usize| (1..=count as u128).map(|uid| run(PodUid(uid))).collect();
    bench.order(1, pods(PODS_MAX + 1), true);
    assert_eq!(bench.runtime.take().len(), PODS_MAX);
    for uid in 1..=PODS_MAX as u128 {
        bench.update(PodUid(uid), LocalPodStatus::new(PodPhase::Running, &"r".repeat(9999), &"m".repeat(9999)), false);
    }
    let said = bench.report().len();
    assert!(said > 100 && said < 256, "{said} long ones fit");
}

/// The pods as the next process of an agent with these notes sees them.
fn recalling(recollection: RecalledNotes) -> (NodePods, Arc<Notes>, Instant) {
    let (runtime, now) = (Arc::new(Notes(Mutex::default(), Mutex::default(), recollection)), Instant::now());
    let updates = Arc::new(PodInbox::default()).sender(0);
    (NodePods::new(Some(Arc::clone(&runtime) as _), updates, now), runtime, now)
}

#[tokio::test]
async fn ended_pods_and_orders_are_recorded_when_they_happen() {
    let mut bench = Bench::running(A);
    assert!(bench.pods.belongs_to("f"));
    bench.order(7, vec![], false);
    bench.order(7, vec![run(A)], false);
    bench.ends(A, PodPhase::Succeeded);
    let notes = bench.runtime.1.lock().unwrap().clone();
    let ended = DurableNote::Ended { uid: A, status: LocalPodStatus::new(PodPhase::Succeeded, "Completed", "") };
    assert_eq!(notes[1..], [DurableNote::Orders { fleet: "f".to_owned(), revision: 7 }, ended]);
}

#[tokio::test]
async fn a_restart_neither_runs_ended_pods_again_nor_follows_older_orders() {
    let ended = vec![(A, LocalPodStatus::new(PodPhase::Succeeded, "Completed", ""))];
    let (mut pods, runtime, now) = recalling(RecalledNotes { fleet: "f".to_owned(), revision: 7, ended });
    assert_eq!(pods.orders_revision(), 7);
    assert!(pods.belongs_to("f"));
    pods.begin_stream();
    let orders = |revision| v1::PodOrders { revision, orders: vec![run(A), run(B)], complete: true };
    assert_eq!(pods.apply_orders(orders(6), now), Err(StaleOrders));
    assert_eq!(pods.apply_orders(orders(7), now), Ok(()));
    assert_eq!(runtime.take(), [Told::Start(B)]);
    let report = pods.report(1, now, &SessionTerms::default()).unwrap();
    let said: Vec<_> = report.pods.iter().map(|pod| (pod.phase.as_str(), pod.stopped)).collect();
    assert_eq!(said, [("Succeeded", true), ("Pending", false)]);
}

#[tokio::test]
async fn revisions_of_another_fleet_are_discarded() {
    let (mut pods, _, now) = recalling(RecalledNotes { fleet: "old".to_owned(), revision: 7, ended: vec![] });
    assert!(!pods.belongs_to("new"), "it was greeted with a number that means nothing to it");
    assert_eq!(pods.orders_revision(), 0);
    assert!(pods.belongs_to("new"));
    pods.begin_stream();
    assert_eq!(pods.apply_orders(v1::PodOrders { revision: 1, orders: vec![], complete: true }, now), Ok(()));
}
