//! Blindness of this replica: which silences are its own fault, and until when they excuse a node. A leader that missed
//! heartbeats must not mark nodes.
//!
//! Pure bookkeeping. The caller says what it noticed and when; [`Blindness`] says which nodes may be judged. A slot's
//! deadline is the later of `last heard + grace` and the end of the excuses that concern it. Those are the excuses of
//! the replica through which it was last heard, and those of the judging replica itself, which concern every node. An
//! excuse ends one reattach window after the blindness ended. There are two exceptions. A take-over by a replica that
//! knew all along what the others heard leaves no window. A lost replica leaves none to the nodes that were silent
//! before it was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::by_replica::HEARD_THROUGH_MAX;
use crate::excuse::{BlindPeriod, BlindnessCause, InForce, KnownSilences, REATTACH_MAX};
use crate::tick::Tick;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;

/// A peer whose last complete digest is older than this, or than half a short grace, is late.
pub const DIGEST_LATE: Duration = Duration::from_secs(1);

/// A tick of the judging loop may always be this late, unless the grace itself is shorter than a few of these.
const STALL_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Blindness {
    window: Duration,
    /// At most one period per excuse: a later one makes an earlier one of the same kind irrelevant.
    periods: BTreeMap<BlindnessCause, BlindPeriod>,
    /// The voters whose full table a new leader still waits for.
    awaited: BTreeSet<ReplicaId>,
    /// The timing of each peer's digests.
    digests: BTreeMap<ReplicaId, Told>,
    last_tick: Option<Tick>,
}

/// Digests of one peer.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// Since when they have come without a gap.
    unbroken_since: Tick,
    /// When one was last complete.
    last: Tick,
}

/// The timing of a leader's judging loop: how often it runs, and by which grace it judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgingLoop {
    pub period: Duration,
    pub grace: Duration,
}

/// What is known of a slot's last beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    Heard {
        at: Tick,
        through: ReplicaId,
    },
    /// No reachable replica has heard it. Its clock starts at `since`, or when a new leader knows that no replica has.
    Unplaced {
        since: Tick,
    },
}

/// The moment from which a slot is silent, if nothing is heard until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub at: Tick,
    /// What moved it beyond the grace period, if anything did.
    pub excuse: Option<BlindnessCause>,
}

// === impl Trace ===

impl Trace {
    /// The replica through which it was last heard.
    pub fn replica(self) -> Option<ReplicaId> {
        match self {
            Self::Heard { through, .. } => Some(through),
            Self::Unplaced { .. } => None,
        }
    }
}

// === impl JudgingLoop ===

impl JudgingLoop {
    /// Uses the shortest grace of the policy. With a longer one, beats lost in a stall could count against a node.
    pub fn of(policy: &Policy) -> Self {
        let [period, grace] =
            [policy.sweep_period(), policy.shortest_grace()].map(|period| Duration::from_millis(period.0));
        Self { period, grace }
    }
}

// === impl Blindness ===

impl Blindness {
    /// `backoff_cap` is the longest pause that an agent makes between two attempts to connect.
    pub fn new(backoff_cap: Duration) -> Self {
        Self {
            window: window(backoff_cap),
            periods: BTreeMap::new(),
            awaited: BTreeSet::new(),
            digests: BTreeMap::new(),
            last_tick: None,
        }
    }

    /// The agents were told another longest pause.
    pub fn set_backoff_cap(&mut self, backoff_cap: Duration) {
        self.window = window(backoff_cap);
    }

    /// How long agents get to come back after a blindness.
    pub fn reattach_window(&self) -> Duration {
        self.window
    }

    /// This replica leads since `now` and knows of these other voters. Each of them has to tell its table or be found
    /// unreachable.
    ///
    /// Returns whether this replica has known all along what the others heard. If so, it knows the fleet as well as the
    /// leader before it did, and no node needs time to come back only because the leader changed. If not, it may have
    /// been cut off together with the agents it heard. They may have moved to where it could not hear them, or it was
    /// not there when they did.
    pub fn took_over(&mut self, voters: impl IntoIterator<Item = ReplicaId>, now: Tick) -> bool {
        self.awaited = voters.into_iter().take(HEARD_THROUGH_MAX).collect();
        let seamless = self.is_informed(now);
        let period = if seamless { BlindPeriod::seamless(now) } else { BlindPeriod::new(now) };
        self.periods.insert(BlindnessCause::Takeover, period);
        // The judging loop starts now: a stall before its first turn counts, a pause as a follower does not.
        self.last_tick = Some(now);
        self.settle_takeover(now);
        seamless
    }

