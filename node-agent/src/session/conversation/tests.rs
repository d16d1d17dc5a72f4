//! The conversation under a clock that the test turns.

use bytes::Bytes;
use muster_proto::v1::pod_order::Action;

use super::*;
use crate::pods::Inbox;
use crate::simulated::SimulatedMachine;

const DOOR: &str = "a:1";

struct Still;

impl Machine for Still {
    fn node_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }

    fn status_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }
}

/// One whose fleet knows what its machine is.
fn conversation() -> Conversation {
    let mut node = with_pods(Arc::new(Still), Instant::now()).0;
    node.introduction.known();
    node
}

/// With the inbox that news of pods arrive in.
fn with_pods(machine: Arc<dyn Machine>, now: Instant) -> (Conversation, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::default());
    let pods = Workload::new(machine.runtime(), inbox.news(0), now);
    (Conversation::new("rack-1".into(), 1, "test".into(), machine, pods, || 0.0, now), inbox)
}

fn down(message: Down) -> v1::ServerMessage {
    v1::ServerMessage { message: Some(message) }
}

fn welcome(incarnation: u64) -> v1::ServerMessage {
    let terms = Some(v1::Terms { revision: 1, beat_interval_ms: 1000, grace_ms: 4000, backoff_cap_ms: 400 });
    let fleet = "fleet-1".to_owned();
    down(Down::Welcome(v1::Welcome { fleet, replica: 1, incarnation, terms, ..v1::Welcome::default() }))
}

fn said(turn: Turn) -> Up {
    match turn {
        Turn::Say(message) => message.message.unwrap(),
        Turn::Leave(_) | Turn::Nothing => panic!("something was due, not {turn:?}"),
    }
}

#[tokio::test]
async fn whatever_is_said_counts_as_a_beat() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(_)));
    let later = now + Duration::from_millis(600);
    assert!(matches!(said(node.turn(DOOR, later)), Up::Status(_)));
    assert_eq!(node.turn(DOOR, now + Duration::from_secs(1)), Turn::Nothing);
    assert_eq!(node.deadline(), later + Duration::from_secs(1));
}

#[tokio::test]
async fn shorter_terms_take_effect_at_once() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    node.turn(DOOR, now);
    let terms = v1::Terms { revision: 2, beat_interval_ms: 100, grace_ms: 400, backoff_cap_ms: 0 };
    node.heard(down(Down::Terms(terms)), DOOR, now);
    assert_eq!(node.next_beat, now + Duration::from_millis(100));
}

/// The beats until `until`, with the time of each and whether it asked; nothing is answered.
fn beats_until(node: &mut Conversation, until: Instant) -> Vec<(Instant, bool)> {
    let mut beats = Vec::new();
    while node.deadline() < until {
        let now = node.deadline();
        if let Turn::Say(v1::AgentMessage { message: Some(Up::Beat(beat)) }) = node.turn(DOOR, now) {
            beats.push((now, beat.acknowledge));
        }
    }
    beats
}

#[tokio::test]
async fn a_silent_replica_is_asked_and_doubted_but_beaten_to_all_the_same() {
    let (mut node, now) = (conversation(), Instant::now());
    let second = |number| now + Duration::from_secs(number);
    assert_eq!(node.doubt_at(), None, "nobody is there to be doubted");
    node.heard(welcome(1), DOOR, now);
    // The status is posted after the first beat and is the last sign of life; its answer never comes.
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(v1::Beat { acknowledge: false, .. })));
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
    assert_eq!(beats_until(&mut node, second(3)), [(second(1), true), (second(2), true)]);
    assert_eq!((node.doubt_at(), node.is_doubtful()), (Some(second(2)), false));

    let doubt = node.doubt(DOOR, second(2));
    assert_eq!(doubt, Some(Failure::Silent { door: DOOR.into(), silence: Duration::from_secs(2) }));
    assert!(node.is_doubtful() && node.doubt_at().is_none());
    assert_eq!(beats_until(&mut node, second(5)), [(second(3), true), (second(4), true)]);
    assert_eq!(node.replica(), Some(1), "it stays");

    let acknowledged = v1::Acknowledged { sequence: 6 };
    assert_eq!(node.heard(down(Down::Acknowledged(acknowledged)), DOOR, second(4)), Reaction::Stay);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(second(6))));
}

