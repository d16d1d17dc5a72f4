//! Random fleets at work: nodes come, fall silent and go, pods and workloads with them, leaders change, and an
//! operator restores a backup. The invariants hold after every entry (the fixture checks them). No address is given
//! to another node before its rest is over, not even one that only the lost history knows of.
//!
//! A failure prints the history and leaves its seed in `proptest-regressions`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ipnet::IpNet;
use muster_lifecycle::command::{AgentOperation, Command, OperatorOperation, Outcome, ReceiptEffect};
use muster_lifecycle::kind::WorkloadKind;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Incarnation, Node, NodeDraft, NodeStatus};
use muster_lifecycle::pod::{Phase, PodDraft, PodReport};
use muster_lifecycle::text::Text;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

const NODES: [&str; 5] = ["n0", "n1", "n2", "n3", "n4"];
const PODS: [&str; 4] = ["p0", "p1", "p2", "web-1"];

/// Fewer blocks than nodes, so that they run out.
const RANGES: &str = "10.0.0.0/22 fd00::/62";

/// One thing that happens.
#[derive(Debug, Clone)]
enum Act {
    Register {
        node: usize,
        ready: bool,
        running: Option<bool>,
    },
    CreateByHand {
        node: usize,
        cidr: &'static str,
        guarded: bool,
    },
    Report {
        node: usize,
        ready: bool,
        running: Option<bool>,
    },
    Silence(usize),
    EvictNode(usize),
    DeleteNode(usize),
    Unguard(usize),
    Cordon(usize, bool),
    Taint {
        node: usize,
        taint: &'static str,
        added: bool,
    },
    MakePod {
        pod: usize,
        node: Option<usize>,
        tolerations: &'static str,
    },
    DeletePod {
        pod: usize,
        grace: Option<u32>,
    },
    SpeakOfPods {
        node: usize,
        phase: Phase,
        stopped: bool,
    },
    Scale {
        kind: WorkloadKind,
        replicas: i64,
    },
    DeleteWorkload(WorkloadKind),
    /// The leader does what it finds to do.
    Tend,
    Wait(u64),
    FailOver,
    BackUp,
    Restore,
}

fn any_act() -> impl Strategy<Value = Act> {
    let node = || 0..NODES.len();
    let pod = || 0..PODS.len();
    let running = || proptest::option::of(any::<bool>());
    let kind = || proptest::sample::select(WorkloadKind::ALL.to_vec());
    let cidr =
        proptest::sample::select(vec!["10.0.2.0/24", "10.0.1.0/25", "10.0.0.0/22", "fd00:0:0:1::/64", "10.9.0.0/24"]);
    let taint = proptest::sample::select(vec!["t:NoExecute", "node.kubernetes.io/out-of-service:NoExecute"]);
    let tolerations = proptest::sample::select(vec!["", "t:NoExecute@5", "*:NoExecute@40", "t:NoExecute"]);
    let phase = proptest::sample::select(vec![Phase::Running, Phase::Succeeded, Phase::Failed]);
    let grace = proptest::option::of(prop_oneof![Just(0), Just(30)]);
    prop_oneof![
        8 => (node(), any::<bool>(), running()).prop_map(|(node, ready, running)| Act::Register { node, ready, running }),
        2 => (node(), cidr, any::<bool>()).prop_map(|(node, cidr, guarded)| Act::CreateByHand { node, cidr, guarded }),
        4 => (node(), any::<bool>(), running()).prop_map(|(node, ready, running)| Act::Report { node, ready, running }),
        3 => node().prop_map(Act::Silence),
        3 => node().prop_map(Act::EvictNode),
        6 => node().prop_map(Act::DeleteNode),
        1 => node().prop_map(Act::Unguard),
        1 => (node(), any::<bool>()).prop_map(|(node, cordoned)| Act::Cordon(node, cordoned)),
        2 => (node(), taint, any::<bool>()).prop_map(|(node, taint, added)| Act::Taint { node, taint, added }),
        5 => (pod(), proptest::option::of(node()), tolerations).prop_map(|(pod, node, tolerations)| Act::MakePod { pod, node, tolerations }),
        3 => (pod(), grace).prop_map(|(pod, grace)| Act::DeletePod { pod, grace }),
        5 => (node(), phase, any::<bool>()).prop_map(|(node, phase, stopped)| Act::SpeakOfPods { node, phase, stopped }),
        3 => (kind(), 0i64..4).prop_map(|(kind, replicas)| Act::Scale { kind, replicas }),
        1 => kind().prop_map(Act::DeleteWorkload),
        6 => Just(Act::Tend),
        4 => (1u64..90).prop_map(Act::Wait),
        1 => Just(Act::FailOver),
        1 => Just(Act::BackUp),
        1 => Just(Act::Restore),
    ]
}

