//! The atlas: which slots are watched, in which zone each lies, and what the sweep over all of them finds.
//!
//! The sweep is one packed scan over every slot: the slots of a zone are not neighbours, and a scan is fast because it
//! reads neighbours. Its findings are sorted by zone afterwards, and they are few.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::{Node, Slot};
use muster_lifecycle::state::State;
use muster_lifecycle::zone::ZoneKey;
use muster_pulse::blindness::Blindness;
use muster_pulse::by_replica::PulseTables;
use muster_pulse::sweep::{PulseState, Sweep};
use muster_pulse::table::{CHUNK_SLOTS, SLOTS_MAX};
use muster_pulse::tick::Tick;

use crate::cluster::roster;
use crate::cluster::update::Hearings;

pub(super) struct Atlas {
    sweep: Sweep,
    /// By index of the slot; as long as the sweep is wide.
    places: Vec<Option<Place>>,
    /// One copy of each key, for as long as some place is in that zone.
    keys: BTreeMap<ZoneKey, Arc<ZoneKey>>,
}

#[derive(Clone)]
struct Place {
    generation: u32,
    zone: Arc<ZoneKey>,
    since: Tick,
}

/// The place in which a node was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Placed {
    AsBefore,
    New,
    MovedFrom(ZoneKey),
}

// === impl Atlas ===

impl Atlas {
    pub(super) fn new() -> Self {
        Self { sweep: Sweep::over(0..0), places: Vec::new(), keys: BTreeMap::new() }
    }

    /// Watches the node in its zone. `since` as for [`Sweep::watch`].
    ///
    /// A node that is watched anew counts as heard. So the next sweep tells its new watchers if it is silent,
    /// whatever it told others before.
    pub(super) fn place(&mut self, node: &Node, zone: &ZoneKey, since: Tick) -> Placed {
        let slot = node.slot;
        let known = self.place_of(slot);
        if known.is_some_and(|place| *place.zone == *zone) {
            return Placed::AsBefore;
        }
        let placed = known.map_or(Placed::New, |place| Placed::MovedFrom(place.zone.as_ref().clone()));
        self.reach(slot);
        let zone = self.shared(zone);
        match self.sweep.watch(slot, since, PulseState::Heard) {
            Ok(()) => self.places[slot.index as usize] = Some(Place { generation: slot.generation, zone, since }),
            Err(error) => tracing::error!(node = %node.meta.name, %error, "a node cannot be watched"),
        }
        placed
    }

    fn shared(&mut self, zone: &ZoneKey) -> Arc<ZoneKey> {
        if let Some(known) = self.keys.get(zone) {
            return Arc::clone(known);
        }
        let shared = Arc::new(zone.clone());
        self.keys.insert(zone.clone(), Arc::clone(&shared));
        shared
    }

    /// No node holds the slot under that generation any more. Returns the zone in which it was.
    pub(super) fn vacate(&mut self, slot: Slot) -> Option<ZoneKey> {
        let zone = self.place_of(slot)?.zone.as_ref().clone();
        self.places[slot.index as usize] = None;
        // The slot is watched, so it is within the sweep.
        let _ = self.sweep.unwatch(slot);
        Some(zone)
    }

    /// Vacates the slots of which the state has no node.
    pub(super) fn vacate_all_but(&mut self, state: &State) {
        let mut held = vec![None; self.places.len()];
        for slot in state.nodes().iter().map(|node| node.slot) {
            if let Some(generation) = held.get_mut(slot.index as usize) {
                *generation = Some(slot.generation);
            }
        }
        let watched = self.slots().filter(|slot| held[slot.index as usize] != Some(slot.generation));
        watched.collect::<Vec<Slot>>().into_iter().for_each(|slot| drop(self.vacate(slot)));
    }

    pub(super) fn knows(&self, slot: Slot) -> bool {
        self.place_of(slot).is_some()
    }

    /// Whether another node has its place, or its place lies in another zone.
    pub(super) fn is_elsewhere(&self, node: &Node) -> bool {
        let taken = self.places.get(node.slot.index as usize).and_then(Option::as_ref);
        taken.is_some_and(|place| place.generation != node.slot.generation || *place.zone != roster::zone_of(node))
    }

    /// The changes since the last sweep, by zone.
    pub(super) fn sweep(
        &mut self,
        tables: &PulseTables,
        blindness: &Blindness,
        grace: Duration,
        now: Tick,
    ) -> BTreeMap<Arc<ZoneKey>, Hearings> {
        let mut by_zone: BTreeMap<Arc<ZoneKey>, Hearings> = BTreeMap::new();
        let places = &self.places;
        self.sweep.run(tables, blindness, grace, now, |change| {
            if let Some(place) = places.get(change.slot.index as usize).and_then(Option::as_ref) {
                let hearings = by_zone.entry(Arc::clone(&place.zone)).or_default();
                hearings.insert(change.slot.index, (change.slot, change.hearing));
            }
        });
        by_zone
    }

    /// How many nodes the last sweep found silent.
    pub(super) fn silent(&self) -> usize {
        self.sweep.silent()
    }

    fn place_of(&self, slot: Slot) -> Option<&Place> {
        let place = self.places.get(slot.index as usize)?.as_ref();
        place.filter(|place| place.generation == slot.generation)
    }

    fn slots(&self) -> impl Iterator<Item = Slot> {
        let indexed = (0_u32..).zip(&self.places);
        indexed.filter_map(|(index, place)| Some(Slot { index, generation: place.as_ref()?.generation }))
    }

    /// Widens the sweep until it covers the slot. Every node is watched anew then, and silent ones are reported once
    /// more.
    fn reach(&mut self, slot: Slot) {
        let index = slot.index as usize;
        if index < self.places.len() || index >= SLOTS_MAX {
            return;
        }
        let chunks = (index / CHUNK_SLOTS + 1).next_power_of_two();
        let mut wider = Sweep::over(0..chunks);
        for (slot, since) in self.slots().filter_map(|slot| Some((slot, self.place_of(slot)?.since))) {
            // The slot was within the narrower sweep.
            let _ = wider.watch(slot, since, PulseState::Heard);
        }
        self.sweep = wider;
        self.places.resize(chunks * CHUNK_SLOTS, None);
    }

    /// Forgets the keys of zones in which no node is any more.
    pub(super) fn forget_zone_keys(&mut self) {
        self.keys.retain(|_, key| Arc::strong_count(key) > 1);
    }
}
