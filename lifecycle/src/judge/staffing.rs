//! Staffing of workloads: which pods a workload lacks, and which it has too many of.
//!
//! It is read off the state on every call, so it makes no difference how often, or by which leader.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::judge::placement;
use crate::object::kind::WorkloadKind;
use crate::object::node::Node;
use crate::object::pod::{Pod, PodKey};
use crate::object::record::Stored;
use crate::object::toleration::{self, Toleration};
use crate::object::workload::Workload;
use crate::state::State;
use crate::value::meta::Pairs;
use crate::value::text::Text;

/// How many pods one step makes or dismisses.
pub const STEP_MAX: usize = 1_024;

/// The openings and dismissals of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staffing {
    pub openings: Vec<Opening>,
    pub dismissals: Vec<PodKey>,
    /// The workload was deleted, and none of its pods is left to dismiss.
    pub is_over: bool,
}

/// A pod to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Any name will do.
    Anonymous,
    Named(Text),
    On(Text),
}

impl Staffing {
    pub fn is_settled(&self) -> bool {
        self.openings.is_empty() && self.dismissals.is_empty() && !self.is_over
    }
}

/// At most [`STEP_MAX`] openings and dismissals. For a DaemonSet only `nodes` are looked at.
pub fn staffing(state: &State, workload: &Workload, nodes: &[Text]) -> Staffing {
    if workload.meta.deleted.is_some() {
        // Pods that have ended go too: they would keep their names from a successor of the workload.
        let staying = staff(state, workload).filter(|pod| !pod.is_terminating());
        let dismissals: Vec<PodKey> = staying.map(|pod| pod.key()).take(STEP_MAX).collect();
        return Staffing { openings: Vec::new(), is_over: dismissals.is_empty(), dismissals };
    }
    match workload.kind {
        WorkloadKind::ReplicaSet => replica_set(state, workload),
        WorkloadKind::StatefulSet => stateful_set(state, workload),
        WorkloadKind::DaemonSet => daemon_set(state, workload, nodes),
    }
}

fn replica_set(state: &State, workload: &Workload) -> Staffing {
    let there = state.staff(workload.meta.uid).map_or(0, |staff| staff.active());
    let wanted = usize::try_from(workload.spec.replicas).unwrap_or(usize::MAX);
    let lacking = wanted.saturating_sub(there).min(STEP_MAX);
    let surplus = there.saturating_sub(wanted).min(STEP_MAX);
    let dismissals = if surplus == 0 { Vec::new() } else { least_useful(state, workload, surplus) };
    Staffing { openings: vec![Opening::Anonymous; lacking], dismissals, is_over: false }
}

