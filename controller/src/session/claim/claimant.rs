//! The claimant: it claims this replica's sessions from the leader, in batches, one request at a time.
//!
//! ```text
//!   streams --claim, release, confirm--> Claimant --one request under way--> ClaimArbiter (the leader's, or the own)
//!                                           ^                                        |
//!                                           +------ outcomes, take-overs ------------+
//! ```
//! When the leader changes, or could not be asked, earlier grants may no longer count. Every session is then claimed
//! anew, and the agent of a session that continues elsewhere by then is told so. That is done bit by bit
//! ([`ReclaimQueue`]). While no leader can be asked, sessions are accepted provisionally: an agent that reaches only
//! this replica must not be turned away because of us.

mod reclaim;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::pulse_client::PulseClient;
use muster_raft::peers::Lane;
use muster_raft::replica::Replica;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::hearing::service::Claims;
use crate::session::claim::arbiter::{CLAIMS_MAX, ClaimArbiter};
use crate::session::wake::entry::{Ending, Entry};
use crate::session::wake::registry::Registry;

use self::reclaim::ReclaimQueue;

/// Claims and releases that wait to be sent. A stream that wants to claim beyond this waits.
const ASKS_MAX: usize = 8_192;
/// How often the leader is asked for take-overs, if there is nothing else to ask.
const ASK_PERIOD: Duration = Duration::from_secs(1);
/// A leader that takes longer cannot be asked.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// How long a leader that did not answer is not asked again. Claims are provisional at once meanwhile.
const NOT_ASKED_FOR: Duration = Duration::from_millis(500);

/// The place where streams hand in their claims.
pub(crate) struct Claimant {
    asks: mpsc::Sender<ClaimMessage>,
    /// Counts the leaders so far.
    epoch: Arc<AtomicU64>,
    next_number: AtomicU64,
    unsettled: Arc<UnsettledSessions>,
}

/// Sessions of newcomers that the leader has not settled yet: at most one element per session.
#[derive(Debug, Default)]
struct UnsettledSessions(Mutex<VecDeque<Weak<Entry>>>);

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// The leader of this epoch granted it.
    Granted { epoch: u64, is_settled: bool },
    /// No leader could be asked.
    Provisional,
    /// The node already has a session, described here.
    Held(String),
}

enum ClaimMessage {
    Claim {
        claims: Vec<v1::SessionClaim>,
        answer: oneshot::Sender<Vec<ClaimOutcome>>,
    },
    /// A session that began under another leader than the present one, or none.
    Confirm(Arc<Entry>),
    Release(v1::SessionClaim),
}

/// The task behind a [`Claimant`].
pub(crate) struct ClaimExchange {
    replica: Replica,
    arbiter: Arc<ClaimArbiter>,
    registry: Arc<Registry>,
    asks: mpsc::Receiver<ClaimMessage>,
    /// An ask that did not fit into the last request.
    held_over: Option<ClaimMessage>,
    /// Releases that could not be sent yet.
    unsent: VecDeque<v1::SessionClaim>,
    reclaim: ReclaimQueue,
    leader_term: Option<LeaderTerm>,
    epoch: Arc<AtomicU64>,
    failed: Option<Instant>,
    unsettled: Arc<UnsettledSessions>,
}

/// The leader that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeaderTerm {
    leader: ReplicaId,
    term: u64,
}

/// One request as it is put together.
#[derive(Default)]
struct Batch {
    request: v1::ClaimRequest,
    /// The callers that wait for the outcomes of the claims, in their order.
    awaiting: Vec<Awaiting>,
}

enum Awaiting {
    New { count: usize, answer: oneshot::Sender<Vec<ClaimOutcome>> },
    Existing(Arc<Entry>),
}

// === impl Claimant ===

