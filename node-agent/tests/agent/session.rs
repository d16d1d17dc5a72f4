//! Rules of one node's session.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use muster_node_agent::SessionFailure;
use muster_node_agent::machine::AgentMachine;
use muster_node_agent::session::{NotAcknowledged, Session, SessionConfig, SessionHandle, SessionState};
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::server_message::Message as Down;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::machine::{TestMachine, status};
use crate::replica::{Replica, SessionStream, TIMEOUT, terms, welcome};
use crate::tls;

const BEAT_MS: u32 = 50;
const QUIET: Duration = Duration::from_millis(400);

pub(crate) struct Agent {
    machine: Arc<TestMachine>,
    pub(crate) session: SessionHandle,
}

impl Agent {
    pub(crate) fn start(replicas: &[&Replica]) -> Self {
        let machine = TestMachine::new("rack-1");
        let config = SessionConfig {
            node: "rack-1".into(),
            endpoints: replicas.iter().map(|replica| replica.endpoint()).collect(),
            tls: tls::client("rack-1"),
            instance: 77,
            version: "test".into(),
        };
        let session = Session::start(config, Arc::clone(&machine) as _).unwrap();
        Self { machine, session }
    }

    pub(crate) async fn state(&self, wanted: impl FnMut(&SessionState) -> bool) -> SessionState {
        let mut events = self.session.events();
        timeout(TIMEOUT, events.wait_for(wanted)).await.expect("the state never came").unwrap().clone()
    }
}

/// The replica that the agent came to first, its stream, and the others in the order in which the agent walks on.
pub(crate) async fn first_visited(mut replicas: Vec<Replica>) -> (Replica, SessionStream, Vec<Replica>) {
    let visits = replicas.iter_mut().map(|replica| replica.session().boxed());
    let ((session, _), index, others) = select_all(visits).await;
    drop(others);
    let visited = replicas.remove(index);
    replicas.rotate_left(index);
    (visited, session, replicas)
}

#[tokio::test]
async fn l_2_a_session_says_hello_and_beats_at_the_interval_it_was_given() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let (mut session, hello) = replica.session().await;
    assert_eq!((hello.node.as_str(), hello.instance, hello.incarnation, hello.moving), ("rack-1", 77, 0, false));
    let welcomed = Instant::now();
    session.send(Down::Welcome(welcome(3, 9, 300))).await;

    let first = session.beat().await;
    assert!(welcomed.elapsed() < Duration::from_millis(300), "the first beat comes at once (L-2)");
    session.take_status().await;
    let started = Instant::now();
    let mut last = first.sequence;
    for _ in 0..5 {
        let beat = session.beat().await;
        assert!(beat.sequence > last);
        last = beat.sequence;
    }
    // Five intervals with at most 4 % on top; the upper bound leaves room for a busy machine.
    let took = started.elapsed();
    assert!(took > Duration::from_millis(1450) && took < Duration::from_millis(2900), "{took:?}");

    let state = agent.state(|state| state.attached_to.is_some()).await;
    assert_eq!((state.attached_to, state.incarnation, state.last_error), (Some(3), 9, None));
    assert_eq!((state.fleet.as_deref(), state.terms.beat_interval.as_millis()), (Some("fleet-1"), 300));
}

#[tokio::test]
async fn l_5_a_node_registers_when_asked_and_beats_once_it_is_welcome() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let (mut session, _) = replica.session().await;
    session.send(Down::RegistrationWanted(v1::RegistrationWanted { why: "not known".into() })).await;
    let register = session.registration().await;
    assert!(String::from_utf8_lossy(&register.node).contains("rack-1"));
    assert_eq!(session.hear_for(QUIET).await, Some(vec![]), "nothing is said until the welcome");

    session.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.len() > 2, "{heard:?}");
    assert!(heard.iter().all(|message| matches!(message, Up::Beat(_))), "the status was registered: {heard:?}");
    assert_eq!(agent.session.state().removals, 0);
}

#[tokio::test]
async fn rg_4_a_known_node_reports_its_machine_once_per_process() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.take_status().await;
    session.hear_for(QUIET).await.unwrap();
    let said: Vec<_> = session.machine_reports.iter().map(|register| register.node.clone()).collect();
    assert_eq!(said, [agent.machine.node_json()], "as if it registered");
    drop(session);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.hear_for(QUIET).await.unwrap();
    assert!(session.machine_reports.is_empty(), "a new stream is not a new process");
}

