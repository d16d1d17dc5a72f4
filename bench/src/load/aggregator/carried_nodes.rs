//! Nodes of a simulated aggregator, and the state of each binding.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use muster_proto::v1;

use crate::load::node;
use crate::load::slices::Slices;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BindState {
    Unbound,
    Binding,
    Unregistered,
    Registering,
    Bound,
    Refused,
}

pub(super) struct CarriedNodes {
    first: usize,
    nodes: Vec<Entry>,
    unbound: VecDeque<u32>,
    unregistered: VecDeque<u32>,
    /// Bindings that were asked for and not answered.
    binding: usize,
    /// Without a connection nothing waits to be bound.
    attached: bool,
    started: Instant,
}

struct Entry {
    incarnation: u64,
    state: BindState,
    /// The node does not beat.
    silent: bool,
    /// Its status was asked for while it was silent.
    owes_status: bool,
    /// Its status is in flight.
    posting: bool,
    /// When it last beat or was refused, since the aggregator was started.
    last: Option<Duration>,
}

// === impl CarriedNodes ===

impl CarriedNodes {
    pub(super) fn new(numbers: Range<usize>) -> Self {
        let (first, count) = (numbers.start, numbers.len());
        let node = || Entry {
            incarnation: 0,
            state: BindState::Unbound,
            silent: false,
            owes_status: false,
            posting: false,
            last: None,
        };
        Self {
            first,
            nodes: std::iter::repeat_with(node).take(count).collect(),
            unbound: VecDeque::new(),
            unregistered: VecDeque::new(),
            binding: 0,
            attached: false,
            started: Instant::now(),
        }
    }

    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn incarnation(&mut self, handle: u32, incarnation: u64) {
        if let Some(node) = self.nodes.get_mut(handle as usize) {
            node.incarnation = incarnation;
        }
    }

    /// Binds all on a new stream, save the silent ones.
    pub(super) fn bind_all(&mut self) {
        self.attached = true;
        let handles = (0..).zip(&self.nodes).filter(|(_, node)| !node.silent).map(|(handle, _)| handle);
        self.unbound = handles.collect();
    }

    /// Returns how many were bound.
    pub(super) fn unbind_all(&mut self) -> usize {
        let bound = self.nodes.iter().filter(|node| node.state == BindState::Bound).count();
        for node in &mut self.nodes {
            (node.state, node.owes_status, node.posting) = (BindState::Unbound, false, false);
        }
        self.unbound.clear();
        self.unregistered.clear();
        (self.binding, self.attached) = (0, false);
        bound
    }

    /// Returns the state before; nothing for an unknown handle.
    pub(super) fn set_state(&mut self, handle: u32, state: BindState) -> Option<BindState> {
        let now = self.started.elapsed();
        let node = self.nodes.get_mut(handle as usize)?;
        let before = std::mem::replace(&mut node.state, state);
        self.binding -= usize::from(before == BindState::Binding);
        self.binding += usize::from(state == BindState::Binding);
        match state {
            BindState::Unregistered => self.unregistered.push_back(handle),
            BindState::Unbound => self.unbound.push_back(handle),
            // A binding counts as a beat, so the request for it may be the node's last sign of life.
            BindState::Refused | BindState::Bound | BindState::Binding => node.last = Some(now),
            BindState::Registering => {}
        }
        Some(before)
    }

    /// Returns when it last beat.
    pub(super) fn silence(&mut self, number: usize) -> Option<Instant> {
        let started = self.started;
        let node = self.node(number)?;
        node.silent = true;
        node.last.map(|last| started + last)
    }

    /// Returns whether it was asked for its status meanwhile.
    pub(super) fn speak(&mut self, number: usize) -> bool {
        let Some(node) = self.node(number) else { return false };
        node.silent = false;
        let owes_status = std::mem::take(&mut node.owes_status);
        if node.state == BindState::Unbound
            && self.attached
            && let Ok(handle) = u32::try_from(number - self.first)
        {
            self.unbound.push_back(handle);
        }
        owes_status
    }

    /// A replica asks for its status. Returns whether it can be posted now; a silent node owes it.
    pub(super) fn ask_status(&mut self, handle: u32) -> bool {
        let Some(node) = self.nodes.get_mut(handle as usize) else { return false };
        node.owes_status |= node.silent;
        !node.silent
    }

    /// The number of a node that may post its status now, which then counts as in flight. To a replica it is a sign
    /// of life like any beat.
    pub(super) fn begin_post(&mut self, handle: u32) -> Option<usize> {
        let (number, now) = (self.number_if_beating(handle)?, self.started.elapsed());
        let node = self.nodes.get_mut(handle as usize).filter(|node| !node.posting)?;
        (node.posting, node.last) = (true, Some(now));
        Some(number)
    }

    /// Returns whether a status was in flight.
    pub(super) fn posted(&mut self, handle: u32) -> bool {
        self.nodes.get_mut(handle as usize).is_some_and(|node| std::mem::take(&mut node.posting))
    }

    fn node(&mut self, number: usize) -> Option<&mut Entry> {
        self.nodes.get_mut(number.checked_sub(self.first)?)
    }

