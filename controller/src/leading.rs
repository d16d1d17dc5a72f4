//! Leadership: this replica judges nodes while it leads.
//!
//! ```text
//!   elected -> blank entry applied -> policy created (once) -> tables gathered from the voters that answer
//!           -> tree started -> committed changes in, proposals out -> deposed -> tree stopped
//! ```
//!
//! Proposals carry the term they were made in and are never forwarded. One that decides about the life of a node or pod
//! is proposed only after a quorum has confirmed that this replica still leads, and while it is not blind.
//!
//! A leader without a tree judges no node. So a replica whose tree does not grow gives up its leadership, and if no
//! other replica can lead, it tries again and says so (`growth`).

pub(crate) mod growth;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use muster_actors::ports::{CLERK_REST, Observer, Ports, Probe, StateSource};
use muster_actors::proposal::{Proposal, ProposalOutcome};
use muster_actors::quarantine::QuarantinedNode;
use muster_actors::tree::{GrowError, Tree};
use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::command::{Command, LeaderOperation, Origin, Outcome};
use muster_lifecycle::level::Level;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_lifecycle::upgrade;
use muster_pulse::blindness::JudgingLoop;
use muster_pulse::moment::Moment;
use muster_raft::feed::{Gone, Watcher};
use muster_raft::replica::Replica;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::hearing::Hearing;
use crate::leading::growth::TreeGrowth;
use crate::observe::metrics::Metrics;
use crate::observe::metrics::raft::ProposalResult;

/// Proposals that wait to be taken up.
const PROPOSALS_MAX: usize = 64;
/// Proposals under way at once.
const UNDER_WAY_MAX: usize = 16;
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a leader checks whether its process stood still.
const WATCH_PAUSE: Duration = Duration::from_millis(250);
/// How often a new leader checks whether a voter it waits for can be reached at all.
const REACH_PAUSE: Duration = Duration::from_millis(500);
/// How often explanations learn which nodes are no longer watched.
const QUARANTINE_PAUSE: Duration = Duration::from_secs(1);
/// How often a leader looks whether the level in force can be raised.
const LEVEL_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Keeps a replica that loses and wins elections in quick succession from spinning.
const PAUSE_BETWEEN_TERMS: Duration = Duration::from_millis(100);

/// The parts and settings with which a replica leads.
#[derive(Clone)]
pub(crate) struct Leading {
    pub replica: Replica,
    pub hearing: Hearing,
    /// The policy that this replica's flags describe, for a cluster that has none yet.
    pub initial_policy: Policy,
    /// The settings of that policy that an operator wrote down.
    pub explicit: BTreeMap<String, String>,
    /// The address ranges of nodes, if this replica's flags name any.
    pub addressing: Option<Addressing>,
    pub metrics: Arc<Metrics>,
    pub observer: Arc<dyn Observer>,
    pub probe: Arc<dyn Probe>,
    pub quarantined: QuarantinedNodes,
    pub growth: TreeGrowth,
}

/// The nodes that this replica, while it leads, does not watch because their actors keep crashing.
#[derive(Clone, Default)]
pub(crate) struct QuarantinedNodes(Arc<Mutex<Vec<QuarantinedNode>>>);

/// The state source of the tree: this replica's state.
struct ReplicaState {
    replica: Replica,
    hearing: Hearing,
}

// === impl Leading ===

