//! The nodes of a crowd, and where each of them stands.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use muster_proto::v1;

use crate::node;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Unbound,
    Binding,
    Unregistered,
    Registering,
    Bound,
    Refused,
}

pub(super) struct Members {
    first: usize,
    members: Vec<Member>,
    unbound: VecDeque<u32>,
    unregistered: VecDeque<u32>,
    /// Asked for and not answered.
    binding: usize,
    /// Without a connection nothing waits to be bound.
    attached: bool,
    born: Instant,
}

struct Member {
    incarnation: u64,
    standing: Standing,
    silent: bool,
    /// Its status was asked for while it was silent.
    owes_status: bool,
    /// Its status is under way.
    posting: bool,
    /// When it last beat or was refused, since the crowd was born.
    last: Option<Duration>,
}

// === impl Members ===

impl Members {
    pub(super) fn new(numbers: Range<usize>) -> Self {
        let (first, count) = (numbers.start, numbers.len());
        let member = || Member {
            incarnation: 0,
            standing: Standing::Unbound,
            silent: false,
            owes_status: false,
            posting: false,
            last: None,
        };
        Self {
            first,
            members: std::iter::repeat_with(member).take(count).collect(),
            unbound: VecDeque::new(),
            unregistered: VecDeque::new(),
            binding: 0,
            attached: false,
            born: Instant::now(),
        }
    }

    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    pub(super) fn incarnation(&mut self, handle: u32, incarnation: u64) {
        if let Some(member) = self.members.get_mut(handle as usize) {
            member.incarnation = incarnation;
        }
    }

    /// All are to be bound on a new stream, save those that are silent.
    pub(super) fn bind_all(&mut self) {
        self.attached = true;
        let handles = (0..).zip(&self.members).filter(|(_, member)| !member.silent).map(|(handle, _)| handle);
        self.unbound = handles.collect();
    }

    /// How many were bound.
    pub(super) fn unbind_all(&mut self) -> usize {
        let bound = self.members.iter().filter(|member| member.standing == Standing::Bound).count();
        for member in &mut self.members {
            (member.standing, member.owes_status, member.posting) = (Standing::Unbound, false, false);
        }
        self.unbound.clear();
        self.unregistered.clear();
        (self.binding, self.attached) = (0, false);
        bound
    }

    /// What it was before; nothing for a handle that stands for nobody.
    pub(super) fn stand(&mut self, handle: u32, standing: Standing) -> Option<Standing> {
        let now = self.born.elapsed();
        let member = self.members.get_mut(handle as usize)?;
        let before = std::mem::replace(&mut member.standing, standing);
        self.binding -= usize::from(before == Standing::Binding);
        self.binding += usize::from(standing == Standing::Binding);
        match standing {
            Standing::Unregistered => self.unregistered.push_back(handle),
            Standing::Unbound => self.unbound.push_back(handle),
            // Being taken in counts as a beat, so asking for it may be the last that is heard.
            Standing::Refused | Standing::Bound | Standing::Binding => member.last = Some(now),
            Standing::Registering => {}
        }
        Some(before)
    }

    /// When it last beat.
    pub(super) fn silence(&mut self, number: usize) -> Option<Instant> {
        let born = self.born;
        let member = self.member(number)?;
        member.silent = true;
        member.last.map(|last| born + last)
    }

    /// Whether it was asked for its status meanwhile.
    pub(super) fn speak(&mut self, number: usize) -> bool {
        let Some(member) = self.member(number) else { return false };
        member.silent = false;
        let owes_status = std::mem::take(&mut member.owes_status);
        if member.standing == Standing::Unbound
            && self.attached
            && let Ok(handle) = u32::try_from(number - self.first)
        {
            self.unbound.push_back(handle);
        }
        owes_status
    }

    /// Its status is asked for: whether it can say it now, and will not say it twice.
    pub(super) fn ask_status(&mut self, handle: u32) -> bool {
        let Some(member) = self.members.get_mut(handle as usize) else { return false };
        member.owes_status |= member.silent;
        !member.silent
    }

    /// The number of a node that may post its status now, which then counts as under way. To a replica it is a sign of life
    /// like any beat.
    pub(super) fn begin_post(&mut self, handle: u32) -> Option<usize> {
        let (number, now) = (self.speaking(handle)?, self.born.elapsed());
        let member = self.members.get_mut(handle as usize).filter(|member| !member.posting)?;
        (member.posting, member.last) = (true, Some(now));
        Some(number)
    }

    /// Whether one was under way.
    pub(super) fn posted(&mut self, handle: u32) -> bool {
        self.members.get_mut(handle as usize).is_some_and(|member| std::mem::take(&mut member.posting))
    }

    fn member(&mut self, number: usize) -> Option<&mut Member> {
        self.members.get_mut(number.checked_sub(self.first)?)
    }

