//! Simulated nodes and their behaviours.

use std::sync::Arc;
use std::time::Duration;

use muster_node_agent::SessionSetupError;
use muster_node_agent::simulated::{
    Behaviour, ConnectPace, NodeTarget, SimulatedFleet, SimulatedFleetError, SimulatedNode,
};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::replica::{Replica, SessionStream, TIMEOUT, terms, welcome};
use crate::tls;

const BEAT_MS: u32 = 50;
const QUIET: Duration = Duration::from_millis(400);

/// `count` nodes in each of the zones eu/a and us/b.
fn nodes(count: usize, tls: &Arc<ClientConfig>) -> Vec<SimulatedNode> {
    let node = |zone: &str, region: &str, number: usize| SimulatedNode {
        name: format!("{zone}-{number:03}"),
        region: region.into(),
        zone: zone.into(),
        tls: Arc::clone(tls),
    };
    (0..count).flat_map(|number| [node("b", "us", number), node("a", "eu", number)]).collect()
}

fn fleet(replica: &Replica, count: usize) -> SimulatedFleet {
    SimulatedFleet::start(nodes(count, &tls::client("sim")), &[replica.endpoint()], ConnectPace::default()).unwrap()
}

fn node(name: &str) -> NodeTarget {
    NodeTarget::Node(name.into())
}

/// The stream of the one node among the first that connect.
async fn stream_of(replica: &mut Replica, name: &str) -> SessionStream {
    loop {
        let (session, hello) = replica.session().await;
        if hello.node == name {
            session.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
            return session;
        }
    }
}

