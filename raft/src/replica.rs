//! One running replica: consensus, storage and feed tied together behind one handle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::command::{Command, Origin, Outcome, ReplicaOperation};
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::replica::ReplicaRecord;
use openraft::async_runtime::WatchReceiver;
use openraft::error::{Fatal, LinearizableReadError, RaftError};
use openraft::{Config, Instant as _, ReadPolicy, SnapshotPolicy};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::feed::{Feed, Published};
use crate::membership::fitness::Fitness;
use crate::replication::connector::Connector;
use crate::replication::greeting::PeerIdentity;
use crate::replication::hello::{self, HelloAnswer};
use crate::replication::leader_client::{PeerLeaders, leader_is_not};
use crate::replication::network::Network;
use crate::replication::peers::Peers;
use crate::storage::disk_health::{DiskHealth, SyncLimits};
use crate::storage::log_store::{LogCapacity, LogStore};
use crate::storage::snapshot_pressure::SnapshotPressure;
use crate::storage::snapshot_store::{SnapshotFile, SnapshotStore};
use crate::storage::state_machine::StateMachine;
use crate::storage::store::StoreInfo;
use crate::types::{Endpoint, TypeConfig};
use crate::write::encoded::EncodedCommand;
use crate::write::forwarder::{Forwarders, Leaders};
use crate::write::proposer::{Committed, ProposeError, Proposer, WriterClass, unencodable};
use muster_lifecycle::replica::ReplicaId;

pub type Raft = openraft::Raft<TypeConfig, StateMachine>;

/// The pause before asking again which replica leads.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause of a write that finds no room: it doubles from [`RETRY_PAUSE`] on.
const OVERLOAD_PAUSE_MAX: Duration = Duration::from_millis(800);
/// The refusal of a command that a follower may not pass on.
pub(crate) const NOT_FORWARDED: &str = "this command may not be forwarded to the leader";
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(500);
/// The longest that finding out which replicas do not answer takes.
const EXPLANATION_TIME: Duration = Duration::from_millis(700);
/// The pause before asking for a snapshot again.
const SNAPSHOT_RETRY: Duration = Duration::from_secs(1);
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// The timing of consensus, separate so that tests can set their own.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub heartbeat_ms: u64,
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// A leader whose disk is slower hands over.
    pub syncs: SyncLimits,
}

impl Timing {
    pub const DEFAULT: Self =
        Self { heartbeat_ms: 200, election_min_ms: 600, election_max_ms: 1_000, syncs: SyncLimits::DEFAULT };
}

impl Default for Timing {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The reason why a request could not be served before its deadline.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("{0}")]
    NoQuorum(String),
    #[error(transparent)]
    Refused(#[from] ProposeError),
    #[error("{0}")]
    Forwarding(String),
    /// The leader does not take calls from this replica; another replica may do better.
    #[error("{0}")]
    TurnedAway(String),
    /// The command is refused, and every replica would refuse it.
    #[error("{0}")]
    Denied(String),
}

/// What becomes of a write after a failed attempt.
enum Retry {
    /// It certainly did not happen, and the cause may pass.
    Harmless,
    /// It may have happened: only a request id makes a second attempt harmless.
    WithRequestId,
    Never,
}

/// A running replica. Clones share it.
#[derive(Clone)]
pub struct Replica {
    pub(crate) raft: Raft,
    pub(crate) peers: Arc<Peers>,
    pub(crate) proposer: Proposer,
    pub(crate) forwarders: Forwarders,
    pub(crate) info: StoreInfo,
    pub(crate) snapshots: SnapshotStore,
    pub(crate) capacity: LogCapacity,
    pub(crate) version: &'static str,
    pub(crate) log: LogStore,
    pub(crate) health: DiskHealth,
    pub(crate) fitness: Arc<Fitness>,
    pressure: Arc<SnapshotPressure>,
}

// === impl Replica ===

