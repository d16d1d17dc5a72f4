//! Tests of the aggregator's conversation with a clock that the test sets.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_proto::v1::aggregator_message::Message as Up;
use muster_proto::v1::pod_order::Action;
use muster_proto::v1::server_message::Message as NodeDown;

use super::*;
use crate::simulated::SimulatedMachine;

const INTERVAL: Duration = Duration::from_secs(10);

fn attached(count: u32, now: Instant) -> Conversation {
    attached_with(count, &Arc::default(), now)
}

fn attached_with(count: u32, inbox: &Arc<PodInbox>, now: Instant) -> Conversation {
    let carried = |number: u32| {
        let name = format!("node-{number}");
        let machine = Arc::new(SimulatedMachine::new(&name, "eu", "a", number));
        AggregatedNode { name, machine }
    };
    let nodes = (0..count).map(carried).collect();
    let mut conversation = Conversation::new(1, "test".into(), nodes, inbox, || 0.0, now);
    let welcome = v1::AggregatorWelcome { fleet: "fleet-1".into(), replica: 1, ..v1::AggregatorWelcome::default() };
    conversation.attached(v1::AggregatorReply { message: Some(Down::Welcome(welcome)) }, "a:1", now).unwrap();
    conversation
}

fn receive_bound(conversation: &mut Conversation, nodes: impl Iterator<Item = v1::BoundNode>, now: Instant) {
    let bound = v1::Bound { nodes: nodes.collect() };
    conversation.heard(v1::AggregatorReply { message: Some(Down::Bound(bound)) }, now);
}

/// Every message of the conversation until it would wait beyond `until`.
fn sent_until(conversation: &mut Conversation, mut now: Instant, until: Instant) -> Vec<Up> {
    let mut said = Vec::new();
    loop {
        now = now.max(conversation.deadline());
        if now >= until {
            return said;
        }
        said.extend(conversation.turn(now).and_then(|message| message.message));
    }
}

#[tokio::test]
async fn every_node_beats_once_per_interval_in_ten_messages() {
    let now = Instant::now();
    let mut conversation = attached(1000, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..1000).map(bound), now);
    // The first beats come at once, with the bindings; from then on the slices take turns.
    sent_until(&mut conversation, now, now + INTERVAL);
    let said = sent_until(&mut conversation, now + INTERVAL, now + 2 * INTERVAL);
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

fn acknowledge(conversation: &mut Conversation, sequence: u64, now: Instant) {
    conversation.heard(v1::AggregatorReply { message: Some(Down::Acknowledged(v1::Acknowledged { sequence })) }, now);
}

#[tokio::test]
async fn a_quiet_aggregator_asks_at_most_once_per_two_intervals_in_the_default_terms() {
    let now = Instant::now();
    let mut conversation = attached(1000, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..1000).map(bound), now);
    let (mut asked, mut last) = (0, 0);
    for second in 0..200 {
        let second = now + Duration::from_secs(1) * second;
        for number in questions(&sent_until(&mut conversation, second, second + Duration::from_secs(1))) {
            assert!(number > last, "numbers rise");
            (asked, last) = (asked + 1, number);
            acknowledge(&mut conversation, number, second);
        }
        assert_eq!(conversation.doubt("a:1", second), None);
    }
    assert!((8..=10).contains(&asked), "{asked} questions in twenty intervals");
}

#[tokio::test]
async fn a_silent_replica_is_asked_and_doubted_and_still_gets_beats() {
    let now = Instant::now();
    let second = |number| now + Duration::from_secs(number);
    let mut conversation = attached(20, now);
    let terms = v1::Terms { revision: 1, beat_interval_ms: 2000, grace_ms: 8000, backoff_cap_ms: 2000 };
    conversation.heard(v1::AggregatorReply { message: Some(Down::Terms(terms)) }, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..20).map(bound), now);
    let early = sent_until(&mut conversation, now, second(4));
    assert!((2..=3).contains(&questions(&early).len()), "{early:?}");
    assert_eq!((conversation.doubt_at(), conversation.is_doubtful()), (Some(second(4)), false));
    assert!(conversation.doubt("a:1", second(4)).is_some() && conversation.is_doubtful());

    let late = sent_until(&mut conversation, second(4), second(8));
    let beats = late.iter().filter(|up| matches!(up, Up::Beats(_))).count();
    assert!(beats >= 19 && !questions(&late).is_empty(), "{beats} messages in two intervals: {late:?}");
    assert_eq!(conversation.state().bound, 20, "it stays");
    acknowledge(&mut conversation, 1, second(8));
    assert_eq!((conversation.is_doubtful(), conversation.doubt_at()), (false, Some(second(12))));
}

