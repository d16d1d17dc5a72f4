//! A replica without Raft: applies a proposal to a State a few milliseconds later and feeds the commit back to the
//! tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_actors::ports::{CLERK_REST, Quiet};
use muster_actors::{Observer, Ports, Probe, Proposal, ProposalOutcome, StateSource, Tree};
use muster_lifecycle::change::Change;
use muster_lifecycle::command::{
    AgentOperation, Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
    Precondition,
};
use muster_lifecycle::invariant::check_all;
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::{Condition, ConditionStatus, Node, NodeDraft, NodeStatus, Slot};
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use muster_pulse::moment::Moment;
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::tick::Tick;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(crate) const TERM: u64 = 1;
pub(crate) const ANY: Precondition = Precondition { revision: None, uid: None };

const COMMIT_LATENCY: Duration = Duration::from_millis(5);
const BEAT_INTERVAL: Duration = Duration::from_millis(500);
const PROPOSALS_MAX: usize = 16;

/// Cluster time when a stage is set; not zero, so that times before the start can be represented.
const PAST: u64 = 1_000_000;

pub(crate) struct Stage {
    pub(crate) world: Arc<World>,
    pub(crate) pulses: Arc<PulseMonitor>,
}

pub(crate) struct World {
    started: Instant,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    index: u64,
    uids: u128,
    /// The term in which the log is written now.
    term: u64,
    latency: Duration,
    refusing: bool,
    feeding: bool,
    log: Vec<Entry>,
    beating: BTreeMap<Text, Slot>,
    tree: Option<Tree>,
}

/// One operation that the tree proposed.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Since the stage was set.
    pub(crate) at: Duration,
    pub(crate) term: u64,
    pub(crate) confirmed: bool,
    pub(crate) operation: LeaderOperation,
    pub(crate) outcome: ProposalOutcome,
}

// === impl World ===

impl StateSource for World {
    fn state(&self) -> State {
        self.inner.lock().unwrap().state.clone()
    }

    fn moment(&self) -> Moment {
        let elapsed = self.elapsed();
        let millis = u64::try_from(elapsed.as_millis()).unwrap();
        let stamp = Stamp { cluster: ClusterTime(PAST + millis), wall: WallTime(millis as i64) };
        Moment { tick: Tick::since_boot(elapsed), stamp }
    }
}

impl World {
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Everything the tree proposed so far.
    pub(crate) fn log(&self) -> Vec<Entry> {
        self.inner.lock().unwrap().log.clone()
    }

    /// The log is written in another term from here on.
    pub(crate) fn set_term(&self, term: u64) {
        self.inner.lock().unwrap().term = term;
    }

    /// How long the log takes from here on.
    pub(crate) fn set_latency(&self, latency: Duration) {
        self.inner.lock().unwrap().latency = latency;
    }

    /// Whether proposals fail before they reach the log.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.inner.lock().unwrap().refusing = refusing;
    }

    /// Whether the tree is told what was committed.
    pub(crate) fn feed(&self, feeding: bool) {
        self.inner.lock().unwrap().feeding = feeding;
    }

    pub(crate) fn apply(&self, origin: Origin, operation: impl Into<Operation>) -> Outcome {
        self.apply_all(vec![Command { origin, request: None, operation: operation.into() }]).remove(0)
    }

    fn apply_all(&self, commands: Vec<Command>) -> Vec<Outcome> {
        let stamp = self.moment().stamp;
        let mut inner = self.inner.lock().unwrap();
        inner.index += 1;
        let position = Position { term: inner.term, index: inner.index };
        let applied = inner.state.apply(position, &Batch { stamp, commands });
        let changes: Vec<Arc<Change>> = applied.changes.into_iter().map(Arc::new).collect();
        if let Some(tree) = inner.tree.as_ref().filter(|_| inner.feeding) {
            tree.committed(changes);
        }
        applied.outcomes
    }

    async fn serve(self: Arc<Self>, mut proposals: mpsc::Receiver<Proposal>) {
        while let Some(proposal) = proposals.recv().await {
            let latency = self.inner.lock().unwrap().latency;
            tokio::time::sleep(latency).await;
            let Proposal { term, operations, confirm, settled } = proposal;
            assert!(!operations.is_empty() && operations.len() <= muster_lifecycle::clerk_task::OPERATIONS_MAX);
            let outcomes = self.settle(term, &operations);
            let at = self.elapsed();
            let entry = |(operation, outcome): (LeaderOperation, &ProposalOutcome)| Entry {
                at,
                term,
                confirmed: confirm,
                operation,
                outcome: outcome.clone(),
            };
            let entries: Vec<Entry> = operations.into_iter().zip(&outcomes).map(entry).collect();
            self.inner.lock().unwrap().log.extend(entries);
            let _ = settled.send(outcomes);
        }
    }

    fn settle(&self, term: u64, operations: &[LeaderOperation]) -> Vec<ProposalOutcome> {
        if self.inner.lock().unwrap().refusing {
            return vec![ProposalOutcome::Failed("this replica does not lead".to_owned()); operations.len()];
        }
        let command = |operation: &LeaderOperation| Command {
            origin: Origin::Controller { term },
            request: None,
            operation: operation.clone().into(),
        };
        let outcomes = self.apply_all(operations.iter().map(command).collect());
        let outcome = |outcome| match outcome {
            Outcome::Done(receipt) => ProposalOutcome::Done(receipt),
            Outcome::Rejected(rejection) => ProposalOutcome::Rejected(rejection),
        };
        outcomes.into_iter().map(outcome).collect()
    }
}