impl Replica {
    /// Starts consensus on an opened store. The replica takes part as soon as its peer service is served.
    pub async fn start(
        identity: PeerIdentity,
        (log, state_machine, info): (LogStore, StateMachine, StoreInfo),
        feed: Arc<Feed>,
        connector: Arc<dyn Connector>,
        timing: Timing,
        version: &'static str,
    ) -> Result<Self, Fatal<TypeConfig>> {
        let config = Arc::new(consensus_config(&identity, timing));
        let peers = Peers::new(identity, Arc::clone(&feed), connector);
        let (snapshots, pressure) = (state_machine.snapshots(), state_machine.pressure());
        let network = Network::new(Arc::clone(&peers));
        let raft = Raft::new(peers.identity.id, config, network, log.clone(), state_machine).await?;
        let (capacity, health, fitness) = (log.capacity(), log.health(), Arc::<Fitness>::default());
        health.limit_syncs(timing.syncs);
        let proposer = Proposer::spawn(raft.clone(), feed, capacity.clone(), Arc::clone(&fitness));
        let leaders: Arc<dyn Leaders> = Arc::new(PeerLeaders { raft: raft.clone(), peers: Arc::clone(&peers) });
        let forwarders = Forwarders::spawn(&leaders);
        let replica = Self {
            raft,
            peers,
            proposer,
            forwarders,
            info,
            snapshots,
            capacity,
            version,
            log,
            health,
            fitness,
            pressure,
        };
        tokio::spawn(replica.clone().keep_snapshots_fresh());
        tokio::spawn(replica.clone().keep_leadership_able());
        Ok(replica)
    }

    pub fn id(&self) -> ReplicaId {
        self.peers.identity.id
    }

    pub fn feed(&self) -> &Arc<Feed> {
        &self.peers.feed
    }

