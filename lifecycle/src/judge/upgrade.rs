//! Upgrades: which level could be in force, which replicas hold it back, and when the leader raises it.
//!
//! A replica announces the levels it speaks before it does anything else, so the state alone says who speaks what.
//! Retired replicas do not count. What the leader adds is that every member answers and still speaks the level.

use crate::object::policy::UpgradeFinalization;
use crate::object::replica::ReplicaRecord;
use crate::rejection::Rejection;
use crate::state::State;
use crate::value::level::Level;
use crate::value::time::ClusterTime;

/// What becomes of the level in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeOutlook {
    /// No replica speaks a higher level than the one in force.
    Settled,
    /// Some replica speaks this level, and another does not.
    HeldBack { to: Level },
    /// All replicas speak it, and the leader raises it at this time.
    Due { to: Level, at: ClusterTime },
    /// All replicas speak it, and an operator has to finalise the upgrade.
    Manual { to: Level },
}

/// Replicas that take part, as far as the log knows.
pub fn current_replicas(state: &State) -> impl Iterator<Item = &ReplicaRecord> {
    state.replicas().iter().map(AsRef::as_ref).filter(|replica| !replica.retired)
}

/// The replicas that do not speak a level.
pub fn holding_back(state: &State, level: Level) -> impl Iterator<Item = &ReplicaRecord> {
    current_replicas(state).filter(move |replica| !replica.levels.contains(level))
}

pub fn outlook(state: &State) -> UpgradeOutlook {
    let in_force = state.level();
    let Some(to) = current_replicas(state).map(|replica| replica.levels.max).min().filter(|max| *max > in_force) else {
        let newest = current_replicas(state).map(|replica| replica.levels.max).max();
        let is_ahead = newest.is_some_and(|newest| newest > in_force);
        return if is_ahead { UpgradeOutlook::HeldBack { to: in_force.next() } } else { UpgradeOutlook::Settled };
    };
    let since = current_replicas(state).map(|replica| replica.announced).max().unwrap_or_default();
    match state.policy().upgrade_finalize_after {
        UpgradeFinalization::After(delay) => UpgradeOutlook::Due { to, at: delay.after(since) },
        UpgradeFinalization::Manual => UpgradeOutlook::Manual { to },
    }
}

/// The level that the leader should raise to now.
pub fn raise_due(state: &State, now: ClusterTime) -> Option<Level> {
    match outlook(state) {
        UpgradeOutlook::Due { to, at } if at <= now => Some(to),
        UpgradeOutlook::Due { .. }
        | UpgradeOutlook::Settled
        | UpgradeOutlook::HeldBack { .. }
        | UpgradeOutlook::Manual { .. } => None,
    }
}

/// Whether a command that needs this level may go into the log now. One that may not would be unreadable to a replica
/// that does not speak it.
pub fn admit(state: &State, needs: Level) -> Result<(), Rejection> {
    let in_force = state.level();
    if needs <= in_force {
        return Ok(());
    }
    match holding_back(state, needs).next() {
        Some(replica) => Err(held_back(needs, replica)),
        None => Err(Rejection::LevelNotRaised { needs, in_force }),
    }
}

pub(crate) fn held_back(needs: Level, replica: &ReplicaRecord) -> Rejection {
    let ReplicaRecord { id, version, levels, .. } = replica;
    Rejection::LevelHeldBack { needs, id: *id, version: version.clone(), levels: *levels }
}
