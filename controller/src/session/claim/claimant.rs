//! How this replica claims its sessions from the leader: in batches, one request at a time.
//!
//! ```text
//!   streams --claim, release, confirm--> Claimant --one request under way--> the leader's Court (or the own one)
//!                                           ^                                        |
//!                                           +------- verdicts, who was taken over ---+
//! ```
//! Whoever leads now is the authority. When that changes, or when it could not be asked, what was granted before may mean
//! nothing any more and every session is claimed anew; one that continues elsewhere by then is told so. That is done bit by
//! bit, because a new leader has more urgent things to do, and so have those who lost their replica with the old one. While
//! nobody can be asked, sessions are accepted provisionally: an agent that reaches only this replica must not be turned away
//! because of us.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_lifecycle::node::Slot;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::v1;
use muster_proto::v1::pulse_client::PulseClient;
use muster_raft::peers::Lane;
use muster_raft::replica::Replica;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use crate::pulse_service::Claims;
use crate::session::claim::arbiter::{CLAIMS_MAX, Court};
use crate::session::wake::entry::{Ending, Entry};
use crate::session::wake::registry::{Registry, SHARDS};

/// Claims and releases that wait to be told. Whoever wants to claim beyond this waits.
const ASKS_MAX: usize = 8_192;
/// How often the leader is asked who was taken over, if there is nothing else to ask.
const ASK_PERIOD: Duration = Duration::from_secs(1);
/// A leader that takes longer cannot be asked.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// After a leader did not answer nobody waits for it again so soon: claims are provisional at once.
const GIVEN_UP_FOR: Duration = Duration::from_millis(500);
/// When the first residents are claimed from a new leader, which has its first verdicts to see to, and from one batch of them
/// to the next: 20,000 a second.
const RESIDENTS_REST: Duration = Duration::from_secs(2);
const RESIDENTS_PERIOD: Duration = Duration::from_millis(50);

/// Where streams hand in their claims.
pub(crate) struct Claimant {
    asks: mpsc::Sender<Ask>,
    /// Counts the authorities so far.
    era: Arc<AtomicU64>,
    next_number: AtomicU64,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Under the authority of this era.
    Granted { era: u64 },
    /// Nobody could be asked.
    Provisional,
    /// By whom.
    Held(String),
}

enum Ask {
    Claim {
        claims: Vec<v1::SessionClaim>,
        answer: oneshot::Sender<Vec<Verdict>>,
    },
    /// A session that began under another authority than the present one, or none.
    Confirm(Arc<Entry>),
    Release(v1::SessionClaim),
}

/// The task behind a [`Claimant`].
pub(crate) struct Exchange {
    replica: Replica,
    court: Arc<Court>,
    registry: Arc<Registry>,
    asks: mpsc::Receiver<Ask>,
    /// An ask that did not fit into the last request.
    held_over: Option<Ask>,
    /// Releases that could not be told yet.
    untold: VecDeque<v1::SessionClaim>,
    residents: Residents,
    authority: Option<Authority>,
    era: Arc<AtomicU64>,
    failed: Option<Instant>,
}

/// Sessions still to be claimed from the present authority.
struct Residents {
    /// Parts of the registry that were not looked at since it is the authority.
    unvisited: Range<usize>,
    unconfirmed: VecDeque<Arc<Entry>>,
    next_turn: Instant,
    /// The authority could not be asked meanwhile, so that what it granted before may mean nothing any more.
    again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Authority {
    leader: ReplicaId,
    term: u64,
}

/// One request in the making.
#[derive(Default)]
struct Batch {
    request: v1::ClaimRequest,
    /// Who wants to know about the claims, in their order.
    parties: Vec<Party>,
}

enum Party {
    Newcomers { count: usize, answer: oneshot::Sender<Vec<Verdict>> },
    Resident(Arc<Entry>),
}

// === impl Claimant ===

impl Claimant {
    pub(crate) fn new(replica: Replica, court: Arc<Court>, registry: Arc<Registry>) -> (Self, Exchange) {
        let (asks, queue) = mpsc::channel(ASKS_MAX);
        let era = Arc::<AtomicU64>::default();
        let exchange = Exchange {
            replica,
            court,
            registry,
            asks: queue,
            held_over: None,
            untold: VecDeque::new(),
            residents: Residents::none(),
            authority: None,
            era: Arc::clone(&era),
            failed: None,
        };
        (Self { asks, era, next_number: AtomicU64::new(first_number()) }, exchange)
    }