impl Claimant {
    pub(crate) fn new(replica: Replica, arbiter: Arc<ClaimArbiter>, registry: Arc<Registry>) -> (Self, ClaimExchange) {
        let (asks, queue) = mpsc::channel(ASKS_MAX);
        let (epoch, unsettled) = (Arc::<AtomicU64>::default(), Arc::<UnsettledSessions>::default());
        let exchange = ClaimExchange {
            replica,
            arbiter,
            registry,
            asks: queue,
            held_over: None,
            unsent: VecDeque::new(),
            reclaim: ReclaimQueue::none(),
            leader_term: None,
            epoch: Arc::clone(&epoch),
            failed: None,
            unsettled: Arc::clone(&unsettled),
        };
        (Self { asks, epoch, next_number: AtomicU64::new(first_number()), unsettled }, exchange)
    }

    /// A number for one session and all its claims.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// One outcome per claim, in order. At most [`CLAIMS_MAX`] claims.
    pub(crate) async fn claim(&self, claims: Vec<v1::SessionClaim>) -> Vec<ClaimOutcome> {
        let count = claims.len();
        let (answer, outcomes) = oneshot::channel();
        if count == 0 || self.asks.send(ClaimMessage::Claim { claims, answer }).await.is_err() {
            return vec![ClaimOutcome::Provisional; count];
        }
        outcomes.await.unwrap_or_else(|_| vec![ClaimOutcome::Provisional; count])
    }

    /// To be called once `entry` is in the registry: claims it again if the outcome of its claim no longer counts.
    pub(crate) fn confirm(&self, entry: &Arc<Entry>, outcome: &ClaimOutcome) {
        let is_confirmed =
            matches!(outcome, ClaimOutcome::Granted { epoch, .. } if *epoch == self.epoch.load(Ordering::Acquire));
        if !entry.is_settled() {
            self.unsettled.add(entry);
        }
        // With the queue full of claims the leader is busy; the next change of leader claims every session again.
        if !is_confirmed && self.asks.try_send(ClaimMessage::Confirm(Arc::clone(entry))).is_err() {
            tracing::debug!(node = %entry.node, "session not confirmed with the leader");
        }
    }

    /// A release that does not fit is not sent: the claim then ends when its node is not heard here any more.
    pub(crate) fn release(&self, claim: v1::SessionClaim) {
        let _ = self.asks.try_send(ClaimMessage::Release(claim));
    }
}

// === impl ClaimExchange ===

