//! Tests of the conversation with a clock that the test sets.

use bytes::Bytes;
use muster_proto::v1::pod_order::Action;

use super::*;
use crate::pods::PodInbox;
use crate::simulated::SimulatedMachine;

const ENDPOINT: &str = "a:1";

struct Still;

impl AgentMachine for Still {
    fn node_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }

    fn status_json(&self) -> Bytes {
        Bytes::from_static(b"{}")
    }
}

/// A conversation whose cluster already has the machine report.
fn conversation() -> Conversation {
    let mut node = with_pods(Arc::new(Still), Instant::now()).0;
    node.machine_report.known();
    node
}

/// With the inbox that receives updates about pods.
fn with_pods(machine: Arc<dyn AgentMachine>, now: Instant) -> (Conversation, Arc<PodInbox>) {
    let inbox = Arc::new(PodInbox::default());
    let pods = NodePods::new(machine.runtime(), inbox.sender(0), now);
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
        Turn::Send(message) => message.message.unwrap(),
        Turn::Leave(_) | Turn::Nothing => panic!("something was due, not {turn:?}"),
    }
}

#[tokio::test]
async fn every_message_counts_as_a_beat() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), ENDPOINT, now);
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Beat(_)));
    let later = now + Duration::from_millis(600);
    assert!(matches!(said(node.turn(ENDPOINT, later)), Up::Status(_)));
    assert_eq!(node.turn(ENDPOINT, now + Duration::from_secs(1)), Turn::Nothing);
    assert_eq!(node.deadline(), later + Duration::from_secs(1));
}

#[tokio::test]
async fn shorter_terms_take_effect_at_once() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), ENDPOINT, now);
    node.turn(ENDPOINT, now);
    let terms = v1::Terms { revision: 2, beat_interval_ms: 100, grace_ms: 400, backoff_cap_ms: 0 };
    node.heard(down(Down::Terms(terms)), ENDPOINT, now);
    assert_eq!(node.next_beat, now + Duration::from_millis(100));
}

/// The beats until `until`, with the time of each and whether it asked; nothing is answered.
fn beats_until(node: &mut Conversation, until: Instant) -> Vec<(Instant, bool)> {
    let mut beats = Vec::new();
    while node.deadline() < until {
        let now = node.deadline();
        if let Turn::Send(v1::AgentMessage { message: Some(Up::Beat(beat)) }) = node.turn(ENDPOINT, now) {
            beats.push((now, beat.acknowledge));
        }
    }
    beats
}

#[tokio::test]
async fn a_silent_replica_is_asked_and_doubted_and_still_gets_beats() {
    let (mut node, now) = (conversation(), Instant::now());
    let second = |number| now + Duration::from_secs(number);
    assert_eq!(node.doubt_at(), None, "no replica to doubt");
    node.heard(welcome(1), ENDPOINT, now);
    // The status is posted after the first beat; its answer never comes.
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Beat(v1::Beat { acknowledge: false, .. })));
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Status(_)));
    assert_eq!(beats_until(&mut node, second(3)), [(second(1), true), (second(2), true)]);
    assert_eq!((node.doubt_at(), node.is_doubtful()), (Some(second(2)), false));

    let doubt = node.doubt(ENDPOINT, second(2));
    assert_eq!(doubt, Some(SessionFailure::Silent { endpoint: ENDPOINT.into(), silence: Duration::from_secs(2) }));
    assert!(node.is_doubtful() && node.doubt_at().is_none());
    assert_eq!(beats_until(&mut node, second(5)), [(second(3), true), (second(4), true)]);
    assert_eq!(node.replica(), Some(1), "the node stays attached");

    let acknowledged = v1::Acknowledged { sequence: 6 };
    assert_eq!(node.heard(down(Down::Acknowledged(acknowledged)), ENDPOINT, second(4)), Reaction::Stay);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(second(6))));
}

#[tokio::test]
async fn repeated_status_posts_do_not_keep_a_silent_replica_from_being_asked() {
    let (mut node, now) = (conversation(), Instant::now());
    node.dice = || 1.0;
    node.heard(welcome(1), ENDPOINT, now);
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Beat(_)));
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Status(_)));
    let again = node.deadline();
    assert!(matches!(said(node.turn(ENDPOINT, again)), Up::Status(_)), "it was not answered");
    let asked = beats_until(&mut node, again + Duration::from_secs(1));
    assert!(asked.first().is_some_and(|(_, asks)| *asks), "{asked:?}");
}

