//! Facts about the machine: names, addresses, resources and versions, as far as they can be read.
//!
//! ```text
//!   /proc /sys /etc, interfaces, statvfs --> FactsReader::read --> Facts --> node_parts --> parts of a Kubernetes Node
//!                                               | MissingFact: logged once
//! ```
//!
//! A fact that cannot be read is left out. Only processors and memory are required: no pod would be placed on a node
//! without them, and the reason would be hard to find.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use addresses::{Interface, NodeIpError, NodeIps, interfaces};
pub use capacity::{CPU, EPHEMERAL_STORAGE, MEMORY, MachineCapacity, PODS, Reservations, ResourceAmounts};
pub use file::MissingFact;
pub use filesystem::Filesystem;
pub use identity::MachineIdentity;
pub use node_parts::NodeParts;
pub use reserved::{Reserved, ReservedError};

use bounded_call::BoundedCall;
use file::Root;
use memory::{MEMINFO, Memory};

mod addresses;
mod bounded_call;
mod capacity;
pub(crate) mod file;
mod filesystem;
mod huge_pages;
mod identity;
pub(crate) mod memory;
mod node_parts;
mod processors;
mod reserved;

/// The default of `kubelet --max-pods`.
pub const MAX_PODS: u32 = 110;
/// The agent's version, in a form that clients which compare kubelet versions can parse.
pub const AGENT_VERSION: &str = concat!("v1.36.0-muster-", env!("CARGO_PKG_VERSION"));
/// How long a filesystem may take to report its size.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where facts come from, and the facts that only an operator knows.
#[derive(Debug, Clone)]
pub struct FactSources {
    /// The directory that contains `/proc`, `/sys` and `/etc`.
    pub root: PathBuf,
    /// Absent: the interfaces of this machine.
    pub interfaces: Option<Vec<Interface>>,
    /// A directory on the filesystem that pods write to.
    pub nodefs: PathBuf,
    pub hostname_override: Option<String>,
    pub node_ips: NodeIps,
    pub external_ips: Vec<IpAddr>,
    pub max_pods: u32,
    /// As in `process://0.1.0`.
    pub runtime_version: String,
    pub agent_version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub hostname: Option<String>,
    pub internal_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    pub capacity: MachineCapacity,
    pub identity: MachineIdentity,
    /// In bytes.
    pub swap: u64,
    pub runtime_version: String,
    pub agent_version: String,
    /// Facts that are left out, with the reason.
    pub missing: Vec<MissingFact>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FactsError {
    #[error("cannot tell how much {} this machine has: {}: {}. The agent needs to read this file",
        .0.what, .0.path.display(), .0.reason)]
    Unreadable(MissingFact),
}

/// Reads facts repeatedly, and logs each missing fact once.
#[derive(Debug)]
pub struct FactsReader {
    sources: FactSources,
    root: Root,
    storage: BoundedCall<std::io::Result<Filesystem>>,
    logged: BTreeSet<MissingFact>,
    logged_unknown: BTreeSet<IpAddr>,
}

// === impl FactSources ===

impl FactSources {
    /// This machine, whose pods write below `nodefs`.
    pub fn this_machine(nodefs: impl Into<PathBuf>, runtime_version: impl Into<String>) -> Self {
        Self {
            root: PathBuf::from("/"),
            interfaces: None,
            nodefs: nodefs.into(),
            hostname_override: None,
            node_ips: NodeIps::default(),
            external_ips: Vec::new(),
            max_pods: MAX_PODS,
            runtime_version: runtime_version.into(),
            agent_version: AGENT_VERSION.to_owned(),
        }
    }
}

// === impl Facts ===

impl Facts {
    /// Reads once. Missing facts are in the result and not logged. Repeated reads use a [`FactsReader`], which does
    /// not ask a filesystem again that has not answered yet.
    pub fn read(sources: &FactSources) -> Result<Self, FactsError> {
        FactsReader::new(sources.clone()).gather()
    }
}

// === impl FactsReader ===

impl FactsReader {
    pub fn new(sources: FactSources) -> Self {
        let root = Root::new(&sources.root);
        Self { sources, root, storage: BoundedCall::new(), logged: BTreeSet::new(), logged_unknown: BTreeSet::new() }
    }

    /// Takes milliseconds, or seconds if the pods' filesystem does not answer.
    pub fn read(&mut self) -> Result<Facts, FactsError> {
        let facts = self.gather()?;
        for missing in &facts.missing {
            if self.logged.insert(missing.clone()) {
                let MissingFact { what, path, reason } = missing;
                tracing::warn!(fact = what, path = %path.display(), %reason, "fact left out of the report on this machine");
            }
        }
        Ok(facts)
    }

    fn gather(&mut self) -> Result<Facts, FactsError> {
        let mut missing = Vec::new();
        let cpus = processors::count(&self.root).map_err(FactsError::Unreadable)?;
        let memory = Memory::read(&self.root).map_err(|error| {
            let (path, reason) = (self.root.path(MEMINFO), error.to_string());
            FactsError::Unreadable(MissingFact { what: MEMORY, path, reason })
        })?;
        let capacity = MachineCapacity {
            cpus,
            memory: memory.total,
            ephemeral_storage: self.ephemeral_storage(&mut missing),
            huge_pages: huge_pages::by_size(&self.root),
            pods: self.sources.max_pods,
        };
        Ok(Facts {
            hostname: self.hostname(&mut missing),
            internal_ips: self.internal_ips(&mut missing),
            external_ips: self.sources.external_ips.clone(),
            capacity,
            identity: MachineIdentity::read(&self.root, &mut missing),
            swap: memory.swap,
            runtime_version: self.sources.runtime_version.clone(),
            agent_version: self.sources.agent_version.clone(),
            missing,
        })
    }

    fn ephemeral_storage(&mut self, missing: &mut Vec<MissingFact>) -> Option<u64> {
        let nodefs = self.sources.nodefs.clone();
        let reason = match self.storage.run(move || Filesystem::of(&nodefs), TIMEOUT) {
            Some(Ok(filesystem)) => return Some(filesystem.capacity),
            Some(Err(error)) => error.to_string(),
            None => format!("its filesystem did not answer within {} s", TIMEOUT.as_secs()),
        };
        missing.push(MissingFact { what: EPHEMERAL_STORAGE, path: self.sources.nodefs.clone(), reason });
        None
    }

    fn hostname(&self, missing: &mut Vec<MissingFact>) -> Option<String> {
        if let Some(given) = &self.sources.hostname_override {
            return Some(identity::normal_hostname(given));
        }
        identity::hostname(&self.root).map_err(|reason| missing.push(reason)).ok()
    }

    fn internal_ips(&mut self, missing: &mut Vec<MissingFact>) -> Vec<IpAddr> {
        let path = PathBuf::from("--node-ip");
        let mut leave_out =
            |reason: String| missing.push(MissingFact { what: "InternalIP", path: path.clone(), reason });
        let interfaces = match self.sources.interfaces.clone().map_or_else(interfaces, Ok) {
            Ok(interfaces) => interfaces,
            Err(error) => {
                leave_out(format!("the interfaces of this machine cannot be listed: {error}"));
                Vec::new()
            }
        };
        for address in self.sources.node_ips.unknown(&interfaces) {
            if self.logged_unknown.insert(address) {
                tracing::warn!(%address, "no interface has the address given with --node-ip; it is reported nevertheless");
            }
        }
        let chosen = self.sources.node_ips.choose(&self.root, &interfaces);
        if chosen.is_empty() {
            leave_out("no interface has an address that others can reach; give one with --node-ip".into());
        }
        chosen
    }
}