impl ClaimExchange {
    /// Runs until no stream can claim any more.
    pub(crate) async fn run(mut self) {
        let mut turns = interval(ASK_PERIOD);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut batch = Batch::default();
            let is_tick = tokio::select! {
                ask = next(&mut self.held_over, &mut self.asks) => match ask {
                    Some(ask) => {
                        self.include(ask, &mut batch);
                        false
                    }
                    None => return,
                },
                () = sleep_until(self.reclaim.next_turn), if !self.reclaim.is_empty() => false,
                _ = turns.tick() => true,
            };
            if is_tick {
                self.arbiter.clear_unless_leading();
            }
            self.fill(&mut batch);
            if is_tick {
                self.include_unsettled(&mut batch);
            }
            if is_tick || !batch.is_empty() {
                self.round(batch).await;
            }
        }
    }

    fn fill(&mut self, batch: &mut Batch) {
        while batch.has_room()
            && let Some(release) = self.unsent.pop_front()
        {
            batch.request.releases.push(release);
        }
        while self.held_over.is_none()
            && batch.has_room()
            && let Ok(ask) = self.asks.try_recv()
        {
            self.include(ask, batch);
        }
        if batch.request.claims.len() < CLAIMS_MAX && self.reclaim.take_turn() {
            self.include_reclaim(batch);
        }
    }

    fn include_reclaim(&mut self, batch: &mut Batch) {
        while batch.request.claims.len() < CLAIMS_MAX
            && let Some(entry) = self.reclaim.next(&self.registry)
        {
            batch.request.claims.push(entry.claim());
            batch.awaiting.push(Awaiting::Existing(entry));
        }
    }

    /// Asks again whether newcomers may have orders.
    fn include_unsettled(&self, batch: &mut Batch) {
        for entry in self.unsettled.take(CLAIMS_MAX.saturating_sub(batch.request.claims.len())) {
            if self.registry.is_current(&entry) {
                batch.request.claims.push(entry.claim());
                batch.awaiting.push(Awaiting::Existing(entry));
            }
        }
    }

    fn include(&mut self, ask: ClaimMessage, batch: &mut Batch) {
        match ask {
            ClaimMessage::Claim { claims, answer } if batch.request.claims.len() + claims.len() > CLAIMS_MAX => {
                self.held_over = Some(ClaimMessage::Claim { claims, answer });
            }
            ClaimMessage::Claim { claims, answer } => {
                batch.awaiting.push(Awaiting::New { count: claims.len(), answer });
                batch.request.claims.extend(claims);
            }
            ClaimMessage::Confirm(entry) => self.reclaim.unconfirmed.push_back(entry),
            ClaimMessage::Release(claim) => batch.request.releases.push(claim),
        }
    }

    async fn round(&mut self, batch: Batch) {
        let Batch { request, awaiting } = batch;
        let releases = request.releases.clone();
        match self.ask(request).await {
            Some((leader_term, response)) => {
                self.failed = None;
                self.recognise(leader_term);
                answer(awaiting, &response.answers, self.epoch.load(Ordering::Acquire), &self.unsettled);
                self.learn(&response.taken_over);
            }
            None => {
                self.unsent.extend(releases);
                self.unsent.truncate(ASKS_MAX);
                self.unanswered(awaiting);
            }
        }
    }

    async fn ask(&mut self, request: v1::ClaimRequest) -> Option<(LeaderTerm, v1::ClaimResponse)> {
        let is_paused = self.failed.is_some_and(|failed| failed.elapsed() < NOT_ASKED_FOR);
        let leader = self.replica.leader().filter(|_| !is_paused)?;
        let leader_term = LeaderTerm { leader, term: self.replica.term() };
        let all_claimed = self.leader_term == Some(leader_term) && self.reclaim.is_empty();
        let request = v1::ClaimRequest { all_claimed, ..request };
        if leader == self.replica.id() {
            return Some((leader_term, self.arbiter.claim(leader, request).ok()?));
        }
        let (channel, greeting) = self.replica.peer_channel(leader, Lane::Request)?;
        let mut client = PulseClient::new(channel);
        let asked = client.claim(v1::ClaimRequest { greeting: Some(greeting), ..request });
        match timeout(ANSWER_PATIENCE, asked).await {
            Ok(Ok(response)) => Some((leader_term, response.into_inner())),
            Ok(Err(status)) => {
                tracing::debug!(%leader, why = status.message(), "sessions cannot be claimed");
                None
            }
            Err(_) => {
                self.failed = Some(Instant::now());
                tracing::debug!(%leader, "sessions cannot be claimed: no answer");
                None
            }
        }
    }

    /// Claiming anew goes on where it was interrupted. Otherwise a leader that is slow once in a while would never hear
    /// of all sessions.
    fn unanswered(&mut self, awaiting: Vec<Awaiting>) {
        self.reclaim.interrupt();
        for one in awaiting.into_iter().rev() {
            match one {
                Awaiting::New { count, answer } => drop(answer.send(vec![ClaimOutcome::Provisional; count])),
                Awaiting::Existing(entry) => self.reclaim.unconfirmed.push_front(entry),
            }
        }
        // The sessions that are cut off are in the registry and have another turn.
        self.reclaim.unconfirmed.truncate(ASKS_MAX);
    }

    /// Under a new leader every session is claimed anew. The epoch is raised before the sessions are read, so that one
    /// that is entered meanwhile notices either way.
    fn recognise(&mut self, leader_term: LeaderTerm) {
        if self.leader_term == Some(leader_term) {
            return;
        }
        self.leader_term = Some(leader_term);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.reclaim = ReclaimQueue::all();
    }

    /// While sessions are still to be claimed from this leader, its take-overs are ignored: it names them again. Each
    /// session that ended is released, so that the leader knows, even if it was gone already.
    fn learn(&mut self, taken_over: &[v1::TakenOver]) {
        if self.reclaim.is_empty() {
            taken_over.iter().for_each(|taken_over| self.end(taken_over));
            self.unsent.extend(taken_over.iter().map(known));
        }
    }

    fn end(&self, taken_over: &v1::TakenOver) {
        let slot = Slot { index: taken_over.slot, generation: taken_over.generation };
        let Some(entry) = self.registry.get(slot).filter(|entry| entry.instance == taken_over.instance) else { return };
        let at = ReplicaId(taken_over.replica);
        entry.end(if taken_over.by_another { Ending::Displaced { at } } else { Ending::Continued { at } });
    }
}