#[tokio::test]
async fn an_aggregator_without_a_bound_node_asks_too() {
    let now = Instant::now();
    let mut conversation = attached(1, now);
    let said = sent_until(&mut conversation, now, now + 2 * INTERVAL);
    assert_eq!(questions(&said), [1], "{said:?}");
    let doubt_at = conversation.doubt_at().unwrap();
    assert!(doubt_at <= now + INTERVAL.mul_f64(2.5) && conversation.doubt("a:1", doubt_at).is_some());
}

#[tokio::test]
async fn registrations_wait_for_those_under_way() {
    let now = Instant::now();
    let mut conversation = attached(3000, now);
    let wanted = |handle| v1::BoundNode { handle, registration_wanted: true, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..3000).map(wanted), now);
    let registrations = |said: &[Up]| said.iter().filter(|up| matches!(up, Up::Register(_))).count();
    let said = sent_until(&mut conversation, now, now + Duration::from_millis(1));
    assert_eq!((registrations(&said), conversation.state().registering), (1024, 1024));

    let welcome = v1::ServerMessage {
        message: Some(v1::server_message::Message::Welcome(v1::Welcome { incarnation: 1, ..v1::Welcome::default() })),
    };
    let carried = v1::Carried { handle: 0, message: Some(welcome) };
    conversation.heard(v1::AggregatorReply { message: Some(Down::Carried(carried)) }, now);
    let said = sent_until(&mut conversation, now, now + Duration::from_millis(1));
    assert_eq!((registrations(&said), conversation.state().bound), (1, 1));
}

#[tokio::test]
async fn rg_4_known_nodes_report_their_machines_once() {
    let now = Instant::now();
    let mut conversation = attached(3, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..3).map(bound), now);
    let introduced = |said: &[Up]| {
        let handle = |up: &Up| if let Up::Register(register) = up { Some(register.handle) } else { None };
        said.iter().filter_map(handle).collect::<Vec<_>>()
    };
    assert_eq!(introduced(&sent_until(&mut conversation, now, now + Duration::from_millis(1))), [0, 1, 2]);
    assert_eq!(conversation.state().bound, 3, "they stay bound");
    let registered = |refused: &str| NodeDown::Registered(v1::Registered { refused: refused.into() });
    about(&mut conversation, 0, registered(""), now);
    about(&mut conversation, 1, registered("no leader"), now);
    let mut again = introduced(&sent_until(&mut conversation, now, now + Duration::from_secs(45)));
    again.sort_unstable();
    assert_eq!(again, [1, 2], "what was refused, and what was not answered");
}

fn bindings(said: &[Up]) -> usize {
    said.iter().map(|up| if let Up::Bind(bind) = up { bind.bindings.len() } else { 0 }).sum()
}

#[tokio::test]
async fn unanswered_and_refused_requests_are_repeated_in_time() {
    let now = Instant::now();
    let second = |number| now + Duration::from_secs(number);
    let mut conversation = attached(3, now);
    let answers = [
        v1::BoundNode { handle: 0, refused: "out of scope".into(), ..v1::BoundNode::default() },
        v1::BoundNode { handle: 1, registration_wanted: true, ..v1::BoundNode::default() },
        // Handles that were never given out belong to no node.
        v1::BoundNode { handle: 77, incarnation: 1, ..v1::BoundNode::default() },
    ];
    receive_bound(&mut conversation, answers.into_iter(), now);
    let early = sent_until(&mut conversation, now, second(5));
    assert_eq!(bindings(&early), 1, "only the one that had not been bound yet: {early:?}");
    let refused_or_silent = sent_until(&mut conversation, second(5), second(15));
    assert_eq!((bindings(&refused_or_silent), conversation.state().refused), (2, 0), "{refused_or_silent:?}");
    let late = sent_until(&mut conversation, second(29), second(41));
    let again = |up: &Up| matches!(up, Up::Bind(bind) if bind.bindings.iter().any(|binding| binding.handle == 1));
    assert!(late.iter().any(again), "a registration may take longer: {late:?}");
}