    pub(super) fn all_bound(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.nodes).filter(|(_, node)| node.state == BindState::Bound).map(|(handle, _)| handle)
    }

    fn number_if_beating(&self, handle: u32) -> Option<usize> {
        let node = self.nodes.get(handle as usize)?;
        (node.state == BindState::Bound && !node.silent).then_some(self.first + handle as usize)
    }

    /// The nodes of the slice beat. Returns their handles.
    pub(super) fn beat(&mut self, slices: &Slices) -> Vec<u32> {
        let now = self.started.elapsed();
        let places = slices.places(self.nodes.len());
        let mut handles = Vec::with_capacity(places.len());
        for place in places {
            let node = &mut self.nodes[place];
            if node.state == BindState::Bound && !node.silent {
                node.last = Some(now);
                handles.extend(u32::try_from(place));
            }
        }
        handles
    }

    /// The nodes of the slice that were refused at least `pause` ago are bound again.
    pub(super) fn retry_refused(&mut self, slices: &Slices, pause: Duration) {
        let before = self.started.elapsed().checked_sub(pause);
        for place in slices.places(self.nodes.len()) {
            let node = &self.nodes[place];
            if node.state == BindState::Refused
                && node.last <= before
                && let Ok(handle) = u32::try_from(place)
            {
                self.set_state(handle, BindState::Unbound);
            }
        }
    }

    pub(super) fn take_unbound(&mut self, most: usize, at_once: usize) -> Vec<v1::Binding> {
        let mut bindings = Vec::new();
        while bindings.len() < most
            && self.binding < at_once
            && let Some(handle) = self.unbound.pop_front()
        {
            let Some(node) = self.nodes.get(handle as usize) else { continue };
            if node.state == BindState::Unbound && !node.silent {
                let incarnation = node.incarnation;
                self.set_state(handle, BindState::Binding);
                let node = node::name(self.first + handle as usize);
                let continues = incarnation != 0;
                bindings.push(v1::Binding { handle, node, incarnation, orders_revision: 0, continues });
            }
        }
        bindings
    }

    pub(super) fn take_unregistered(&mut self) -> Option<(u32, usize)> {
        loop {
            let handle = self.unregistered.pop_front()?;
            if self.nodes.get(handle as usize)?.state == BindState::Unregistered {
                self.set_state(handle, BindState::Registering);
                return Some((handle, self.first + handle as usize));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::slices;

    fn bound(count: usize) -> CarriedNodes {
        let mut nodes = CarriedNodes::new(100..100 + count);
        nodes.bind_all();
        for binding in nodes.take_unbound(count, count) {
            nodes.set_state(binding.handle, BindState::Bound);
        }
        nodes
    }

    fn beats_of_an_interval(nodes: &mut CarriedNodes) -> Vec<u32> {
        let mut slices = Slices::new(Duration::from_secs(10));
        let beats = std::iter::repeat_with(|| {
            let beats = nodes.beat(&slices);
            slices.advance();
            beats
        });
        beats.take(slices::COUNT).flatten().collect()
    }

    #[test]
    fn every_bound_node_beats_once_in_an_interval_unless_it_is_silent() {
        let mut nodes = bound(7);
        assert!(nodes.silence(103).is_some(), "being bound counts");
        let mut beaten = beats_of_an_interval(&mut nodes);
        beaten.sort_unstable();
        assert_eq!(beaten, [0, 1, 2, 4, 5, 6]);
        assert!(nodes.silence(104).is_some());
        nodes.speak(103);
        assert!(beats_of_an_interval(&mut nodes).contains(&3));
    }

    #[test]
    fn a_silent_node_posts_its_status_later_and_one_post_runs_at_a_time() {
        let mut nodes = bound(2);
        nodes.silence(100);
        assert!(!nodes.ask_status(0) && nodes.ask_status(1));
        assert_eq!(nodes.begin_post(0), None);
        assert!(nodes.speak(100) && !nodes.speak(100));
        nodes.nodes[0].last = None;
        assert_eq!((nodes.begin_post(0), nodes.begin_post(0)), (Some(100), None));
        assert!(nodes.posted(0) && !nodes.posted(0));
        assert!(nodes.silence(100).is_some(), "a status counts as a beat");
    }

    #[test]
    fn pending_bindings_are_bounded() {
        let mut nodes = CarriedNodes::new(0..10);
        nodes.bind_all();
        assert_eq!(nodes.take_unbound(4, 6).len(), 4);
        assert_eq!(nodes.take_unbound(4, 6).len(), 2);
        assert!(nodes.take_unbound(4, 6).is_empty());
        nodes.set_state(0, BindState::Unregistered);
        assert_eq!(nodes.take_unbound(4, 6).len(), 1);
        assert_eq!(nodes.take_unregistered(), Some((0, 0)));
        assert_eq!(nodes.take_unregistered(), None);
    }

    #[test]
    fn a_node_that_falls_silent_before_it_is_bound_is_not_bound() {
        let mut nodes = CarriedNodes::new(0..3);
        nodes.bind_all();
        assert_eq!(nodes.silence(1), None);
        let bindings = nodes.take_unbound(10, 10);
        assert_eq!(bindings.iter().map(|binding| binding.handle).collect::<Vec<_>>(), [0, 2]);
        assert!(nodes.silence(2).is_some(), "it asked to be bound");
        nodes.speak(1);
        assert_eq!(nodes.take_unbound(10, 10).len(), 1);
    }

    #[test]
    fn a_lost_connection_forgets_all_bindings() {
        let mut nodes = bound(5);
        assert_eq!(nodes.unbind_all(), 5);
        assert!(nodes.take_unbound(5, 5).is_empty(), "not before it is attached again");
        nodes.bind_all();
        assert_eq!(nodes.take_unbound(5, 5).len(), 5);
    }
}
