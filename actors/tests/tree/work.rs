//! Pods and workloads under the tree: made, placed, evicted from lost nodes and replaced, whichever clerks live.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_actors::ports::Quiet;
use muster_actors::{ActorKind, StateSource};
use muster_lifecycle::addressing::AddressRequest;
use muster_lifecycle::command::{LeaderOperation, OperatorOperation, Origin};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::{Pairs, Uid};
use muster_lifecycle::pod::{Pod, PodTemplate};
use muster_lifecycle::text::Text;
use muster_lifecycle::workload::{WorkloadDraft, WorkloadKey};

use crate::stage::{ANY, Stage, TERM, seconds};
use crate::watching::{InjectedPanics, Watcher};

const CLERKS: [ActorKind; 5] =
    [ActorKind::TaintEviction, ActorKind::Placement, ActorKind::PodGc, ActorKind::Staffing, ActorKind::Ipam];

impl Stage {
    fn workload(&self, kind: WorkloadKind, name: &str, replicas: i64) {
        let labels: Pairs = [("app", name)].into_iter().collect();
        let draft = WorkloadDraft {
            key: WorkloadKey { kind, namespace: Text::from("default"), name: Text::from(name) },
            labels: None,
            annotations: None,
            finalizers: None,
            owners: None,
            replicas: Some(replicas),
            selector: labels.clone(),
            pod_labels: labels,
            pod_annotations: Pairs::default(),
            template: PodTemplate { has_containers: true, ..PodTemplate::default() },
            unmodelled: None,
        };
        let uid = Uid(0xfeed + replicas.unsigned_abs() as u128);
        self.operator(OperatorOperation::ApplyWorkload { draft: Box::new(draft), uid, precondition: ANY });
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.world.state().pods().iter().cloned().collect()
    }

    /// How many pods are bound in each zone, not counting those on their way out.
    fn spread(&self) -> BTreeMap<String, usize> {
        let mut spread = BTreeMap::new();
        for node in self.pods().iter().filter(|pod| pod.is_active()).filter_map(|pod| pod.node().cloned()) {
            *spread.entry(node.split('-').next().unwrap().to_owned()).or_default() += 1;
        }
        spread
    }

    fn bound(&self) -> usize {
        self.spread().values().sum()
    }

