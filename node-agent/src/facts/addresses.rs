//! Addresses at which a machine is reached.
//!
//! The default is one address: that of the default route's interface, IPv4 if there is one. Machines with both
//! families set `--node-ip`, as upstream does.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use thiserror::Error;

use super::file::Root;

const ROUTES_V4: &str = "/proc/net/route";
const ROUTES_V6: &str = "/proc/net/ipv6_route";
const FLAG_UP: u32 = 0x1;
const FLAG_REJECT: u32 = 0x200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
}

/// The value of `--node-ip`: at most one address per family. An unspecified address (`0.0.0.0`, `::`) asks for any of
/// its family; no address asks for any family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeIps(Vec<IpAddr>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{value:?}: {rule}")]
pub struct NodeIpError {
    pub value: String,
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

// === impl NodeIps ===

impl NodeIps {
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }

    /// The addresses that no interface has: a mistake, or an address that will be added later.
    pub(crate) fn unknown<'a>(&'a self, interfaces: &'a [Interface]) -> impl Iterator<Item = IpAddr> + 'a {
        let is_held = |wanted: &IpAddr| interfaces.iter().any(|interface| interface.address == *wanted);
        self.0.iter().copied().filter(move |wanted| !wanted.is_unspecified() && !is_held(wanted))
    }

    /// The internal addresses to report, the most important first.
    pub(crate) fn choose(&self, root: &Root, interfaces: &[Interface]) -> Vec<IpAddr> {
        if self.0.is_empty() {
            let any = |family| automatic(family, root, interfaces);
            return any(Family::V4).or_else(|| any(Family::V6)).into_iter().collect();
        }
        let chosen = |wanted: &IpAddr| match wanted.is_unspecified() {
            true => automatic(Family::of(*wanted), root, interfaces),
            false => Some(*wanted),
        };
        self.0.iter().filter_map(chosen).collect()
    }
}

impl FromStr for NodeIps {
    type Err = NodeIpError;

    fn from_str(text: &str) -> Result<Self, NodeIpError> {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for item in text.split(',').map(str::trim) {
            let refused = |rule: String| NodeIpError { value: item.to_owned(), rule };
            let address: IpAddr = item.parse().map_err(|_| refused("it must be an IP address".into()))?;
            if let Some(rule) = unusable(address) {
                return Err(refused(format!("it must not be {rule}")));
            }
            if let Some(other) = addresses.iter().find(|other| Family::of(**other) == Family::of(address)) {
                return Err(refused(format!("one address of each family can be given, and {other} came before")));
            }
            addresses.push(address);
        }
        Ok(Self(addresses))
    }
}