fn condition(report: &v1::StatusReport, kind: &str) -> String {
    let status: Value = serde_json::from_slice(&report.status).unwrap();
    let conditions = status["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == kind).unwrap();
    condition["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_silenced_node_keeps_its_connection_and_sends_nothing() {
    let mut replica = Replica::start().await;
    let fleet = fleet(&replica, 1);
    let mut session = stream_of(&mut replica, "a-000").await;
    session.take_status().await;

    assert_eq!(fleet.apply(Behaviour::Silence, &node("a-000")).unwrap(), ["a-000"]);
    // Messages from before the command may still be on their way.
    session.hear_for(Duration::from_millis(100)).await.unwrap();
    session.send(Down::StatusWanted(v1::StatusWanted { revision: 1 })).await;
    assert_eq!(session.hear_for(QUIET).await, Some(vec![]), "the connection is open and nothing is sent");

    fleet.apply(Behaviour::Resume, &node("a-000")).unwrap();
    let report = session.take_status().await;
    assert_eq!((condition(&report, "Ready"), condition(&report, "DiskPressure")), ("True".into(), "False".into()));
    session.beat().await;
}

#[tokio::test]
async fn a_killed_node_is_cut_off_and_returns_only_when_resumed() {
    let mut replica = Replica::start().await;
    let fleet = SimulatedFleet::start(
        nodes(1, &tls::client("sim")).split_off(1),
        &[replica.endpoint()],
        ConnectPace::default(),
    )
    .unwrap();
    let mut session = stream_of(&mut replica, "a-000").await;
    session.take_status().await;

    fleet.apply(Behaviour::Kill, &node("a-000")).unwrap();
    let heard = async { while session.receive().await.is_some_and(|message| matches!(message, Up::Beat(_))) {} };
    tokio::time::timeout(TIMEOUT, heard).await.expect("the connection must close without a goodbye");
    assert!(replica.is_left_alone(QUIET).await);
    assert_eq!((fleet.status()[0].attached_to, fleet.status()[0].behaviour), (None, Behaviour::Kill));

    fleet.apply(Behaviour::Resume, &node("a-000")).unwrap();
    let (mut session, hello) = replica.session().await;
    assert_eq!(hello.incarnation, 1);
    session.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
    assert_eq!(condition(&session.take_status().await, "Ready"), "True");
}

#[tokio::test]
async fn a_node_under_pressure_reports_it_and_stays_ready() {
    let mut replica = Replica::start().await;
    let fleet = fleet(&replica, 1);
    let mut session = stream_of(&mut replica, "a-000").await;
    session.take_status().await;
    fleet.apply(Behaviour::Pressure, &node("a-000")).unwrap();
    let report = session.take_status().await;
    assert_eq!((condition(&report, "DiskPressure"), condition(&report, "Ready")), ("True".into(), "True".into()));
    fleet.apply(Behaviour::Resume, &node("a-000")).unwrap();
    assert_eq!(condition(&session.take_status().await, "DiskPressure"), "False");
}

#[tokio::test]
async fn a_flapping_node_alternates_between_silence_and_beats() {
    let mut replica = Replica::start().await;
    let fleet = fleet(&replica, 1);
    let mut session = stream_of(&mut replica, "a-000").await;
    session.take_status().await;
    // Silent and present for 300 ms each.
    fleet.apply(Behaviour::Flap, &node("a-000")).unwrap();
    let (mut silences, mut last) = (0, Instant::now());
    while silences < 3 {
        match session.receive().await.expect("a flapping node keeps its connection") {
            Up::Beat(_) => {}
            Up::Status(report) => {
                let taken = v1::StatusTaken { sequence: report.sequence, ..v1::StatusTaken::default() };
                session.send(Down::StatusTaken(taken)).await;
            }
            other @ (Up::Hello(_) | Up::Register(_) | Up::Pods(_) | Up::Goodbye(_)) => panic!("{other:?}"),
        }
        silences += u32::from(last.elapsed() > Duration::from_millis(200));
        last = Instant::now();
    }
    fleet.apply(Behaviour::Resume, &node("a-000")).unwrap();
    session.beat().await;
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.len() > 4, "it beats steadily again: {heard:?}");
}

#[tokio::test]
async fn percentages_round_down_and_take_the_first_by_name() {
    let replica = Replica::start().await;
    let fleet = fleet(&replica, 7);
    let zone = |zone: &str, percent| NodeTarget::Zone { zone: zone.into(), percent };
    let silenced = |target: &NodeTarget| fleet.apply(Behaviour::Silence, target).unwrap();
    assert_eq!(silenced(&zone("eu/a", Some(55))), ["a-000", "a-001", "a-002"]);
    assert_eq!(silenced(&zone("b", Some(14))), Vec::<String>::new());
    assert_eq!(silenced(&zone("b", Some(15))), ["b-000"]);
    assert_eq!(silenced(&zone("us/b", None)).len(), 7);
    assert_eq!(silenced(&NodeTarget::All { percent: Some(50) }).last().unwrap(), "a-006");
    assert_eq!(silenced(&NodeTarget::All { percent: None }).len(), 14);

    assert_eq!(fleet.apply(Behaviour::Kill, &zone("a", Some(101))), Err(SimulatedFleetError::Percent(101)));
    fleet.apply(Behaviour::Resume, &node("a-003")).unwrap();
    let status = fleet.status();
    assert_eq!((status[3].name.as_str(), status[3].zone.as_str()), ("a-003", "eu/a"));
    assert_eq!((status[3].behaviour, status[4].behaviour), (Behaviour::Resume, Behaviour::Silence));
}

#[tokio::test]
async fn an_unknown_target_is_refused_with_the_known_ones() {
    let replica = Replica::start().await;
    let fleet = fleet(&replica, 7);
    let unknown = fleet.apply(Behaviour::Kill, &node("c-1")).unwrap_err().to_string();
    assert!(unknown.contains("c-1") && unknown.contains("a-000") && unknown.ends_with("and 4 more"), "{unknown}");
    let zone = NodeTarget::Zone { zone: "us/a".into(), percent: None };
    let unknown = fleet.apply(Behaviour::Kill, &zone).unwrap_err().to_string();
    assert!(unknown.ends_with("eu/a, us/b"), "{unknown}");

    let mut twice = nodes(1, &tls::client("sim"));
    twice.extend(nodes(1, &tls::client("sim")));
    let refusal = SimulatedFleet::start(twice, &[replica.endpoint()], ConnectPace::default()).err();
    assert_eq!(refusal, Some(SessionSetupError::Twice("b-000".into())));
}

#[tokio::test]
async fn a_large_fleet_comes_up_at_the_given_pace() {
    let mut replica = Replica::start().await;
    let pace = ConnectPace { connecting_at_once: 8 };
    let fleet = SimulatedFleet::start(nodes(100, &tls::client("sim")), &[replica.endpoint()], pace).unwrap();
    let mut greeted = Vec::new();
    for _ in 0..8 {
        greeted.push(replica.session().await.0);
    }
    assert!(replica.is_left_alone(QUIET).await, "the ninth waits until one of the eight is through");
    let mut welcomed = Vec::new();
    let slow_terms = v1::Welcome { terms: Some(terms(1, 10_000)), ..welcome(1, 1, 0) };
    for _ in 0..200 {
        if greeted.is_empty() {
            greeted.push(replica.session().await.0);
        }
        let session = greeted.remove(0);
        session.send(Down::Welcome(slow_terms.clone())).await;
        welcomed.push(session);
    }
    let deadline = Instant::now() + TIMEOUT;
    while fleet.status().iter().any(|node| node.attached_to != Some(1)) {
        assert!(Instant::now() < deadline, "not all nodes are attached");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_fleet_that_stops_says_goodbye() {
    let mut replica = Replica::start().await;
    let fleet = fleet(&replica, 1);
    let mut session = stream_of(&mut replica, "a-000").await;
    session.take_status().await;
    let replica_side = async move {
        loop {
            match session.receive().await {
                Some(Up::Beat(_)) => {}
                last => return last,
            }
        }
    };
    let ((), last) = tokio::join!(fleet.stop(), replica_side);
    assert_eq!(last, Some(Up::Goodbye(v1::Goodbye {})));
}