// === setting the stage ===

impl Stage {
    pub(crate) fn set() -> Self {
        let inner = Inner {
            state: State::new(),
            index: 0,
            uids: 0,
            term: TERM,
            latency: COMMIT_LATENCY,
            refusing: false,
            feeding: true,
            log: Vec::new(),
            beating: BTreeMap::new(),
            tree: None,
        };
        let world = Arc::new(World { started: Instant::now(), inner: Mutex::new(inner) });
        let pulses = Arc::new(PulseMonitor::new(ReplicaId(1), Duration::from_secs(10)));
        tokio::spawn(beat(Arc::clone(&world), Arc::clone(&pulses)));
        Self { world, pulses }
    }

    /// Nodes that registered as ready and beat, named after the zone: `a-0`, `a-1`, ...
    pub(crate) fn with_zone(self, zone: &str, count: usize) -> Self {
        (0..count).for_each(|number| self.register(&format!("{zone}-{number}"), zone));
        self
    }

    pub(crate) fn register(&self, name: &str, zone: &str) {
        let label = (Text::from("topology.kubernetes.io/zone"), Text::from(zone));
        let draft = NodeDraft {
            name: Text::from(name),
            labels: Some([label].into_iter().collect()),
            status: Some(ready()),
            ..NodeDraft::default()
        };
        let mut inner = self.world.inner.lock().unwrap();
        inner.uids += 1;
        let uid = Uid(inner.uids);
        drop(inner);
        let operation = AgentOperation::RegisterNode { draft: Box::new(draft), uid, running: None };
        self.agent(name, operation);
        self.revive(name);
    }

    pub(crate) async fn grow(&self) {
        self.grow_with(TERM, Arc::new(Quiet), Arc::new(Quiet)).await;
    }

    pub(crate) async fn grow_watched(&self, observer: Arc<dyn Observer>, probe: Arc<dyn Probe>) {
        self.grow_with(TERM, observer, probe).await;
    }

    pub(crate) async fn grow_with(&self, term: u64, observer: Arc<dyn Observer>, probe: Arc<dyn Probe>) {
        let (proposals, inbox) = mpsc::channel(PROPOSALS_MAX);
        tokio::spawn(Arc::clone(&self.world).serve(inbox));
        let ports = Ports {
            pulses: Arc::clone(&self.pulses),
            source: Arc::clone(&self.world) as Arc<dyn StateSource>,
            rest: CLERK_REST,
            proposals,
            observer,
            probe,
        };
        let tree = Tree::grow(ports, term).await.unwrap();
        self.world.inner.lock().unwrap().tree = Some(tree);
    }

    pub(crate) async fn prune(&self) {
        let tree = self.world.inner.lock().unwrap().tree.take().unwrap();
        tree.prune().await;
    }

    pub(crate) fn drop_tree(&self) {
        drop(self.world.inner.lock().unwrap().tree.take());
    }

    pub(crate) fn with_tree<R>(&self, ask: impl FnOnce(&Tree) -> R) -> R {
        ask(self.world.inner.lock().unwrap().tree.as_ref().unwrap())
    }