    fn evicted_pods(&self) -> Vec<Duration> {
        let log = self.world.log();
        let done = log.iter().filter(|entry| entry.outcome.is_done() && entry.operation.label() == "evict-pod");
        done.map(|entry| entry.at).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_replica_set_are_created_and_spread_over_zones() {
    let stage = Stage::set().with_zone("a", 4).with_zone("b", 4).with_zone("c", 4);
    stage.grow().await;
    stage.workload(WorkloadKind::ReplicaSet, "web", 12);
    stage.until("all pods have a node", seconds(5), |stage| stage.bound() == 12).await;
    assert_eq!(stage.spread(), [("a", 4), ("b", 4), ("c", 4)].map(|(zone, count)| (zone.to_owned(), count)).into());
    stage.workload(WorkloadKind::ReplicaSet, "web", 3);
    stage.until("it shrinks", seconds(5), |stage| stage.bound() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn te_13_pods_leave_a_lost_node_after_their_toleration_and_are_replaced_elsewhere() {
    let stage = Stage::set().with_zone("a", 3).with_zone("b", 3);
    stage.set_policy("pod-eviction-timeout", "30s");
    stage.grow().await;
    stage.workload(WorkloadKind::ReplicaSet, "web", 6);
    stage.until("all pods have a node", seconds(5), |stage| stage.bound() == 6).await;
    stage.pass(seconds(5)).await;
    let lost = stage.pods().iter().filter(|pod| pod.node().is_some_and(|node| node == "a-0")).count();
    assert_eq!(lost, 1);
    stage.kill("a-0");
    stage.until("a-0 is evicted", seconds(60), |stage| stage.is_evicted("a-0")).await;
    let tainted = stage.evicted()["a-0"];
    stage.until("its pod is evicted", seconds(60), |stage| !stage.evicted_pods().is_empty()).await;
    let after = stage.evicted_pods()[0] - tainted;
    assert!(after >= seconds(30) && after < seconds(31), "evicted {after:?} after the taint");
    stage.until("the successor has a node", seconds(5), |stage| stage.bound() == 6).await;
    let on_lost = stage.pods().iter().filter(|pod| pod.node().is_some_and(|node| node == "a-0")).count();
    assert_eq!(on_lost, 1, "the old one is there until its node confirms that it has stopped");
}

#[tokio::test(start_paused = true)]
async fn te_7_better_than_upstream_a_failover_does_not_restart_the_countdown() {
    let stage = Stage::set().with_zone("a", 3).with_zone("b", 3);
    stage.set_policy("pod-eviction-timeout", "60s");
    stage.grow().await;
    stage.workload(WorkloadKind::ReplicaSet, "web", 6);
    stage.until("all pods have a node", seconds(5), |stage| stage.bound() == 6).await;
    stage.kill("a-0");
    stage.until("a-0 is evicted", seconds(90), |stage| stage.is_evicted("a-0")).await;
    let tainted = stage.evicted()["a-0"];
    stage.pass(seconds(30)).await;
    stage.prune().await;
    stage.world.set_term(TERM + 1);
    stage.grow_with(TERM + 1, Arc::new(Quiet), Arc::new(Quiet)).await;
    stage.until("its pod is evicted", seconds(60), |stage| !stage.evicted_pods().is_empty()).await;
    let after = stage.evicted_pods()[0] - tainted;
    assert!(after >= seconds(60) && after < seconds(61), "evicted {after:?} after the taint");
}

#[tokio::test(start_paused = true)]
async fn i_03_while_the_leader_is_blind_pods_of_lost_nodes_stay_and_an_operators_taint_still_evicts() {
    let stage = Stage::set().with_zone("a", 3).with_zone("b", 3);
    stage.set_policy("pod-eviction-timeout", "20s");
    stage.grow().await;
    stage.workload(WorkloadKind::ReplicaSet, "web", 6);
    stage.until("all pods have a node", seconds(5), |stage| stage.bound() == 6).await;
    stage.kill("a-0");
    stage.until("a-0 is evicted", seconds(90), |stage| stage.is_evicted("a-0")).await;
    stage.pulses.blindness().quorum_lost(stage.world.moment().tick);
    stage.pass(seconds(60)).await;
    assert!(stage.evicted_pods().is_empty(), "it is not known whether a-0 is back");
    let taint = vec!["maintenance:NoExecute".parse().unwrap()];
    let operation = OperatorOperation::TaintNode {
        name: Text::from("b-0"),
        add: taint,
        remove: vec![],
        overwrite: false,
        precondition: ANY,
    };
    stage.operator(operation);
    stage.until("b-0's pod is evicted", seconds(5), |stage| stage.evicted_pods().len() == 1).await;
    stage.pulses.blindness().quorum_heard(stage.world.moment().tick);
    stage.until("a-0's pod is evicted", seconds(60), |stage| stage.evicted_pods().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_placed_on_a_node_that_missed_two_beats() {
    let stage = Stage::set().with_zone("a", 1).with_zone("b", 1);
    stage.grow().await;
    stage.pass(seconds(5)).await;
    stage.kill("a-0");
    stage.pass(seconds(25)).await;
    assert!(!stage.is_unknown("a-0"), "it is not judged yet");
    stage.workload(WorkloadKind::ReplicaSet, "web", 4);
    stage.until("all pods have a node", seconds(5), |stage| stage.bound() == 4).await;
    assert_eq!(stage.spread(), BTreeMap::from([("b".to_owned(), 4)]));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_a_pod_on_every_node_even_if_cordoned() {
    let stage = Stage::set().with_zone("a", 3);
    stage.grow().await;
    let cordon = OperatorOperation::CordonNode { name: Text::from("a-1"), unschedulable: true, precondition: ANY };
    stage.operator(cordon);
    stage.workload(WorkloadKind::DaemonSet, "log", 0);
    stage.until("every node has one", seconds(5), |stage| stage.bound() == 3).await;
    stage.register("a-9", "a");
    stage.until("a new node gets one", seconds(5), |stage| stage.bound() == 4).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_without_pod_cidrs_get_them_once_there_is_a_plan() {
    let stage = Stage::set().with_zone("a", 3);
    let request = AddressRequest { cluster_cidrs: vec!["10.0.0.0/16".parse().unwrap()], ..AddressRequest::default() };
    let plan = Box::new(request.plan().unwrap());
    stage.world.apply(Origin::Controller { term: TERM }, LeaderOperation::FoundAddressing { plan });
    stage.grow().await;
    stage.until("all have addresses", seconds(5), |stage| stage.world.state().nodes_without_cidr().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_clerk_that_crashes_is_rebuilt_and_its_work_continues() {
    let (watcher, panics) = (Arc::new(Watcher::default()), Arc::new(InjectedPanics::default()));
    let stage = Stage::set().with_zone("a", 4).with_zone("b", 4);
    stage.set_policy("pod-eviction-timeout", "20s");
    stage.grow_watched(watcher.clone(), panics.clone()).await;
    for (kind, replicas) in CLERKS.into_iter().zip((8..).step_by(8)) {
        panics.inject(kind, kind.as_str(), 3);
        stage.workload(WorkloadKind::ReplicaSet, "web", replicas);
        stage.until("it is rebuilt", seconds(30), |_| watcher.restarts(kind) >= 3).await;
        let wanted = usize::try_from(replicas).unwrap();
        stage.until("all pods have a node", seconds(30), |stage| stage.bound() == wanted).await;
    }
    stage.kill("a-0");
    stage.until("its pods are evicted", seconds(120), |stage| stage.evicted_pods().len() >= 5).await;
    stage.until("their successors have nodes", seconds(10), |stage| stage.bound() == 40).await;
}
