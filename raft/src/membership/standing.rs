//! Standing of this replica: whether it may take part in consensus, and whether it may lead.
//!
//! A replica that may not take part stays up, so that it can say why: it answers greetings, `muster status`, metrics
//! and `/readyz`, and refuses raft's messages in both directions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use muster_lifecycle::replica::{ReplicaId, ReplicaTrouble};
use thiserror::Error;

use crate::membership::audit::{Diverged, Mismatch};
use crate::replication::peer_memory::explain;
use crate::storage::halt::Halt;
use crate::storage::peer_mark::MarkDispute;

/// The reason why a replica takes no part, until it is replaced or started anew.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Exclusion {
    #[error("{}", explain(*id, *dispute))]
    WentBack { id: ReplicaId, dispute: MarkDispute },
    #[error(transparent)]
    Diverged(#[from] Diverged),
    #[error(transparent)]
    Halted(#[from] Halt),
}

/// A difference between replicas that no majority has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispute {
    /// The finding, with what to do.
    pub text: String,
    /// Whether a reachable replica that has not come so far will settle it.
    pub may_lead: bool,
    pub may_vote: bool,
}

#[derive(Debug, Default)]
pub struct Standing {
    /// The others were asked once since the start.
    asked: AtomicBool,
    exclusion: OnceLock<Exclusion>,
    halted: Arc<OnceLock<Halt>>,
    dispute: ArcSwapOption<Dispute>,
    /// All differences between states that were seen last, between other replicas too.
    mismatches: ArcSwap<BTreeSet<Mismatch>>,
}

// === impl Exclusion ===

impl Exclusion {
    pub fn trouble(&self) -> ReplicaTrouble {
        match self {
            Self::WentBack { .. } => ReplicaTrouble::WentBack,
            Self::Diverged(_) => ReplicaTrouble::Diverged,
            Self::Halted(_) => ReplicaTrouble::Halted,
        }
    }
}

// === impl Standing ===

impl Standing {
    pub(crate) fn new(halted: Arc<OnceLock<Halt>>) -> Self {
        Self { halted, ..Self::default() }
    }

    pub fn exclusion(&self) -> Option<Exclusion> {
        self.exclusion.get().cloned().or_else(|| self.halted.get().cloned().map(Exclusion::Halted))
    }

    pub fn dispute(&self) -> Option<Arc<Dispute>> {
        self.dispute.load_full()
    }

    /// What is wrong with this replica, if anything is: as a kind, and for people.
    pub fn trouble(&self) -> Option<(ReplicaTrouble, String)> {
        let excluded = self.exclusion().map(|exclusion| (exclusion.trouble(), exclusion.to_string()));
        excluded.or_else(|| self.dispute().map(|dispute| (ReplicaTrouble::Disputed, dispute.text.clone())))
    }

    /// The first reason counts, and is said once.
    pub(crate) fn exclude(&self, exclusion: Exclusion) {
        let text = exclusion.to_string();
        if self.exclusion.set(exclusion).is_ok() {
            tracing::error!("this replica takes no part any more: {text}");
        }
    }

    pub(crate) fn set_dispute(&self, dispute: Option<Dispute>) {
        let before = self.dispute.load_full();
        match &dispute {
            Some(now) if before.as_deref().map(|before| &before.text) != Some(&now.text) => {
                tracing::error!("{}", now.text);
            }
            None if before.is_some() => tracing::info!("the replicas agree again"),
            Some(_) | None => {}
        }
        self.dispute.store(dispute.map(Arc::new));
    }

    pub fn mismatches(&self) -> Arc<BTreeSet<Mismatch>> {
        self.mismatches.load_full()
    }

    /// Each pair is said once, for as long as it differs.
    pub(crate) fn set_mismatches(&self, seen: BTreeSet<Mismatch>) {
        let before = self.mismatches.swap(Arc::new(seen.clone()));
        let pairs: BTreeSet<_> = before.iter().map(|mismatch| mismatch.pair).collect();
        for Mismatch { pair: (one, other), index } in seen.iter().filter(|seen| !pairs.contains(&seen.pair)) {
            tracing::error!(%one, %other, index, "the states of two replicas differ at an equal log index");
        }
    }

    pub(crate) fn asked_the_others(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether this replica may vote, acknowledge and ask for votes; otherwise the reason.
    pub(crate) fn may_vote(&self) -> Result<(), String> {
        if let Some(exclusion) = self.exclusion() {
            return Err(exclusion.to_string());
        }
        if !self.asked.load(Ordering::Acquire) {
            return Err("this replica has just started and first asks the others what they know of it".to_owned());
        }
        self.dispute().filter(|dispute| !dispute.may_vote).map_or(Ok(()), |dispute| Err(dispute.text.clone()))
    }

    pub(crate) fn may_lead(&self) -> Result<(), String> {
        self.may_vote()?;
        self.dispute().filter(|dispute| !dispute.may_lead).map_or(Ok(()), |dispute| Err(dispute.text.clone()))
    }
}