    fn agent(&self, name: &str, operation: AgentOperation) {
        let outcome = self.world.apply(Origin::Node { name: Text::from(name) }, operation);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    pub(crate) fn operator(&self, operation: OperatorOperation) {
        let outcome = self.world.apply(Origin::Operator { user: Text::from("alice") }, operation);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    }

    pub(crate) fn delete(&self, name: &str) {
        self.operator(OperatorOperation::DeleteNode { name: Text::from(name), precondition: ANY });
    }

    pub(crate) fn relocate(&self, name: &str, zone: &str) {
        let changes = vec![(Text::from("topology.kubernetes.io/zone"), Some(Text::from(zone)))];
        self.operator(OperatorOperation::LabelNode {
            name: Text::from(name),
            changes,
            overwrite: true,
            precondition: ANY,
        });
    }

    pub(crate) fn set_policy(&self, name: &str, value: &str) {
        self.operator(OperatorOperation::SetPolicy { changes: vec![(Text::from(name), Text::from(value))] });
    }
}

// === what happens to nodes ===

impl Stage {
    /// Stops the node's heartbeats.
    pub(crate) fn kill(&self, name: &str) {
        self.world.inner.lock().unwrap().beating.remove(name).unwrap();
    }

    /// Starts the node's heartbeats and reports it as ready.
    pub(crate) fn revive(&self, name: &str) {
        self.beat_again(name);
        self.report(name, ready());
    }

    /// Reports the node's status.
    pub(crate) fn report(&self, name: &str, status: NodeStatus) {
        let (incarnation, status) = (self.node(name).incarnation, Box::new(status));
        self.agent(name, AgentOperation::ReportStatus { name: Text::from(name), incarnation, status, running: None });
    }

    /// Starts the node's heartbeats without a status report.
    pub(crate) fn beat_again(&self, name: &str) {
        let slot = self.node(name).slot;
        let _ = self.pulses.own().beat(slot, self.world.moment().tick);
        self.world.inner.lock().unwrap().beating.insert(Text::from(name), slot);
    }

    pub(crate) fn node(&self, name: &str) -> Arc<Node> {
        Arc::clone(self.world.state().node(name).unwrap())
    }

    pub(crate) fn is_unknown(&self, name: &str) -> bool {
        self.node(name).is_unknown()
    }

    pub(crate) fn is_evicted(&self, name: &str) -> bool {
        self.world.state().absent().contains(name)
    }
}

// === what the tree did ===

impl Stage {
    /// The nodes that were marked silent, and when, by entries that the log accepted.
    pub(crate) fn marked(&self) -> BTreeMap<String, Duration> {
        self.accepted("mark-silent").into_iter().collect()
    }

    pub(crate) fn evicted(&self) -> BTreeMap<String, Duration> {
        self.accepted("evict-node").into_iter().collect()
    }

    pub(crate) fn marked_names(&self) -> BTreeSet<String> {
        self.marked().into_keys().collect()
    }

    /// The nodes of accepted operations of this kind, and when those were accepted.
    pub(crate) fn accepted(&self, label: &str) -> Vec<(String, Duration)> {
        let log = self.world.log();
        let done = log.iter().filter(|entry| entry.outcome.is_done() && entry.operation.label() == label);
        done.filter_map(|entry| Some((entry.operation.node_name()?.to_owned(), entry.at))).collect()
    }

    /// Passes time until the condition holds, at most as long as given.
    pub(crate) async fn until(&self, what: &str, limit: Duration, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "after {limit:?} still not: {what}; log: {:#?}", self.world.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
        check_all(&self.world.state()).unwrap();
    }
}

async fn beat(world: Arc<World>, pulses: Arc<PulseMonitor>) {
    loop {
        let beating = world.inner.lock().unwrap().beating.clone();
        for slot in beating.into_values() {
            let _ = pulses.own().beat(slot, world.moment().tick);
        }
        tokio::time::sleep(BEAT_INTERVAL).await;
    }
}

pub(crate) fn ready() -> NodeStatus {
    let condition = Condition {
        kind: Text::from("Ready"),
        status: ConditionStatus::True,
        last_heartbeat: None,
        last_transition: None,
        reason: Text::from("KubeletReady"),
        message: Text::default(),
    };
    NodeStatus { conditions: Box::new([condition]), ..NodeStatus::default() }
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
