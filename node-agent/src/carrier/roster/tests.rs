//! The roster under a clock that the test turns.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_proto::v1::carrier_message::Message as Up;
use muster_proto::v1::pod_order::Action;
use muster_proto::v1::server_message::Message as NodeDown;

use super::*;
use crate::simulated::SimulatedMachine;

const INTERVAL: Duration = Duration::from_secs(10);

fn attached(count: u32, now: Instant) -> Roster {
    attached_with(count, &Arc::default(), now)
}

fn attached_with(count: u32, inbox: &Arc<Inbox>, now: Instant) -> Roster {
    let carried = |number: u32| {
        let name = format!("node-{number}");
        let machine = Arc::new(SimulatedMachine::new(&name, "eu", "a", number));
        CarriedNode { name, machine }
    };
    let nodes = (0..count).map(carried).collect();
    let mut roster = Roster::new(1, "test".into(), nodes, inbox, || 0.0, now);
    let welcome = v1::CarrierWelcome { fleet: "fleet-1".into(), replica: 1, terms: None };
    roster.attached(v1::CarrierReply { message: Some(Down::Welcome(welcome)) }, "a:1", now).unwrap();
    roster
}

fn hear(roster: &mut Roster, nodes: impl Iterator<Item = v1::BoundNode>, now: Instant) {
    let bound = v1::Bound { nodes: nodes.collect() };
    roster.heard(v1::CarrierReply { message: Some(Down::Bound(bound)) }, now);
}

/// Everything the roster says until it would wait beyond `until`.
fn say_all(roster: &mut Roster, mut now: Instant, until: Instant) -> Vec<Up> {
    let mut said = Vec::new();
    loop {
        now = now.max(roster.deadline());
        if now >= until {
            return said;
        }
        said.extend(roster.turn(now).and_then(|message| message.message));
    }
}

#[tokio::test]
async fn every_node_beats_once_per_interval_in_ten_messages() {
    let now = Instant::now();
    let mut roster = attached(1000, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..1000).map(bound), now);
    // The first beats come at once, with the bindings; from then on the slices take their turns.
    say_all(&mut roster, now, now + INTERVAL);
    let said = say_all(&mut roster, now + INTERVAL, now + 2 * INTERVAL);
    let beats: Vec<_> =
        said.iter().filter_map(|up| if let Up::Beats(beats) = up { Some(beats) } else { None }).collect();
    let mut times = BTreeMap::<u32, u32>::new();
    beats.iter().flat_map(|beats| &beats.handles).for_each(|handle| *times.entry(*handle).or_default() += 1);
    assert_eq!((beats.len(), times.len()), (10, 1000));
    assert!(times.values().all(|times| *times == 1));
}

fn questions(said: &[Up]) -> Vec<u64> {
    let question = |up: &Up| if let Up::Beats(beats) = up { Some(beats.acknowledge) } else { None };
    said.iter().filter_map(question).filter(|number| *number != 0).collect()
}

fn acknowledge(roster: &mut Roster, sequence: u64, now: Instant) {
    roster.heard(v1::CarrierReply { message: Some(Down::Acknowledged(v1::Acknowledged { sequence })) }, now);
}

#[tokio::test]
async fn a_quiet_carrier_asks_at_most_once_per_two_intervals_in_the_default_terms() {
    let now = Instant::now();
    let mut roster = attached(1000, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..1000).map(bound), now);
    let (mut asked, mut last) = (0, 0);
    for second in 0..200 {
        let second = now + Duration::from_secs(1) * second;
        for number in questions(&say_all(&mut roster, second, second + Duration::from_secs(1))) {
            assert!(number > last, "numbers rise");
            (asked, last) = (asked + 1, number);
            acknowledge(&mut roster, number, second);
        }
        assert_eq!(roster.doubt("a:1", second), None);
    }
    assert!((8..=10).contains(&asked), "{asked} questions in twenty intervals");
}

#[tokio::test]
async fn a_silent_replica_is_asked_and_doubted_but_beaten_to_all_the_same() {
    let now = Instant::now();
    let second = |number| now + Duration::from_secs(number);
    let mut roster = attached(20, now);
    let terms = v1::Terms { revision: 1, beat_interval_ms: 2000, grace_ms: 8000, backoff_cap_ms: 2000 };
    roster.heard(v1::CarrierReply { message: Some(Down::Terms(terms)) }, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..20).map(bound), now);
    let early = say_all(&mut roster, now, second(4));
    assert!((2..=3).contains(&questions(&early).len()), "{early:?}");
    assert_eq!((roster.doubt_at(), roster.is_doubtful()), (Some(second(4)), false));
    assert!(roster.doubt("a:1", second(4)).is_some() && roster.is_doubtful());

    let late = say_all(&mut roster, second(4), second(8));
    let beats = late.iter().filter(|up| matches!(up, Up::Beats(_))).count();
    assert!(beats >= 19 && !questions(&late).is_empty(), "{beats} messages in two intervals: {late:?}");
    assert_eq!(roster.state().bound, 20, "it stays");
    acknowledge(&mut roster, 1, second(8));
    assert_eq!((roster.is_doubtful(), roster.doubt_at()), (false, Some(second(12))));
}

