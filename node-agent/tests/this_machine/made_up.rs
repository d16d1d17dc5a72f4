//! Made-up machines: files that are missing, huge or garbage are left out and never end the agent.

use std::net::IpAddr;
use std::path::Path;

use muster_node_agent::conditions::Thresholds;
use muster_node_agent::facts::{FactSources, Facts, Interface, Reservations};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

const FILES: [&str; 13] = [
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/net/route",
    "proc/net/ipv6_route",
    "proc/sys/kernel/hostname",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/random/boot_id",
    "sys/devices/system/cpu/online",
    "sys/class/dmi/id/product_uuid",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    "sys/kernel/mm/hugepages/hugepages-99999999999999999999kB/nr_hugepages",
    "etc/machine-id",
    "etc/os-release",
];

fn put(tree: &TempDir, path: &str, content: &[u8]) {
    let path = tree.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn sources(root: &Path) -> FactSources {
    let interfaces = vec![Interface { name: "eth0".into(), address: IpAddr::from([192, 0, 2, 7]) }];
    FactSources { root: root.to_owned(), interfaces: Some(interfaces), ..FactSources::this_machine(root, "none") }
}

fn bare_machine() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    put(&tree, "proc/meminfo", b"MemTotal: 16384 kB\nMemAvailable: 8192 kB\nSwapTotal: 1024 kB\n");
    put(&tree, "sys/devices/system/cpu/online", b"0-3\n");
    tree
}

#[test]
fn a_machine_without_optional_facts_is_still_a_node() {
    let tree = bare_machine();
    let facts = Facts::read(&sources(tree.path())).unwrap();
    let named: Vec<_> = facts.missing.iter().map(|missing| missing.what).collect();
    assert_eq!(named, ["hostname", "machineID", "systemUUID", "bootID", "kernelVersion", "osImage"]);
    assert!(facts.missing.iter().all(|missing| missing.path.starts_with(tree.path()) && !missing.reason.is_empty()));
    let parts = facts.node_parts(&Reservations::default(), &Thresholds::default());
    assert_eq!(parts.addresses, json!([{ "type": "InternalIP", "address": "192.0.2.7" }]));
    assert_eq!((&parts.capacity["cpu"], &parts.capacity["memory"]), (&json!("4"), &json!("16Mi")));
    assert_eq!(parts.allocatable["memory"], json!("0"), "less than the eviction threshold is nothing for pods");
    assert_eq!(parts.capacity["pods"], json!("110"));
    assert_eq!(parts.node_info["swap"], json!({ "capacity": 1024 * 1024 }));
    assert!(!parts.labels.contains_key("kubernetes.io/hostname"));
}

#[test]
fn a_machine_without_memory_or_processors_is_refused_with_the_file() {
    for path in ["proc/meminfo", "sys/devices/system/cpu/online"] {
        let tree = bare_machine();
        std::fs::remove_file(tree.path().join(path)).unwrap();
        let error = Facts::read(&sources(tree.path())).unwrap_err().to_string();
        assert!(error.contains(&tree.path().join(path).display().to_string()), "{error}");
        assert!(error.contains("needs to read this file"), "{error}");
    }
}

#[test]
fn facts_given_by_an_operator_are_used() {
    let tree = bare_machine();
    let given = FactSources {
        hostname_override: Some(" Node-1 ".into()),
        node_ips: "198.51.100.1,2001:db8::1".parse().unwrap(),
        external_ips: vec![IpAddr::from([203, 0, 113, 9])],
        max_pods: 20,
        ..sources(tree.path())
    };
    let parts = Facts::read(&given).unwrap().node_parts(&Reservations::default(), &Thresholds::default());
    let expected = json!([
        { "type": "InternalIP", "address": "198.51.100.1" },
        { "type": "InternalIP", "address": "2001:db8::1" },
        { "type": "ExternalIP", "address": "203.0.113.9" },
        { "type": "Hostname", "address": "node-1" },
    ]);
    assert_eq!(parts.addresses, expected);
    assert_eq!(parts.labels["kubernetes.io/hostname"], "node-1");
    assert_eq!(parts.capacity["pods"], json!("20"));
}

#[test]
fn a_host_name_that_is_not_a_label_value_is_left_out() {
    let tree = bare_machine();
    let given = FactSources { hostname_override: Some("h".repeat(64)), ..sources(tree.path()) };
    let parts = Facts::read(&given).unwrap().node_parts(&Reservations::default(), &Thresholds::default());
    assert!(!parts.labels.contains_key("kubernetes.io/hostname"));
    assert_eq!(parts.addresses[1]["type"], json!("Hostname"));
}

/// Content as files have it, and as they should not.
fn content() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(Some),
        "[0-9a-fA-F,:\\-\t \n]{0,200}".prop_map(|text| Some(text.into_bytes())),
        "(MemTotal|MemAvailable|MemFree|Inactive\\(file\\)|SwapTotal): {0,9}[0-9]{0,25} (kB)?\n"
            .prop_map(|text| Some(text.into_bytes())),
        "[a-z0-9]{1,6}\t(0{8}|[0-9A-F]{1,40})\t[0-9]{1,40}\t[0-9a-f]{1,9}\t0\t0\t[0-9]{1,12}\t0{1,8}\n"
            .prop_map(|text| Some(text.into_bytes())),
        "PRETTY_NAME=[\"']?.{0,300}[\"']?\n".prop_map(|text| Some(text.into_bytes())),
        "(0-)?[0-9]{1,22}".prop_map(|text| Some(text.into_bytes())),
        Just(Some(vec![b'9'; 2 << 20])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn arbitrary_machine_files_give_a_valid_node_or_an_error(contents in proptest::collection::vec(content(), FILES.len()), sound in any::<bool>()) {
        let tree = if sound { bare_machine() } else { tempfile::tempdir().unwrap() };
        for (path, content) in FILES.iter().zip(&contents).skip(if sound { 2 } else { 0 }) {
            if let Some(content) = content {
                put(&tree, path, content);
            }
        }
        match Facts::read(&sources(tree.path())) {
            Err(error) => prop_assert!(error.to_string().contains(&tree.path().display().to_string())),
            Ok(facts) => {
                let parts = facts.node_parts(&Reservations::default(), &Thresholds::default());
                let node = json!({
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": { "name": "odd", "labels": parts.labels },
                    "status": {
                        "addresses": parts.addresses,
                        "capacity": parts.capacity,
                        "allocatable": parts.allocatable,
                        "nodeInfo": parts.node_info,
                    },
                });
                let read = muster_proto::manifest::node_from_json(node.to_string().as_bytes());
                prop_assert!(read.is_ok(), "{:?}", read.err());
            }
        }
    }
}