#[tokio::test]
async fn a_status_that_is_posted_again_and_again_does_not_keep_a_silent_replica_from_being_asked() {
    let (mut node, now) = (conversation(), Instant::now());
    node.dice = || 1.0;
    node.heard(welcome(1), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(_)));
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
    let again = node.deadline();
    assert!(matches!(said(node.turn(DOOR, again)), Up::Status(_)), "it was not answered");
    let asked = beats_until(&mut node, again + Duration::from_secs(1));
    assert!(asked.first().is_some_and(|(_, asks)| *asks), "{asked:?}");
}

#[tokio::test]
async fn another_replica_begins_without_doubt() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    let later = now + Duration::from_secs(2);
    beats_until(&mut node, later);
    assert!(node.doubt(DOOR, later).is_some());
    node.detached();
    assert!(!node.is_doubtful());
    node.heard(welcome(1), "b:1", later);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(later + Duration::from_secs(2))));
}

#[tokio::test]
async fn a_replica_that_does_not_answer_a_registration_is_left() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(down(Down::RegistrationWanted(v1::RegistrationWanted::default())), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Register(_)));
    assert_eq!((node.deadline(), node.turn(DOOR, now)), (now + REGISTRATION_PATIENCE, Turn::Nothing));
    assert!(matches!(node.turn(DOOR, now + REGISTRATION_PATIENCE), Turn::Leave(Failure::Late { .. })));
}

/// One that was welcomed, has beaten and posted its status.
fn welcomed(now: Instant) -> Conversation {
    let mut node = with_pods(Arc::new(Still), now).0;
    node.heard(welcome(1), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Beat(_)));
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
    node
}

#[tokio::test]
async fn rg_4_a_welcomed_node_says_what_its_machine_is_and_again_only_if_it_was_not_taken() {
    let now = Instant::now();
    let registered = |refused: &str| down(Down::Registered(v1::Registered { refused: refused.into() }));
    let mut node = welcomed(now);
    let Up::Register(register) = said(node.turn(DOOR, now)) else { panic!("an introduction was due") };
    assert_eq!((register.node, register.running), (Bytes::from_static(b"{}"), None));
    assert_eq!(node.turn(DOOR, now), Turn::Nothing);
    let refused = node.heard(registered("metadata.labels: no"), DOOR, now);
    assert!(matches!(refused, Reaction::Complain(Failure::RegistrationRefused { .. })), "{refused:?}");
    let again = node.introduction.due().expect("it is said again");
    assert!(again > now);
    assert_eq!(node.heard(registered(""), DOOR, now), Reaction::Stay);
    assert_eq!(node.introduction.due(), None);
}

#[tokio::test]
async fn rg_4_what_else_tells_the_fleet_what_the_machine_is() {
    let now = Instant::now();
    let mut asked = with_pods(Arc::new(Still), now).0;
    asked.heard(down(Down::RegistrationWanted(v1::RegistrationWanted::default())), DOOR, now);
    assert!(matches!(said(asked.turn(DOOR, now)), Up::Register(_)));
    asked.heard(welcome(1), DOOR, now);
    assert_eq!(asked.introduction.due(), None, "it has registered");

    let mut node = welcomed(now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Register(_)));
    node.heard(welcome(1), DOOR, now);
    assert_eq!(node.introduction.due(), None, "a replica of an earlier version answers with another welcome");
    assert_eq!(node.turn(DOOR, now), Turn::Nothing, "which begins nothing anew");
}

#[tokio::test]
async fn a_welcome_as_another_incarnation_ends_the_former_life() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), DOOR, now);
    node.heard(welcome(1), DOOR, now);
    assert_eq!(node.removals(), 0);
    node.heard(welcome(2), DOOR, now);
    assert_eq!((node.removals(), node.incarnation()), (1, 2));
}

