//! The exchange of pulse tables: this replica pulls from every other member, for as long as it is one.
//!
//! This replica stops pulling from a member that left. What that member had heard still counts, until its agents had
//! time to attach elsewhere and every grace that began with a beat there has passed. Only then is the member forgotten.
//! Forgotten sooner, a node that only it had heard would look like one that was never heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_lifecycle::policy::Policy;
use muster_lifecycle::replica::ReplicaId;
use muster_pulse::inbox::DigestInbox;
use muster_pulse::tick::Tick;
use muster_raft::replica::Replica;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::hearing::Hearing;
use crate::hearing::pull::Pull;
use crate::observe::logging::Gate;
use crate::observe::metrics::Metrics;

/// How often the members and the own door's queue are checked.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
const LOGGED_PER_WINDOW: u32 = 1;
const LOG_WINDOW: Duration = Duration::from_secs(60);

struct Exchange {
    hearing: Hearing,
    replica: Replica,
    metrics: Arc<Metrics>,
    pulls: Pulls,
    /// Members that left the cluster, and when. What they heard still counts.
    leaving: BTreeMap<ReplicaId, Tick>,
    complaints: Gate,
}

/// The pulls, one task per member.
#[derive(Default)]
struct Pulls(BTreeMap<ReplicaId, AbortOnDropHandle<()>>);

/// Pulls from every other member until `stop`.
pub async fn run(hearing: Hearing, replica: Replica, metrics: Arc<Metrics>, stop: CancellationToken) {
    let complaints = Gate::new(LOGGED_PER_WINDOW, LOG_WINDOW);
    let (pulls, leaving) = (Pulls::default(), BTreeMap::new());
    let mut exchange = Exchange { hearing, replica, metrics, pulls, leaving, complaints };
    let mut looks = interval(LOOK_PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => exchange.look(),
        }
    }
}

// === impl Exchange ===

impl Exchange {
    fn look(&mut self) {
        let me = self.hearing.me();
        let members: BTreeSet<ReplicaId> = self.replica.members().into_keys().filter(|member| *member != me).collect();
        for peer in self.pulls.other_than(&members) {
            self.leave(peer);
        }
        self.forget_departed();
        let interval = Duration::from_millis(self.replica.current().state.policy().beat_interval().0);
        self.hearing.pulses().blindness().set_backoff_cap(interval);
        for peer in members {
            if self.pulls.has_died(peer) {
                self.note_death(peer);
            }
            if !self.pulls.is_under_way(peer) {
                self.join(peer);
            }
        }
        if self.hearing.handshakes().queued() {
            self.hearing.handshakes_queued(self.hearing.tick());
        }
    }

    fn join(&mut self, peer: ReplicaId) {
        match self.hearing.pulses().admit(peer) {
            Ok(table) => {
                self.leaving.remove(&peer);
                let (hearing, replica, metrics) =
                    (self.hearing.clone(), self.replica.clone(), Arc::clone(&self.metrics));
                let pull = Pull::new(hearing, replica, metrics, DigestInbox::new(peer, table), peer);
                self.pulls.begin(peer, pull.run());
            }
            Err(error) => {
                if self.complaints.pass(Instant::now()).is_some() {
                    tracing::warn!(%error, "nodes that only this replica hears will look silent");
                }
            }
        }
    }

    /// Nothing came from this peer since the pull died, and a new pull begins with the full table.
    fn note_death(&self, peer: ReplicaId) {
        self.hearing.pulses().blindness().digest_missed(peer, self.hearing.tick());
        if self.complaints.pass(Instant::now()).is_some() {
            tracing::error!(replica = %peer, "listening to a replica ended by itself, it is begun anew");
        }
    }

    fn leave(&mut self, peer: ReplicaId) {
        let now = self.hearing.tick();
        self.pulls.end(peer);
        self.hearing.pulses().blindness().unreachable(peer, now);
        self.leaving.insert(peer, now);
    }

    fn forget_departed(&mut self) {
        let (pulses, now) = (self.hearing.pulses(), self.hearing.tick());
        let grace = longest_grace(self.replica.current().state.policy());
        self.leaving.retain(|peer, left| {
            let excused = pulses.blindness().excused_until(Some(*peer), now).is_some();
            let counts = excused || now <= left.after(grace);
            if !counts {
                pulses.dismiss(*peer);
                pulses.blindness().forget(*peer, now);
            }
            counts
        });
    }
}

// === impl Pulls ===

impl Pulls {
    /// Begins a pull from `peer`, in place of an earlier one.
    fn begin(&mut self, peer: ReplicaId, pull: impl Future<Output = ()> + Send + 'static) {
        self.0.insert(peer, AbortOnDropHandle::new(tokio::spawn(pull)));
    }

    fn end(&mut self, peer: ReplicaId) {
        self.0.remove(&peer);
    }

    fn is_under_way(&self, peer: ReplicaId) -> bool {
        self.0.get(&peer).is_some_and(|pull| !pull.is_finished())
    }

    /// The pull was begun and this replica did not end it. A pull has no end of its own.
    fn has_died(&self, peer: ReplicaId) -> bool {
        self.0.get(&peer).is_some_and(AbortOnDropHandle::is_finished)
    }

    fn other_than(&self, members: &BTreeSet<ReplicaId>) -> Vec<ReplicaId> {
        self.0.keys().filter(|known| !members.contains(known)).copied().collect()
    }
}

/// The silence after which every node is overdue, whichever grace it is judged by.
fn longest_grace(policy: &Policy) -> Duration {
    Duration::from_millis(policy.node_monitor_grace_period.max(policy.node_startup_grace_period).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ReplicaId = ReplicaId(2);
    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_pull_that_ended_or_panicked_can_be_started_again() {
        let mut pulls = Pulls::default();
        assert!(!pulls.is_under_way(PEER) && !pulls.has_died(PEER));
        for panics in [false, true] {
            pulls.begin(PEER, async move { assert!(!panics, "as a pull might") });
            let died = async {
                while !pulls.has_died(PEER) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, died).await.unwrap();
            assert!(!pulls.is_under_way(PEER));
        }
        pulls.begin(PEER, std::future::pending());
        tokio::task::yield_now().await;
        assert!(pulls.is_under_way(PEER) && !pulls.has_died(PEER));
        assert_eq!(pulls.other_than(&BTreeSet::from([ReplicaId(3)])), [PEER]);
        pulls.end(PEER);
        assert!(!pulls.is_under_way(PEER) && !pulls.has_died(PEER));
    }

    #[test]
    fn pulses_of_a_removed_replica_are_kept_for_the_longest_grace() {
        let mut policy = Policy::default();
        assert_eq!(longest_grace(&policy), Duration::from_millis(policy.node_startup_grace_period.0));
        policy.node_monitor_grace_period = policy.node_startup_grace_period;
        policy.node_startup_grace_period = Policy::default().node_monitor_grace_period;
        assert_eq!(longest_grace(&policy), Duration::from_millis(policy.node_monitor_grace_period.0));
    }
}
