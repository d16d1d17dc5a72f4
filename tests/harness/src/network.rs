//! Machines as network namespaces, each with one cable to a switch that has a namespace too.
//!
//! The operator sits at the switch. A pulled cable drops every packet; no end is told.

use std::path::Path;
use std::process::Command;

pub const SUBNET: &str = "10.90.0";
const OPERATOR: u8 = 254;

pub struct MachineNetwork {
    prefix: String,
    hosts: Vec<&'static str>,
}

// === impl MachineNetwork ===

impl MachineNetwork {
    /// The reason if network namespaces cannot be made here.
    pub fn impossible() -> Option<String> {
        let probe = format!("muster-{}-probe", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &probe]).output();
        match made {
            Err(error) => Some(format!("`ip` (iproute2) cannot be run: {error}")),
            Ok(output) if !output.status.success() => {
                Some(format!("no network namespaces: {}", String::from_utf8_lossy(&output.stderr).trim()))
            }
            Ok(_) => {
                ip(&["netns", "del", &probe]);
                None
            }
        }
    }

    /// Hosts by name, with the last number of their address.
    pub fn lay(hosts: &[(&'static str, u8)]) -> Self {
        let network = Self {
            prefix: format!("muster-{}", std::process::id()),
            hosts: hosts.iter().map(|(name, _)| *name).collect(),
        };
        let switch = network.namespace("switch");
        ip(&["netns", "add", &switch]);
        ip(&["-n", &switch, "link", "set", "lo", "up"]);
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"]);
        ip(&["-n", &switch, "addr", "add", &format!("{SUBNET}.{OPERATOR}/24"), "dev", "br0"]);
        ip(&["-n", &switch, "link", "set", "br0", "up"]);
        for (name, number) in hosts {
            network.plug_in(name, *number);
        }
        network
    }

    fn plug_in(&self, name: &str, number: u8) {
        let (switch, host) = (self.namespace("switch"), self.namespace(name));
        ip(&["netns", "add", &host]);
        ip(&["-n", &host, "link", "set", "lo", "up"]);
        ip(&["-n", &switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", &host]);
        ip(&["-n", &host, "addr", "add", &format!("{SUBNET}.{number}/24"), "dev", "eth0"]);
        ip(&["-n", &host, "link", "set", "eth0", "up"]);
        ip(&["-n", &switch, "link", "set", name, "master", "br0", "up"]);
    }

    /// A command that runs the program at the host.
    pub fn at(&self, host: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(host)]).arg(program);
        command
    }

    pub fn pull_cable(&self, host: &str) {
        ip(&["-n", &self.namespace("switch"), "link", "set", host, "nomaster"]);
    }

    pub fn plug_cable(&self, host: &str) {
        ip(&["-n", &self.namespace("switch"), "link", "set", host, "master", "br0"]);
    }

    /// The processes at a host whose command line contains `words`.
    pub fn processes(&self, host: &str, words: &str) -> Vec<u32> {
        let output = Command::new("ip").args(["netns", "pids", &self.namespace(host)]).output().unwrap();
        let pids = String::from_utf8_lossy(&output.stdout).into_owned();
        let pids = pids.lines().filter_map(|line| line.trim().parse().ok());
        pids.filter(|pid: &u32| command_line(*pid).contains(words)).collect()
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }
}

impl Drop for MachineNetwork {
    /// All processes that still run there were started by this test.
    fn drop(&mut self) {
        for name in self.hosts.iter().chain(&["switch"]) {
            for pid in self.processes(name, "") {
                crate::process::signal("-KILL", pid);
            }
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(name)]).output();
        }
    }
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
