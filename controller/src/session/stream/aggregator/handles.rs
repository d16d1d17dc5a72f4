//! The table of an aggregator's handles: the node that each stands for.
//!
//! The slots lie in an array of their own, indexed by handle, because that is all a beat needs.

use std::collections::HashMap;

use muster_lifecycle::aggregator::AggregatorRecord;
use muster_lifecycle::node::{Incarnation, Slot};
use muster_lifecycle::text::Text;

use crate::session::beat::UNBOUND;
use crate::session::stream::binding::Binding;

#[derive(Default)]
pub(super) struct HandleTable {
    slots: Vec<Slot>,
    nodes: HashMap<u32, HandleEntry>,
}

pub(super) struct HandleEntry {
    pub(super) node: Text,
    /// `None` while its aggregator has yet to register the node.
    binding: Option<Binding>,
}

// === impl HandleTable ===

impl HandleTable {
    /// The slots, by handle.
    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn get(&self, handle: u32) -> Option<&HandleEntry> {
        self.nodes.get(&handle)
    }

    pub(super) fn binding(&mut self, handle: u32) -> Option<&mut Binding> {
        self.nodes.get_mut(&handle)?.binding.as_mut()
    }

    /// Makes `handle` stand for a node that has yet to be registered, and for no other node.
    pub(super) fn expect(&mut self, handle: u32, node: Text) {
        self.place(handle, UNBOUND);
        self.nodes.insert(handle, HandleEntry { node, binding: None });
    }

    pub(super) fn bind(&mut self, handle: u32, binding: Binding) {
        self.place(handle, binding.slot());
        let node = binding.node().into();
        self.nodes.insert(handle, HandleEntry { node, binding: Some(binding) });
    }

    /// The node behind `handle` is gone; it may be registered anew.
    pub(super) fn unbind(&mut self, handle: u32) {
        if let Some(entry) = self.nodes.get_mut(&handle) {
            entry.binding = None;
            self.place(handle, UNBOUND);
        }
    }

    pub(super) fn remove(&mut self, handle: u32) {
        if self.nodes.remove(&handle).is_some() {
            self.place(handle, UNBOUND);
        }
    }

    pub(super) fn outside(&self, scope: &AggregatorRecord) -> Vec<(u32, Text)> {
        let outside = self.nodes.iter().filter(|(_, entry)| !scope.may_carry(&entry.node));
        outside.map(|(handle, entry)| (*handle, entry.node.clone())).collect()
    }

    /// The array is as long as the highest handle that was ever bound, which the caller has checked.
    fn place(&mut self, handle: u32, slot: Slot) {
        let place = handle as usize;
        if place >= self.slots.len() {
            if slot == UNBOUND {
                return;
            }
            self.slots.resize(place + 1, UNBOUND);
        }
        self.slots[place] = slot;
    }
}

// === impl HandleEntry ===

impl HandleEntry {
    /// `None` if the node is not bound.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        self.binding.as_ref().map(Binding::incarnation)
    }
}