impl Leading {
    /// Leads whenever this replica is elected, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let term = tokio::select! {
                () = stop.cancelled() => return,
                term = self.replica.leads() => term,
            };
            let Some(term) = term else { return };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.lead(term) => {}
            }
        }
    }

    async fn lead(&self, term: u64) {
        tracing::info!(term, "this replica leads");
        self.take_over();
        tokio::select! {
            () = self.settle_in_and_judge(term) => {}
            () = self.keep_watch_over_itself() => {}
        }
        tracing::info!(term, "this replica no longer leads");
        tokio::time::sleep(PAUSE_BETWEEN_TERMS).await;
    }

    async fn settle_in_and_judge(&self, term: u64) {
        let settled = tokio::select! {
            () = self.replica.deposed(term) => false,
            () = self.settle_in(term) => true,
        };
        if settled {
            self.judge(term).await;
        }
    }

    /// Runs beside the tree, so that the time that the tree of a large fleet takes to grow does not count as a stall:
    /// this replica goes on hearing beats meanwhile.
    async fn keep_watch_over_itself(&self) {
        loop {
            tokio::time::sleep(WATCH_PAUSE).await;
            let current = self.replica.current();
            let policy = current.state.policy();
            self.hearing.pulses().blindness().tick(self.hearing.tick(), JudgingLoop::of(policy));
        }
    }

    /// Waits until a quorum has confirmed this leader and there is a policy to judge by. Nothing is judged before.
    async fn settle_in(&self, term: u64) {
        while let Err(error) = self.replica.read_barrier(Instant::now() + SETTLE_TIMEOUT).await {
            tracing::warn!(%error, term, "elected, but not confirmed");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        while !self.found_policy(term).await || !self.found_addressing(term).await {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// From here on this replica is blind until it holds the table of every voter that can be reached.
    fn take_over(&self) {
        let me = self.replica.id();
        let voters = self.replica.members().into_iter().filter(|(id, member)| member.voter && *id != me);
        let others: Vec<ReplicaId> = voters.map(|(id, _)| id).collect();
        let (seamless, window) = {
            let mut blindness = self.hearing.pulses().blindness();
            (blindness.took_over(others, self.hearing.tick()), blindness.reattach_window())
        };
        if !seamless {
            tracing::info!(?window, "take-over had a gap in heartbeats: no node is judged before the window ends");
        }
    }

    /// Ends when this replica no longer leads, after every part that could still propose is gone.
    async fn judge(&self, term: u64) {
        let (proposals, proposed) = mpsc::channel(PROPOSALS_MAX);
        let ports = Ports {
            pulses: Arc::clone(self.hearing.pulses()),
            source: Arc::new(ReplicaState { replica: self.replica.clone(), hearing: self.hearing.clone() }),
            rest: CLERK_REST,
            proposals,
            observer: Arc::clone(&self.observer),
            probe: Arc::clone(&self.probe),
        };
        // The watch begins before the tree reads the state: a change seen twice does no harm, and one that is missed
        // would.
        let changes = self.watch_changes();
        let tree = match Tree::grow(ports, term).await {
            Ok(tree) => tree,
            Err(error) => return self.give_up(term, &error).await,
        };
        self.growth.grew();
        tokio::select! {
            () = self.replica.deposed(term) => {}
            () = self.follow(&tree, changes) => {}
            () = self.serve(proposed) => {}
            () = self.gather() => {}
            () = self.quarantined.follow(&tree) => {}
            () = self.keep_level(term) => {}
        }
        tree.prune().await;
        self.quarantined.set(Vec::new());
    }

    /// Raises the level in force when its time has come, for ever.
    async fn keep_level(&self, term: u64) {
        let mut told = None;
        loop {
            tokio::time::sleep(LEVEL_PAUSE).await;
            let (current, now) = (self.replica.current(), self.replica.feed().stamp().cluster);
            let Some(to) = upgrade::raise_due(&current.state, now) else { continue };
            let raised = match self.replica.all_speak(to).boxed().await {
                Ok(()) => self.raise_level(term, to).await,
                Err(why) => Err(why),
            };
            match raised {
                Ok(()) => told = None,
                Err(why) if told.as_ref() != Some(&why) => {
                    tracing::warn!(why, level = to.0, "the level is not raised yet");
                    told = Some(why);
                }
                Err(_) => {}
            }
        }
    }

    async fn raise_level(&self, term: u64, to: Level) -> Result<(), String> {
        let version = self.replica.build().version;
        match self.propose(term, LeaderOperation::RaiseLevel { to, version: version.into() }).await {
            ProposalOutcome::Done(_) => {
                tracing::info!(term, level = to.0, version, "the level was raised: no older version can take part now");
                Ok(())
            }
            ProposalOutcome::Rejected(rejection) => Err(rejection.to_string()),
            ProposalOutcome::Failed(reason) => Err(reason),
        }
    }

    /// Hands leadership over, because a leader without a tree judges no node. If the tree failed before, or no other
    /// replica takes over, this one pauses first and then tries again: every replica may have the same trouble.
    async fn give_up(&self, term: u64, error: &GrowError) {
        let pause = self.growth.failed(error.to_string());
        tracing::error!(%error, term, ?pause, "this replica leads and cannot judge nodes: it hands leadership over");
        let pausing = async {
            tokio::time::sleep(pause).await;
            if self.replica.hand_over(None).await {
                tracing::info!(term, "another replica leads now");
            } else {
                tracing::warn!(term, "no other replica can lead: this one tries again");
            }
        };
        tokio::select! {
            () = self.replica.deposed(term) => {}
            () = pausing => {}
        }
    }

    /// Creates the policy, once per cluster. A replica's flags are later only compared with it. False if it has to be
    /// tried again.
    async fn found_policy(&self, term: u64) -> bool {
        let current = self.replica.current();
        if current.state.policy_state().founded {
            self.compare_policy(current.state.policy());
            return true;
        }
        let operation = LeaderOperation::FoundPolicy { policy: Box::new(self.initial_policy.clone()) };
        match self.propose(term, operation).await {
            ProposalOutcome::Done(_) => tracing::info!(term, "created the cluster's policy from this replica's flags"),
            ProposalOutcome::Rejected(rejection) => {
                tracing::error!(%rejection, term, "the cluster's policy was not created")
            }
            ProposalOutcome::Failed(reason) => {
                tracing::warn!(reason, term, "the cluster's policy is not created yet");
                return false;
            }
        }
        true
    }

    /// Creates the plan for node CIDRs: the first leader whose flags name address ranges decides. False if it has to be
    /// tried again.
    async fn found_addressing(&self, term: u64) -> bool {
        let Some(plan) = &self.addressing else { return true };
        let current = self.replica.current();
        if let Some(known) = current.state.addressing() {
            if !known.is_same_plan(plan) {
                let (known, own) = (known.settings(), plan.settings());
                tracing::warn!(?known, ?own, "this replica's flags for node CIDRs have no effect: others are in force");
            }
            return true;
        }
        match self.propose(term, LeaderOperation::FoundAddressing { plan: Box::new(plan.clone()) }).await {
            ProposalOutcome::Done(_) => tracing::info!(term, "nodes get the addresses that this replica's flags say"),
            ProposalOutcome::Rejected(rejection) => {
                tracing::error!(%rejection, term, "the plan for node CIDRs was not created")
            }
            ProposalOutcome::Failed(reason) => {
                tracing::warn!(reason, term, "the plan for node CIDRs is not created yet");
                return false;
            }
        }
        true
    }

    fn compare_policy(&self, replicated: &Policy) {
        for (name, value) in replicated.settings() {
            if let Some(explicit) = self.explicit.get(name).filter(|explicit| **explicit != value) {
                tracing::warn!(
                    "the cluster's {name} is {value}, this replica was started with {explicit}, which has no effect: \
                     `muster set config {name}={explicit}` changes it for all"
                );
            }
        }
    }

    /// Passes committed changes on to the tree, for ever.
    async fn follow(&self, tree: &Tree, mut changes: Result<Watcher, Gone>) {
        loop {
            match &mut changes {
                Ok(watcher) => {
                    while let Ok(committed) = watcher.next().await {
                        tree.committed(committed);
                    }
                }
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
            tracing::warn!("the tree could not keep up with the changes and looks at everything anew");
            changes = self.watch_changes();
            tree.lost_track();
        }
    }

    fn watch_changes(&self) -> Result<Watcher, Gone> {
        let feed = self.replica.feed();
        feed.watch(feed.current().state.revision())
    }

    async fn serve(&self, proposed: mpsc::Receiver<Proposal>) {
        let proposed = ReceiverStream::new(proposed);
        proposed.for_each_concurrent(UNDER_WAY_MAX, |proposal| self.settle(proposal)).await;
    }

    async fn settle(&self, proposal: Proposal) {
        let Proposal { term, operations, confirm, settled } = proposal;
        let outcomes = match self.may_propose(confirm).await {
            Ok(()) => {
                let each = operations.into_iter().map(|operation| self.propose(term, operation));
                futures::future::join_all(each).await
            }
            Err(why) => operations.iter().map(|_| ProposalOutcome::Failed(why.clone())).collect(),
        };
        // An actor that died meanwhile reads the outcome off the state.
        let _ = settled.send(outcomes);
    }

    /// I-03: a blind leader proposes nothing. What was decided before is decided anew once it sees again.
    async fn may_propose(&self, confirm: bool) -> Result<(), String> {
        if !confirm {
            return Ok(());
        }
        let deadline = Instant::now() + CONFIRM_TIMEOUT;
        self.replica.confirm_leadership(deadline).await.map_err(|error| error.to_string())?;
        let current = self.replica.current();
        let policy = current.state.policy();
        let blindness = self.hearing.pulses().blindness();
        match blindness.blind_until(self.hearing.tick(), JudgingLoop::of(policy)) {
            Some((_, excuse)) => Err(excuse.to_string()),
            None => Ok(()),
        }
    }

    async fn propose(&self, term: u64, operation: LeaderOperation) -> ProposalOutcome {
        let label = operation.label();
        let command = Command { origin: Origin::Controller { term }, request: None, operation: operation.into() };
        let outcome = match self.replica.propose(command).await.map(|written| written.outcome) {
            Ok(Outcome::Done(receipt)) => ProposalOutcome::Done(receipt),
            Ok(Outcome::Rejected(rejection)) => ProposalOutcome::Rejected(rejection),
            Err(error) => ProposalOutcome::Failed(error.to_string()),
        };
        let result = match &outcome {
            ProposalOutcome::Done(_) => ProposalResult::Accepted,
            ProposalOutcome::Rejected(_) => ProposalResult::Rejected,
            ProposalOutcome::Failed(_) => ProposalResult::Failed,
        };
        self.metrics.raft.proposed(label, result);
        outcome
    }

    /// Does not wait for voters that cannot be reached: their missing digests excuse the nodes they heard.
    async fn gather(&self) {
        loop {
            let awaited: Vec<ReplicaId> = self.hearing.pulses().blindness().awaited().collect();
            if awaited.is_empty() {
                return std::future::pending().await;
            }
            let reached = self.replica.reach_members().await;
            for peer in awaited {
                if reached.get(&peer).is_none_or(Result::is_err) {
                    self.hearing.pulses().blindness().unreachable(peer, self.hearing.tick());
                }
            }
            tokio::time::sleep(REACH_PAUSE).await;
        }
    }
}

// === impl QuarantinedNodes ===

impl QuarantinedNodes {
    /// Why the node is not watched: the panic message of its actor. `None` if it is watched.
    pub(crate) fn reason(&self, node: &str) -> Option<String> {
        let quarantined = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        quarantined.iter().find(|known| known.name == node).map(|known| known.reason.to_string())
    }

    async fn follow(&self, tree: &Tree) {
        loop {
            self.set(tree.quarantined());
            tokio::time::sleep(QUARANTINE_PAUSE).await;
        }
    }

    fn set(&self, quarantined: Vec<QuarantinedNode>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = quarantined;
    }
}

// === impl ReplicaState ===

impl StateSource for ReplicaState {
    fn state(&self) -> State {
        self.replica.current().state.clone()
    }

    fn moment(&self) -> Moment {
        self.hearing.moment()
    }
}
