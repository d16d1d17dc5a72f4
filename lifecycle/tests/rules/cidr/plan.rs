//! IP-1 and IP-2: the flags that make a plan for node CIDRs, and the errors for flags that do not.

use muster_lifecycle::addressing::{AddressRequest, Addressing, QUARANTINE_DEFAULT};
use muster_lifecycle::time::Period;

/// Flags as on a command line; `mask`, `v4` and `v6` are the three sizes.
fn request(text: &str) -> AddressRequest {
    let mut request = AddressRequest::default();
    for (flag, value) in text.split_whitespace().filter_map(|flag| flag.split_once('=')) {
        let nets = || value.split(',').map(|net| net.parse().expect("a range")).collect();
        let size = || Some(value.parse().expect("a size"));
        match flag {
            "cluster" => request.cluster_cidrs = nets(),
            "service" => request.service_ranges = nets(),
            "mask" => request.mask_size = size(),
            "v4" => request.mask_size_ipv4 = size(),
            "v6" => request.mask_size_ipv6 = size(),
            "rest" => request.quarantine = Some(value.parse().expect("a period")),
            other => panic!("{other} is no flag"),
        }
    }
    request
}

fn plan(text: &str) -> Addressing {
    request(text).plan().unwrap_or_else(|invalid| panic!("{text}: {invalid}"))
}

/// `10.0.0.0/8 in /24`.
fn pools(plan: &Addressing) -> Vec<String> {
    plan.pools.iter().map(|pool| format!("{} in /{}", pool.grid.range, pool.grid.block_mask)).collect()
}

#[test]
fn ip_1_one_range_or_one_per_family_with_the_usual_sizes() {
    let cases: [(&str, &[&str]); 8] = [
        ("cluster=10.0.0.0/8", &["10.0.0.0/8 in /24"]),
        ("cluster=fd00::/56", &["fd00::/56 in /64"]),
        ("cluster=10.0.0.0/8,fd00::/48", &["10.0.0.0/8 in /24", "fd00::/48 in /64"]),
        ("cluster=fd00::/48,10.0.0.0/8", &["fd00::/48 in /64", "10.0.0.0/8 in /24"]),
        ("cluster=10.0.0.0/8 mask=20", &["10.0.0.0/8 in /20"]),
        ("cluster=10.0.0.0/8 v4=25", &["10.0.0.0/8 in /25"]),
        ("cluster=10.0.0.0/8,fd00::/64 v4=26 v6=80", &["10.0.0.0/8 in /26", "fd00::/64 in /80"]),
        ("cluster=10.1.2.3/8", &["10.0.0.0/8 in /24"]),
    ];
    for (flags, expected) in cases {
        let plan = plan(flags);
        assert_eq!(pools(&plan), expected, "{flags}");
        assert_eq!((plan.quarantine, plan.held_until), (QUARANTINE_DEFAULT, None));
        assert!(plan.pools.iter().all(|pool| pool.cursor == 0));
    }
}

