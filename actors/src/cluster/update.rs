//! Updates that the cluster actor sends down to the zones and shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use muster_lifecycle::node::Slot;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::sweep::PulseState;

use crate::cluster::roster::Roster;
use crate::ports::Observer;
use muster_pulse::moment::Moment;

/// `R` says which nodes are to be watched. Bounded by the number of slots.
#[derive(Debug)]
pub(crate) struct ShardUpdate<R> {
    pub(crate) full_roster: Option<FullRoster<R>>,
    /// Nodes to be watched as well.
    pub(crate) joined: R,
    /// Nodes whose object changed or is gone.
    pub(crate) touched: Touched,
    pub(crate) hearings: Hearings,
    /// The round to judge by, if one is due.
    pub(crate) round: Option<Arc<JudgingRound>>,
}

/// By slot, so that a node created anew under the same name does not hide that its predecessor is gone.
pub(crate) type Touched = BTreeMap<Slot, Text>;

/// By index of the slot: the last update about it counts.
pub(crate) type Hearings = BTreeMap<u32, (Slot, PulseState)>;

/// All nodes that are to be watched: a node that is not on the roster is not watched any more.
#[derive(Debug)]
pub(crate) struct FullRoster<R> {
    /// `None` to read it from the state, which takes a while.
    pub(crate) roster: Option<R>,
    /// Updates about the nodes may have been lost, so each node is to be judged anew.
    pub(crate) unsure: bool,
}

/// One round of judging: all judgements use the same state, tables and moment.
pub(crate) struct JudgingRound {
    pub(crate) state: State,
    pub(crate) tables: Arc<PulseTables>,
    pub(crate) moment: Moment,
    pub(crate) started: Instant,
    pub(crate) observer: Arc<dyn Observer>,
}

// === impl ShardUpdate ===

impl<R: Default> Default for ShardUpdate<R> {
    fn default() -> Self {
        Self {
            full_roster: None,
            joined: R::default(),
            touched: Touched::new(),
            hearings: Hearings::new(),
            round: None,
        }
    }
}

impl<R: Roster> ShardUpdate<R> {
    /// An update with more nodes to be watched.
    pub(crate) fn joined(roster: R) -> Self {
        Self { joined: roster, ..Self::default() }
    }

    /// An update with all nodes that are to be watched.
    pub(crate) fn called(roster: R) -> Self {
        Self { full_roster: Some(FullRoster { roster: Some(roster), unsure: false }), ..Self::default() }
    }

    /// The first update for a child that was just rebuilt.
    pub(crate) fn rebuilt() -> Self {
        Self { full_roster: Some(FullRoster { roster: None, unsure: true }), ..Self::default() }
    }

    /// A later update replaces what is not read yet.
    pub(crate) fn absorb(&mut self, later: Self) {
        if let Some(mut call) = later.full_roster {
            call.unsure |= self.full_roster.as_ref().is_some_and(|earlier| earlier.unsure);
            self.full_roster = Some(call);
            self.joined = R::default();
        }
        self.joined.join(later.joined);
        self.touched.extend(later.touched);
        self.hearings.extend(later.hearings);
        self.round = later.round.or(self.round.take());
    }
}

// === impl JudgingRound ===

/// The round ends when its last judgement drops it.
impl Drop for JudgingRound {
    fn drop(&mut self) {
        self.observer.judging_round(self.started.elapsed());
    }
}

impl std::fmt::Debug for JudgingRound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JudgingRound").field("moment", &self.moment).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_update_of_a_slot_wins_and_unsure_is_kept() {
        let slot = Slot { index: 4, generation: 1 };
        let mut update: ShardUpdate<Vec<u8>> = ShardUpdate::rebuilt();
        update.hearings.insert(4, (slot, PulseState::Silent));
        let mut later = ShardUpdate::called(vec![7]);
        later.hearings.insert(4, (slot, PulseState::Heard));
        update.absorb(later);
        assert_eq!(update.hearings[&4], (slot, PulseState::Heard));
        let call = update.full_roster.unwrap();
        assert_eq!((call.roster, call.unsure), (Some(vec![7]), true));
    }

    #[test]
    fn a_full_roster_replaces_nodes_that_joined_before_it() {
        let mut update = ShardUpdate::joined(vec![1]);
        update.absorb(ShardUpdate::joined(vec![2]));
        assert_eq!(update.joined, [1, 2]);
        update.absorb(ShardUpdate::called(vec![3]));
        assert!(update.joined.is_empty(), "a node that is not in the roster is not watched");
        update.absorb(ShardUpdate::joined(vec![4]));
        assert_eq!((update.joined, update.full_roster.unwrap().roster), (vec![4], Some(vec![3])));
    }
}