fn unusable(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_loopback() => Some("a loopback address, which others cannot reach"),
        _ if address.is_multicast() => Some("a multicast address"),
        _ if is_link_local(address) => Some("a link-local address, which is unique on one link only"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("a broadcast address"),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_global_unicast(address: IpAddr) -> bool {
    !address.is_unspecified() && unusable(address).is_none()
}

// === impl Family ===

type ParseRoute = fn(&str) -> Option<(u32, &str)>;

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn default_routes(self, root: &Root) -> Vec<String> {
        let read = |path| root.text(path).unwrap_or_default();
        let (text, parse) = match self {
            Self::V4 => (read(ROUTES_V4), default_route_v4 as ParseRoute),
            Self::V6 => (read(ROUTES_V6), default_route_v6 as ParseRoute),
        };
        let mut routes: Vec<_> = text.lines().filter_map(parse).collect();
        routes.sort_by_key(|(metric, _)| *metric);
        routes.into_iter().map(|(_, interface)| interface.to_owned()).collect()
    }
}

fn automatic(family: Family, root: &Root, interfaces: &[Interface]) -> Option<IpAddr> {
    let usable =
        |interface: &&Interface| Family::of(interface.address) == family && is_global_unicast(interface.address);
    let of_interface = |name: String| interfaces.iter().filter(usable).find(|interface| interface.name == name);
    let routed = family.default_routes(root).into_iter().find_map(of_interface);
    routed.or_else(|| interfaces.iter().find(usable)).map(|interface| interface.address)
}

/// Metric and interface. The columns: interface, destination, gateway, flags, two counters, metric, mask.
fn default_route_v4(line: &str) -> Option<(u32, &str)> {
    let columns: Vec<_> = line.split_ascii_whitespace().take(8).collect();
    let [interface, destination, _, flags, _, _, metric, mask] = columns[..] else { return None };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_default = is_zero(destination) && is_zero(mask);
    (is_default && is_usable(flags)).then_some((metric.parse().ok()?, interface))
}

/// The columns: destination, its prefix length, source, its prefix length, next hop, metric, two counters, flags,
/// interface.
fn default_route_v6(line: &str) -> Option<(u32, &str)> {
    let columns: Vec<_> = line.split_ascii_whitespace().take(10).collect();
    let [destination, length, _, _, _, metric, _, _, flags, interface] = columns[..] else { return None };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_default = is_zero(destination) && is_zero(length);
    (is_default && is_usable(flags)).then_some((u32::from_str_radix(metric, 16).ok()?, interface))
}

fn is_zero(digits: &str) -> bool {
    digits.bytes().all(|digit| digit == b'0')
}

fn is_usable(flags: u32) -> bool {
    flags & FLAG_UP != 0 && flags & FLAG_REJECT == 0
}

/// The interfaces of this machine.
pub fn interfaces() -> std::io::Result<Vec<Interface>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all.into_iter().map(|one| Interface { address: one.ip(), name: one.name }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
        wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
        eth1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        down0\t00000000\t010200C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const V6: &str = "\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n\
        00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003 eth1\n";

    fn interfaces_of(all: &[(&str, &str)]) -> Vec<Interface> {
        let one =
            |(name, address): &(&str, &str)| Interface { name: (*name).into(), address: address.parse().unwrap() };
        all.iter().map(one).collect()
    }

    fn machine(routes: bool) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/net")).unwrap();
        if routes {
            std::fs::write(tree.path().join("proc/net/route"), V4).unwrap();
            std::fs::write(tree.path().join("proc/net/ipv6_route"), V6).unwrap();
        }
        let root = Root::new(tree.path());
        (tree, root)
    }

    #[test]
    fn the_address_is_that_of_the_default_route_or_the_first_global_one() {
        let all = [
            ("lo", "127.0.0.1"),
            ("eth0", "169.254.1.1"),
            ("eth0", "192.0.2.7"),
            ("eth1", "192.0.2.8"),
            ("wlan0", "192.168.1.5"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::7"),
            ("eth1", "2001:db8::8"),
        ];
        let only_v6 = [("lo", "::1"), ("eth0", "fe80::1"), ("eth0", "2001:db8::7")];
        type Addresses<'a> = &'a [(&'a str, &'a str)];
        let cases: [(&str, bool, Addresses<'_>, &[&str]); 9] = [
            ("", true, &all, &["192.0.2.8"]),
            ("", false, &all, &["192.0.2.7"]),
            ("", true, &only_v6, &["2001:db8::7"]),
            ("", true, &[("lo", "127.0.0.1")], &[]),
            ("::", true, &all, &["2001:db8::8"]),
            ("::,0.0.0.0", true, &all, &["2001:db8::8", "192.0.2.8"]),
            ("0.0.0.0", true, &only_v6, &[]),
            ("198.51.100.1", true, &all, &["198.51.100.1"]),
            ("192.0.2.7, 2001:db8::7", true, &all, &["192.0.2.7", "2001:db8::7"]),
        ];
        for (wish, routes, interfaces, expected) in cases {
            let (_tree, root) = machine(routes);
            let wish = if wish.is_empty() { NodeIps::default() } else { wish.parse().unwrap() };
            let chosen = wish.choose(&root, &interfaces_of(interfaces));
            let chosen: Vec<_> = chosen.iter().map(IpAddr::to_string).collect();
            assert_eq!(chosen, expected, "{wish:?} {routes} {interfaces:?}");
        }
    }

    #[test]
    fn an_unusable_address_is_refused_with_the_rule() {
        for (text, rule) in [
            ("", "must be an IP address"),
            ("10.0.0.1/8", "must be an IP address"),
            ("127.0.0.1", "loopback"),
            ("::1", "loopback"),
            ("224.0.0.1", "multicast"),
            ("fe80::1", "link-local"),
            ("169.254.0.1", "link-local"),
            ("255.255.255.255", "broadcast"),
            ("10.0.0.1,10.0.0.2", "10.0.0.1 came before"),
            ("10.0.0.1,::,2001:db8::1", ":: came before"),
        ] {
            let error = text.parse::<NodeIps>().unwrap_err().to_string();
            assert!(error.contains(rule), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_that_no_interface_has_are_reported() {
        let wish: NodeIps = "10.0.0.1,::".parse().unwrap();
        assert_eq!(wish.unknown(&interfaces_of(&[("a", "10.0.0.1")])).count(), 0);
        assert_eq!(wish.unknown(&interfaces_of(&[("a", "10.0.0.2")])).count(), 1);
    }
}
