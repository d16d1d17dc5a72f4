//! The nodes of a shard whose judgement panicked lately: when each is tried again, and which are given up on.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::restart::{Record, Sentence};

/// By index of the slot.
#[derive(Debug, Default)]
pub(super) struct Illnesses {
    ill: BTreeMap<u32, Illness>,
    /// The quarantined ones about which the log has not spoken yet.
    notes: BTreeMap<u32, Note>,
}

#[derive(Debug, Default)]
struct Illness {
    record: Record,
    try_again_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Owed,
    Sent,
}

// === impl Illnesses ===

impl Illnesses {
    pub(super) fn fell_ill(&mut self, index: u32, now: Instant) -> Sentence {
        let illness = self.ill.entry(index).or_default();
        let sentence = illness.record.died(now);
        illness.try_again_at = match sentence {
            Sentence::RestartAfter(pause) => Some(now + pause),
            Sentence::OverBudget => None,
        };
        sentence
    }

    /// Those that are to be tried again, each told once. What lies long back is forgotten.
    pub(super) fn recovered(&mut self, now: Instant) -> Vec<u32> {
        let mut recovered = Vec::new();
        self.ill.retain(|index, illness| {
            if illness.try_again_at.is_some_and(|at| at <= now) {
                illness.try_again_at = None;
                recovered.push(*index);
            }
            illness.try_again_at.is_some() || !illness.record.is_clean(now)
        });
        recovered
    }

    pub(super) fn owe_note(&mut self, index: u32) {
        self.notes.insert(index, Note::Owed);
    }

    /// Those that are to be noted now.
    pub(super) fn send_notes(&mut self) -> Vec<u32> {
        let owed = self.notes.iter_mut().filter(|(_, note)| **note == Note::Owed);
        owed.map(|(index, note)| {
            *note = Note::Sent;
            *index
        })
        .collect()
    }

    /// Whether what was settled was such a note. One that was not decided is owed again.
    pub(super) fn note_settled(&mut self, index: u32, decided: bool) -> bool {
        match (self.notes.contains_key(&index), decided) {
            (true, true) => self.notes.remove(&index).is_some(),
            (true, false) => self.notes.insert(index, Note::Owed).is_some(),
            (false, _) => false,
        }
    }

    pub(super) fn forget(&mut self, index: u32) {
        self.ill.remove(&index);
        self.notes.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_node_is_tried_again_once_per_illness() {
        let (mut illnesses, now) = (Illnesses::default(), Instant::now());
        assert!(matches!(illnesses.fell_ill(7, now), Sentence::RestartAfter(_)));
        assert!(illnesses.recovered(now).is_empty());
        let later = now + Duration::from_secs(1);
        assert_eq!(illnesses.recovered(later), [7]);
        assert!(illnesses.recovered(later).is_empty());
    }

    #[test]
    fn a_note_is_sent_until_the_log_has_spoken() {
        let mut illnesses = Illnesses::default();
        illnesses.owe_note(7);
        assert_eq!(illnesses.send_notes(), [7]);
        assert!(illnesses.send_notes().is_empty());
        assert!(illnesses.note_settled(7, false));
        assert_eq!(illnesses.send_notes(), [7]);
        assert!(illnesses.note_settled(7, true));
        assert!(illnesses.send_notes().is_empty());
        assert!(!illnesses.note_settled(7, true));
    }
}
