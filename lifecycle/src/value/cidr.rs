//! Blocks of addresses: how a range is cut into equal blocks, and which of them are free (IP-2 to IP-5).

use imbl::OrdMap;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// The addresses of a block: the family, and the first and last address as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    pub is_v6: bool,
    pub first: u128,
    pub last: u128,
}

/// A range that is cut into blocks of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grid {
    pub range: IpNet,
    /// The prefix length of a block; not shorter than that of the range.
    pub block_mask: u8,
}

/// Numbers that are free, as intervals: from the key up to, but not including, the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeBlocks(OrdMap<u64, u64>);

// === impl Span ===

impl Span {
    pub fn of(net: &IpNet) -> Self {
        match net.trunc() {
            IpNet::V4(net) => {
                Self { is_v6: false, first: net.network().to_bits().into(), last: net.broadcast().to_bits().into() }
            }
            IpNet::V6(net) => Self { is_v6: true, first: net.network().to_bits(), last: net.broadcast().to_bits() },
        }
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_v6 == other.is_v6 && self.first <= other.last && other.first <= self.last
    }
}

// === impl Grid ===

impl Grid {
    /// IP-2. At most 2^32, the number of one-address blocks in all of IPv4.
    pub fn blocks(&self) -> u64 {
        1_u64 << (self.block_mask - self.range.prefix_len()).min(63)
    }

    /// IP-5: on either side of bit 64.
    pub fn block(&self, index: u64) -> Option<IpNet> {
        let base = Span::of(&self.range).first;
        let address = base | u128::from(index).checked_shl(u32::from(self.shift()))?;
        match self.range {
            IpNet::V4(_) => Ipv4Net::new(u32::try_from(address).ok()?.into(), self.block_mask).ok().map(IpNet::V4),
            IpNet::V6(_) => Ipv6Net::new(address.into(), self.block_mask).ok().map(IpNet::V6),
        }
    }

    /// IP-4: the blocks that a range touches, from the first up to, but not including, the second. `None` if it
    /// touches none; a larger range touches all.
    pub fn touched_by(&self, net: &IpNet) -> Option<(u64, u64)> {
        self.touched_by_span(&Span::of(net))
    }

    pub fn touched_by_span(&self, other: &Span) -> Option<(u64, u64)> {
        let own = Span::of(&self.range);
        if !own.overlaps(other) {
            return None;
        }
        let number = |address: u128| u64::try_from((address - own.first) >> self.shift()).unwrap_or(u64::MAX);
        Some((number(other.first.max(own.first)), number(other.last.min(own.last)) + 1))
    }

    /// The addresses of the blocks from `start` up to `end`.
    pub fn span(&self, start: u64, end: u64) -> Span {
        let own = Span::of(&self.range);
        // The end of the last block of all is the beginning of the first.
        let at = |index: u64| own.first.wrapping_add(u128::from(index) << self.shift());
        Span { is_v6: own.is_v6, first: at(start), last: at(end).wrapping_sub(1) }
    }

    fn shift(&self) -> u8 {
        let bits = if matches!(self.range, IpNet::V4(_)) { 32 } else { 128 };
        bits - self.block_mask
    }
}

// === impl FreeBlocks ===

impl FreeBlocks {
    pub fn all_below(count: u64) -> Self {
        Self(if count == 0 { OrdMap::new() } else { OrdMap::unit(0, count) })
    }

    /// IP-3: the first free number from `cursor` on, else from the start.
    pub fn next_from(&self, cursor: u64) -> Option<u64> {
        let around = self.0.get_prev(&cursor).filter(|(_, end)| **end > cursor).map(|_| cursor);
        let after = || self.0.get_next(&cursor).map(|(start, _)| *start);
        around.or_else(after).or_else(|| self.0.get_min().map(|(start, _)| *start))
    }

    pub fn is_free(&self, number: u64) -> bool {
        self.0.get_prev(&number).is_some_and(|(_, end)| *end > number)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Takes all numbers from `start` up to `end`, free or not.
    pub fn occupy(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let before = self.0.get_prev(&start).map(|(from, to)| (*from, *to));
        let mut cut: Vec<(u64, u64)> = self.0.range(start..end).map(|(from, to)| (*from, *to)).collect();
        cut.extend(before.filter(|(from, to)| *from < start && *to > start));
        for (from, to) in cut {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if to > end {
                self.0.insert(end, to);
            }
        }
    }

    /// Gives back all numbers from `start` up to `end`.
    pub fn release(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.occupy(start, end);
        let (mut from, mut to) = (start, end);
        if let Some((before, _)) = self.0.get_prev(&start).map(|(f, t)| (*f, *t)).filter(|(_, t)| *t == start) {
            self.0.remove(&before);
            from = before;
        }
        if let Some(after) = self.0.remove(&end) {
            to = after;
        }
        self.0.insert(from, to);
    }
}
