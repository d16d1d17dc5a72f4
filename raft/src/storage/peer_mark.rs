//! Mark of a replica: how far its durable promises reach, as it tells the others.
//!
//! A vote, an appended entry and a truncation are promises: another replica may rely on them. A store counts its
//! promises. A replica tells its count with everything it says, and the others remember the highest they were told. A
//! replica that later knows of fewer went back in time: its directory was replaced by an older copy, and it may have
//! forgotten a vote or an entry that was acknowledged.
//!
//! Messages overtake each other, so a lower count alone proves nothing. The count at the start of a run does: whatever
//! an earlier run told, it told before this run began.

use std::collections::BTreeMap;

use muster_lifecycle::meta::Uid;
use muster_lifecycle::replica::ReplicaId;
use serde::{Deserialize, Serialize};

/// The promises of one replica at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMark {
    pub store: Uid,
    /// Random, one per start of the process.
    pub run: u64,
    /// The promises that the store held when the run began.
    pub start: u64,
    pub promises: u64,
}

/// The newest known mark of each replica.
pub type PeerMarks = BTreeMap<ReplicaId, PeerMark>;

/// The contradiction between a mark and what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkDispute {
    OtherStore,
    WentBack { remembered: u64, told: u64 },
}

// === impl PeerMark ===

impl PeerMark {
    /// Whether a replica that was known by `known` can say this afterwards.
    pub fn can_follow(&self, known: &Self) -> Result<(), MarkDispute> {
        let told = if self.run == known.run { self.promises } else { self.start };
        if self.store != known.store {
            Err(MarkDispute::OtherStore)
        } else if told < known.promises {
            Err(MarkDispute::WentBack { remembered: known.promises, told })
        } else {
            Ok(())
        }
    }

    /// Whether this can have been said by a replica that is known by `known`, before or after.
    pub fn fits(&self, known: &Self) -> Result<(), MarkDispute> {
        let same_run = self.store == known.store && self.run == known.run;
        if same_run { Ok(()) } else { self.can_follow(known) }
    }

    /// The mark to remember of the two. The store that was known first stays.
    #[must_use]
    pub fn merged(self, told: Self) -> Self {
        let newer = told.store == self.store
            && if told.run == self.run { told.promises > self.promises } else { told.start >= self.promises };
        // Two runs that both begin before the end of the other: the replica went back. The higher count finds that out.
        let fork = told.store == self.store && told.run != self.run && told.promises > self.promises;
        if newer || fork { told } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(run: u64, start: u64, promises: u64) -> PeerMark {
        PeerMark { store: Uid(1), run, start, promises }
    }

    #[test]
    fn f_28_a_run_that_begins_before_what_was_told_went_back() {
        let known = mark(1, 0, 20);
        assert_eq!(mark(2, 20, 20).can_follow(&known), Ok(()));
        assert_eq!(mark(2, 19, 40).can_follow(&known), Err(MarkDispute::WentBack { remembered: 20, told: 19 }));
        let wiped = PeerMark { store: Uid(2), ..mark(2, 0, 0) };
        assert_eq!(wiped.can_follow(&known), Err(MarkDispute::OtherStore));
        assert_eq!(wiped.fits(&known), Err(MarkDispute::OtherStore));
    }

    #[test]
    fn a_message_of_the_same_run_that_was_overtaken_proves_nothing_but_an_answer_does() {
        let known = mark(1, 0, 20);
        assert_eq!(mark(1, 0, 7).fits(&known), Ok(()));
        assert_eq!(mark(1, 0, 7).can_follow(&known), Err(MarkDispute::WentBack { remembered: 20, told: 7 }));
    }

    #[test]
    fn what_is_remembered_never_falls() {
        assert_eq!(mark(1, 0, 20).merged(mark(1, 0, 7)), mark(1, 0, 20));
        assert_eq!(mark(1, 0, 20).merged(mark(2, 20, 21)), mark(2, 20, 21));
        assert_eq!(mark(2, 20, 21).merged(mark(1, 0, 20)), mark(2, 20, 21));
        assert_eq!(mark(1, 0, 20).merged(mark(2, 5, 9)), mark(1, 0, 20));
        let other = PeerMark { store: Uid(9), ..mark(3, 99, 99) };
        assert_eq!(mark(1, 0, 20).merged(other), mark(1, 0, 20));
    }
}