#[tokio::test]
async fn a_stream_begins_with_a_welcome_or_a_request_to_register() {
    let node = conversation();
    assert_eq!(node.accepts(&welcome(1), DOOR), Ok(()));
    let moved = node.accepts(&down(Down::Move(v1::Move::default())), DOOR).unwrap_err();
    assert!(moved.to_string().contains("Move"), "{moved}");
    assert!(node.accepts(&v1::ServerMessage::default(), DOOR).is_err());
}

fn orders(revision: u64, orders: impl IntoIterator<Item = (Action, u128)>) -> v1::ServerMessage {
    let order = |(action, uid): (Action, u128)| v1::PodOrder {
        action: action.into(),
        namespace: "default".into(),
        name: format!("pod-{uid}"),
        uid: Bytes::copy_from_slice(&uid.to_be_bytes()),
        grace_seconds: 5,
        ..v1::PodOrder::default()
    };
    let orders = orders.into_iter().map(order).collect();
    down(Down::Pods(v1::PodOrders { revision, orders, complete: true }))
}

fn take_news(node: &mut Conversation, inbox: &Inbox, now: Instant) {
    inbox.take().into_values().for_each(|news| {
        node.pods_news(news, now);
    });
}

/// A node that was welcomed, beat, posted its status and runs one pod.
fn with_one_pod(machine: &Arc<SimulatedMachine>, now: Instant) -> (Conversation, Arc<Inbox>) {
    let (mut node, inbox) = with_pods(Arc::clone(machine) as _, now);
    node.introduction.known();
    node.heard(welcome(1), DOOR, now);
    said(node.turn(DOOR, now));
    let Up::Status(status) = said(node.turn(DOOR, now)) else { panic!("a status was due") };
    node.heard(down(Down::StatusTaken(taken_status(&status, ""))), DOOR, now);
    node.heard(orders(3, [(Action::Run, 7)]), DOOR, now);
    take_news(&mut node, &inbox, now);
    (node, inbox)
}

fn taken_status(report: &v1::StatusReport, refused: &str) -> v1::StatusTaken {
    v1::StatusTaken { sequence: report.sequence, written: refused.is_empty(), refused: refused.into() }
}

fn pods_said(turn: Turn) -> v1::PodsReport {
    match said(turn) {
        Up::Pods(report) => report,
        other @ (Up::Hello(_) | Up::Register(_) | Up::Beat(_) | Up::Status(_) | Up::Goodbye(_)) => {
            panic!("pods were due, not {other:?}")
        }
    }
}

fn machine() -> Arc<SimulatedMachine> {
    Arc::new(SimulatedMachine::new("rack-1", "eu", "a", 1))
}

#[tokio::test]
async fn pods_are_reported_and_named_in_every_status_and_hello() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    let report = pods_said(node.turn(DOOR, node.deadline()));
    assert_eq!((report.pods.len(), report.pods[0].phase.as_str(), report.pods[0].ready), (1, "Running", true));
    node.heard(down(Down::PodsTaken(v1::PodsTaken { sequence: report.sequence, refused: String::new() })), DOOR, now);
    assert_eq!(node.turn(DOOR, now), Turn::Nothing);

    node.heard(down(Down::StatusWanted(v1::StatusWanted { revision: 9 })), DOOR, now);
    assert_eq!(pods_said(node.turn(DOOR, now)).pods.len(), 1, "whoever wants the status wants the pods too");
    let Up::Status(status) = said(node.turn(DOOR, now)) else { panic!("a status was due") };
    assert_eq!(status.running.unwrap().uids.len(), 1);
    let Some(Up::Hello(hello)) = node.hello(false).message else { panic!("a hello is a hello") };
    assert_eq!(hello.orders_revision, 3);
}

