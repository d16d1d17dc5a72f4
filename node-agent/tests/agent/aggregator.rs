//! Rules of an aggregator's stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_node_agent::SessionSetupError;
use muster_node_agent::aggregator::{
    AggregatedNode, AggregatorConfig, AggregatorHandle, AggregatorSession, AggregatorState, NotAggregated,
};
use muster_proto::v1;
use muster_proto::v1::aggregator_message::Message as Up;
use muster_proto::v1::aggregator_reply::Message as Down;
use muster_proto::v1::pod_order::Action;
use muster_proto::v1::server_message::Message as NodeDown;
use tokio::time::{Instant, timeout};

use crate::machine::TestMachine;
use crate::pods::{order, orders, taken};
use crate::replica::{AggregatorStream, Replica, TIMEOUT, terms};
use crate::tls;

const INTERVAL_MS: u32 = 300;

pub(crate) struct Aggregator {
    machines: Vec<Arc<TestMachine>>,
    handle: AggregatorHandle,
}

impl Aggregator {
    pub(crate) fn start(replicas: &[&Replica], count: usize) -> Self {
        let names: Vec<_> = (0..count).map(|number| format!("node-{number:04}")).collect();
        let machines: Vec<_> = names.iter().map(|name| TestMachine::new(name)).collect();
        let carried = names.into_iter().zip(&machines);
        let nodes = carried.map(|(name, machine)| AggregatedNode { name, machine: Arc::clone(machine) as _ });
        let handle = AggregatorSession::start(config(replicas), nodes.collect()).unwrap();
        Self { machines, handle }
    }

    pub(crate) async fn state(&self, wanted: impl FnMut(&AggregatorState) -> bool) -> AggregatorState {
        let mut events = self.handle.events();
        timeout(TIMEOUT, events.wait_for(wanted)).await.expect("the state never came").unwrap().clone()
    }
}

fn config(replicas: &[&Replica]) -> AggregatorConfig {
    AggregatorConfig {
        endpoints: replicas.iter().map(|replica| replica.endpoint()).collect(),
        tls: tls::client("aggregator"),
        instance: 4,
        version: "test".into(),
    }
}

fn welcome(replica: u64, interval_ms: u32) -> Down {
    Down::Welcome(v1::AggregatorWelcome {
        fleet: "fleet-1".into(),
        replica,
        terms: Some(terms(1, interval_ms)),
        ..v1::AggregatorWelcome::default()
    })
}

pub(crate) fn bound(handle: u32, incarnation: u64) -> v1::BoundNode {
    v1::BoundNode { handle, incarnation, ..v1::BoundNode::default() }
}

impl AggregatorStream {
    async fn greet(&mut self, replica: u64) -> v1::AggregatorHello {
        self.greet_with(replica, INTERVAL_MS).await
    }

    pub(crate) async fn greet_with(&mut self, replica: u64, interval_ms: u32) -> v1::AggregatorHello {
        let hello = self.hello().await;
        self.send(welcome(replica, interval_ms)).await;
        hello
    }

    pub(crate) async fn hello(&mut self) -> v1::AggregatorHello {
        match self.receive().await {
            Some(Up::Hello(hello)) => hello,
            other => panic!("hello was due, not {other:?}"),
        }
    }

    /// Receives bindings until there are `count`, and answers each message with what `answer` makes of its bindings.
    pub(crate) async fn bind(&mut self, count: usize, answer: impl Fn(&v1::Binding) -> v1::BoundNode) -> Vec<v1::Bind> {
        let mut messages: Vec<v1::Bind> = Vec::new();
        while messages.iter().map(|bind| bind.bindings.len()).sum::<usize>() < count {
            match self.receive().await {
                Some(Up::Bind(bind)) => {
                    self.send(Down::Bound(v1::Bound { nodes: bind.bindings.iter().map(&answer).collect() })).await;
                    messages.push(bind);
                }
                Some(Up::Beats(_) | Up::Status(_)) => {}
                other => panic!("bindings were due, not {other:?}"),
            }
        }
        messages
    }

    async fn about(&self, handle: u32, message: NodeDown) {
        let message = Some(v1::ServerMessage { message: Some(message) });
        self.send(Down::Carried(v1::Carried { handle, message })).await;
    }