#[tokio::test]
async fn another_replica_begins_without_doubt() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), ENDPOINT, now);
    let later = now + Duration::from_secs(2);
    beats_until(&mut node, later);
    assert!(node.doubt(ENDPOINT, later).is_some());
    node.detached();
    assert!(!node.is_doubtful());
    node.heard(welcome(1), "b:1", later);
    assert_eq!((node.is_doubtful(), node.doubt_at()), (false, Some(later + Duration::from_secs(2))));
}

#[tokio::test]
async fn a_replica_that_does_not_answer_a_registration_is_left() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(down(Down::RegistrationWanted(v1::RegistrationWanted::default())), ENDPOINT, now);
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Register(_)));
    assert_eq!((node.deadline(), node.turn(ENDPOINT, now)), (now + REGISTRATION_TIMEOUT, Turn::Nothing));
    assert!(matches!(node.turn(ENDPOINT, now + REGISTRATION_TIMEOUT), Turn::Leave(SessionFailure::Late { .. })));
}

/// A conversation that was welcomed, has beaten and posted its status.
fn welcomed(now: Instant) -> Conversation {
    let mut node = with_pods(Arc::new(Still), now).0;
    node.heard(welcome(1), ENDPOINT, now);
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Beat(_)));
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Status(_)));
    node
}

#[tokio::test]
async fn rg_4_a_welcomed_node_reports_its_machine_and_again_only_if_refused() {
    let now = Instant::now();
    let registered = |refused: &str| down(Down::Registered(v1::Registered { refused: refused.into() }));
    let mut node = welcomed(now);
    let Up::Register(register) = said(node.turn(ENDPOINT, now)) else { panic!("a machine report was due") };
    assert_eq!((register.node, register.running), (Bytes::from_static(b"{}"), None));
    assert_eq!(node.turn(ENDPOINT, now), Turn::Nothing);
    let refused = node.heard(registered("metadata.labels: no"), ENDPOINT, now);
    assert!(matches!(refused, Reaction::Complain(SessionFailure::RegistrationRefused { .. })), "{refused:?}");
    let again = node.machine_report.due().expect("it is said again");
    assert!(again > now);
    assert_eq!(node.heard(registered(""), ENDPOINT, now), Reaction::Stay);
    assert_eq!(node.machine_report.due(), None);
}

#[tokio::test]
async fn rg_4_a_registration_or_a_second_welcome_replaces_the_machine_report() {
    let now = Instant::now();
    let mut asked = with_pods(Arc::new(Still), now).0;
    asked.heard(down(Down::RegistrationWanted(v1::RegistrationWanted::default())), ENDPOINT, now);
    assert!(matches!(said(asked.turn(ENDPOINT, now)), Up::Register(_)));
    asked.heard(welcome(1), ENDPOINT, now);
    assert_eq!(asked.machine_report.due(), None, "it has registered");

    let mut node = welcomed(now);
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Register(_)));
    node.heard(welcome(1), ENDPOINT, now);
    assert_eq!(node.machine_report.due(), None, "a replica of an earlier version answers with another welcome");
    assert_eq!(node.turn(ENDPOINT, now), Turn::Nothing, "the second welcome starts nothing anew");
}

#[tokio::test]
async fn a_welcome_as_another_incarnation_ends_the_former_one() {
    let (mut node, now) = (conversation(), Instant::now());
    node.heard(welcome(1), ENDPOINT, now);
    node.heard(welcome(1), ENDPOINT, now);
    assert_eq!(node.removals(), 0);
    node.heard(welcome(2), ENDPOINT, now);
    assert_eq!((node.removals(), node.incarnation()), (1, 2));
}

