//! What the machine is: names, addresses, resources and versions, as far as it can be read.
//!
//! ```text
//!   /proc /sys /etc, interfaces, statvfs --> FactsReader::read --> Facts --> node_parts --> parts of a Kubernetes Node
//!                                               | Missing: said once in the log
//! ```
//!
//! A machine that hides something is reported without it. Only processors and memory are needed: a node without them
//! would be given nothing, and nobody would know why.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use addresses::{Interface, NodeIpError, NodeIps, interfaces};
pub use capacity::{CPU, Capacity, EPHEMERAL_STORAGE, MEMORY, PODS, Reservations, Resources};
pub use file::Missing;
pub use filesystem::Filesystem;
pub use identity::Identity;
pub use node_parts::NodeParts;
pub use reserved::{Reserved, ReservedError};

use file::Root;
use memory::{MEMINFO, Memory};
use patience::Question;

mod addresses;
mod capacity;
pub(crate) mod file;
mod filesystem;
mod huge_pages;
mod identity;
pub(crate) mod memory;
mod node_parts;
mod patience;
mod processors;
mod reserved;

/// What `kubelet --max-pods` defaults to.
pub const MAX_PODS: u32 = 110;
/// The agent's version, written so that clients which compare versions of kubelets can.
pub const AGENT_VERSION: &str = concat!("v1.36.0-muster-", env!("CARGO_PKG_VERSION"));
/// For a filesystem to say how large it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where facts come from, and those that only an operator knows.
#[derive(Debug, Clone)]
pub struct Sources {
    /// `/proc`, `/sys` and `/etc` are looked for below it.
    pub root: PathBuf,
    /// Absent: those of this machine.
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
    pub capacity: Capacity,
    pub identity: Identity,
    /// In bytes.
    pub swap: u64,
    pub runtime_version: String,
    pub agent_version: String,
    /// What is left out, and why.
    pub missing: Vec<Missing>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FactsError {
    #[error("cannot tell how much {} this machine has: {}: {}. The agent needs to read this file",
        .0.what, .0.path.display(), .0.reason)]
    Unreadable(Missing),
}

/// Reads facts again and again, and says of each thing that is missing once that it is.
#[derive(Debug)]
pub struct FactsReader {
    sources: Sources,
    root: Root,
    storage: Question<std::io::Result<Filesystem>>,
    said: BTreeSet<Missing>,
    said_unheard_of: BTreeSet<IpAddr>,
}

// === impl Sources ===

impl Sources {
    /// The machine this runs on, whose pods write below `nodefs`.
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
    /// Reads once. What is missing is in the result, and not yet said to anybody. Whoever reads again and again uses a
    /// [`FactsReader`], which does not ask a filesystem that owes it an answer.
    pub fn read(sources: &Sources) -> Result<Self, FactsError> {
        FactsReader::new(sources.clone()).gather()
    }
}

// === impl FactsReader ===

impl FactsReader {
    pub fn new(sources: Sources) -> Self {
        let root = Root::new(&sources.root);
        Self { sources, root, storage: Question::new(), said: BTreeSet::new(), said_unheard_of: BTreeSet::new() }
    }

    /// Takes milliseconds, or seconds if the filesystem of the pods does not answer.
    pub fn read(&mut self) -> Result<Facts, FactsError> {
        let facts = self.gather()?;
        for missing in &facts.missing {
            if self.said.insert(missing.clone()) {
                let Missing { what, path, reason } = missing;
                tracing::warn!(fact = what, path = %path.display(), %reason, "left out of what is said of this machine");
            }
        }
        Ok(facts)
    }

    fn gather(&mut self) -> Result<Facts, FactsError> {
        let mut missing = Vec::new();
        let cpus = processors::count(&self.root).map_err(FactsError::Unreadable)?;
        let memory = Memory::read(&self.root).map_err(|error| {
            let (path, reason) = (self.root.path(MEMINFO), error.to_string());
            FactsError::Unreadable(Missing { what: MEMORY, path, reason })
        })?;
        let capacity = Capacity {
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
            identity: Identity::read(&self.root, &mut missing),
            swap: memory.swap,
            runtime_version: self.sources.runtime_version.clone(),
            agent_version: self.sources.agent_version.clone(),
            missing,
        })
    }

    fn ephemeral_storage(&mut self, missing: &mut Vec<Missing>) -> Option<u64> {
        let nodefs = self.sources.nodefs.clone();
        let reason = match self.storage.ask(move || Filesystem::of(&nodefs), PATIENCE) {
            Some(Ok(filesystem)) => return Some(filesystem.capacity),
            Some(Err(error)) => error.to_string(),
            None => format!("its filesystem did not answer within {} s", PATIENCE.as_secs()),
        };
        missing.push(Missing { what: EPHEMERAL_STORAGE, path: self.sources.nodefs.clone(), reason });
        None
    }

    fn hostname(&self, missing: &mut Vec<Missing>) -> Option<String> {
        if let Some(given) = &self.sources.hostname_override {
            return Some(identity::normal_hostname(given));
        }
        identity::hostname(&self.root).map_err(|reason| missing.push(reason)).ok()
    }

    fn internal_ips(&mut self, missing: &mut Vec<Missing>) -> Vec<IpAddr> {
        let path = PathBuf::from("--node-ip");
        let mut leave_out = |reason: String| missing.push(Missing { what: "InternalIP", path: path.clone(), reason });
        let interfaces = match self.sources.interfaces.clone().map_or_else(interfaces, Ok) {
            Ok(interfaces) => interfaces,
            Err(error) => {
                leave_out(format!("the interfaces of this machine cannot be listed: {error}"));
                Vec::new()
            }
        };
        for address in self.sources.node_ips.unheard_of(&interfaces) {
            if self.said_unheard_of.insert(address) {
                tracing::warn!(%address, "no interface has the address given with --node-ip; it is reported all the same");
            }
        }
        let chosen = self.sources.node_ips.choose(&self.root, &interfaces);
        if chosen.is_empty() {
            leave_out("no interface has an address that others can reach; give one with --node-ip".into());
        }
        chosen
    }
}
