//! What an aggregator's handles stand for.
//!
//! The slots lie in an array of their own, indexed by handle, because that is all a beat needs.

use std::collections::HashMap;

use muster_lifecycle::aggregator::AggregatorRecord;
use muster_lifecycle::node::Slot;
use muster_lifecycle::text::Text;

use crate::session::beat::NOBODY;
use crate::session::stream::binding::Binding;

#[derive(Default)]
pub(crate) struct Holds {
    slots: Vec<Slot>,
    nodes: HashMap<u32, Hold>,
}

pub(crate) struct Hold {
    pub(crate) node: Text,
    pub(crate) standing: Standing,
}

pub(crate) enum Standing {
    /// Its aggregator was asked to register it.
    Unregistered,
    Bound(Binding),
}

// === impl Holds ===

impl Holds {
    /// By handle.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&Hold> {
        self.nodes.get(&handle)
    }

    pub(crate) fn binding(&mut self, handle: u32) -> Option<&mut Binding> {
        match &mut self.nodes.get_mut(&handle)?.standing {
            Standing::Bound(binding) => Some(binding),
            Standing::Unregistered => None,
        }
    }

    /// Whether `handle` still stands for `node` and waits for its registration.
    pub(crate) fn awaits(&self, handle: u32, node: &str) -> bool {
        let waits = |hold: &Hold| hold.node == *node && matches!(hold.standing, Standing::Unregistered);
        self.nodes.get(&handle).is_some_and(waits)
    }

    /// Makes `handle` stand for a node that has yet to be registered; whatever it stood for before is let go.
    pub(crate) fn expect(&mut self, handle: u32, node: Text) {
        self.place(handle, NOBODY);
        self.nodes.insert(handle, Hold { node, standing: Standing::Unregistered });
    }

    pub(crate) fn bind(&mut self, handle: u32, binding: Binding) {
        self.place(handle, binding.slot());
        let node = binding.node().into();
        self.nodes.insert(handle, Hold { node, standing: Standing::Bound(binding) });
    }

    /// The node behind `handle` is gone; it may be registered anew.
    pub(crate) fn unbind(&mut self, handle: u32) {
        if let Some(hold) = self.nodes.get_mut(&handle) {
            hold.standing = Standing::Unregistered;
            self.place(handle, NOBODY);
        }
    }

    pub(crate) fn remove(&mut self, handle: u32) {
        if self.nodes.remove(&handle).is_some() {
            self.place(handle, NOBODY);
        }
    }

    pub(crate) fn outside(&self, scope: &AggregatorRecord) -> Vec<(u32, Text)> {
        let outside = self.nodes.iter().filter(|(_, hold)| !scope.may_carry(&hold.node));
        outside.map(|(handle, hold)| (*handle, hold.node.clone())).collect()
    }

    /// The array is as long as the highest handle that was ever bound, which the caller has checked.
    fn place(&mut self, handle: u32, slot: Slot) {
        let place = handle as usize;
        if place >= self.slots.len() {
            if slot == NOBODY {
                return;
            }
            self.slots.resize(place + 1, NOBODY);
        }
        self.slots[place] = slot;
    }
}
