//! Consequences of a node's own state, in the same log entry that changed it.
//!
//! NoSchedule taints follow conditions and the cordon (TC-1, TC-2). One lifecycle NoExecute taint replaces the other
//! or goes when the node is back (NE-1 to NE-3, NE-7). The older labels say what the stable ones say (LB-1). None of
//! it needs a clock, a rate or a leader, so no leader can lag behind with it or forget it. A *new* NoExecute taint
//! does need a rate: it waits for [`LeaderOperation::EvictNode`](crate::command::LeaderOperation::EvictNode).

use crate::object::node::Node;
use crate::object::taint::Taint;
use crate::rule::condition_taint::{self, Absence, NoExecuteAction};
use crate::value::time::Stamp;

/// `before` are the taints that the node had: a taint that is removed and added back keeps its place and its time.
pub(crate) fn settle(node: &mut Node, before: &[Taint], now: Stamp) {
    for (label, value) in condition_taint::label_corrections(&node.meta.labels) {
        node.meta.labels.insert(label, value);
    }
    let mut taints = std::mem::take(&mut node.spec.taints).into_vec();
    settle_no_schedule(node, &mut taints, before, now);
    settle_no_execute(node, &mut taints, now);
    node.spec.taints = taints.into_boxed_slice();
}

fn settle_no_schedule(node: &Node, taints: &mut Vec<Taint>, before: &[Taint], now: Stamp) {
    let unschedulable = node.spec.unschedulable;
    let difference = condition_taint::no_schedule_difference(&node.status.conditions, unschedulable, taints, now);
    taints.retain(|taint| !difference.remove.iter().any(|selector| selector.matches(taint)));
    for wanted in difference.add {
        match before.iter().position(|known| known.is_same(&wanted)) {
            Some(place) => taints.insert(place.min(taints.len()), before[place].clone()),
            None => taints.push(wanted),
        }
    }
}

fn settle_no_execute(node: &Node, taints: &mut Vec<Taint>, now: Stamp) {
    match condition_taint::no_execute_action(&node.status.conditions, taints) {
        NoExecuteAction::Swap { from, to } => swap(taints, from, to, now),
        NoExecuteAction::Clear(absences) => absences.into_iter().for_each(|absence| lift(taints, absence)),
        NoExecuteAction::Enqueue(_) | NoExecuteAction::Nothing => {}
    }
}

/// The pods' countdown continues from the time of the replaced taint.
fn swap(taints: &mut Vec<Taint>, from: Absence, to: Absence, now: Stamp) {
    let selector = from.selector();
    let since = taints.iter().find(|taint| selector.matches(taint)).and_then(|taint| taint.added).unwrap_or(now);
    lift(taints, from);
    if !taints.iter().any(|taint| to.selector().matches(taint)) {
        taints.push(to.taint(since));
    }
}

pub(crate) fn lift(taints: &mut Vec<Taint>, absence: Absence) {
    taints.retain(|taint| !absence.selector().matches(taint));
}