/// The least useful pods go first: without a node, on a lost node, not ready, and then the newest.
fn least_useful(state: &State, workload: &Workload, count: usize) -> Vec<PodKey> {
    let on_ready_node = |pod: &Pod| pod.node().and_then(|name| state.node(name)).is_some_and(|node| node.is_ready());
    let ranked = active(state, workload).map(|pod| {
        let rank = (pod.spec.binding.is_some(), on_ready_node(&pod), pod.is_ready());
        (rank, Reverse(pod.meta.created.cluster), pod.key())
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_unstable();
    ranked.into_iter().take(count).map(|(_, _, key)| key).collect()
}

/// A successor waits until its name is free: until then the predecessor may still run.
fn stateful_set(state: &State, workload: &Workload) -> Staffing {
    let names = (0..workload.spec.replicas).map(|ordinal| workload.ordinal_name(ordinal));
    let namespace = workload.meta.namespace.clone().unwrap_or_default();
    let mut staffing = Staffing::default();
    for name in names {
        let key = PodKey { namespace: namespace.clone(), name };
        match state.pods().get(&key) {
            None => staffing.openings.push(Opening::Named(key.name)),
            Some(pod) if is_own(pod, workload) && pod.status.phase.is_final() && !pod.is_terminating() => {
                staffing.dismissals.push(key);
            }
            Some(_) => {}
        }
        if staffing.openings.len() >= STEP_MAX || staffing.dismissals.len() >= STEP_MAX {
            return staffing;
        }
    }
    let surplus = active(state, workload).map(|pod| pod.key()).filter(|key| !is_wanted_name(workload, &key.name));
    staffing.dismissals.extend(surplus.take(STEP_MAX));
    staffing
}

fn is_wanted_name(workload: &Workload, name: &str) -> bool {
    Workload::ordinal(&workload.meta.name, name).is_some_and(|ordinal| ordinal < workload.spec.replicas)
}

fn daemon_set(state: &State, workload: &Workload, nodes: &[Text]) -> Staffing {
    let nodes = nodes.iter().filter_map(|name| state.node(name));
    let lacking: BTreeSet<&Text> = lacking(state, workload, nodes).take(STEP_MAX).map(|node| &node.meta.name).collect();
    // A pod that has ended makes room for the next. No other pod is on these nodes.
    let ended = staff(state, workload).filter(|pod| pod.node().is_some_and(|node| lacking.contains(node)));
    let dismissals = ended.map(|pod| pod.key()).take(STEP_MAX).collect();
    let openings = lacking.iter().map(|node| Opening::On((*node).clone())).collect();
    Staffing { openings, dismissals, is_over: false }
}

/// The nodes among these on which a DaemonSet should have a pod and has none, not even one that is stopping. A pod
/// that has ended does not count.
pub fn lacking<'a>(
    state: &'a State,
    workload: &'a Workload,
    nodes: impl Iterator<Item = &'a Arc<Node>>,
) -> impl Iterator<Item = &'a Arc<Node>> {
    let staff = state.staff(workload.meta.uid).into_iter().flat_map(|staff| staff.keys());
    let is_there = |pod: &&Arc<Pod>| pod.is_terminating() || !pod.status.phase.is_final();
    let there = staff.filter_map(|key| state.pods().get(key)).filter(is_there);
    let served: BTreeSet<&Text> = there.filter_map(|pod| pod.node()).collect();
    let domain = Domain::of(workload);
    nodes.filter(move |node| domain.holds(node) && !served.contains(&node.meta.name))
}

/// On how many nodes a DaemonSet should have a pod, or how many pods another workload should have.
pub fn desired(state: &State, workload: &Workload) -> usize {
    match workload.kind {
        WorkloadKind::DaemonSet => {
            let domain = Domain::of(workload);
            state.nodes().iter().filter(|node| domain.holds(node)).count()
        }
        WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
            usize::try_from(workload.spec.replicas).unwrap_or(usize::MAX)
        }
    }
}

/// Nodes on which a DaemonSet belongs. A cordon and pressures do not keep it away (TE-12); other taints that it does
/// not tolerate do. It waits for the first Ready like every pod.
struct Domain<'a> {
    tolerations: Box<[Toleration]>,
    selector: Option<&'a Pairs>,
}

impl<'a> Domain<'a> {
    fn of(workload: &'a Workload) -> Self {
        let template = &workload.spec.template;
        let own = template.tolerations.as_deref().unwrap_or_default();
        let tolerations = toleration::with_daemon_defaults(own, template.host_network);
        Self { tolerations, selector: template.node_selector.as_ref() }
    }

    fn holds(&self, node: &Node) -> bool {
        let is_selected = self.selector.is_none_or(|selector| placement::selects(selector, node));
        let is_tolerated = || toleration::first_untolerated(&self.tolerations, &node.spec.taints).is_none();
        node.meta.deleted.is_none() && is_selected && is_tolerated()
    }
}

fn active<'a>(state: &'a State, workload: &Workload) -> impl Iterator<Item = Arc<Pod>> + use<'a> {
    staff(state, workload).filter(|pod| pod.is_active())
}

fn staff<'a>(state: &'a State, workload: &Workload) -> impl Iterator<Item = Arc<Pod>> + use<'a> {
    let staff = state.staff(workload.meta.uid).into_iter().flat_map(|staff| staff.keys());
    staff.filter_map(|key| state.pods().get(key)).cloned()
}

fn is_own(pod: &Pod, workload: &Workload) -> bool {
    pod.controller().is_some_and(|owner| owner.uid == workload.meta.uid)
}
