//! Pods: ordered, run, reported, stopped and lost.

use std::time::Duration;

use bytes::Bytes;
use muster_node_agent::SessionFailure;
use muster_node_agent::simulated::{Behaviour, ConnectPace, NodeTarget, RunningPod, SimulatedFleet, SimulatedNode};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::pod_order::Action;
use muster_proto::v1::server_message::Message as Down;
use tokio::time::timeout;

use crate::replica::{Replica, SessionStream, TIMEOUT, welcome};
use crate::tls;

const BEAT_MS: u32 = 50;
const QUIET: Duration = Duration::from_millis(400);
const NODE: &str = "sim-0";

pub(crate) fn order(action: Action, uid: u128, grace_seconds: u32) -> v1::PodOrder {
    v1::PodOrder {
        action: action.into(),
        namespace: "default".into(),
        name: format!("pod-{uid}"),
        uid: wire(uid),
        manifest: Bytes::from_static(b"{}"),
        grace_seconds,
    }
}

pub(crate) fn orders(revision: u64, orders: Vec<v1::PodOrder>) -> Down {
    Down::Pods(v1::PodOrders { revision, orders, complete: true })
}

pub(crate) fn taken(sequence: u64) -> Down {
    Down::PodsTaken(v1::PodsTaken { sequence, refused: String::new() })
}

fn wire(uid: u128) -> Bytes {
    Bytes::copy_from_slice(&uid.to_be_bytes())
}

fn run(uid: u128) -> v1::PodOrder {
    order(Action::Run, uid, 0)
}

impl SessionStream {
    /// The next report on pods; beats are passed over and statuses taken.
    async fn pods(&mut self) -> v1::PodsReport {
        loop {
            match self.receive().await {
                Some(Up::Pods(report)) => return report,
                Some(Up::Beat(_)) => {}
                Some(Up::Status(report)) => {
                    let taken = v1::StatusTaken { sequence: report.sequence, ..v1::StatusTaken::default() };
                    self.send(Down::StatusTaken(taken)).await;
                }
                other => panic!("pods were due, not {other:?}"),
            }
        }
    }

    /// Takes reports until one of them has the wanted state of a pod, and returns that state.
    async fn hear_of(&mut self, uid: u128, wanted: impl Fn(&v1::PodState) -> bool) -> v1::PodState {
        loop {
            let report = self.pods().await;
            self.send(taken(report.sequence)).await;
            if let Some(pod) = report.pods.into_iter().find(|pod| pod.uid == wire(uid) && wanted(pod)) {
                return pod;
            }
        }
    }
}

/// One simulated node that was welcomed by the replica and whose status was taken.
async fn attached(replica: &mut Replica) -> (SimulatedFleet, SessionStream) {
    let (name, region, zone) = (NODE.to_owned(), "eu".to_owned(), "a".to_owned());
    let node = SimulatedNode { name, region, zone, tls: tls::client("sim") };
    let fleet = SimulatedFleet::start(vec![node], &[replica.endpoint()], ConnectPace::default()).unwrap();
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.take_status().await;
    (fleet, session)
}

fn play(fleet: &SimulatedFleet, behaviour: Behaviour) {
    fleet.apply(behaviour, &NodeTarget::Node(NODE.into())).unwrap();
}

fn running(fleet: &SimulatedFleet) -> Vec<RunningPod> {
    fleet.status().remove(0).pods
}

#[tokio::test]
async fn a_pod_is_run_reported_stopped_and_reported_again() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    session.send(orders(3, vec![run(7), run(8)])).await;
    let pod = session.hear_of(7, |pod| pod.phase == "Running").await;
    assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.ready, pod.stopped), ("default", "pod-7", true, false));
    let running_pod = running(&fleet).remove(0);
    assert_eq!((running_pod.uid.as_str(), running_pod.stopping), ("00000000-0000-0000-0000-000000000007", false));

    session.send(orders(4, vec![order(Action::Stop, 7, 30)])).await;
    let report = loop {
        let report = session.pods().await;
        if report.pods.iter().any(|pod| pod.stopped) {
            break report;
        }
    };
    let again = session.pods().await;
    assert!(
        again.sequence > report.sequence && again.pods.iter().any(|pod| pod.stopped),
        "it was not taken: {again:?}"
    );
    session.send(taken(again.sequence)).await;
    session.send(Down::StatusWanted(v1::StatusWanted { revision: 9 })).await;
    let report = session.pods().await;
    let known: Vec<_> = report.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!((known, running(&fleet).len()), (vec!["pod-8"], 1));
    assert_eq!(session.status().await.running, Some(v1::Running { uids: vec![wire(8)] }));
}