fn any_acts() -> impl Strategy<Value = Vec<Act>> {
    proptest::collection::vec(any_act(), 1..60)
}

type Holdings = BTreeMap<IpNet, (String, Incarnation)>;

/// The blocks that were given back, and when, in seconds that no restore turns back.
type Freed = Vec<(IpNet, u64)>;

struct World {
    cluster: Cluster,
    /// Freed in the history that the state knows.
    freed: Freed,
    /// Freed, or merely held, in a history that was lost. An operator who gives addresses by hand cannot know of it.
    lost: Freed,
    /// How far the fleet's time lags behind the seconds that have really passed.
    lag: u64,
    backup: Option<(Cluster, Freed)>,
    done: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let mut cluster = Cluster::addressed(RANGES);
        cluster.create(host("base"));
        let (freed, lost, done) = (Freed::new(), Freed::new(), BTreeSet::new());
        Self { cluster, freed, lost, lag: 0, backup: None, done }
    }

    fn holdings(&self) -> Holdings {
        let of = |node: &Arc<Node>| {
            let holder = (node.meta.name.to_string(), node.incarnation);
            node.spec.pod_cidrs.iter().map(move |cidr| (*cidr, holder.clone())).collect::<Vec<_>>()
        };
        self.cluster.state.nodes().iter().flat_map(of).collect()
    }

    fn seconds(&self) -> u64 {
        self.cluster.seconds_now() + self.lag
    }

    fn go(&mut self, act: &Act) {
        let before = self.holdings();
        match act {
            Act::Restore => return self.restore(),
            Act::BackUp => self.backup = Some((self.cluster.clone(), self.freed.clone())),
            Act::FailOver => self.cluster.fail_over(),
            Act::Wait(seconds) => self.cluster.wait(*seconds),
            Act::Tend => self.tend(),
            Act::Register { .. }
            | Act::CreateByHand { .. }
            | Act::Report { .. }
            | Act::Silence(_)
            | Act::EvictNode(_)
            | Act::DeleteNode(_)
            | Act::Unguard(_)
            | Act::Cordon(..)
            | Act::Taint { .. }
            | Act::MakePod { .. }
            | Act::DeletePod { .. }
            | Act::SpeakOfPods { .. }
            | Act::Scale { .. }
            | Act::DeleteWorkload(_) => {
                self.command(act);
            }
        }
        self.account(&before, matches!(act, Act::CreateByHand { .. }));
    }

    fn tend(&mut self) {
        self.cluster.assess();
        let before = self.cluster.state.events().iter().next_back().map_or(0, |event| event.sequence);
        self.cluster.tend();
        let told = self.cluster.state.events().iter().filter(|event| event.sequence > before);
        self.done.extend(told.map(|event| event.reason().to_owned()));
    }

    fn command(&mut self, act: &Act) {
        let uid = self.cluster.next_uid();
        let Some(command) = self.commanded(act, uid) else { return };
        let label = command.operation.label();
        let applied = self.cluster.submit(command);
        if matches!(&applied.outcomes[0], Outcome::Done(receipt) if receipt.effect != ReceiptEffect::Unchanged) {
            self.done.insert(label.to_owned());
        }
    }

    /// Notes which node was given which block, and which node gave one back.
    fn account(&mut self, before: &Holdings, by_hand: bool) {
        let (after, now) = (self.holdings(), self.seconds());
        for (cidr, holder) in before.iter().filter(|(cidr, holder)| after.get(*cidr) != Some(*holder)) {
            self.freed.push((*cidr, now));
            assert!(!after.contains_key(cidr), "{cidr} went from {holder:?} to {:?} at once", after[cidr]);
        }
        for cidr in after.keys().filter(|cidr| !before.contains_key(*cidr)) {
            let lost = self.lost.iter().filter(|_| !by_hand);
            for (other, freed) in self.freed.iter().chain(lost).filter(|(other, _)| overlap(cidr, other)) {
                assert!(now >= freed + REST.0 / 1000, "{cidr} was given out {}s after {other} was freed", now - freed);
                self.done.insert("given again".to_owned());
            }
        }
    }

    /// A block that was held or freed since the backup may still be in use, and nothing in the state says so.
    fn restore(&mut self) {
        let Some((mut cluster, freed)) = self.backup.clone() else { return };
        let now = self.seconds();
        self.lost.extend(self.holdings().into_keys().map(|cidr| (cidr, now)));
        self.lost.extend(self.freed.iter().filter(|known| !freed.contains(known)).copied().collect::<Vec<_>>());
        cluster.elections = self.cluster.elections;
        cluster.state.raise_revision(1_000_000, cluster.state.generation() + 1);
        self.cluster = cluster;
        self.cluster.fail_over();
        self.cluster.wind_back();
        // A node that has the block in the restored state has it again.
        let held = self.holdings();
        self.lost.retain(|(cidr, _)| !held.contains_key(cidr));
        self.lag = now - self.cluster.seconds_now();
        self.freed = freed;
        self.done.insert("restored".to_owned());
    }
}

