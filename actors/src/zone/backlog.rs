//! Transitions that wait for their turn, at most one per node.
//!
//! They are served in rounds: from slot to slot, and from the lowest again after the last. A node waits for each
//! other node at most once. Transitions that are served together lie side by side in the log's state. When a zone
//! falls silent, thousands are due at a time, and to take them in the order they came would touch all of a large table
//! for each proposal.

use std::collections::BTreeMap;
use std::ops::Bound;

use muster_lifecycle::node::Slot;

use crate::zone::transition::Transition;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: BTreeMap<Slot, Transition>,
    /// The slot that was served last.
    served: Option<Slot>,
}

impl Backlog {
    /// A node's newest transition replaces the one before.
    pub(crate) fn push(&mut self, transition: Transition) {
        self.waiting.insert(transition.slot, transition);
    }

    pub(crate) fn pop(&mut self) -> Option<Transition> {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let ahead = self.waiting.range((after, Bound::Unbounded)).next();
        let slot = *ahead.or_else(|| self.waiting.first_key_value())?.0;
        self.served = Some(slot);
        self.waiting.remove(&slot)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::LeaderOperation;

    use super::*;

    fn transition(index: u32, names: &[&str]) -> Transition {
        let names = names.iter().map(|name| (*name).into()).collect();
        let slot = Slot { index, generation: 1 };
        Transition { slot, operation: LeaderOperation::LiftEvictions { names }, trace: None }
    }

    /// Otherwise nodes in high slots would wait until no node below them is left, however many come up meanwhile.
    #[test]
    fn no_node_is_served_twice_before_every_other_node() {
        let mut backlog = Backlog::default();
        let mut served = Vec::new();
        [7, 2, 9].into_iter().for_each(|index| backlog.push(transition(index, &[])));
        for _ in 0..6 {
            let next = backlog.pop().unwrap();
            served.push(next.slot.index);
            backlog.push(next);
        }
        assert_eq!(served, [2, 7, 9, 2, 7, 9]);
    }

    #[test]
    fn a_newer_transition_of_a_node_replaces_the_older_one() {
        let mut backlog = Backlog::default();
        for names in [&[][..], &["newer"]] {
            backlog.push(transition(7, names));
        }
        assert_eq!((backlog.len(), backlog.pop()), (1, Some(transition(7, &["newer"]))));
        assert!(backlog.is_empty() && backlog.pop().is_none());
    }
}