#[tokio::test]
async fn s_1_and_s_4_a_status_is_posted_at_once_then_on_change_and_on_demand() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    assert_eq!(session.take_status().await.status, status("True", 0), "the first status is posted unasked");

    agent.machine.set("True", 1);
    agent.session.report();
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.len() > 2 && heard.iter().all(|message| matches!(message, Up::Beat(_))), "{heard:?}");

    agent.machine.set("False", 2);
    agent.session.report();
    assert_eq!(session.take_status().await.status, status("False", 2));

    session.send(Down::StatusWanted(v1::StatusWanted { revision: 10 })).await;
    assert_eq!(session.take_status().await.status, status("False", 2));
    session.send(Down::StatusWanted(v1::StatusWanted { revision: 9 })).await;
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.iter().all(|message| matches!(message, Up::Beat(_))), "an older demand is ignored: {heard:?}");
}

#[tokio::test]
async fn s_3_a_welcome_can_demand_the_status() {
    let mut replica = Replica::start().await;
    let _agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.take_status().await;
    drop(session);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.len() > 2 && heard.iter().all(|message| matches!(message, Up::Beat(_))), "{heard:?}");
    drop(session);
    let mut session = replica.welcomed(v1::Welcome { status_wanted: true, ..welcome(1, 1, BEAT_MS) }).await;
    session.take_status().await;
}

#[tokio::test]
async fn the_owner_is_told_of_a_refused_status() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    let sequence = session.status().await.sequence;
    let taken = v1::StatusTaken { sequence, written: false, refused: "conditions: too many".into() };
    session.send(Down::StatusTaken(taken)).await;
    let state = agent.state(|state| state.last_error.is_some()).await;
    assert!(state.last_error.unwrap().to_string().contains("conditions: too many"));
    assert_eq!(state.attached_to, Some(1));
}

#[tokio::test]
async fn l_3_a_lost_replica_is_replaced_by_the_next_within_the_back_off() {
    let replicas = vec![Replica::start().await, Replica::start().await, Replica::start().await];
    let agent = Agent::start(&replicas.iter().collect::<Vec<_>>());
    let (visited, session, mut others) = first_visited(replicas).await;
    session.send(Down::Welcome(welcome(1, 4, BEAT_MS))).await;
    agent.state(|state| state.attached_to == Some(1)).await;

    let lost = Instant::now();
    drop((session, visited));
    let (session, hello) = others[0].session().await;
    assert!(lost.elapsed() < Duration::from_secs(2), "{:?}", lost.elapsed());
    assert_eq!((hello.incarnation, hello.moving), (4, false));
    session.send(Down::Welcome(welcome(2, 4, BEAT_MS))).await;
    let state = agent.state(|state| state.attached_to == Some(2)).await;
    assert_eq!((state.last_error, state.removals), (None, 0));
}

#[tokio::test]
async fn l_4_a_replica_that_keeps_breaking_the_stream_is_retried_with_growing_pauses_up_to_the_cap() {
    let mut replica = Replica::start().await;
    let _agent = Agent::start(&[&replica]);
    let mut opened = Vec::new();
    for _ in 0..8 {
        let (session, _) = replica.session().await;
        session.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
        opened.push(session.opened);
    }
    let took = opened[7] - opened[0];
    // Full jitter: seven pauses of 100, 200, 400, 400... ms at most, about half of it on average.
    assert!(took > Duration::from_millis(250), "it spins: {took:?}");
    assert!(took < Duration::from_secs(7), "the cap is not kept: {took:?}");
}

#[tokio::test]
async fn an_agent_told_to_move_keeps_its_stream_until_another_replica_welcomes_it() {
    let replicas = vec![Replica::start().await, Replica::start().await];
    let agent = Agent::start(&replicas.iter().collect::<Vec<_>>());
    let (_visited, mut old, mut others) = first_visited(replicas).await;
    old.send(Down::Welcome(welcome(1, 4, BEAT_MS))).await;
    old.take_status().await;
    old.send(Down::Move(v1::Move { why: "no contact to the leader".into() })).await;

    let (refusing, hello) = others[0].session().await;
    assert_eq!((hello.moving, hello.incarnation, hello.instance), (true, 4, 77));
    old.beat().await;
    refusing.refuse(Status::unavailable("no contact to the leader either")).await;
    let state = agent.state(|state| state.last_error.is_some()).await;
    assert_eq!(state.attached_to, Some(1), "no replica accepts, so the old stream is kept");

    let (new, hello) = others[0].session().await;
    assert!(hello.moving);
    assert!(old.hear_for(QUIET).await.expect("the old stream must stay open").len() > 2);
    new.send(Down::Welcome(welcome(2, 4, BEAT_MS))).await;
    agent.state(|state| state.attached_to == Some(2) && state.last_error.is_none()).await;
    old.ended().await;
}