fn overlap(left: &IpNet, right: &IpNet) -> bool {
    left.contains(right) || right.contains(left)
}

// === what an act asks for ===

impl World {
    fn commanded(&self, act: &Act, uid: Uid) -> Option<Command> {
        self.by_nodes(act, uid).or_else(|| self.by_operators(act, uid))
    }

    fn by_nodes(&self, act: &Act, uid: Uid) -> Option<Command> {
        match act {
            Act::Register { node, ready, running } => {
                let draft =
                    Box::new(NodeDraft { labels: None, status: Some(readiness(*ready)), ..draft(NODES[*node]) });
                let running = self.running(NODES[*node], *running);
                Some(by_agent(AgentOperation::RegisterNode { draft, uid, running }))
            }
            Act::Report { node, ready, running } => {
                let (name, incarnation) = self.identity(*node)?;
                let (status, running) = (Box::new(readiness(*ready)), self.running(NODES[*node], *running));
                Some(by_agent(AgentOperation::ReportStatus { name, incarnation, status, running }))
            }
            Act::SpeakOfPods { node, phase, stopped } => {
                let (node, incarnation) = self.identity(*node)?;
                let reports = self.reports(&node, *phase, *stopped);
                Some(by_agent(AgentOperation::ReportPods { node, incarnation, reports }))
            }
            Act::Silence(node) => {
                self.identity(*node)?;
                Some(self.cluster.leads(self.cluster.silent(NODES[*node], None)))
            }
            Act::EvictNode(node) => {
                self.identity(*node)?;
                Some(self.cluster.leads(self.cluster.eviction(NODES[*node])))
            }
            Act::CreateByHand { .. }
            | Act::DeleteNode(_)
            | Act::Unguard(_)
            | Act::Cordon(..)
            | Act::Taint { .. }
            | Act::MakePod { .. }
            | Act::DeletePod { .. }
            | Act::Scale { .. }
            | Act::DeleteWorkload(_)
            | Act::Tend
            | Act::Wait(_)
            | Act::FailOver
            | Act::BackUp
            | Act::Restore => None,
        }
    }

