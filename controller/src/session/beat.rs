//! The path of a beat once its message has been decoded: one clock reading, one atomic word, one count.
//!
//! Nothing here allocates, locks or waits. The stream was bound to its node once, so only the slot is left to look up.
//! `benches/beat.rs` checks that.

use std::sync::Arc;

use muster_lifecycle::node::Slot;
use muster_pulse::table::{Beat, PulseTable};

use crate::hearing::Hearing;
use crate::session::figures::SessionFigures;

/// The place where streams record their beats. Clones share it.
#[derive(Clone)]
pub struct Beats {
    hearing: Hearing,
    own: Arc<PulseTable>,
    figures: Arc<SessionFigures>,
}

/// Stands in a table of handles where no node is bound: no slot has this generation.
pub const UNBOUND: Slot = Slot { index: u32::MAX, generation: 0 };

// === impl Beats ===

impl Beats {
    pub fn new(hearing: Hearing, figures: Arc<SessionFigures>) -> Self {
        let own = hearing.pulses().own();
        Self { hearing, own, figures }
    }

    /// Records that a node's own stream sent a message.
    pub fn heard(&self, slot: Slot) -> Beat {
        self.figures.beat();
        self.own.beat(slot, self.hearing.tick())
    }

    /// Records a beat of an aggregator for `handles`, each standing for the slot at its place in `slots`. Handles that
    /// stand for no node are handed to `unknown`.
    pub fn carried(&self, slots: &[Slot], handles: &[u32], mut unknown: impl FnMut(u32)) {
        let now = self.hearing.tick();
        let mut heard = 0;
        for &handle in handles {
            match slots.get(handle as usize).copied().filter(|slot| *slot != UNBOUND) {
                Some(slot) => {
                    // If the slot is outdated by now, the node's removal tells the aggregator.
                    let _ = self.own.beat(slot, now);
                    heard += 1;
                }
                None => unknown(handle),
            }
        }
        self.figures.carried(heard);
    }
}