#[tokio::test]
async fn a_former_life_stops_before_the_next_is_registered() {
    let now = Instant::now();
    let machine = machine();
    let (mut node, inbox) = with_one_pod(&machine, now);
    node.heard(down(Down::Removed(v1::Removed { incarnation: 1, revision: 4 })), DOOR, now);
    assert_eq!(node.turn(DOOR, now), Turn::Nothing, "the pod has not been heard to stop");
    assert!(node.deadline() > now + Duration::from_secs(60), "nothing is due until then");
    assert_eq!(node.heard(orders(5, [(Action::Run, 8)]), DOOR, now), Reaction::Stay);
    take_news(&mut node, &inbox, now);
    let Up::Register(register) = said(node.turn(DOOR, now)) else { panic!("a registration was due") };
    assert_eq!(register.running, Some(v1::Running::default()));
}

#[tokio::test]
async fn a_refused_status_is_posted_again_once_the_stops_are_known() {
    let now = Instant::now();
    let (mut node, inbox) = with_one_pod(&machine(), now);
    node.heard(orders(4, [(Action::Stop, 7)]), DOOR, now);
    node.status_demanded();
    take_news(&mut node, &inbox, now);
    let report = pods_said(node.turn(DOOR, now));
    assert!(report.pods[0].stopped);
    let Up::Status(status) = said(node.turn(DOOR, now)) else { panic!("a status was due") };
    let refused = node.heard(down(Down::StatusTaken(taken_status(&status, "pods run"))), DOOR, now);
    assert!(matches!(refused, Reaction::Complain(Failure::StatusRefused { .. })));
    assert_eq!(node.turn(DOOR, now), Turn::Nothing);
    node.heard(down(Down::PodsTaken(v1::PodsTaken { sequence: report.sequence, refused: String::new() })), DOOR, now);
    assert!(matches!(said(node.turn(DOOR, now)), Up::Status(_)));
}

#[tokio::test]
async fn a_replica_that_gives_older_orders_is_left() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    node.detached();
    node.heard(welcome(1), "b:1", now);
    let reaction = node.heard(orders(2, []), "b:1", now);
    assert_eq!(reaction, Reaction::Leave(Failure::StaleOrders { node: "rack-1".into() }));
    assert!(!node.pods.is_idle());
}

#[tokio::test]
async fn a_refused_report_is_told_to_the_owner_and_repeated_after_a_pause() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    let report = pods_said(node.turn(DOOR, now));
    let refused = v1::PodsTaken { sequence: report.sequence, refused: "no leader".into() };
    let reaction = node.heard(down(Down::PodsTaken(refused)), DOOR, now);
    assert!(matches!(reaction, Reaction::Complain(Failure::PodsRefused { .. })));
    let later = now + node.terms().retry_pause();
    assert_eq!(node.pods.report_due(), Some(later));
}

/// A runtime whose last agent followed the orders of another fleet.
struct Moved;

impl crate::pods::Runtime for Moved {
    fn report_to(&self, _news: crate::pods::News) {}
    fn start(&self, _pod: crate::pods::PodSpec) {}
    fn stop(&self, _uid: crate::pods::PodUid, _grace: Duration) {}
    fn kill(&self, _uid: crate::pods::PodUid) {}

    fn name_of(&self, _uid: crate::pods::PodUid) -> Option<crate::pods::PodName> {
        None
    }

    fn recall(&self) -> crate::pods::Recollection {
        crate::pods::Recollection { fleet: "fleet-0".to_owned(), revision: 9, ended: Vec::new() }
    }
}

impl Machine for Moved {
    fn node_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }

    fn status_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }

    fn runtime(&self) -> Option<Arc<dyn crate::pods::Runtime>> {
        Some(Arc::new(Self))
    }
}

#[tokio::test]
async fn a_node_that_changed_fleets_greets_the_new_one_without_the_revisions_of_the_old() {
    let now = Instant::now();
    let mut node = with_pods(Arc::new(Moved), now).0;
    let revision = |node: &Conversation| match node.hello(false).message {
        Some(Up::Hello(hello)) => hello.orders_revision,
        other => panic!("{other:?} is no greeting"),
    };
    assert_eq!(revision(&node), 9);
    assert!(matches!(node.heard(welcome(1), DOOR, now), Reaction::Leave(Failure::Lost { .. })));
    node.detached();
    assert_eq!(revision(&node), 0);
    assert_eq!(node.heard(welcome(1), DOOR, now), Reaction::Stay);
}