#[tokio::test]
async fn a_stream_begins_with_a_welcome_or_a_request_to_register() {
    let node = conversation();
    assert_eq!(node.accepts(&welcome(1), ENDPOINT), Ok(()));
    let moved = node.accepts(&down(Down::Move(v1::Move::default())), ENDPOINT).unwrap_err();
    assert!(moved.to_string().contains("Move"), "{moved}");
    assert!(node.accepts(&v1::ServerMessage::default(), ENDPOINT).is_err());
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

fn take_updates(node: &mut Conversation, inbox: &PodInbox, now: Instant) {
    inbox.take().into_values().for_each(|news| {
        node.pods_updated(news, now);
    });
}

/// A node that was welcomed, has beaten, posted its status and runs one pod.
fn with_one_pod(machine: &Arc<SimulatedMachine>, now: Instant) -> (Conversation, Arc<PodInbox>) {
    let (mut node, inbox) = with_pods(Arc::clone(machine) as _, now);
    node.machine_report.known();
    node.heard(welcome(1), ENDPOINT, now);
    said(node.turn(ENDPOINT, now));
    let Up::Status(status) = said(node.turn(ENDPOINT, now)) else { panic!("a status was due") };
    node.heard(down(Down::StatusTaken(taken_status(&status, ""))), ENDPOINT, now);
    node.heard(orders(3, [(Action::Run, 7)]), ENDPOINT, now);
    take_updates(&mut node, &inbox, now);
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
    let report = pods_said(node.turn(ENDPOINT, node.deadline()));
    assert_eq!((report.pods.len(), report.pods[0].phase.as_str(), report.pods[0].ready), (1, "Running", true));
    node.heard(
        down(Down::PodsTaken(v1::PodsTaken { sequence: report.sequence, refused: String::new() })),
        ENDPOINT,
        now,
    );
    assert_eq!(node.turn(ENDPOINT, now), Turn::Nothing);

    node.heard(down(Down::StatusWanted(v1::StatusWanted { revision: 9 })), ENDPOINT, now);
    assert_eq!(
        pods_said(node.turn(ENDPOINT, now)).pods.len(),
        1,
        "a demand for the status is a demand for the pods too"
    );
    let Up::Status(status) = said(node.turn(ENDPOINT, now)) else { panic!("a status was due") };
    assert_eq!(status.running.unwrap().uids.len(), 1);
    let Some(Up::Hello(hello)) = node.hello(false).message else { panic!("the first message is a hello") };
    assert_eq!(hello.orders_revision, 3);
}

#[tokio::test]
async fn a_former_incarnation_stops_before_the_next_is_registered() {
    let now = Instant::now();
    let machine = machine();
    let (mut node, inbox) = with_one_pod(&machine, now);
    node.heard(down(Down::Removed(v1::Removed { incarnation: 1, revision: 4 })), ENDPOINT, now);
    assert_eq!(node.turn(ENDPOINT, now), Turn::Nothing, "the pod has not stopped yet");
    let killed = now + Duration::from_secs(35);
    assert_eq!(node.deadline(), killed, "its grace, and a while for the kill");
    assert_eq!(node.heard(orders(5, [(Action::Run, 8)]), ENDPOINT, now), Reaction::Stay);
    take_updates(&mut node, &inbox, now);
    let Up::Register(register) = said(node.turn(ENDPOINT, now)) else { panic!("a registration was due") };
    assert_eq!(register.running, Some(v1::Running::default()));
}

/// GC-3: the fleet must know of it before it frees the pod's name.
#[tokio::test]
async fn gc_3_a_node_whose_pod_cannot_be_killed_registers_as_not_ready_and_says_that_it_runs() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    node.heard(down(Down::Removed(v1::Removed { incarnation: 1, revision: 4 })), ENDPOINT, now);
    let at = node.deadline();
    let Up::Register(register) = said(node.turn(ENDPOINT, at)) else { panic!("a registration was due") };
    assert_eq!(register.running.unwrap().uids.len(), 1);
    let registered: serde_json::Value = serde_json::from_slice(&register.node).unwrap();
    let conditions = registered["status"]["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&"False".into(), &"PodsStillRunning".into()));
    node.heard(welcome(2), ENDPOINT, at);
    assert!(matches!(said(node.turn(ENDPOINT, at)), Up::Beat(_)));
    let Up::Status(status) = said(node.turn(ENDPOINT, at)) else { panic!("a status was due") };
    assert_eq!(status.running.unwrap().uids.len(), 1, "it says so until the pod has ended");
}

#[tokio::test]
async fn a_refused_status_is_posted_again_once_the_stops_are_known() {
    let now = Instant::now();
    let (mut node, inbox) = with_one_pod(&machine(), now);
    node.heard(orders(4, [(Action::Stop, 7)]), ENDPOINT, now);
    node.status_demanded();
    take_updates(&mut node, &inbox, now);
    let report = pods_said(node.turn(ENDPOINT, now));
    assert!(report.pods[0].stopped);
    let Up::Status(status) = said(node.turn(ENDPOINT, now)) else { panic!("a status was due") };
    let refused = node.heard(down(Down::StatusTaken(taken_status(&status, "pods run"))), ENDPOINT, now);
    assert!(matches!(refused, Reaction::Complain(SessionFailure::StatusRefused { .. })));
    assert_eq!(node.turn(ENDPOINT, now), Turn::Nothing);
    node.heard(
        down(Down::PodsTaken(v1::PodsTaken { sequence: report.sequence, refused: String::new() })),
        ENDPOINT,
        now,
    );
    assert!(matches!(said(node.turn(ENDPOINT, now)), Up::Status(_)));
}

#[tokio::test]
async fn a_replica_that_gives_older_orders_is_left() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    node.detached();
    node.heard(welcome(1), "b:1", now);
    let reaction = node.heard(orders(2, []), "b:1", now);
    assert_eq!(reaction, Reaction::Leave(SessionFailure::StaleOrders { node: "rack-1".into() }));
    assert!(!node.pods.is_idle());
}

