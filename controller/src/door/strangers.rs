//! The places at the agents' door for callers without a certificate: machines that join, and any other caller that
//! finds the address.
//!
//! There are few places, and of these a few per address, so that one machine cannot keep all others from joining. An
//! IPv6 network of 64 bits counts as one address, since a machine with one address in it can use them all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Strangers at one door at a time.
pub(crate) const STRANGERS_MAX: usize = 256;
/// Strangers of one address. A join takes well under a second, so a site behind one address joins some hundred machines
/// a second.
pub(crate) const STRANGERS_PER_ADDRESS: usize = 64;

/// Clones share the places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strangers(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only addresses that have a place.
    by_address: HashMap<IpAddr, usize>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    strangers: Strangers,
    address: IpAddr,
}

// === impl Strangers ===

impl Strangers {
    /// `None` if there is no place for this address.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<Place> {
        let (address, mut taken) = (counted_as(address), self.taken());
        let here = taken.by_address.get(&address).copied().unwrap_or_default();
        if taken.all >= STRANGERS_MAX || here >= STRANGERS_PER_ADDRESS {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, here + 1);
        Some(Place { strangers: self.clone(), address })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.strangers.taken();
        taken.all -= 1;
        if let Some(here) = taken.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// The network of 64 bits of an IPv6 address, or the IPv4 address itself. An IPv4-mapped IPv6 address counts as IPv4.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_of_one_address_are_limited_and_released() {
        let strangers = Strangers::default();
        let crowd: Vec<_> = std::iter::from_fn(|| strangers.admit(address("192.0.2.1"))).take(STRANGERS_MAX).collect();
        assert_eq!(crowd.len(), STRANGERS_PER_ADDRESS);
        assert!(strangers.admit(address("192.0.2.2")).is_some());
        drop(crowd);
        assert!(strangers.admit(address("192.0.2.1")).is_some(), "places are given back");
        let taken = strangers.taken();
        assert_eq!((taken.all, taken.by_address.len()), (0, 0), "and nothing is kept");
    }

    #[test]
    fn connections_of_all_addresses_together_are_limited() {
        let strangers = Strangers::default();
        let crowd: Vec<_> = (0..512_u32).filter_map(|number| strangers.admit(IpAddr::V4(number.into()))).collect();
        assert_eq!(crowd.len(), STRANGERS_MAX);
    }

    #[test]
    fn ipv6_addresses_count_by_their_64_bit_prefix() {
        let table = [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1::5", "2001:db8:0:1::"),
            ("2001:db8:0:1:ffff::", "2001:db8:0:1::"),
            ("2001:db8:0:2::5", "2001:db8:0:2::"),
        ];
        for (said, wanted) in table {
            assert_eq!(counted_as(address(said)), address(wanted), "{said}");
        }
    }
}