#[tokio::test]
async fn a_carrier_without_a_bound_node_asks_too() {
    let now = Instant::now();
    let mut roster = attached(1, now);
    let said = say_all(&mut roster, now, now + 2 * INTERVAL);
    assert_eq!(questions(&said), [1], "{said:?}");
    let doubt_at = roster.doubt_at().unwrap();
    assert!(doubt_at <= now + INTERVAL.mul_f64(2.5) && roster.doubt("a:1", doubt_at).is_some());
}

#[tokio::test]
async fn registrations_wait_for_those_under_way() {
    let now = Instant::now();
    let mut roster = attached(3000, now);
    let wanted = |handle| v1::BoundNode { handle, registration_wanted: true, ..v1::BoundNode::default() };
    hear(&mut roster, (0..3000).map(wanted), now);
    let registrations = |said: &[Up]| said.iter().filter(|up| matches!(up, Up::Register(_))).count();
    let said = say_all(&mut roster, now, now + Duration::from_millis(1));
    assert_eq!((registrations(&said), roster.state().registering), (1024, 1024));

    let welcome = v1::ServerMessage {
        message: Some(v1::server_message::Message::Welcome(v1::Welcome { incarnation: 1, ..v1::Welcome::default() })),
    };
    let carried = v1::Carried { handle: 0, message: Some(welcome) };
    roster.heard(v1::CarrierReply { message: Some(Down::Carried(carried)) }, now);
    let said = say_all(&mut roster, now, now + Duration::from_millis(1));
    assert_eq!((registrations(&said), roster.state().bound), (1, 1));
}

#[tokio::test]
async fn rg_4_known_nodes_say_what_their_machines_are_once() {
    let now = Instant::now();
    let mut roster = attached(3, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..3).map(bound), now);
    let introduced = |said: &[Up]| {
        let handle = |up: &Up| if let Up::Register(register) = up { Some(register.handle) } else { None };
        said.iter().filter_map(handle).collect::<Vec<_>>()
    };
    assert_eq!(introduced(&say_all(&mut roster, now, now + Duration::from_millis(1))), [0, 1, 2]);
    assert_eq!(roster.state().bound, 3, "they stay bound");
    let registered = |refused: &str| NodeDown::Registered(v1::Registered { refused: refused.into() });
    about(&mut roster, 0, registered(""), now);
    about(&mut roster, 1, registered("no leader"), now);
    let mut again = introduced(&say_all(&mut roster, now, now + Duration::from_secs(45)));
    again.sort_unstable();
    assert_eq!(again, [1, 2], "what was refused, and what was not answered");
}

fn bindings(said: &[Up]) -> usize {
    said.iter().map(|up| if let Up::Bind(bind) = up { bind.bindings.len() } else { 0 }).sum()
}

#[tokio::test]
async fn what_is_not_answered_or_was_refused_is_tried_again_in_time() {
    let now = Instant::now();
    let second = |number| now + Duration::from_secs(number);
    let mut roster = attached(3, now);
    let answers = [
        v1::BoundNode { handle: 0, refused: "out of scope".into(), ..v1::BoundNode::default() },
        v1::BoundNode { handle: 1, registration_wanted: true, ..v1::BoundNode::default() },
        // Handles that were never given out are nobody's.
        v1::BoundNode { handle: 77, incarnation: 1, ..v1::BoundNode::default() },
    ];
    hear(&mut roster, answers.into_iter(), now);
    let early = say_all(&mut roster, now, second(5));
    assert_eq!(bindings(&early), 1, "only the one that had not been bound yet: {early:?}");
    let refused_or_silent = say_all(&mut roster, second(5), second(15));
    assert_eq!((bindings(&refused_or_silent), roster.state().refused), (2, 0), "{refused_or_silent:?}");
    let late = say_all(&mut roster, second(29), second(41));
    let again = |up: &Up| matches!(up, Up::Bind(bind) if bind.bindings.iter().any(|binding| binding.handle == 1));
    assert!(late.iter().any(again), "a registration may take longer: {late:?}");
}

