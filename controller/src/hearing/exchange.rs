//! Whom this replica listens through: every other member, for as long as it is one.
//!
//! A member that left is listened through no more, but what it had heard counts until its agents had time to attach
//! elsewhere; only then is it forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_pulse::fleet::Origin;
use muster_pulse::inbox::Inbox;
use muster_raft::replica::Replica;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::hearing::Hearing;
use crate::hearing::pull::Pull;
use crate::logging::Gate;
use crate::metrics::Metrics;

/// How often the members are looked at, and the own door's queue.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
const LOGGED_PER_WINDOW: u32 = 1;
const LOG_WINDOW: Duration = Duration::from_secs(60);

struct Exchange {
    hearing: Hearing,
    replica: Replica,
    metrics: Arc<Metrics>,
    pulling: BTreeMap<Origin, AbortOnDropHandle<()>>,
    /// Left the cluster, but still excuse their nodes.
    leaving: BTreeSet<Origin>,
    complaints: Gate,
}

/// Pulls from every other member until `stop`.
pub async fn run(hearing: Hearing, replica: Replica, metrics: Arc<Metrics>, stop: CancellationToken) {
    let complaints = Gate::new(LOGGED_PER_WINDOW, LOG_WINDOW);
    let (pulling, leaving) = (BTreeMap::new(), BTreeSet::new());
    let mut exchange = Exchange { hearing, replica, metrics, pulling, leaving, complaints };
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
        let members: BTreeSet<Origin> =
            self.replica.members().into_keys().map(Origin).filter(|member| *member != me).collect();
        let left: Vec<Origin> = self.pulling.keys().filter(|known| !members.contains(known)).copied().collect();
        for origin in left {
            self.leave(origin);
        }
        self.forget_excused();
        for origin in members {
            if !self.pulling.contains_key(&origin) {
                self.join(origin);
            }
        }
        if self.hearing.handshakes().queued() {
            self.hearing.handshakes_queued(self.hearing.tick());
        }
    }

    fn join(&mut self, origin: Origin) {
        match self.hearing.ear().admit(origin) {
            Ok(table) => {
                self.leaving.remove(&origin);
                let (hearing, replica, metrics) =
                    (self.hearing.clone(), self.replica.clone(), Arc::clone(&self.metrics));
                let pull = Pull::new(hearing, replica, metrics, Inbox::new(origin, table), origin);
                self.pulling.insert(origin, AbortOnDropHandle::new(tokio::spawn(pull.run())));
            }
            Err(error) => {
                if self.complaints.pass(Instant::now()).is_some() {
                    tracing::warn!(%error, "nodes that only this replica hears will look silent");
                }
            }
        }
    }

    fn leave(&mut self, origin: Origin) {
        self.pulling.remove(&origin);
        self.hearing.ear().blindness().unreachable(origin, self.hearing.tick());
        self.leaving.insert(origin);
    }

    fn forget_excused(&mut self) {
        let (ear, now) = (self.hearing.ear(), self.hearing.tick());
        self.leaving.retain(|origin| {
            let excused = ear.blindness().excused_until(Some(*origin), now).is_some();
            if !excused {
                ear.dismiss(*origin);
                ear.blindness().forget(*origin, now);
            }
            excused
        });
    }
}