/// Differs from start to start, so that a replica does not release sessions that began after a restart.
fn first_number() -> u64 {
    u64::from(rand::random::<u32>()) << 32 | 1
}

/// The release of a session that is with another replica now. No session has the number zero.
fn known(taken_over: &v1::TakenOver) -> v1::SessionClaim {
    let v1::TakenOver { slot, generation, instance, .. } = *taken_over;
    v1::SessionClaim { slot, generation, instance, ..v1::SessionClaim::default() }
}

async fn next(held_over: &mut Option<ClaimMessage>, asks: &mut mpsc::Receiver<ClaimMessage>) -> Option<ClaimMessage> {
    match held_over.take() {
        Some(ask) => Some(ask),
        None => asks.recv().await,
    }
}

fn answer(awaiting: Vec<Awaiting>, answers: &[v1::ClaimAnswer], epoch: u64, unsettled: &UnsettledSessions) {
    let mut answers = answers.iter();
    for one in awaiting {
        match one {
            Awaiting::New { count, answer } => {
                // A leader that answers less than was asked has not decided.
                let outcome =
                    |_| answers.next().map_or(ClaimOutcome::Provisional, |answer| ClaimOutcome::of(answer, epoch));
                let _ = answer.send((0..count).map(outcome).collect());
            }
            Awaiting::Existing(entry) => match answers.next() {
                Some(answer) if !answer.held_by.is_empty() => entry.end(Ending::Held(answer.held_by.clone())),
                Some(answer) if !answer.unsettled => entry.settle(),
                Some(_) | None if !entry.is_settled() => unsettled.add(&entry),
                Some(_) | None => {}
            },
        }
    }
}

// === impl ClaimOutcome ===

impl ClaimOutcome {
    fn of(answer: &v1::ClaimAnswer, epoch: u64) -> Self {
        match answer.held_by.is_empty() {
            true => Self::Granted { epoch, is_settled: !answer.unsettled },
            false => Self::Held(answer.held_by.clone()),
        }
    }

    /// Whether a newcomer may have orders.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Granted { is_settled, .. } => *is_settled,
            Self::Provisional | Self::Held(_) => false,
        }
    }
}

// === impl UnsettledSessions ===

impl UnsettledSessions {
    fn add(&self, entry: &Arc<Entry>) {
        self.sessions().push_back(Arc::downgrade(entry));
    }

    /// At most `max` sessions that go on; they are no longer listed.
    fn take(&self, max: usize) -> Vec<Arc<Entry>> {
        let mut sessions = self.sessions();
        std::iter::from_fn(|| {
            loop {
                match sessions.pop_front()?.upgrade() {
                    Some(entry) => return Some(entry),
                    None => continue,
                }
            }
        })
        .take(max)
        .collect()
    }

    fn sessions(&self) -> MutexGuard<'_, VecDeque<Weak<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Batch ===

impl Batch {
    fn has_room(&self) -> bool {
        self.request.claims.len() < CLAIMS_MAX && self.request.releases.len() < CLAIMS_MAX
    }

    fn is_empty(&self) -> bool {
        self.request.claims.is_empty() && self.request.releases.is_empty()
    }
}
