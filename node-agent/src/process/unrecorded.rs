//! Unrecorded pods: their processes run, but their directories are lost, as when the agent's state directory was wiped.
//!
//! Every process of a pod has the pod's uid in its environment, its shim too, and stays in the pod's control group if
//! there is one. So they are found, and a pod counts as stopped only when nothing of it is left. A pod is this agent's
//! own if its shim was started with a directory below the agent's; others are touched only by their uid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rustix::process::Signal;

use super::cgroup::PodGroup;
use super::manifest::POD_MARK;
use super::process_tree::{self, Process};
use super::shim::SHIM_ARGUMENT;
use crate::pods::{PodName, PodUid};

/// The variables with which the shim marks the processes of a pod, beside its uid.
pub(super) const NAMESPACE_MARK: &str = "MUSTER_POD_NAMESPACE";
pub(super) const NAME_MARK: &str = "MUSTER_POD_NAME";

/// The pods on this machine that have no directory here.
#[derive(Debug, Default)]
pub(super) struct UnrecordedPods {
    /// Of any agent on this machine.
    pub(super) uids: BTreeSet<PodUid>,
    /// This agent's own, with the name if a process told it.
    pub(super) own: BTreeMap<PodUid, Option<PodName>>,
}

// === impl UnrecordedPods ===

impl UnrecordedPods {
    pub(super) fn find(pods_dir: &Path) -> Self {
        let mut unrecorded = Self::default();
        for process in process_tree::all() {
            let uid = process.variable(POD_MARK).and_then(|uid| PodUid::parse(&uid));
            let Some(uid) = uid.filter(|uid| !pods_dir.join(uid.to_string()).exists()) else { continue };
            unrecorded.uids.insert(uid);
            if is_shim_below(&process, pods_dir) {
                unrecorded.own.entry(uid).or_default();
            }
        }
        let names: Vec<(PodUid, PodName)> =
            unrecorded.own.keys().filter_map(|uid| Some((*uid, name_of(*uid)?))).collect();
        unrecorded.own.extend(names.into_iter().map(|(uid, name)| (uid, Some(name))));
        unrecorded
    }
}

fn is_shim_below(process: &Process, pods_dir: &Path) -> bool {
    process.argument_after(SHIM_ARGUMENT).is_some_and(|dir| dir.parent() == Some(pods_dir))
}

fn name_of(uid: PodUid) -> Option<PodName> {
    strays_of(uid).iter().find_map(|process| {
        let (namespace, name) = (process.variable(NAMESPACE_MARK)?, process.variable(NAME_MARK)?);
        Some(PodName { namespace, name })
    })
}

fn strays_of(uid: PodUid) -> Vec<Process> {
    process_tree::marked(process_tree::all(), &format!("{POD_MARK}={uid}"))
}

/// Signals what is left of a pod: everything with KILL, otherwise only the topmost processes, which are its shim if
/// that lives. False: nothing is left.
pub(super) fn signal_remains(uid: PodUid, group: Option<&PodGroup>, signal: Option<Signal>) -> bool {
    let strays = strays_of(uid);
    match signal {
        Some(Signal::KILL) => {
            if let Some(group) = group {
                group.kill(None);
            }
            for stray in &strays {
                stray.signal(Signal::KILL);
            }
        }
        Some(signal) => {
            for root in process_tree::roots(&strays) {
                root.signal(signal);
            }
        }
        None => {}
    }
    // A group that still has processes cannot be removed.
    !strays.is_empty() || !group.is_none_or(PodGroup::remove)
}