/// The old key is good until the new one was used, so that must be soon.
#[tokio::test]
async fn a_renewed_agent_keeps_its_stream_until_its_own_replica_welcomes_it_anew() {
    let replicas = vec![Replica::start().await, Replica::start().await];
    let agent = Agent::start(&replicas.iter().collect::<Vec<_>>());
    let (mut visited, mut old, mut others) = first_visited(replicas).await;
    old.send(Down::Welcome(welcome(1, 4, BEAT_MS))).await;
    old.take_status().await;
    agent.session.reattach();

    let (new, hello) = visited.session().await;
    assert_eq!((hello.moving, hello.incarnation, hello.instance), (true, 4, 77));
    assert!(old.hear_for(QUIET).await.expect("the old stream must stay open").len() > 2);
    new.refuse(Status::unavailable("busy")).await;
    // Then any replica serves.
    let (new, hello) = others[0].session().await;
    assert!(hello.moving);
    old.beat().await;
    assert_eq!(agent.session.state().attached_to, Some(1), "it never was without a session");
    new.send(Down::Welcome(welcome(2, 4, BEAT_MS))).await;
    agent.state(|state| state.attached_to == Some(2) && state.last_error.is_none()).await;
    old.ended().await;
    assert!(visited.is_left_alone(QUIET).await, "once is enough");
}

#[tokio::test]
async fn a_renewed_agent_whose_old_stream_ends_first_waits_for_its_welcome() {
    let replicas = vec![Replica::start().await, Replica::start().await];
    let agent = Agent::start(&replicas.iter().collect::<Vec<_>>());
    let (mut visited, mut old, mut others) = first_visited(replicas).await;
    old.send(Down::Welcome(welcome(1, 4, BEAT_MS))).await;
    old.take_status().await;
    agent.session.reattach();

    let (mut new, _) = visited.session().await;
    old.refuse(Status::aborted("continued at replica 1")).await;
    assert!(others[0].is_left_alone(QUIET).await, "it is about to be welcomed where it was");
    assert_eq!(agent.session.state().attached_to, Some(1), "it never was without a session");
    new.send(Down::Welcome(welcome(1, 4, BEAT_MS))).await;
    new.beat().await;
    agent.state(|state| state.attached_to == Some(1) && state.last_error.is_none()).await;
}

#[tokio::test]
async fn a_removed_node_registers_again_as_a_new_incarnation() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 4, BEAT_MS)).await;
    session.take_status().await;

    session.send(Down::Removed(v1::Removed { incarnation: 3, revision: 5 })).await;
    let heard = session.hear_for(QUIET).await.unwrap();
    assert!(heard.iter().all(|message| matches!(message, Up::Beat(_))), "status of a former incarnation: {heard:?}");

    session.send(Down::Removed(v1::Removed { incarnation: 4, revision: 6 })).await;
    session.registration().await;
    let state = agent.state(|state| state.removals == 1).await;
    assert_eq!((state.incarnation, state.attached_to), (0, None));
    session.send(Down::Welcome(welcome(1, 5, BEAT_MS))).await;
    agent.state(|state| state.incarnation == 5 && state.attached_to == Some(1)).await;
    session.beat().await;
}

#[tokio::test]
async fn a_node_removed_in_its_absence_registers_again_and_counts_the_removal() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let session = replica.welcomed(welcome(1, 4, BEAT_MS)).await;
    agent.state(|state| state.incarnation == 4).await;
    drop(session);
    let (mut session, hello) = replica.session().await;
    assert_eq!(hello.incarnation, 4);
    session.send(Down::RegistrationWanted(v1::RegistrationWanted { why: "deleted".into() })).await;
    session.registration().await;
    agent.state(|state| state.removals == 1 && state.incarnation == 0).await;
}