    /// The voters whose full table is still to come.
    pub fn awaited(&self) -> impl Iterator<Item = ReplicaId> + '_ {
        self.awaited.iter().copied()
    }

    /// A voter that cannot be reached is not waited for; its silence is excused by its missing digests instead.
    pub fn unreachable(&mut self, replica: ReplicaId, now: Tick) {
        self.awaited.remove(&replica);
        self.settle_takeover(now);
        self.open(BlindnessCause::Digest(replica), now);
    }

    /// A digest of `replica` is complete, so that all it had heard is known here.
    pub fn digest_complete(&mut self, replica: ReplicaId, now: Tick) {
        if self.digests.contains_key(&replica) || self.digests.len() < HEARD_THROUGH_MAX {
            let gap_max = self.gap_max();
            let told = self.digests.entry(replica).or_insert(Told { unbroken_since: now, last: now });
            if now.elapsed_since(told.last) > gap_max {
                told.unbroken_since = now;
            }
            told.last = now;
        }
        self.close(BlindnessCause::Digest(replica), now);
        self.awaited.remove(&replica);
        self.settle_takeover(now);
    }

    /// When a digest of `replica` was last complete.
    pub fn last_digest(&self, replica: ReplicaId) -> Option<Tick> {
        self.digests.get(&replica).map(|told| told.last)
    }

    /// A request for a digest failed, or its answer took too long.
    pub fn digest_missed(&mut self, replica: ReplicaId, now: Tick) {
        self.open(BlindnessCause::Digest(replica), now);
    }

    pub fn canary_late(&mut self, replica: ReplicaId, now: Tick) {
        self.open(BlindnessCause::Canary(replica), now);
    }

    pub fn canary_heard(&mut self, replica: ReplicaId, now: Tick) {
        self.close(BlindnessCause::Canary(replica), now);
    }

    pub fn quorum_lost(&mut self, now: Tick) {
        self.open(BlindnessCause::Quorum, now);
    }

    pub fn quorum_heard(&mut self, now: Tick) {
        self.close(BlindnessCause::Quorum, now);
    }

    /// Some replica still queues handshakes at `now`. The caller repeats this every second or so while it lasts.
    pub fn handshakes_queued(&mut self, now: Tick) {
        for (excuse, period) in &mut self.periods {
            period.prolong(*excuse, now, self.window);
        }
    }

    /// One turn of the judging loop. Notices when the turn itself is late, and which digests are.
    pub fn tick(&mut self, now: Tick, judging: JudgingLoop) {
        let overdue = self.is_overdue(now, judging);
        if let Some(last) = self.last_tick.replace(now).filter(|_| overdue) {
            self.periods.insert(BlindnessCause::Stall, BlindPeriod::over(last, now));
        }
        let allowed = DIGEST_LATE.min(judging.grace / 2);
        let late = |told: &Told| now.elapsed_since(told.last) > allowed;
        let late: Vec<ReplicaId> =
            self.digests.iter().filter(|(_, told)| late(told)).map(|(replica, _)| *replica).collect();
        for replica in late {
            self.open(BlindnessCause::Digest(replica), now);
        }
    }

    /// Whether the judging loop is so late that its next turn will find a stall. A caller that acts between two turns
    /// asks this, because after a stall it may wake up before the loop does.
    pub fn is_overdue(&self, now: Tick, judging: JudgingLoop) -> bool {
        let allowed = judging.period.saturating_add(stall_allowance(judging.grace));
        self.last_tick.is_some_and(|last| now.elapsed_since(last) > allowed)
    }

    /// I-03: until when no node at all may be judged, nor anything be proposed that rests on a judgement, and why. An
    /// overdue judging loop counts too, even before the turn that notices it.
    pub fn blind_until(&self, now: Tick, judging: JudgingLoop) -> Option<(Tick, BlindnessCause)> {
        let overdue = || self.is_overdue(now, judging).then(|| (now.after(self.window), BlindnessCause::Stall));
        self.excused_until(None, now).or_else(overdue)
    }

    /// The replica left the cluster: it is neither waited for nor excused any more.
    pub fn forget(&mut self, replica: ReplicaId, now: Tick) {
        self.digests.remove(&replica);
        self.periods.retain(|excuse, _| excuse.replica() != Some(replica));
        self.awaited.remove(&replica);
        self.settle_takeover(now);
    }

    /// Until when the nodes last heard through `replica` (`None`: through no replica) may not be judged, and why.
    pub fn excused_until(&self, replica: Option<ReplicaId>, now: Tick) -> Option<(Tick, BlindnessCause)> {
        self.longest(replica, now).filter(|(until, _)| *until > now)
    }

    /// The excuse that moves the deadline of a slot with this trace furthest, over or not, and until when.
    pub fn excuse_for(&self, trace: Trace, now: Tick) -> Option<(Tick, BlindnessCause)> {
        let of_trace = |(cause, period)| self.until_for(cause, period, trace, now).zip(Some(cause));
        self.periods.iter().map(|(cause, period)| (*cause, period)).filter_map(of_trace).max()
    }

    /// Whether a slot with this trace may not be judged at `now`.
    pub fn is_excused(&self, trace: Trace, now: Tick) -> bool {
        self.excuse_for(trace, now).is_some_and(|(until, _)| until > now)
    }

    /// Whether the excuse of this cause holds back a verdict on a slot with this trace at `now`.
    pub(crate) fn concerns(&self, cause: BlindnessCause, trace: Trace, now: Tick) -> bool {
        let until = self.periods.get(&cause).and_then(|period| self.until_for(cause, period, trace, now));
        until.is_some_and(|until| until > now)
    }

    /// Whether the slot was silent before the replica that heard it was lost.
    pub(crate) fn was_known_silent(&self, trace: Trace) -> bool {
        let Trace::Heard { at, through } = trace else { return false };
        let lost = self.periods.get(&BlindnessCause::Digest(through));
        lost.and_then(|period| period.known_silences).is_some_and(|silences| silences.include(at))
    }

    /// The start of a slot's silence: its last beat, or for an unplaced slot the moment when it was clear that no
    /// replica has heard it.
    pub fn silent_since(&self, trace: Trace, now: Tick) -> Tick {
        match trace {
            Trace::Heard { at, .. } => at,
            Trace::Unplaced { since } => self.unplaced_since(now).map_or(since, |gathered| gathered.max(since)),
        }
    }

    /// When an excuse of any replica was last in force: `now` if one is, tick zero if none ever was. A take-over
    /// without a gap is none.
    pub fn last_excused(&self, now: Tick) -> Tick {
        let lasting = self.periods.iter().filter(|(_, period)| !period.is_seamless() || period.is_open());
        let until = lasting.map(|(excuse, period)| period.until(*excuse, now, self.window).min(now)).max();
        until.unwrap_or(Tick::ZERO)
    }

    /// Every excuse in force, for `explain`.
    pub fn in_force(&self, now: Tick) -> impl Iterator<Item = InForce> {
        self.periods.iter().filter_map(move |(&excuse, period)| {
            let until = period.until(excuse, now, self.window);
            (until > now).then_some(InForce { cause: excuse, started: period.started, ended: period.ended, until })
        })
    }

    /// The rule: max(last heard + grace, end of the blindness that concerns it + reattach window).
    pub fn deadline(&self, trace: Trace, grace: Duration, now: Tick) -> Deadline {
        let by_grace = self.silent_since(trace, now).after(grace);
        match self.excuse_for(trace, now) {
            Some((until, excuse)) if until > by_grace => Deadline { at: until, excuse: Some(excuse) },
            Some(_) | None => Deadline { at: by_grace, excuse: None },
        }
    }

    /// When the latest take-over began; the boot if this replica never led.
    pub(crate) fn leads_since(&self) -> Tick {
        self.periods.get(&BlindnessCause::Takeover).map_or(Tick::since_boot(Duration::ZERO), |period| period.started)
    }

    /// When the last take-over had gathered all it could, and so knew that no replica can place a slot.
    fn unplaced_since(&self, now: Tick) -> Option<Tick> {
        let takeover = self.periods.get(&BlindnessCause::Takeover)?;
        Some(takeover.counted_end(BlindnessCause::Takeover, now, self.window))
    }

    /// Until when this period excuses a slot with this trace; `None` if it concerns other replicas' slots.
    fn until_for(&self, cause: BlindnessCause, period: &BlindPeriod, trace: Trace, now: Tick) -> Option<Tick> {
        let replica = cause.replica();
        if replica.is_some() && replica != trace.replica() {
            return None;
        }
        let is_loss = matches!(cause, BlindnessCause::Digest(_));
        Some(match is_loss && self.was_known_silent(trace) {
            true => period.until_for_silent(cause, now, self.window),
            false => period.until(cause, now, self.window),
        })
    }

    /// The excuse that concerns `replica` and lasts longest, whether it is over or not.
    fn longest(&self, replica: Option<ReplicaId>, now: Tick) -> Option<(Tick, BlindnessCause)> {
        let concerns = |excuse: BlindnessCause| excuse.replica().is_none() || excuse.replica() == replica;
        let concerning = self.periods.iter().filter(|(excuse, _)| concerns(**excuse));
        concerning.map(|(excuse, period)| (period.until(*excuse, now, self.window), *excuse)).max()
    }

    /// Whether this replica has heard all that the others did, and owes no node a window from an earlier take-over. It
    /// must have heard that for so long that every agent which lost its connection before has come back meanwhile.
    fn is_informed(&self, now: Tick) -> bool {
        let is_long_ago = |since: Tick| now.elapsed_since(since) >= REATTACH_MAX;
        let is_current =
            |told: &Told| now.elapsed_since(told.last) <= self.gap_max() && is_long_ago(told.unbroken_since);
        let earlier = self
            .periods
            .get(&BlindnessCause::Takeover)
            .map(|earlier| earlier.until(BlindnessCause::Takeover, now, self.window));
        is_long_ago(Tick::BOOT)
            && earlier.is_none_or(|until| until <= now)
            && self.awaited.iter().all(|voter| self.digests.contains_key(voter))
            && self.digests.values().all(is_current)
    }

    /// The longest distance between digests that leaves no gap: an eighth of the grace. Beats are at most two of these
    /// apart and the window is four, so that an agent that moved in between is heard again before its grace is over.
    fn gap_max(&self) -> Duration {
        self.window / 4
    }

    fn open(&mut self, excuse: BlindnessCause, now: Tick) {
        let known = self.periods.get(&excuse).copied();
        let period = match known {
            Some(period) if period.is_open() && !period.is_owed_a_run(excuse, now, self.window) => return,
            Some(period) => period.reopened(excuse, now, self.window),
            None if self.is_full_for(excuse) => return,
            None => BlindPeriod::new(now),
        };
        self.periods.insert(excuse, period.knowing(self.silences_before(excuse, now)));
    }

    /// The silences that the replica that is lost at `now` had itself reported, if everything was in order until then.
    /// A digest is complete at most one allowed gap after the moment that it tells of, so that with a gap of half a
    /// beat, two beats missed in it are at least one and a half missed in truth.
    fn silences_before(&self, loss: BlindnessCause, now: Tick) -> Option<KnownSilences> {
        let BlindnessCause::Digest(lost) = loss else { return None };
        let last = self.digests.get(&lost)?.last;
        let gap_max = self.gap_max();
        if self.digests.values().any(|told| now.elapsed_since(told.last) > gap_max) {
            return None;
        }
        let mut in_order_since = self.digests.values().map(|told| told.unbroken_since).max()?;
        for (cause, period) in &self.periods {
            if matches!(cause, BlindnessCause::Canary(_)) {
                in_order_since = in_order_since.max(period.ended?);
            }
        }
        Some(KnownSilences { in_order_since, heard_until: last.checked_before(self.window)? })
    }

    fn close(&mut self, excuse: BlindnessCause, now: Tick) {
        if let Some(period) = self.periods.get_mut(&excuse).filter(|period| period.is_open()) {
            period.ended = Some(now);
        }
    }

    /// Excuses are kept for as many replicas as there can be, so that made-up ids cannot fill memory.
    fn is_full_for(&self, excuse: BlindnessCause) -> bool {
        let replicas: BTreeSet<ReplicaId> = self.periods.keys().filter_map(|known| known.replica()).collect();
        excuse.replica().is_some_and(|replica| replicas.len() >= HEARD_THROUGH_MAX && !replicas.contains(&replica))
    }

    fn settle_takeover(&mut self, now: Tick) {
        if self.awaited.is_empty() {
            self.close(BlindnessCause::Takeover, now);
        }
    }
}

/// The longest delay of a tick that is no stall yet: well within any grace, or the beats lost in it would count.
fn stall_allowance(grace: Duration) -> Duration {
    STALL_MIN.min(grace / 4).max(grace / 10)
}

fn window(backoff_cap: Duration) -> Duration {
    backoff_cap.saturating_mul(2).min(REATTACH_MAX)
}