#[tokio::test]
async fn a_refused_report_reaches_the_owner_and_is_repeated_after_a_pause() {
    let now = Instant::now();
    let (mut node, _inbox) = with_one_pod(&machine(), now);
    let report = pods_said(node.turn(ENDPOINT, now));
    let refused = v1::PodsTaken { sequence: report.sequence, refused: "no leader".into() };
    let reaction = node.heard(down(Down::PodsTaken(refused)), ENDPOINT, now);
    assert!(matches!(reaction, Reaction::Complain(SessionFailure::PodsRefused { .. })));
    let later = now + node.terms().retry_pause();
    assert_eq!(node.pods.report_due(), Some(later));
}

/// A runtime whose last agent followed the orders of another fleet.
struct Moved;

impl crate::pods::Runtime for Moved {
    fn report_to(&self, _news: crate::pods::PodUpdateSender) {}
    fn start(&self, _pod: crate::pods::PodToStart) {}
    fn stop(&self, _uid: crate::pods::PodUid, _grace: Duration) {}
    fn kill(&self, _uid: crate::pods::PodUid) {}

    fn name_of(&self, _uid: crate::pods::PodUid) -> Option<crate::pods::PodName> {
        None
    }

    fn recall(&self) -> crate::pods::RecalledNotes {
        crate::pods::RecalledNotes { fleet: "fleet-0".to_owned(), revision: 9, ended: Vec::new() }
    }
}

impl AgentMachine for Moved {
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
        other => panic!("{other:?} is not a hello"),
    };
    assert_eq!(revision(&node), 9);
    assert!(matches!(node.heard(welcome(1), ENDPOINT, now), Reaction::Leave(SessionFailure::Lost { .. })));
    node.detached();
    assert_eq!(revision(&node), 0);
    assert_eq!(node.heard(welcome(1), ENDPOINT, now), Reaction::Stay);
}

#[test]
fn i_25_an_agent_beats_on_at_an_older_replica_and_says_what_is_missing() {
    let now = Instant::now();
    let mut node = conversation();
    node.protocol = ProtocolRange { min: 1, max: 2 };
    let Some(Up::Hello(hello)) = node.hello(false).message else { panic!("a hello") };
    assert_eq!((hello.protocol_min, hello.protocol_max), (1, 2));
    // A replica from before versions says nothing of them.
    let welcome = v1::Welcome { fleet: "fleet-1".into(), replica: 3, incarnation: 1, ..v1::Welcome::default() };
    assert_eq!(node.heard(down(Down::Welcome(welcome.clone())), ENDPOINT, now), Reaction::Stay);
    let lacking = "replica 3 speaks version 1 of the agents' protocol: what version 2 added is not used";
    assert_eq!(node.lacking().as_deref(), Some(lacking));
    assert!(matches!(node.turn(ENDPOINT, now), Turn::Send(_)), "it beats");
    let mut newer = conversation();
    let welcome = v1::Welcome { protocol_min: 1, protocol_max: 9, ..welcome };
    assert_eq!(newer.heard(down(Down::Welcome(welcome)), ENDPOINT, now), Reaction::Stay);
    assert_eq!(newer.lacking(), None, "the replica knows what this agent lacks");
}
