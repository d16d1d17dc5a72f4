//! Tests of sessions in trouble: agents in haste, connections that break, leaders that die or cannot be asked.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use muster_controller::session::figures::RefusalReason;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::agent_message::Message as Up;
use muster_proto::v1::aggregator_message::Message as AggregatorUp;
use muster_proto::v1::aggregator_reply::Message as AggregatorDown;
use muster_proto::v1::server_message::Message as Down;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::agent::{Agent, Aggregator, hello, status_json};
use crate::cluster::{Cluster, until};
use crate::{FIRST, register, set_scope};

/// The writes that a node may make at once; its registration counts.
const BURST: u64 = 10;

fn with_cpus(count: u64) -> String {
    status_json(0).replace("\"8\"", &format!("\"{count}\""))
}

#[tokio::test]
async fn a_node_that_writes_too_often_is_delayed_and_its_newest_report_kept() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let began = Instant::now();
    let (mut agent, _) = Agent::register(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    for sequence in 1..BURST {
        agent.report(sequence, &with_cpus(sequence));
        assert_eq!(agent.status_taken().await.sequence, sequence);
    }
    let last = 2 * BURST - 1;
    for sequence in BURST..=last {
        agent.report(sequence, &with_cpus(sequence));
    }
    agent.say(Up::Beat(v1::Beat { sequence: 99, acknowledge: true }));
    let (mut acknowledged, mut written) = (false, 0);
    loop {
        match agent.hear().await {
            Down::Acknowledged(_) => acknowledged = true,
            Down::StatusTaken(taken) => {
                written += u64::from(taken.written);
                if taken.sequence == last {
                    break;
                }
            }
            other => panic!("told {other:?}"),
        }
    }
    assert!(acknowledged, "beats do not wait");
    assert!(began.elapsed() >= Duration::from_secs(written), "{written} after {:?}", began.elapsed());
    assert_eq!(cluster.node(ReplicaId(1), "a").status.capacity.get("cpu").unwrap().to_string(), last.to_string());
    assert!(cluster.running[&ReplicaId(1)].sessions.figures().delayed() > 0);
    // Another stream of the node has the same budget.
    let mut again = Agent::greet(&cluster, ReplicaId(1), hello("a", FIRST)).await;
    again.welcomed().await;
    for sequence in 1..=2 {
        again.report(sequence, &with_cpus(30 + sequence));
        assert!(again.status_taken().await.written);
    }
    assert!(began.elapsed() >= Duration::from_secs(written + 2), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn an_aggregators_node_that_writes_too_often_is_delayed_alone() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let began = Instant::now();
    let mut aggregator = aggregator_of(&cluster, &[(0, "r-0"), (1, "r-1")]).await;
    let report = |handle, sequence| {
        let report = Some(v1::StatusReport { sequence, status: with_cpus(sequence).into(), running: None });
        AggregatorUp::Status(v1::CarriedStatus { handle, report })
    };
    for sequence in 1..BURST {
        aggregator.say(report(0, sequence));
        assert_eq!(aggregator.carried().await.0, 0);
    }
    aggregator.say(report(0, 50));
    aggregator.say(report(0, 51));
    aggregator.say(report(1, 52));
    let mut others = 0;
    loop {
        match aggregator.carried().await {
            (0, Down::StatusTaken(taken)) if taken.sequence == 51 => break assert!(taken.written),
            (handle, Down::StatusTaken(_)) => others += handle,
            other => panic!("told {other:?}"),
        }
    }
    assert_eq!(others, 1, "the other did not wait for it");
    assert!(began.elapsed() >= Duration::from_secs(1), "after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_broken_connection_is_not_counted_as_a_refusal() {
    let cluster = Arc::new(Cluster::start(&[ReplicaId(1)]).await);
    let figures = cluster.running[&ReplicaId(1)].sessions.figures();
    // Tasks on this runtime end like a process that is killed: their connections close without a word.
    let elsewhere = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let there = Arc::clone(&cluster);
    let streams = elsewhere.spawn(async move {
        let (agent, _) = Agent::register(&there, ReplicaId(1), hello("a", FIRST)).await;
        let unheard = Agent::open(&there, ReplicaId(1), "c").await;
        (agent, unheard, aggregator_of(&there, &[(0, "r-0")]).await)
    });
    let _streams = streams.await.unwrap();
    assert_eq!(figures.sessions(), 2);
    elsewhere.shutdown_background();
    until("both sessions are over", || figures.sessions() == 0).await;
    // Everything counted for them was counted before the next agent is admitted.
    let (_after, _) = Agent::register(&cluster, ReplicaId(1), hello("b", FIRST)).await;
    let refused = RefusalReason::ALL.map(|reason| (reason.label(), figures.refused(reason)));
    assert!(refused.iter().all(|(_, count)| *count == 0), "{refused:?}");
}

#[tokio::test]
async fn a_report_that_is_waiting_when_the_leader_dies_is_written_by_the_next_leader() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let leader = cluster.leader().await;
    let others: Vec<ReplicaId> = cluster.running.keys().copied().filter(|id| *id != leader).collect();
    let mut agents = Vec::new();
    for (id, node) in others.iter().zip(["a", "b"]) {
        agents.push(Agent::register(&cluster, *id, hello(node, FIRST)).await.0);
    }
    let last = BURST - 1;
    let reporting = async {
        for sequence in 1..=last {
            agents.iter_mut().for_each(|agent| agent.report(sequence, &with_cpus(sequence)));
            sleep(Duration::from_millis(60)).await;
        }
        join_all(agents.iter_mut().map(|agent| answers_until(agent, last))).await
    };
    let ((), answers) = tokio::join!(cluster.stop(leader), reporting);
    for taken in answers.iter().flatten() {
        assert_eq!(taken.refused, "", "report {}", taken.sequence);
    }
    for (id, node) in others.iter().zip(["a", "b"]) {
        assert_eq!(cluster.node(*id, node).status.capacity.get("cpu").unwrap().to_string(), last.to_string());
    }
}

async fn answers_until(agent: &mut Agent, last: u64) -> Vec<v1::StatusTaken> {
    let mut answers = vec![agent.status_taken().await];
    while answers.iter().all(|taken| taken.sequence != last) {
        answers.push(agent.status_taken().await);
    }
    answers
}

#[tokio::test]
async fn beats_are_heard_while_bindings_wait_for_the_leader() {
    let mut cluster = Cluster::start(&[1, 2, 3].map(ReplicaId)).await;
    let mut aggregator = aggregator_of(&cluster, &[(0, "r-0")]).await;
    cluster.stop(ReplicaId(2)).await;
    cluster.stop(ReplicaId(3)).await;
    let figures = cluster.running[&ReplicaId(1)].sessions.figures();
    let before = figures.aggregator_beats();
    // That its node is gone cannot be said without the leader, so the replica waits for it.
    let doubtful = v1::Binding { handle: 1, node: "r-1".into(), incarnation: 99, orders_revision: 0, continues: false };
    aggregator.say(AggregatorUp::Bind(v1::Bind { bindings: vec![doubtful] }));
    let asked = Instant::now();
    aggregator.say(AggregatorUp::Beats(v1::Beats { handles: vec![0, 1], acknowledge: 0 }));
    until("the beat is heard", || figures.aggregator_beats() > before).await;
    assert!(asked.elapsed() < Duration::from_secs(3), "after {:?}", asked.elapsed());
    let answer = loop {
        match aggregator.hear().await {
            AggregatorDown::Bound(bound) => break bound.nodes,
            AggregatorDown::Move(_) => {}
            other => panic!("told {other:?}"),
        }
    };
    assert!(answer[0].handle == 1 && answer[0].refused.contains("no leader can be asked"), "{answer:?}");
}

#[tokio::test]
async fn a_node_released_while_it_is_being_bound_can_attach_elsewhere() {
    let cluster = Cluster::start(&[ReplicaId(1)]).await;
    let mut aggregator = aggregator_of(&cluster, &[(0, "r-0")]).await;
    aggregator.say(AggregatorUp::Release(v1::Release { handles: vec![0] }));
    aggregator.bind(&[(0, "r-0")]);
    aggregator.say(AggregatorUp::Release(v1::Release { handles: vec![0] }));
    crate::welcomed_in_the_end(&cluster, ReplicaId(1), &hello("r-0", crate::SECOND)).await;
}

/// An aggregator with nodes that are registered.
async fn aggregator_of(cluster: &Cluster, nodes: &[(u32, &str)]) -> Aggregator {
    set_scope(cluster, &["r-*"]).await;
    until("the scope is known", || {
        cluster.running.values().all(|one| one.replica.current().state.aggregators().get("rack").is_some())
    })
    .await;
    let mut aggregator = Aggregator::greet(cluster, ReplicaId(1), "rack", FIRST).await;
    assert!(matches!(aggregator.hear().await, AggregatorDown::Welcome(_)));
    aggregator.bind(nodes);
    assert_eq!(aggregator.bound().await.len(), nodes.len());
    for (handle, node) in nodes {
        register(&mut aggregator, *handle, node).await;
    }
    aggregator
}
