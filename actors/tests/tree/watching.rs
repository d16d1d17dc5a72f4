//! An observer that records what it is told, and a probe that panics on demand.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use muster_actors::{ActorKind, Observer, Probe};
use muster_pulse::node_watch::Judgement;

#[derive(Default)]
pub(crate) struct Watcher {
    restarts: Mutex<BTreeMap<ActorKind, usize>>,
    counts: Mutex<BTreeMap<ActorKind, usize>>,
    pub(crate) quarantined: AtomicUsize,
    pub(crate) rounds: AtomicUsize,
    pub(crate) sweeps: AtomicUsize,
    /// How many nodes had an actor at each verdict.
    pub(crate) actors_at_verdicts: Mutex<Vec<usize>>,
}

impl Observer for Watcher {
    fn swept(&self, _: std::time::Duration, _: usize) {
        self.sweeps.fetch_add(1, Ordering::SeqCst);
    }

    fn judged(&self, judgement: &Judgement, _: std::time::Duration) {
        if matches!(judgement, Judgement::Propose(_)) {
            let got_actor = self.count(ActorKind::Node);
            self.actors_at_verdicts.lock().unwrap().push(got_actor);
        }
    }

    fn judging_round(&self, _: std::time::Duration) {
        self.rounds.fetch_add(1, Ordering::SeqCst);
    }

    fn restarted(&self, kind: ActorKind) {
        *self.restarts.lock().unwrap().entry(kind).or_default() += 1;
    }

    fn quarantined(&self, count: usize) {
        self.quarantined.store(count, Ordering::SeqCst);
    }

    fn actors(&self, kind: ActorKind, count: usize) {
        self.counts.lock().unwrap().insert(kind, count);
    }
}

impl Watcher {
    pub(crate) fn restarts(&self, kind: ActorKind) -> usize {
        self.restarts.lock().unwrap().get(&kind).copied().unwrap_or_default()
    }

    pub(crate) fn count(&self, kind: ActorKind) -> usize {
        self.counts.lock().unwrap().get(&kind).copied().unwrap_or_default()
    }
}

/// Panics in the actor of the given kind and name, as often as was asked for.
#[derive(Default)]
pub(crate) struct InjectedPanics {
    target: Mutex<Option<(ActorKind, String)>>,
    left: AtomicUsize,
}

impl InjectedPanics {
    pub(crate) fn inject(&self, kind: ActorKind, name: &str, left: usize) {
        *self.target.lock().unwrap() = Some((kind, name.to_owned()));
        self.left.store(left, Ordering::SeqCst);
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

impl Probe for InjectedPanics {
    fn before(&self, kind: ActorKind, name: &str) {
        let is_target = self.target.lock().unwrap().as_ref().is_some_and(|(k, n)| *k == kind && n == name);
        let use_one = |left: usize| left.checked_sub(1);
        if is_target && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, use_one).is_ok() {
            panic!("an injected panic in {kind} {name}");
        }
    }
}