#[test]
fn ip_1_and_ip_2_an_error_names_its_flag() {
    let cases = [
        ("", "cluster-cidr: is required to allocate node CIDRs: one range, or one per address family"),
        (
            "cluster=10.0.0.0/8,11.0.0.0/8",
            "cluster-cidr: \"11.0.0.0/8\" has the family of the first: give one IPv4 and one IPv6 range",
        ),
        ("cluster=10.0.0.0/8,fd00::/48,fd01::/48", "cluster-cidr: 3 ranges are too many: one per address family"),
        (
            "cluster=10.0.0.0/8,fd00::/48 mask=24",
            "node-cidr-mask-size: is for one range only: use the flag of each family for two",
        ),
        (
            "cluster=10.0.0.0/8 mask=24 v4=24",
            "node-cidr-mask-size: excludes the flags per family: use one or the other",
        ),
        ("cluster=fd00::/48 v4=24", "node-cidr-mask-size-ipv4: is given, but cluster-cidr has no IPv4 range"),
        ("cluster=10.0.0.0/8 v6=64", "node-cidr-mask-size-ipv6: is given, but cluster-cidr has no IPv6 range"),
        (
            "cluster=10.0.0.0/25",
            "node-cidr-mask-size-ipv4: 24: cluster CIDR 10.0.0.0/25 is smaller than one node's block, a /24",
        ),
        (
            "cluster=10.0.0.0/16 mask=12",
            "node-cidr-mask-size: 12: cluster CIDR 10.0.0.0/16 is smaller than one node's block, a /12",
        ),
        ("cluster=10.0.0.0/16 mask=33", "node-cidr-mask-size: 33 is more than the 32 bits of an address"),
        ("cluster=0.0.0.0/0 mask=0", "node-cidr-mask-size: 0 would be every address there is"),
        ("cluster=fd00::/47", "node-cidr-mask-size-ipv6: 64: fd00::/47 would have too many blocks: at most /63"),
        (
            "cluster=10.0.0.0/16 service=10.0.0.0/8",
            "service-cluster-ip-range: \"10.0.0.0/8\" leaves nothing of cluster CIDR 10.0.0.0/16 for nodes",
        ),
        (
            "cluster=10.0.0.0/16 service=10.0.0.0/16",
            "service-cluster-ip-range: \"10.0.0.0/16\" leaves nothing of cluster CIDR 10.0.0.0/16 for nodes",
        ),
        (
            "cluster=10.0.0.0/23 service=10.0.0.0/24,10.0.1.0/28",
            "service-cluster-ip-range: \"10.0.1.0/28\" leaves nothing of cluster CIDR 10.0.0.0/23 for nodes",
        ),
        ("cluster=10.0.0.0/16 rest=200h", "node-cidr-quarantine: 200h is too long: at most 168h"),
    ];
    for (flags, message) in cases {
        let told = request(flags).plan().map(|plan| pools(&plan)).map_err(|invalid| invalid.to_string());
        assert_eq!(told, Err(message.to_owned()), "{flags}");
    }
}

#[test]
fn ip_2_only_ipv6_is_bounded_as_upstream_bounds_it() {
    assert_eq!(plan("cluster=fd00::/48").pools[0].grid.blocks(), 65_536);
    assert_eq!(plan("cluster=0.0.0.0/0 mask=32").pools[0].grid.blocks(), 1 << 32);
}

#[test]
fn a_replicated_plan_is_checked_as_well() {
    let mut upside_down = plan("cluster=10.0.0.0/16");
    upside_down.pools[0].grid.block_mask = 8;
    assert!(upside_down.check().unwrap_err().to_string().contains("smaller than one node's block"));
    let mut doubled = plan("cluster=10.0.0.0/16");
    doubled.pools = Box::new([doubled.pools[0], doubled.pools[0]]);
    assert!(doubled.check().unwrap_err().to_string().contains("has the family of the first"));
}

#[test]
fn a_plan_is_shown_under_the_names_of_the_flags() {
    let dual = plan("cluster=10.0.0.0/8,fd00::/48 v4=25 service=10.96.0.0/12 rest=90s");
    let shown: Vec<String> = dual.settings().into_iter().map(|(flag, value)| format!("{flag}={value}")).collect();
    let expected = [
        "cluster-cidr=10.0.0.0/8,fd00::/48",
        "node-cidr-mask-size-ipv4=25",
        "node-cidr-mask-size-ipv6=64",
        "service-cluster-ip-range=10.96.0.0/12",
        "node-cidr-quarantine=1m30s",
    ];
    assert_eq!(shown, expected);
    let mut later = dual.clone();
    later.pools[0].cursor = 7;
    assert!(later.is_same_plan(&dual), "the cursor does not make it another plan");
    assert!(!plan("cluster=10.0.0.0/8").is_same_plan(&dual));
    assert_eq!(QUARANTINE_DEFAULT, Period::from_secs(600));
}