    pub fn current(&self) -> Arc<Published> {
        self.peers.feed.current()
    }

    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow_watched().current_term
    }

    pub fn leader(&self) -> Option<ReplicaId> {
        self.raft.metrics().borrow_watched().current_leader
    }

    /// Reads both at once, and lets go of the metrics before anything else happens. A second look inside the first
    /// waits for consensus if it is about to report, and consensus waits for the first.
    pub(crate) fn leader_and_term(&self) -> (Option<ReplicaId>, u64) {
        let metrics = self.raft.metrics();
        let seen = metrics.borrow_watched();
        (seen.current_leader, seen.current_term)
    }

    /// The age of the message that a quorum last acknowledged. `None` unless this replica leads and was acknowledged.
    pub fn since_quorum(&self) -> Option<Duration> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        if metrics.current_leader != Some(self.id()) {
            return None;
        }
        // A leader that is its own quorum asks no other replica, so nothing is ever acknowledged.
        if metrics.membership_config.membership().voter_ids().eq([self.id()]) {
            return Some(Duration::ZERO);
        }
        metrics.last_quorum_acked.map(|acked| acked.elapsed())
    }

    /// The longest that followers wait for a leader before they elect another.
    pub fn election_timeout_max(&self) -> Duration {
        Duration::from_millis(self.raft.config().election_timeout_max)
    }

    pub fn last_log_index(&self) -> u64 {
        self.raft.metrics().borrow_watched().last_log_index.unwrap_or(0)
    }

    /// Completes when this replica leads, with the term it leads in; `None` if consensus stopped.
    pub async fn leads(&self) -> Option<u64> {
        let mut metrics = self.raft.metrics();
        loop {
            if metrics.borrow_watched().running_state.is_err() {
                return None;
            }
            let (leader, term) = self.leader_and_term();
            if leader == Some(self.id()) {
                return Some(term);
            }
            metrics.changed().await.ok()?;
        }
    }

    /// Completes when this replica no longer leads in that term.
    pub async fn deposed(&self, term: u64) {
        let mut metrics = self.raft.metrics();
        while self.leader_and_term() == (Some(self.id()), term) {
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Proposes as the leader; a command that comes from the leader's own judgement is never forwarded.
    pub async fn propose(&self, command: Command) -> Result<Committed, ProposeError> {
        self.proposer.propose(command).await
    }

    /// Asks a quorum whether this replica leads at this moment.
    pub async fn confirm_leadership(&self, deadline: Instant) -> Result<(), RequestError> {
        match timeout_at(deadline, self.read_index_as_leader()).await {
            Ok(confirmed) => confirmed.map(drop),
            Err(_) => Err(RequestError::NoQuorum("a quorum did not confirm the leader in time".to_owned())),
        }
    }

    /// Voters and learners with their addresses, as this replica knows them.
    pub fn members(&self) -> BTreeMap<ReplicaId, ClusterMember> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let membership = metrics.membership_config.membership().clone();
        let voters: Vec<_> = membership.voter_ids().collect();
        let member = |(id, endpoint): (&ReplicaId, &Endpoint)| {
            let member = ClusterMember { endpoint: endpoint.clone(), voter: voters.contains(id) };
            (*id, member)
        };
        membership.nodes().map(member).collect()
    }

    /// Applies a command wherever the leader is. Commands with a request id are retried until `deadline`; others are
    /// tried again only while it is certain that they did not happen.
    pub async fn write(&self, command: Command, deadline: Instant) -> Result<Committed, RequestError> {
        self.write_encoded(&EncodedCommand::new(command).map_err(unencodable)?, deadline).await
    }

    /// As [`Replica::write`], for a caller that may want to write the same again.
    pub async fn write_encoded(&self, draft: &EncodedCommand, deadline: Instant) -> Result<Committed, RequestError> {
        let deadline = leaving_time_to_explain(deadline);
        let mut pause = RETRY_PAUSE;
        loop {
            let failure = match timeout_at(deadline, self.write_once(draft, deadline)).await {
                Ok(Ok(committed)) => return Ok(committed),
                Ok(Err(error)) => error,
                Err(_) => return Err(self.no_quorum().await),
            };
            let retried = match failure.retry() {
                Retry::Harmless => true,
                Retry::WithRequestId => draft.command().request.is_some(),
                Retry::Never => false,
            };
            if !retried {
                return Err(failure);
            }
            if failure.is_overload() {
                pause = (pause * 2).min(OVERLOAD_PAUSE_MAX);
            }
            if Instant::now() + pause >= deadline {
                // A cluster that is only busy or about to change its leader has not lost its quorum.
                return Err(if failure.is_explained() { failure } else { self.no_quorum().await });
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn write_once(&self, draft: &EncodedCommand, deadline: Instant) -> Result<Committed, RequestError> {
        match self.leader() {
            Some(leader) if leader == self.id() => Ok(self.proposer.propose_draft(draft.clone()).await?),
            Some(_) if !draft.command().may_be_forwarded_by(self.id()) => {
                Err(RequestError::Denied(NOT_FORWARDED.to_owned()))
            }
            Some(leader) => {
                let forwarder = self.forwarders.of(WriterClass::of(draft.command()));
                forwarder.forward(leader, draft.encoded().clone(), deadline).await
            }
            None => Err(ProposeError::NotLeader { leader: None }.into()),
        }
    }

    /// Brings this replica up to everything committed before the call, or says why it cannot.
    pub async fn read_barrier(&self, deadline: Instant) -> Result<(), RequestError> {
        let deadline = leaving_time_to_explain(deadline);
        loop {
            let attempt = async {
                let index = self.read_index().await?;
                self.feed().wait_applied(index).await;
                Ok::<_, RequestError>(())
            };
            match timeout_at(deadline, attempt).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error @ RequestError::TurnedAway(_))) => return Err(error),
                Ok(Err(_)) if Instant::now() + RETRY_PAUSE < deadline => tokio::time::sleep(RETRY_PAUSE).await,
                Ok(Err(_)) | Err(_) => return Err(self.no_quorum().await),
            }
        }
    }

    async fn read_index(&self) -> Result<u64, RequestError> {
        match self.leader() {
            Some(leader) if leader == self.id() => self.read_index_as_leader().await,
            Some(leader) => tokio::select! {
                () = leader_is_not(&self.raft, leader) => Err(ProposeError::NotLeader { leader: None }.into()),
                index = self.ask_read_index(leader) => index,
            },
            None => Err(ProposeError::NotLeader { leader: None }.into()),
        }
    }

    /// The log index a linearizable read must wait for, confirmed with a quorum.
    pub(crate) async fn read_index_as_leader(&self) -> Result<u64, RequestError> {
        match self.raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((read_log_id, _)) => Ok(read_log_id.log_id().index),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(to))) => {
                Err(ProposeError::NotLeader { leader: to.leader_id }.into())
            }
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(self.no_quorum().await),
            Err(RaftError::Fatal(_)) => Err(ProposeError::Stopped.into()),
        }
    }

    /// An error that says which replicas do not answer.
    pub async fn no_quorum(&self) -> RequestError {
        let reached = self.reach_members().await;
        let voters: Vec<_> = self.members().into_iter().filter(|(_, member)| member.voter).map(|(id, _)| id).collect();
        let silent = |id: &&ReplicaId| reached.get(*id).is_some_and(Result::is_err);
        let silent: Vec<String> = voters.iter().filter(silent).map(ToString::to_string).collect();
        let quorum = voters.len() - silent.len() > voters.len() / 2;
        RequestError::NoQuorum(match (quorum, silent.len()) {
            (true, _) => "no answer in time although a quorum is there: an election is under way, or the replicas are \
                          overloaded; try again in a moment"
                .to_owned(),
            (false, 1) => format!("no quorum: replica {} unreachable", silent[0]),
            (false, _) => format!("no quorum: replicas {} unreachable", silent.join(", ")),
        })
    }

    /// Greets every other member at once.
    pub async fn reach_members(&self) -> BTreeMap<ReplicaId, Result<HelloAnswer, String>> {
        let others = self.members().into_iter().filter(|(id, _)| *id != self.id());
        let greetings =
            others.map(|(id, member)| async move { (id, hello::greet(&self.peers, id, &member.endpoint).await) });
        futures::future::join_all(greetings).await.into_iter().collect()
    }

    /// Makes this replica's store known to the cluster. `Err` means it must not take part any more.
    pub async fn announce(&self, stop: &CancellationToken) -> Result<(), Rejection> {
        let replica =
            ReplicaRecord { id: self.id(), store: self.info.store_id, version: self.version.into(), retired: false };
        let operation = ReplicaOperation::AnnounceReplica { replica };
        let command = Command { origin: Origin::Replica { id: self.id() }, request: None, operation: operation.into() };
        while !stop.is_cancelled() {
            let deadline = Instant::now() + Duration::from_secs(5);
            match self.write(command.clone(), deadline).await {
                Ok(Committed { outcome: Outcome::Done(_), .. }) => return Ok(()),
                Ok(Committed { outcome: Outcome::Rejected(rejection), .. }) => return Err(rejection),
                Err(error) => tracing::debug!(%error, "not announced yet"),
            }
            tokio::time::sleep(ANNOUNCE_PAUSE).await;
        }
        Ok(())
    }

    /// Completes when consensus cannot go on, with the reason.
    pub async fn failed(&self) -> String {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(fatal) = &metrics.borrow_watched().running_state {
                return fatal.to_string();
            }
            if metrics.changed().await.is_err() {
                return "consensus stopped".to_owned();
            }
        }
    }

    /// Stops consensus at once, as a crash would: nothing is handed over.
    pub async fn kill(&self) {
        // Consensus ends either way; whether it could be joined does not matter to the caller.
        let _ = self.raft.shutdown().await;
    }

    /// Drops every log entry that the current snapshot holds. For tests of the remaining log.
    pub async fn purge_behind_snapshot(&self) {
        let Some(snapshot) = self.raft.metrics().borrow_watched().snapshot else { return };
        if self.raft.trigger().purge_log(snapshot.index).await.is_err() {
            return;
        }
        let purged = |metrics: &openraft::RaftMetrics<TypeConfig>| metrics.purged >= Some(snapshot);
        let _ = self.raft.wait(Some(HANDOVER_TIMEOUT)).metrics(purged, "the log is purged").await;
    }

    /// Hands leadership over if this replica has it, then stops consensus and closes the store.
    pub async fn stop(&self) {
        if self.leader() == Some(self.id()) {
            self.hand_over(None).await;
        }
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not stop cleanly");
        }
        self.log.close().await;
    }

    /// Moves leadership to `to`, or to the voter that can write and whose log is closest to this replica's. True if it
    /// moved in time.
    pub(crate) async fn hand_over(&self, to: Option<ReplicaId>) -> bool {
        let to = match to {
            Some(to) => to,
            None => match self.closest_able_voter().await {
                Some(closest) => closest,
                None => return false,
            },
        };
        self.fitness.hands_over_in(self.term());
        if self.raft.trigger().transfer_leader(to).await.is_err() {
            return false;
        }
        let id = self.id();
        let moved =
            |metrics: &openraft::RaftMetrics<TypeConfig>| metrics.current_leader.is_some_and(|leader| leader != id);
        self.raft.wait(Some(HANDOVER_TIMEOUT)).metrics(moved, "leadership moves").await.is_ok()
    }

    async fn closest_able_voter(&self) -> Option<ReplicaId> {
        let others = self.other_voters(&self.reach_members().await);
        let able = others.into_iter().filter(|other| other.can_write);
        able.max_by_key(|other| other.matched).map(|other| other.id)
    }

    async fn keep_snapshots_fresh(self) {
        let mut metrics = self.raft.metrics();
        let mut said = false;
        while metrics.changed().await.is_ok() {
            if !self.pressure.should_snapshot() {
                continue;
            }
            // The state machine refuses a snapshot without room, too; asked with every change, it would say so each
            // time.
            let has_room = self.snapshots.has_room();
            if !has_room && !said {
                tracing::warn!("a snapshot is due, and the disk has too little room for one; free some space");
            }
            said = !has_room;
            if has_room && self.raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
    }

    /// A snapshot that holds everything applied so far.
    pub async fn backup(&self, deadline: Instant) -> Result<SnapshotFile, String> {
        if !self.snapshots.has_room() {
            return Err("the disk of this replica has too little room for a snapshot; free some space".to_owned());
        }
        let wanted = self.current().applied;
        loop {
            // A trigger is ignored while another snapshot is being built, so it is repeated after a while.
            self.raft.trigger().snapshot().await.map_err(|error| error.to_string())?;
            let reached = |metrics: &openraft::RaftMetrics<TypeConfig>| metrics.snapshot >= wanted;
            if self.raft.wait(Some(SNAPSHOT_RETRY)).metrics(reached, "snapshot for the backup").await.is_ok() {
                break;
            }
            if Instant::now() >= deadline {
                return Err("the snapshot was not ready in time".to_owned());
            }
        }
        let snapshot = self.raft.get_snapshot().await.map_err(|error| error.to_string())?;
        snapshot.map(|snapshot| snapshot.snapshot).ok_or_else(|| "there is nothing to back up yet".to_owned())
    }
}