#[tokio::test]
async fn a_node_whose_session_ended_here_is_back_within_its_grace() {
    let now = Instant::now();
    let grace = Duration::from_secs(8);
    let mut conversation = attached(20, now);
    let terms = v1::Terms { revision: 1, beat_interval_ms: 2000, grace_ms: 8000, backoff_cap_ms: 2000 };
    conversation.heard(v1::AggregatorReply { message: Some(Down::Terms(terms)) }, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..20).map(bound), now);
    sent_until(&mut conversation, now, now + grace);
    let ended = now + grace;
    let refused = |handle| v1::BoundNode { handle, refused: "continued at replica 2".into(), ..Default::default() };
    receive_bound(&mut conversation, (0..20).map(refused), ended);
    let said = sent_until(&mut conversation, ended, ended + grace / 2);
    assert!(bindings(&said) >= 20, "{said:?}");
}

fn about(conversation: &mut Conversation, handle: u32, message: NodeDown, now: Instant) -> Reaction {
    let message = Some(v1::ServerMessage { message: Some(message) });
    conversation.heard(v1::AggregatorReply { message: Some(Down::Carried(v1::Carried { handle, message })) }, now)
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
fn carrying(now: Instant) -> (Conversation, Arc<PodInbox>) {
    let inbox = Arc::new(PodInbox::default());
    let mut conversation = attached_with(2, &inbox, now);
    let bound = |handle| v1::BoundNode { handle, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, (0..2).map(bound), now);
    about(&mut conversation, 1, orders(4, Action::Run, 7), now);
    conversation.pods_updated(inbox.take(), now);
    (conversation, inbox)
}

fn reports(said: &[Up]) -> Vec<&v1::CarriedPods> {
    said.iter().filter_map(|up| if let Up::Pods(report) = up { Some(report) } else { None }).collect()
}

#[tokio::test]
async fn a_node_on_the_stream_runs_pods_and_reports_until_accepted() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut conversation, inbox) = carrying(now);
    let said = sent_until(&mut conversation, now, soon);
    let [running] = reports(&said)[..] else { panic!("one report was due: {said:?}") };
    let report = running.report.as_ref().unwrap();
    assert_eq!((running.handle, report.pods.len(), report.pods[0].phase.as_str()), (1, 1, "Running"));
    let taken = v1::PodsTaken { sequence: report.sequence, refused: String::new() };
    about(&mut conversation, 1, NodeDown::PodsTaken(taken), now);

    about(&mut conversation, 1, orders(5, Action::Stop, 7), now);
    conversation.pods_updated(inbox.take(), now);
    assert_eq!(conversation.pods_deadline(), None, "it stopped at once");
    let said = sent_until(&mut conversation, now, soon);
    assert!(reports(&said)[0].report.as_ref().unwrap().pods[0].stopped);
    let again = sent_until(&mut conversation, soon, now + 2 * INTERVAL);
    assert!(reports(&again).iter().any(|report| report.handle == 1), "it was not answered: {again:?}");
}

#[tokio::test]
async fn a_node_on_the_stream_stops_its_pods_before_it_registers_again() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut conversation, inbox) = carrying(now);
    sent_until(&mut conversation, now, soon);
    about(&mut conversation, 1, NodeDown::Removed(v1::Removed { incarnation: 1, revision: 9 }), now);
    let registers = |said: &[Up]| said.iter().any(|up| matches!(up, Up::Register(_)));
    assert!(!registers(&sent_until(&mut conversation, now, soon)) && conversation.pods_deadline().is_some());
    conversation.pods_updated(inbox.take(), now);
    let said = sent_until(&mut conversation, now, soon);
    assert!(registers(&said) && conversation.pods_deadline().is_none(), "{said:?}");
}

#[tokio::test]
async fn a_node_that_lost_its_pods_or_got_older_orders_is_bound_again() {
    let now = Instant::now();
    let soon = now + Duration::from_millis(1);
    let (mut conversation, inbox) = carrying(now);
    sent_until(&mut conversation, now, soon);
    let bound = v1::BoundNode { handle: 1, incarnation: 1, ..v1::BoundNode::default() };
    receive_bound(&mut conversation, [bound].into_iter(), now);
    assert!(matches!(about(&mut conversation, 1, orders(3, Action::Run, 8), now), Reaction::Complain(_)));
    let binding = |said: &[Up]| {
        let bindings = said.iter().filter_map(|up| if let Up::Bind(bind) = up { Some(bind) } else { None });
        bindings.flat_map(|bind| &bind.bindings).map(|binding| (binding.handle, binding.orders_revision)).collect()
    };
    let anew: Vec<(u32, u64)> = binding(&sent_until(&mut conversation, now, soon));
    assert_eq!(anew, [(1, 4)]);

    inbox.sender(0).lost();
    conversation.pods_updated(inbox.take(), now);
    let anew: Vec<(u32, u64)> = binding(&sent_until(&mut conversation, now, soon));
    assert_eq!(anew, [(0, 0)]);
}
