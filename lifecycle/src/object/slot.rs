//! Free slots: slots that deleted nodes gave back, and the generation under which the next node gets each.

use serde::{Deserialize, Serialize};

use crate::object::node::Slot;
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};

/// The generation of the first holder of a slot. Zero means "no holder yet" in packed tables.
pub const FIRST_GENERATION: u32 = 1;

/// The pulse tables pack a generation into 24 bits.
pub const GENERATION_MAX: u32 = (1 << 24) - 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FreeSlot {
    pub index: u32,
    pub next_generation: u32,
}

impl FreeSlot {
    /// `None` once the generations are used up: such a slot is never given out again, because a late heartbeat
    /// for its first holder would count for the newest.
    pub fn after(slot: Slot) -> Option<Self> {
        let next_generation = slot.generation.checked_add(1).filter(|next| *next <= GENERATION_MAX)?;
        Some(Self { index: slot.index, next_generation })
    }

    pub fn taken(self) -> Slot {
        Slot { index: self.index, generation: self.next_generation }
    }
}

impl Versioned for FreeSlot {}

impl Stored for FreeSlot {
    type Key = u32;

    fn key(&self) -> u32 {
        self.index
    }

    fn record_key(index: &u32) -> RecordKey {
        RecordKey::FreeSlot { index: *index }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_the_last_generation_is_not_reused() {
        let fresh = Slot { index: 7, generation: FIRST_GENERATION };
        assert_eq!(FreeSlot::after(fresh).map(FreeSlot::taken), Some(Slot { index: 7, generation: 2 }));
        assert_eq!(FreeSlot::after(Slot { index: 7, generation: GENERATION_MAX }), None);
    }
}