// === impl RequestError ===

impl RequestError {
    fn retry(&self) -> Retry {
        match self {
            Self::Refused(
                ProposeError::NotLeader { .. } | ProposeError::HandingOver(_) | ProposeError::Overloaded(_),
            ) => Retry::Harmless,
            Self::Refused(ProposeError::Unknown) | Self::Forwarding(_) | Self::NoQuorum(_) => Retry::WithRequestId,
            Self::Refused(ProposeError::Exhausted(_) | ProposeError::Stopped) => Retry::Never,
            Self::TurnedAway(_) | Self::Denied(_) => Retry::Never,
        }
    }

    fn is_overload(&self) -> bool {
        matches!(self, Self::Refused(ProposeError::Overloaded(_)))
    }

    /// Whether the failure says by itself why the write did not happen.
    fn is_explained(&self) -> bool {
        self.is_overload() || matches!(self, Self::Refused(ProposeError::HandingOver(_)))
    }
}

#[derive(Debug, Clone)]
pub struct ClusterMember {
    pub endpoint: Endpoint,
    pub voter: bool,
}

/// An earlier deadline, so that the caller still learns before its own which replicas are silent.
fn leaving_time_to_explain(deadline: Instant) -> Instant {
    let remaining = deadline.saturating_duration_since(Instant::now());
    deadline - EXPLANATION_TIME.min(remaining / 4)
}

fn consensus_config(identity: &PeerIdentity, timing: Timing) -> Config {
    Config {
        cluster_name: identity.fleet.to_string(),
        heartbeat_interval: timing.heartbeat_ms,
        election_timeout_min: timing.election_min_ms,
        election_timeout_max: timing.election_max_ms,
        enable_pre_vote: Some(true),
        // A restarted leader has heard no node: it must not resume its term and judge.
        enable_leader_restore: Some(false),
        // Snapshots are taken by the bytes logged since the last one, see `SnapshotPressure`.
        snapshot_policy: SnapshotPolicy::Never,
        install_snapshot_timeout: 600_000,
        max_in_snapshot_log_to_keep: 2_000,
        purge_batch_size: 256,
        max_payload_entries: 128,
        replication_lag_threshold: 2_000,
        ..Config::default()
    }
}
