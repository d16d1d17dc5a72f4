//! Facts of this machine, compared with its own tools.

use std::io::Write as _;
use std::process::Command;

use muster_node_agent::conditions::Thresholds;
use muster_node_agent::facts::{FactSources, Facts, NodeParts, Reservations};
use muster_proto::manifest::node_from_json;
use serde_json::{Value, json};

fn facts() -> Facts {
    Facts::read(&FactSources::this_machine("/", "process://0.1.0")).unwrap()
}

fn parts() -> NodeParts {
    facts().node_parts(&Reservations::default(), &Thresholds::default())
}

/// The output of a program of this machine, or nothing where it is not installed.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn kernel_host_and_architecture_are_those_of_uname() {
    let (facts, parts) = (facts(), parts());
    assert_eq!(facts.identity.kernel, said("uname", &["-r"]).unwrap());
    assert_eq!(facts.hostname.as_deref(), said("uname", &["-n"]).map(|name| name.to_lowercase()).as_deref());
    let machine = said("uname", &["-m"]).unwrap();
    let architecture = [("x86_64", "amd64"), ("aarch64", "arm64")].into_iter().find(|(name, _)| *name == machine);
    if let Some((_, architecture)) = architecture {
        assert_eq!(parts.node_info["architecture"], json!(architecture));
        assert_eq!(parts.labels["kubernetes.io/arch"], architecture);
        assert_eq!(parts.labels["beta.kubernetes.io/arch"], architecture);
    }
    assert_eq!(parts.node_info["operatingSystem"], json!("linux"));
    assert_eq!(parts.labels["kubernetes.io/os"], "linux");
    assert_eq!(parts.labels["kubernetes.io/hostname"], facts.hostname.unwrap());
}

#[test]
fn the_os_image_is_the_pretty_name_of_os_release() {
    let script = ". /etc/os-release && printf %s \"$PRETTY_NAME\"";
    assert_eq!(facts().identity.os_image, said("sh", &["-c", script]).unwrap());
}

#[test]
fn memory_and_swap_are_those_of_meminfo() {
    let field = |name: &str| -> u64 {
        let text = file("/proc/meminfo");
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let facts = facts();
    assert_eq!(facts.capacity.memory, field("MemTotal:") * 1024);
    assert_eq!(facts.swap, field("SwapTotal:") * 1024);
    assert_eq!(parts().node_info.get("swap").is_some(), facts.swap > 0);
}

#[test]
fn storage_is_what_df_says() {
    let said = said("df", &["-B1", "--output=size", "/"]).unwrap();
    let size: u64 = said.lines().nth(1).unwrap().trim().parse().unwrap();
    assert_eq!(facts().capacity.ephemeral_storage, Some(size));
}

#[test]
fn processors_are_those_that_are_online() {
    let online: u64 = said("getconf", &["_NPROCESSORS_ONLN"]).unwrap().parse().unwrap();
    assert_eq!(facts().capacity.cpus, online);
    assert_eq!(parts().capacity["cpu"], json!(online.to_string()));
}

#[test]
fn machine_and_system_ids_are_those_of_the_machine() {
    let facts = facts();
    assert_eq!(facts.identity.boot_id, file("/proc/sys/kernel/random/boot_id").trim());
    if let Ok(machine_id) = std::fs::read_to_string("/etc/machine-id") {
        assert_eq!(facts.identity.machine_id, machine_id.trim());
    }
}

#[test]
fn the_internal_address_is_the_one_the_kernel_would_send_from() {
    let Some(default) = said("ip", &["-4", "route", "show", "default"]) else {
        // Past the capture of output, which would hide it.
        return writeln!(std::io::stderr(), "SKIPPED: this machine has no ip of iproute2").unwrap();
    };
    if default.is_empty() {
        // Without a default route any address is as good as another.
        return;
    }
    let route = said("ip", &["-4", "route", "get", "198.51.100.1"]).unwrap();
    let source = route.split_whitespace().skip_while(|word| *word != "src").nth(1).unwrap();
    assert_eq!(facts().internal_ips, [source.parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn the_facts_make_a_valid_node() {
    let NodeParts { labels, addresses, capacity, allocatable, node_info } = parts();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "this", "labels": labels },
        "status": { "addresses": addresses, "capacity": capacity, "allocatable": allocatable, "nodeInfo": node_info },
    });
    let read = node_from_json(node.to_string().as_bytes()).unwrap();
    let status = read.draft.status.unwrap();
    assert_eq!(status.capacity.iter().count(), capacity.as_object().map(serde_json::Map::len).unwrap());
    assert_eq!(&*status.info.unwrap().kubelet_version, muster_node_agent::facts::AGENT_VERSION);
    assert_ne!(capacity["memory"], allocatable["memory"], "the eviction threshold is kept free");
    assert!(node_info.get("kubeProxyVersion").is_none_or(Value::is_null));
}
