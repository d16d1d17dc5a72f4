//! The nodes of a shard whose judgement panicked lately: when each is tried again, and which are quarantined.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::supervision::restart::{DeathRecord, RestartDecision};

/// By index of the slot.
#[derive(Debug, Default)]
pub(super) struct Crashes {
    crashed: BTreeMap<u32, CrashedNode>,
    /// The quarantined nodes whose event the log has not decided yet.
    notes: BTreeMap<u32, Note>,
}

#[derive(Debug, Default)]
struct CrashedNode {
    record: DeathRecord,
    try_again_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Owed,
    Sent,
}

// === impl Crashes ===

impl Crashes {
    pub(super) fn crashed(&mut self, index: u32, now: Instant) -> RestartDecision {
        let node = self.crashed.entry(index).or_default();
        let decision = node.record.died(now);
        node.try_again_at = match decision {
            RestartDecision::RestartAfter(pause) => Some(now + pause),
            RestartDecision::OverBudget => None,
        };
        decision
    }

    /// The nodes that are to be tried again, each returned once. Crashes that lie long back are forgotten.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u32> {
        let mut due = Vec::new();
        self.crashed.retain(|index, node| {
            if node.try_again_at.is_some_and(|at| at <= now) {
                node.try_again_at = None;
                due.push(*index);
            }
            node.try_again_at.is_some() || !node.record.is_clean(now)
        });
        due
    }

    pub(super) fn owe_note(&mut self, index: u32) {
        self.notes.insert(index, Note::Owed);
    }

    /// The nodes whose quarantine is to be recorded now.
    pub(super) fn send_notes(&mut self) -> Vec<u32> {
        let owed = self.notes.iter_mut().filter(|(_, note)| **note == Note::Owed);
        owed.map(|(index, note)| {
            *note = Note::Sent;
            *index
        })
        .collect()
    }

    /// Whether the decided proposal was such a note. A note that the log did not decide is sent again.
    pub(super) fn note_settled(&mut self, index: u32, decided: bool) -> bool {
        match (self.notes.contains_key(&index), decided) {
            (true, true) => self.notes.remove(&index).is_some(),
            (true, false) => self.notes.insert(index, Note::Owed).is_some(),
            (false, _) => false,
        }
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.crashed.remove(&index);
        self.notes.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_crashed_node_actor_is_restarted_once_per_crash() {
        let (mut crashes, now) = (Crashes::default(), Instant::now());
        assert!(matches!(crashes.crashed(7, now), RestartDecision::RestartAfter(_)));
        assert!(crashes.take_due(now).is_empty());
        let later = now + Duration::from_secs(1);
        assert_eq!(crashes.take_due(later), [7]);
        assert!(crashes.take_due(later).is_empty());
    }

    #[test]
    fn a_quarantine_note_is_sent_again_until_the_log_answers() {
        let mut crashes = Crashes::default();
        crashes.owe_note(7);
        assert_eq!(crashes.send_notes(), [7]);
        assert!(crashes.send_notes().is_empty());
        assert!(crashes.note_settled(7, false));
        assert_eq!(crashes.send_notes(), [7]);
        assert!(crashes.note_settled(7, true));
        assert!(crashes.send_notes().is_empty());
        assert!(!crashes.note_settled(7, true));
    }
}