    /// For one session and all its claims.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// One verdict per claim, in order. At most [`CLAIMS_MAX`] claims.
    pub(crate) async fn claim(&self, claims: Vec<v1::SessionClaim>) -> Vec<Verdict> {
        let count = claims.len();
        let (answer, verdicts) = oneshot::channel();
        if count == 0 || self.asks.send(Ask::Claim { claims, answer }).await.is_err() {
            return vec![Verdict::Provisional; count];
        }
        verdicts.await.unwrap_or_else(|_| vec![Verdict::Provisional; count])
    }

    /// To be called once `entry` is in the registry: claims it again if its verdict no longer counts.
    pub(crate) fn settle(&self, entry: &Arc<Entry>, verdict: &Verdict) {
        let settled = matches!(verdict, Verdict::Granted { era } if *era == self.era.load(Ordering::Acquire));
        // With the queue full of claims the leader is busy; the next change of authority claims everybody again.
        if !settled && self.asks.try_send(Ask::Confirm(Arc::clone(entry))).is_err() {
            tracing::debug!(node = %entry.node, "session not confirmed with the leader");
        }
    }

    /// What does not fit is not told: the claim then ends when its node is not heard here any more.
    pub(crate) fn release(&self, claim: v1::SessionClaim) {
        let _ = self.asks.try_send(Ask::Release(claim));
    }
}

// === impl Exchange ===

impl Exchange {
    /// Until nobody can claim any more.
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
                () = sleep_until(self.residents.next_turn), if !self.residents.is_empty() => false,
                _ = turns.tick() => true,
            };
            if is_tick {
                self.court.adjourn_unless_leading();
            }
            self.fill(&mut batch);
            if is_tick || !batch.is_empty() {
                self.round(batch).await;
            }
        }
    }

    fn fill(&mut self, batch: &mut Batch) {
        while batch.has_room()
            && let Some(release) = self.untold.pop_front()
        {
            batch.request.releases.push(release);
        }
        while self.held_over.is_none()
            && batch.has_room()
            && let Ok(ask) = self.asks.try_recv()
        {
            self.include(ask, batch);
        }
        if batch.request.claims.len() < CLAIMS_MAX && self.residents.take_turn() {
            self.include_residents(batch);
        }
    }

    fn include_residents(&mut self, batch: &mut Batch) {
        while batch.request.claims.len() < CLAIMS_MAX
            && let Some(entry) = self.residents.next(&self.registry)
        {
            batch.request.claims.push(entry.claim());
            batch.parties.push(Party::Resident(entry));
        }
    }

    fn include(&mut self, ask: Ask, batch: &mut Batch) {
        match ask {
            Ask::Claim { claims, answer } if batch.request.claims.len() + claims.len() > CLAIMS_MAX => {
                self.held_over = Some(Ask::Claim { claims, answer });
            }
            Ask::Claim { claims, answer } => {
                batch.parties.push(Party::Newcomers { count: claims.len(), answer });
                batch.request.claims.extend(claims);
            }
            Ask::Confirm(entry) => self.residents.unconfirmed.push_back(entry),
            Ask::Release(claim) => batch.request.releases.push(claim),
        }
    }

    async fn round(&mut self, batch: Batch) {
        let Batch { request, parties } = batch;
        let releases = request.releases.clone();
        match self.ask(request).await {
            Some((authority, response)) => {
                self.failed = None;
                self.recognise(authority);
                answer(parties, &response.verdicts, self.era.load(Ordering::Acquire));
                self.learn(&response.taken_over);
            }
            None => {
                self.untold.extend(releases);
                self.untold.truncate(ASKS_MAX);
                self.unanswered(parties);
            }
        }
    }

    async fn ask(&mut self, request: v1::ClaimRequest) -> Option<(Authority, v1::ClaimResponse)> {
        let given_up = self.failed.is_some_and(|failed| failed.elapsed() < GIVEN_UP_FOR);
        let leader = self.replica.leader().filter(|_| !given_up)?;
        let authority = Authority { leader, term: self.replica.term() };
        if leader == self.replica.id() {
            return Some((authority, self.court.claim(leader, request).ok()?));
        }
        let (channel, greeting) = self.replica.peer_channel(leader, Lane::Request)?;
        let mut client = PulseClient::new(channel);
        let asked = client.claim(v1::ClaimRequest { greeting: Some(greeting), ..request });
        match timeout(ANSWER_PATIENCE, asked).await {
            Ok(Ok(response)) => Some((authority, response.into_inner())),
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

    /// Whoever is on the way to being claimed goes on where it was interrupted: a leader that is slow once in a while would
    /// otherwise never have heard of all.
    fn unanswered(&mut self, parties: Vec<Party>) {
        self.residents.interrupt();
        for party in parties.into_iter().rev() {
            match party {
                Party::Newcomers { count, answer } => drop(answer.send(vec![Verdict::Provisional; count])),
                Party::Resident(entry) => self.residents.unconfirmed.push_front(entry),
            }
        }
        // Whoever is cut off is in the registry and has another turn.
        self.residents.unconfirmed.truncate(ASKS_MAX);
    }

    /// Under a new authority everybody is claimed anew. The era is raised before the sessions are looked at, so that one that
    /// enters meanwhile notices either way.
    fn recognise(&mut self, authority: Authority) {
        if self.authority == Some(authority) {
            return;
        }
        self.authority = Some(authority);
        self.era.fetch_add(1, Ordering::AcqRel);
        self.residents = Residents::all();
    }

    /// What is still to be claimed from this leader is not judged by what it heard of others before: it is told again.
    /// Whatever was learnt is released, so that the leader knows, even if the session was gone already.
    fn learn(&mut self, taken_over: &[v1::TakenOver]) {
        if self.residents.is_empty() {
            taken_over.iter().for_each(|taken_over| self.end(taken_over));
            self.untold.extend(taken_over.iter().map(known));
        }
    }

    fn end(&self, taken_over: &v1::TakenOver) {
        let slot = Slot { index: taken_over.slot, generation: taken_over.generation };
        let Some(entry) = self.registry.get(slot).filter(|entry| entry.instance == taken_over.instance) else { return };
        let at = ReplicaId(taken_over.replica);
        entry.end(if taken_over.by_another { Ending::Displaced { at } } else { Ending::Continued { at } });
    }
}

/// So that a restarted replica does not speak of the sessions of its former life.
fn first_number() -> u64 {
    u64::from(rand::random::<u32>()) << 32 | 1
}

/// The release of a session that is with another replica now. No session has the number zero.
fn known(taken_over: &v1::TakenOver) -> v1::SessionClaim {
    let v1::TakenOver { slot, generation, instance, .. } = *taken_over;
    v1::SessionClaim { slot, generation, instance, ..v1::SessionClaim::default() }
}

async fn next(held_over: &mut Option<Ask>, asks: &mut mpsc::Receiver<Ask>) -> Option<Ask> {
    match held_over.take() {
        Some(ask) => Some(ask),
        None => asks.recv().await,
    }
}

fn answer(parties: Vec<Party>, verdicts: &[v1::ClaimVerdict], era: u64) {
    let mut verdicts = verdicts.iter();
    for party in parties {
        match party {
            Party::Newcomers { count, answer } => {
                // A leader that answers less than was asked has not decided.
                let verdict = |_| verdicts.next().map_or(Verdict::Provisional, |verdict| Verdict::of(verdict, era));
                let _ = answer.send((0..count).map(verdict).collect());
            }
            Party::Resident(entry) => match verdicts.next() {
                Some(verdict) if !verdict.held_by.is_empty() => entry.end(Ending::Held(verdict.held_by.clone())),
                Some(_) | None => {}
            },
        }
    }
}

// === impl Verdict ===

impl Verdict {
    fn of(verdict: &v1::ClaimVerdict, era: u64) -> Self {
        if verdict.held_by.is_empty() { Self::Granted { era } } else { Self::Held(verdict.held_by.clone()) }
    }
}

// === impl Residents ===

impl Residents {
    fn none() -> Self {
        Self { unvisited: 0..0, unconfirmed: VecDeque::new(), next_turn: Instant::now(), again: false }
    }

    fn all() -> Self {
        Self { unvisited: 0..SHARDS, next_turn: Instant::now() + RESIDENTS_REST, ..Self::none() }
    }

    fn is_empty(&self) -> bool {
        self.unvisited.is_empty() && self.unconfirmed.is_empty() && !self.again
    }

    fn interrupt(&mut self) {
        (self.again, self.next_turn) = (true, Instant::now() + RESIDENTS_REST);
    }

    /// Whether it is their turn. The next one comes a while later.
    fn take_turn(&mut self) -> bool {
        let now = Instant::now();
        let is_turn = self.next_turn <= now;
        if is_turn {
            self.next_turn = now + RESIDENTS_PERIOD;
        }
        is_turn
    }

    /// The next whose session still goes on.
    fn next(&mut self, registry: &Registry) -> Option<Arc<Entry>> {
        loop {
            match self.unconfirmed.pop_front() {
                Some(entry) if registry.is_current(&entry) => return Some(entry),
                Some(_) => {}
                None => self.unconfirmed = registry.nodes_of_shard(self.next_part()?).into(),
            }
        }
    }

    fn next_part(&mut self) -> Option<usize> {
        if self.unvisited.is_empty() && std::mem::take(&mut self.again) {
            self.unvisited = 0..SHARDS;
        }
        self.unvisited.next()
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