    pub(super) fn all_bound(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.members).filter(|(_, member)| member.standing == Standing::Bound).map(|(handle, _)| handle)
    }

    fn speaking(&self, handle: u32) -> Option<usize> {
        let member = self.members.get(handle as usize)?;
        (member.standing == Standing::Bound && !member.silent).then_some(self.first + handle as usize)
    }

    /// Those of a slice whose turn it is.
    pub(super) fn beat(&mut self, slice: usize, slices: usize) -> Vec<u32> {
        let now = self.born.elapsed();
        let mut handles = Vec::with_capacity(self.members.len() / slices + 1);
        for place in (slice..self.members.len()).step_by(slices) {
            let member = &mut self.members[place];
            if member.standing == Standing::Bound && !member.silent {
                member.last = Some(now);
                handles.extend(u32::try_from(place));
            }
        }
        handles
    }

    /// Those of a slice that were refused long enough ago are bound again.
    pub(super) fn forgive(&mut self, slice: usize, slices: usize, pause: Duration) {
        let before = self.born.elapsed().checked_sub(pause);
        for place in (slice..self.members.len()).step_by(slices) {
            let member = &self.members[place];
            if member.standing == Standing::Refused
                && member.last <= before
                && let Ok(handle) = u32::try_from(place)
            {
                self.stand(handle, Standing::Unbound);
            }
        }
    }

    pub(super) fn take_unbound(&mut self, most: usize, at_once: usize) -> Vec<v1::Binding> {
        let mut bindings = Vec::new();
        while bindings.len() < most
            && self.binding < at_once
            && let Some(handle) = self.unbound.pop_front()
        {
            let Some(member) = self.members.get(handle as usize) else { continue };
            if member.standing == Standing::Unbound && !member.silent {
                let incarnation = member.incarnation;
                self.stand(handle, Standing::Binding);
                let node = node::name(self.first + handle as usize);
                bindings.push(v1::Binding { handle, node, incarnation, orders_revision: 0 });
            }
        }
        bindings
    }

    pub(super) fn take_unregistered(&mut self) -> Option<(u32, usize)> {
        loop {
            let handle = self.unregistered.pop_front()?;
            if self.members.get(handle as usize)?.standing == Standing::Unregistered {
                self.stand(handle, Standing::Registering);
                return Some((handle, self.first + handle as usize));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(count: usize) -> Members {
        let mut members = Members::new(100..100 + count);
        members.bind_all();
        for binding in members.take_unbound(count, count) {
            members.stand(binding.handle, Standing::Bound);
        }
        members
    }

    #[test]
    fn every_bound_node_beats_once_in_an_interval_unless_it_is_silent() {
        let mut members = bound(7);
        assert!(members.silence(103).is_some(), "being bound counts");
        let mut beaten: Vec<u32> = (0..3).flat_map(|slice| members.beat(slice, 3)).collect();
        beaten.sort_unstable();
        assert_eq!(beaten, [0, 1, 2, 4, 5, 6]);
        assert!(members.silence(104).is_some());
        members.speak(103);
        assert!((0..3).flat_map(|slice| members.beat(slice, 3)).any(|handle| handle == 3));
    }

    #[test]
    fn a_status_asked_for_in_silence_is_owed_and_none_is_said_twice_at_once() {
        let mut members = bound(2);
        members.silence(100);
        assert!(!members.ask_status(0) && members.ask_status(1));
        assert_eq!(members.begin_post(0), None);
        assert!(members.speak(100) && !members.speak(100));
        members.members[0].last = None;
        assert_eq!((members.begin_post(0), members.begin_post(0)), (Some(100), None));
        assert!(members.posted(0) && !members.posted(0));
        assert!(members.silence(100).is_some(), "a status counts as a beat");
    }

    #[test]
    fn bindings_under_way_are_bounded() {
        let mut members = Members::new(0..10);
        members.bind_all();
        assert_eq!(members.take_unbound(4, 6).len(), 4);
        assert_eq!(members.take_unbound(4, 6).len(), 2);
        assert!(members.take_unbound(4, 6).is_empty());
        members.stand(0, Standing::Unregistered);
        assert_eq!(members.take_unbound(4, 6).len(), 1);
        assert_eq!(members.take_unregistered(), Some((0, 0)));
        assert_eq!(members.take_unregistered(), None);
    }

    #[test]
    fn who_falls_silent_before_it_is_bound_is_not_bound() {
        let mut members = Members::new(0..3);
        members.bind_all();
        assert_eq!(members.silence(1), None);
        let bindings = members.take_unbound(10, 10);
        assert_eq!(bindings.iter().map(|binding| binding.handle).collect::<Vec<_>>(), [0, 2]);
        assert!(members.silence(2).is_some(), "it asked to be bound");
        members.speak(1);
        assert_eq!(members.take_unbound(10, 10).len(), 1);
    }

    #[test]
    fn a_lost_connection_forgets_all_bindings() {
        let mut members = bound(5);
        assert_eq!(members.unbind_all(), 5);
        assert!(members.take_unbound(5, 5).is_empty(), "not before it is attached again");
        members.bind_all();
        assert_eq!(members.take_unbound(5, 5).len(), 5);
    }
}