#[tokio::test]
async fn after_a_power_loss_orders_are_given_again_and_pods_start_again() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    session.send(orders(3, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;

    play(&fleet, Behaviour::Kill);
    assert_eq!(running(&fleet), []);
    timeout(TIMEOUT, session.ended()).await.expect("the connection must close");
    play(&fleet, Behaviour::Resume);
    let (mut session, hello) = replica.session().await;
    assert_eq!(hello.orders_revision, 3);
    session.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
    assert_eq!(session.take_status().await.running, Some(v1::Running::default()));
    session.send(orders(3, vec![run(7)])).await;
    assert!(!session.hear_of(7, |pod| pod.phase == "Running").await.stopped);
    assert_eq!(running(&fleet).len(), 1);
}

#[tokio::test]
async fn a_machine_killed_and_resumed_at_once_has_lost_its_pods_too() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    session.send(orders(3, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;
    play(&fleet, Behaviour::Kill);
    play(&fleet, Behaviour::Resume);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    assert_eq!(session.take_status().await.running, Some(v1::Running::default()));
}

#[tokio::test]
async fn a_removed_node_registers_only_when_its_pods_have_stopped() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    play(&fleet, Behaviour::Stuck);
    session.send(orders(3, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;
    session.send(Down::Removed(v1::Removed { incarnation: 1, revision: 4 })).await;
    let heard = session.hear_for(QUIET).await.expect("the stream stays");
    assert!(!heard.iter().any(|message| matches!(message, Up::Register(_))), "{heard:?}");
    assert!(running(&fleet)[0].stopping);

    play(&fleet, Behaviour::Resume);
    assert_eq!(session.registration().await.running, Some(v1::Running::default()));
    assert_eq!(running(&fleet), []);
}

#[tokio::test]
async fn pods_of_a_hung_machine_run_on_and_all_are_reported_when_it_is_back() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    session.send(orders(3, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;
    play(&fleet, Behaviour::Silence);
    session.send(orders(4, vec![order(Action::Stop, 7, 0)])).await;
    session.hear_for(QUIET).await.expect("the connection stays");
    assert_eq!(running(&fleet).len(), 1, "it does not hear");
    play(&fleet, Behaviour::Resume);
    session.hear_of(7, |pod| pod.stopped).await;
    assert_eq!(running(&fleet), []);
}

#[tokio::test]
async fn a_stuck_pod_is_not_reported_as_stopped_before_it_has_stopped() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    play(&fleet, Behaviour::Stuck);
    session.send(orders(3, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;
    session.send(orders(4, vec![order(Action::Stop, 7, 0)])).await;
    let heard = session.hear_for(QUIET).await.unwrap();
    let stops = |message: &Up| matches!(message, Up::Pods(report) if report.pods.iter().any(|pod| pod.stopped));
    assert!(heard.len() > 2 && !heard.iter().any(stops), "it beats: {heard:?}");
    play(&fleet, Behaviour::Resume);
    session.hear_of(7, |pod| pod.stopped).await;
}

#[tokio::test]
async fn a_slow_pod_is_pending_then_running_and_killed_when_its_grace_is_over() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    play(&fleet, Behaviour::Slow);
    session.send(orders(3, vec![run(7)])).await;
    assert!(!session.hear_of(7, |pod| pod.phase == "Pending").await.ready);
    assert!(session.hear_of(7, |pod| pod.phase == "Running").await.ready);
    session.send(orders(4, vec![order(Action::Stop, 7, 1)])).await;
    assert_eq!(session.hear_of(7, |pod| pod.stopped).await.reason, "Killed", "to end by itself takes it longer");
}

#[tokio::test]
async fn a_replica_that_lags_behind_is_left_and_asked_again() {
    let mut replica = Replica::start().await;
    let (fleet, mut session) = attached(&mut replica).await;
    session.send(orders(5, vec![run(7)])).await;
    session.hear_of(7, |pod| pod.phase == "Running").await;
    drop(session);
    let session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.send(orders(4, vec![])).await;
    timeout(TIMEOUT, session.ended()).await.expect("it is left");
    let (_again, hello) = replica.session().await;
    assert_eq!((hello.orders_revision, running(&fleet).len()), (5, 1), "nothing was stopped");
    let last_error = fleet.events(NODE).unwrap().borrow().last_error.clone();
    assert_eq!(last_error, Some(SessionFailure::StaleOrders { node: NODE.into() }));
}