#[tokio::test]
async fn repeated_requests_to_register_are_answered_after_a_pause() {
    let mut replica = Replica::start().await;
    let _agent = Agent::start(&[&replica]);
    let (mut session, _) = replica.session().await;
    for _ in 0..3 {
        session.send(Down::RegistrationWanted(v1::RegistrationWanted { why: "not known".into() })).await;
        session.registration().await;
    }
    assert_eq!(session.hear_for(QUIET).await, Some(vec![]));
}

#[tokio::test]
async fn another_instance_of_the_name_is_refused_reported_and_retried_slowly() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let (session, _) = replica.session().await;
    let opened = session.opened;
    session.refuse(Status::already_exists("rack-1 is held by another instance")).await;
    let state = agent.state(|state| state.last_error.is_some()).await;
    let Some(SessionFailure::Refused { code, message, .. }) = state.last_error else { panic!("{state:?}") };
    assert_eq!((code, message.as_str()), (tonic::Code::AlreadyExists, "rack-1 is held by another instance"));
    // No terms were heard, so the cap is two seconds and a verdict waits for half of it at least.
    let (again, _) = replica.session().await;
    assert!(again.opened - opened > Duration::from_millis(900), "{:?}", again.opened - opened);
    again.send(Down::Welcome(welcome(1, 1, BEAT_MS))).await;
    agent.state(|state| state.attached_to == Some(1) && state.last_error.is_none()).await;
}

#[tokio::test]
async fn older_terms_are_ignored() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let first = v1::Welcome { terms: Some(terms(5, BEAT_MS)), ..welcome(1, 1, 0) };
    let mut session = replica.welcomed(first).await;
    session.send(Down::Terms(terms(4, 60_000))).await;
    for _ in 0..5 {
        session.beat().await;
    }
    assert_eq!(agent.session.state().terms.beat_interval.as_millis(), u128::from(BEAT_MS));
    session.send(Down::Terms(terms(6, 60_000))).await;
    agent.state(|state| state.terms.revision == 6 && state.terms.beat_interval.as_secs() == 60).await;
}

#[tokio::test]
async fn another_fleet_is_never_joined() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    agent.state(|state| state.attached_to.is_some()).await;
    drop(session);
    let foreign = replica.welcomed(v1::Welcome { fleet: "fleet-2".into(), ..welcome(1, 1, BEAT_MS) }).await;
    foreign.ended().await;
    let is_foreign = |state: &SessionState| matches!(state.last_error, Some(SessionFailure::ForeignFleet { .. }));
    let state = agent.state(is_foreign).await;
    assert_eq!((state.attached_to, state.fleet.as_deref()), (None, Some("fleet-1")));
}

#[tokio::test]
async fn an_acknowledgement_is_requested_until_it_arrives_or_times_out() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, BEAT_MS)).await;
    session.acknowledges = false;
    session.take_status().await;
    let replica_side = async {
        loop {
            let beat = session.beat().await;
            if beat.acknowledge {
                // An old acknowledgement must not count, and a question left open is asked again.
                session.send(Down::Acknowledged(v1::Acknowledged { sequence: beat.sequence - 1 })).await;
                let again = session.beat().await;
                assert!(again.acknowledge);
                session.send(Down::Acknowledged(v1::Acknowledged { sequence: again.sequence })).await;
                return;
            }
        }
    };
    let (answer, ()) = tokio::join!(agent.session.acknowledged(TIMEOUT), replica_side);
    assert_eq!(answer, Ok(()));

    let deadline = Duration::from_millis(200);
    assert_eq!(agent.session.acknowledged(deadline).await, Err(NotAcknowledged::InTime(deadline)));
}

#[tokio::test]
async fn stopping_a_session_sends_goodbye_and_dropping_it_sends_nothing() {
    let mut replica = Replica::start().await;
    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, 60_000)).await;
    session.take_status().await;
    let replica_side = async move {
        let last = session.receive().await;
        drop(session);
        last
    };
    let ((), last) = tokio::join!(agent.session.stop(), replica_side);
    assert_eq!(last, Some(Up::Goodbye(v1::Goodbye {})));

    let agent = Agent::start(&[&replica]);
    let mut session = replica.welcomed(welcome(1, 1, 60_000)).await;
    session.take_status().await;
    drop(agent.session);
    assert_eq!(session.receive().await, None);
    assert!(replica.is_left_alone(QUIET).await);
}