    /// The next message that is neither beats nor a status. Statuses are answered meanwhile.
    async fn next_of_note(&mut self) -> Option<Up> {
        loop {
            match self.receive().await {
                Some(Up::Beats(_)) => {}
                Some(Up::Status(status)) => self.take(&status).await,
                other => return other,
            }
        }
    }

    async fn take(&self, status: &v1::CarriedStatus) {
        let sequence = status.report.as_ref().unwrap().sequence;
        let taken = v1::StatusTaken { sequence, written: true, refused: String::new() };
        self.about(status.handle, NodeDown::StatusTaken(taken)).await;
    }

    pub(crate) async fn beats(&mut self) -> Vec<u32> {
        loop {
            match self.receive().await {
                Some(Up::Beats(beats)) => return beats.handles,
                Some(Up::Status(status)) => self.take(&status).await,
                other => panic!("beats were due, not {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn nodes_are_bound_in_batches_and_beat_in_packed_slices() {
    let mut replica = Replica::start().await;
    let aggregator = Aggregator::start(&[&replica], 1200);
    let mut stream = replica.aggregator().await;
    let hello = stream.greet(2).await;
    assert_eq!((hello.instance, hello.moving), (4, false));
    let binds = stream.bind(1200, |binding| bound(binding.handle, 1)).await;
    assert!(binds.iter().all(|bind| bind.bindings.len() <= 512) && binds.len() == 3, "{}", binds.len());
    let state = aggregator.state(|state| state.bound == 1200).await;
    assert_eq!((state.attached_to, state.registering, state.refused), (Some(2), 0, 0));

    // Beyond the first beats, which come with the bindings, every node beats once per interval.
    let started = Instant::now();
    let (mut times, mut messages) = (BTreeMap::<u32, u32>::new(), 0);
    while started.elapsed() < Duration::from_millis(u64::from(4 * INTERVAL_MS)) {
        messages += 1;
        for handle in stream.beats().await {
            *times.entry(handle).or_default() += 1;
        }
    }
    assert_eq!(times.len(), 1200, "every node beats");
    assert!(messages < 120, "{messages} messages for four intervals are not packed");
    assert!(times.values().all(|times| (2..=7).contains(times)), "{times:?}");
}

#[tokio::test]
async fn unknown_nodes_are_registered_and_refused_ones_are_counted() {
    let mut replica = Replica::start().await;
    let aggregator = Aggregator::start(&[&replica], 3);
    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    let answer = |binding: &v1::Binding| match binding.handle {
        0 => bound(0, 7),
        1 => v1::BoundNode { handle: 1, registration_wanted: true, ..v1::BoundNode::default() },
        _ => v1::BoundNode { handle: 2, refused: "out of scope".into(), ..v1::BoundNode::default() },
    };
    stream.bind(3, answer).await;
    match stream.next_of_note().await {
        Some(Up::Register(v1::CarriedRegister { handle: 1, register: Some(register) })) => {
            assert!(String::from_utf8_lossy(&register.node).contains("node-0001"));
        }
        other => panic!("a registration was due, not {other:?}"),
    }
    let state = aggregator.state(|state| state.refused == 1 && state.registering == 1).await;
    assert!(state.last_error.unwrap().to_string().contains("node-0002"));
    let registered = v1::Welcome { incarnation: 8, ..v1::Welcome::default() };
    stream.about(1, NodeDown::Welcome(registered)).await;
    aggregator.state(|state| state.bound == 2 && state.registering == 0).await;
    assert!(stream.beats().await.iter().all(|handle| *handle < 2));
}

#[tokio::test]
async fn an_aggregators_node_posts_on_change_and_registers_again_when_removed() {
    let mut replica = Replica::start().await;
    let aggregator = Aggregator::start(&[&replica], 2);
    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    stream.bind(2, |binding| bound(binding.handle, 7)).await;
    let mut posted = 0;
    while posted < 2 {
        if let Some(Up::Status(status)) = stream.receive().await {
            stream.take(&status).await;
            posted += 1;
        }
    }
    aggregator.handle.report("node-0000").unwrap();
    aggregator.machines[1].set("False", 1);
    aggregator.handle.report("node-0001").unwrap();
    let status = loop {
        match stream.receive().await {
            Some(Up::Status(status)) => break status,
            Some(Up::Beats(_)) => {}
            other => panic!("a status was due, not {other:?}"),
        }
    };
    assert_eq!(status.handle, 1, "an unchanged status is not repeated");
    assert_eq!(aggregator.handle.report("other"), Err(NotAggregated("other".into())));

    stream.about(0, NodeDown::Removed(v1::Removed { incarnation: 6, revision: 1 })).await;
    stream.about(0, NodeDown::Removed(v1::Removed { incarnation: 7, revision: 2 })).await;
    assert!(matches!(stream.next_of_note().await, Some(Up::Register(v1::CarriedRegister { handle: 0, .. }))));
    let state = aggregator.state(|state| state.removals > 0).await;
    assert_eq!((state.removals, state.bound), (1, 1));
}

#[tokio::test]
async fn an_aggregators_node_gets_orders_and_reports_if_it_cannot_follow_them() {
    let mut replica = Replica::start().await;
    let _aggregator = Aggregator::start(&[&replica], 2);
    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    stream.bind(2, |binding| bound(binding.handle, 7)).await;
    stream.about(1, orders(5, vec![order(Action::Run, 7, 0)])).await;
    let Some(Up::Pods(v1::CarriedPods { handle: 1, report: Some(report) })) = stream.next_of_note().await else {
        panic!("a report was due")
    };
    assert_eq!((report.pods[0].phase.as_str(), report.pods[0].reason.as_str()), ("Pending", "NoRuntime"));
    stream.about(1, taken(report.sequence)).await;
    stream.about(1, orders(6, vec![order(Action::Stop, 7, 30)])).await;
    let Some(Up::Pods(v1::CarriedPods { handle: 1, report: Some(report) })) = stream.next_of_note().await else {
        panic!("a report was due")
    };
    assert!(report.pods[0].stopped);
    drop(stream);

    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    let binds = stream.bind(2, |binding| bound(binding.handle, 7)).await;
    let revisions: Vec<_> = binds.iter().flat_map(|bind| &bind.bindings).map(|bind| bind.orders_revision).collect();
    assert_eq!(revisions, [0, 6]);
}

#[tokio::test]
async fn after_a_lost_connection_all_nodes_are_bound_again() {
    let mut replica = Replica::start().await;
    let aggregator = Aggregator::start(&[&replica], 600);
    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    stream.bind(600, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.bound == 600).await;
    drop(stream);
    aggregator.state(|state| state.bound == 0 && state.attached_to.is_none()).await;

    let mut stream = replica.aggregator().await;
    assert!(!stream.greet(1).await.moving);
    let binds = stream.bind(600, |binding| bound(binding.handle, 5)).await;
    assert!(binds.iter().flat_map(|bind| &bind.bindings).all(|binding| binding.incarnation == 5));
    aggregator.state(|state| state.bound == 600).await;
}

#[tokio::test]
async fn an_aggregator_told_to_move_keeps_its_stream_until_another_replica_welcomes_it() {
    let (mut first, mut second) = (Replica::start().await, Replica::start().await);
    let aggregator = Aggregator::start(&[&first, &second], 3);
    let mut old = first.aggregator().await;
    old.greet(1).await;
    old.bind(3, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.bound == 3).await;
    old.send(Down::Move(v1::Move { why: "leaving".into() })).await;

    let mut new = second.aggregator().await;
    assert!(!old.beats().await.is_empty(), "the old stream still beats");
    assert!(new.greet(2).await.moving);
    new.bind(3, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.attached_to == Some(2) && state.bound == 3).await;
    old.ended().await;
}

#[tokio::test]
async fn stopping_releases_the_nodes() {
    let mut replica = Replica::start().await;
    let aggregator = Aggregator::start(&[&replica], 3);
    let mut stream = replica.aggregator().await;
    stream.greet(1).await;
    stream.bind(3, |binding| bound(binding.handle, 5)).await;
    aggregator.state(|state| state.bound == 3).await;
    let replica_side = async move { stream.next_of_note().await };
    let ((), last) = tokio::join!(aggregator.handle.stop(), replica_side);
    assert_eq!(last, Some(Up::Release(v1::Release { handles: vec![0, 1, 2] })));
}

#[tokio::test]
async fn an_aggregator_refuses_a_node_it_has_already() {
    let replica = Replica::start().await;
    let node = || AggregatedNode { name: "twin".into(), machine: TestMachine::new("twin") };
    let refusal = AggregatorSession::start(config(&[&replica]), vec![node(), node()]).unwrap_err();
    assert_eq!(refusal, SessionSetupError::Twice("twin".into()));
}
