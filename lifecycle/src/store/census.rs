//! Census: how many nodes of a zone are ready, not ready, or excluded.

use crate::object::node::ConditionStatus;
use crate::object::zone::EXCLUDE_DISRUPTION_LABEL;
use crate::value::meta::Pairs;

/// The result of evaluating one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// The node's Ready condition, if it has one.
    Known(Option<ConditionStatus>),
    /// The node could not be evaluated, so it counts with its last known status. Upstream leaves it out, and a
    /// failing evaluator makes a zone look smaller and worse than it is.
    Failed { last_known: Option<ConditionStatus> },
}

/// The counts of one zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub ready: u32,
    pub not_ready: u32,
    /// Nodes with the exclusion label: the zone exists because of them, but they do not count for its state.
    pub excluded: u32,
}

// === impl Census ===

impl Census {
    pub fn count(&mut self, labels: &Pairs, evaluation: Evaluation) {
        let (Evaluation::Known(ready) | Evaluation::Failed { last_known: ready }) = evaluation;
        let group = if labels.contains_key(EXCLUDE_DISRUPTION_LABEL) {
            &mut self.excluded
        } else if ready == Some(ConditionStatus::True) {
            &mut self.ready
        } else {
            &mut self.not_ready
        };
        *group = group.saturating_add(1);
    }

    /// Takes back what [`count`](Self::count) did for the same node.
    pub fn discount(&mut self, labels: &Pairs, evaluation: Evaluation) {
        let mut one = Self::default();
        one.count(labels, evaluation);
        self.ready = self.ready.saturating_sub(one.ready);
        self.not_ready = self.not_ready.saturating_sub(one.not_ready);
        self.excluded = self.excluded.saturating_sub(one.excluded);
    }

    /// How many nodes count.
    pub fn size(&self) -> u64 {
        u64::from(self.ready) + u64::from(self.not_ready)
    }

    /// The census if so many of the ready nodes were lost.
    pub fn after_losing(self, lost: u32) -> Self {
        let lost = lost.min(self.ready);
        Self { ready: self.ready - lost, not_ready: self.not_ready.saturating_add(lost), ..self }
    }

    /// Whether the zone has no node at all, not even an excluded one.
    pub fn is_deserted(&self) -> bool {
        self.size() == 0 && self.excluded == 0
    }
}