    fn by_operators(&self, act: &Act, uid: Uid) -> Option<Command> {
        let operation = match act {
            Act::CreateByHand { node, cidr, guarded } => {
                let finalizers = guarded.then(|| Box::from([Text::from("f")]));
                let draft = NodeDraft { finalizers, status: Some(readiness(true)), ..with_cidrs(NODES[*node], cidr) };
                OperatorOperation::CreateNode { draft: Box::new(draft), uid }
            }
            Act::DeleteNode(node) => delete(NODES[*node]),
            Act::Unguard(node) => {
                let draft = Box::new(NodeDraft { finalizers: Some(Box::default()), ..draft(NODES[*node]) });
                OperatorOperation::ApplyNode { draft, uid, precondition: ANY }
            }
            Act::Cordon(node, cordoned) => cordon(NODES[*node], *cordoned),
            Act::Taint { node, taint: text, added: true } => taint(NODES[*node], text, "", true),
            Act::Taint { node, taint: text, added: false } => taint(NODES[*node], "", text, true),
            Act::MakePod { pod: name, node, tolerations } => {
                let draft = PodDraft { node: node.map(|node| Text::from(NODES[node])), ..pod(PODS[*name]) };
                OperatorOperation::ApplyPod { draft: Box::new(tolerating(tolerations, draft)), uid, precondition: ANY }
            }
            Act::DeletePod { pod, grace } => delete_pod(PODS[*pod], *grace),
            Act::Scale { kind, replicas } => {
                let draft = Box::new(workload(*kind, "web", *replicas));
                OperatorOperation::ApplyWorkload { draft, uid, precondition: ANY }
            }
            Act::DeleteWorkload(kind) => delete_workload(*kind, "web"),
            Act::Register { .. }
            | Act::Report { .. }
            | Act::Silence(_)
            | Act::EvictNode(_)
            | Act::SpeakOfPods { .. }
            | Act::Tend
            | Act::Wait(_)
            | Act::FailOver
            | Act::BackUp
            | Act::Restore => return None,
        };
        Some(Command { origin: alice(), request: None, operation: operation.into() })
    }

    fn identity(&self, node: usize) -> Option<(Text, Incarnation)> {
        self.cluster.state.node(NODES[node]).map(|node| (node.meta.name.clone(), node.incarnation))
    }

    /// The agent's report of what it runs: no report, an empty one, or all pods that were ever given to it.
    fn running(&self, node: &str, everything: Option<bool>) -> Option<Vec<Uid>> {
        let tenants = self.cluster.state.tenants(node).into_iter().flat_map(|tenants| tenants.keys());
        let pods = tenants.filter_map(|key| self.cluster.state.pods().get(key));
        everything.map(|everything| pods.filter(|_| everything).map(|pod| pod.meta.uid).collect())
    }

    fn reports(&self, node: &str, phase: Phase, stopped: bool) -> Vec<PodReport> {
        let tenants = self.cluster.state.tenants(node).into_iter().flat_map(|tenants| tenants.keys());
        let report =
            |name: &str| PodReport { stopped, ..self.cluster.pod_report(name, phase, phase == Phase::Running) };
        tenants.map(|key| report(&key.name)).collect()
    }
}

fn readiness(ready: bool) -> NodeStatus {
    status(if ready { "Ready=True" } else { "Ready=False" })
}

// === the properties ===

/// The property below is not vacuous: everything that could go wrong happens somewhere in a few hundred histories.
#[test]
fn the_random_histories_contain_every_act() {
    let mut runner = TestRunner::deterministic();
    let mut done = BTreeSet::new();
    for _ in 0..200 {
        let mut world = World::new();
        let acts = any_acts().new_tree(&mut runner).expect("a history").current();
        acts.iter().for_each(|act| world.go(act));
        done.append(&mut world.done);
    }
    let expected = [
        "given again",
        "restored",
        "register-node",
        "create-node",
        "report-status",
        "mark-silent",
        "evict-node",
        "delete-node",
        "apply-pod",
        "delete-pod",
        "report-pods",
        "apply-workload",
        "delete-workload",
        "Scheduled",
        "SuccessfulCreate",
        "SuccessfulDelete",
        "TaintManagerEviction",
        "PodCollected",
    ];
    let missing: Vec<&str> = expected.into_iter().filter(|wanted| !done.contains(*wanted)).collect();
    assert!(missing.is_empty(), "{missing:?} never happened, only {done:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// I-07 with time: no node gets a freed block before its rest is over.
    #[test]
    fn i_07_any_fleet_history_keeps_every_invariant_and_reuses_no_quarantined_block(acts in any_acts()) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.go(act));
    }
}