#[tokio::test]
async fn a_node_whose_session_ended_here_is_back_within_its_grace() {
    let now = Instant::now();
    let grace = Duration::from_secs(8);
    let mut roster = attached(20, now);
    let terms = v1::Terms { revision: 1, beat_interval_ms: 2000, grace_ms: 8000, backoff_cap_ms: 2000 };
    roster.heard(v1::CarrierReply { message: Some(Down::Terms(terms)) }, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..20).map(bound), now);
    say_all(&mut roster, now, now + grace);
    let ended = now + grace;
    let refused = |handle| v1::BoundNode { handle, refused: "continued at replica 2".into(), ..Default::default() };
    hear(&mut roster, (0..20).map(refused), ended);
    let said = say_all(&mut roster, ended, ended + grace / 2);
    assert!(bindings(&said) >= 20, "{said:?}");
}

fn about(roster: &mut Roster, handle: u32, message: NodeDown, now: Instant) -> Reaction {
    let message = Some(v1::ServerMessage { message: Some(message) });
    roster.heard(v1::CarrierReply { message: Some(Down::Carried(v1::Carried { handle, message })) }, now)
}

fn orders(revision: u64, action: Action, uid: u128) -> NodeDown {
    let order = v1::PodOrder {
        action: action.into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: uid.to_be_bytes().to_vec().into(),
        grace_seconds: 5,
        ..v1::PodOrder::default()
    };
    NodeDown::Pods(v1::PodOrders { revision, orders: vec![order], complete: true })
}

/// Two bound nodes, the second of which runs a pod.
fn carrying(now: Instant) -> (Roster, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::default());
    let mut roster = attached_with(2, &inbox, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, (0..2).map(bound), now);
    about(&mut roster, 1, orders(4, Action::Run, 7), now);
    roster.pods_news(inbox.take(), now);
    (roster, inbox)
}

fn reports(said: &[Up]) -> Vec<&v1::CarriedPods> {
    said.iter().filter_map(|up| if let Up::Pods(report) = up { Some(report) } else { None }).collect()
}

#[tokio::test]
async fn a_carried_node_runs_pods_and_reports_until_taken() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut roster, inbox) = carrying(now);
    let said = say_all(&mut roster, now, soon);
    let [running] = reports(&said)[..] else { panic!("one report was due: {said:?}") };
    let report = running.report.as_ref().unwrap();
    assert_eq!((running.handle, report.pods.len(), report.pods[0].phase.as_str()), (1, 1, "Running"));
    let taken = v1::PodsTaken { sequence: report.sequence, refused: String::new() };
    about(&mut roster, 1, NodeDown::PodsTaken(taken), now);

    about(&mut roster, 1, orders(5, Action::Stop, 7), now);
    roster.pods_news(inbox.take(), now);
    assert_eq!(roster.pods_deadline(), None, "it stopped at once");
    let said = say_all(&mut roster, now, soon);
    assert!(reports(&said)[0].report.as_ref().unwrap().pods[0].stopped);
    let again = say_all(&mut roster, soon, now + 2 * INTERVAL);
    assert!(reports(&again).iter().any(|report| report.handle == 1), "it was not answered: {again:?}");
}

#[tokio::test]
async fn a_carried_node_stops_its_pods_before_it_registers_again() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut roster, inbox) = carrying(now);
    say_all(&mut roster, now, soon);
    about(&mut roster, 1, NodeDown::Removed(v1::Removed { incarnation: 1, revision: 9 }), now);
    let registers = |said: &[Up]| said.iter().any(|up| matches!(up, Up::Register(_)));
    assert!(!registers(&say_all(&mut roster, now, soon)) && roster.pods_deadline().is_some());
    roster.pods_news(inbox.take(), now);
    let said = say_all(&mut roster, now, soon);
    assert!(registers(&said) && roster.pods_deadline().is_none(), "{said:?}");
}

#[tokio::test]
async fn a_carried_node_that_lost_its_pods_or_heard_older_orders_is_bound_anew() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut roster, inbox) = carrying(now);
    say_all(&mut roster, now, soon);
    let bound = v1::BoundNode { handle: 1, incarnation: 1, ..v1::BoundNode::default() };
    hear(&mut roster, [bound].into_iter(), now);
    assert!(matches!(about(&mut roster, 1, orders(3, Action::Run, 8), now), Reaction::Complain(_)));
    let binding = |said: &[Up]| {
        let bindings = said.iter().filter_map(|up| if let Up::Bind(bind) = up { Some(bind) } else { None });
        bindings.flat_map(|bind| &bind.bindings).map(|binding| (binding.handle, binding.orders_revision)).collect()
    };
    let anew: Vec<(u32, u64)> = binding(&say_all(&mut roster, now, soon));
    assert_eq!(anew, [(1, 4)]);

    inbox.news(0).lost();
    roster.pods_news(inbox.take(), now);
    let anew: Vec<(u32, u64)> = binding(&say_all(&mut roster, now, soon));
    assert_eq!(anew, [(0, 0)]);
}
