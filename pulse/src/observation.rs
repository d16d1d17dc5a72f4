//! A leader's observation of a node, for `explain`: its last beat, and every excuse that holds back a verdict.
//!
//! It is built from the functions by which the leader judges, so that an explanation and a verdict cannot differ.

use muster_lifecycle::explain::{EXCUSES_SHOWN_MAX, ExcuseNote, NodeObservation};
use muster_lifecycle::health::{Evidence, Excuse};
use muster_lifecycle::node::Node;
use muster_lifecycle::state::State;

use crate::blindness::{Blindness, Trace};
use crate::excuse::InForce;
use crate::moment::Moment;
use crate::monitor::PulseMonitor;
use crate::node_watch::{self, NodeWatch};

pub fn of_node(state: &State, node: &Node, pulses: &PulseMonitor, moment: Moment) -> NodeObservation {
    let blindness = pulses.blindness();
    let since = node_watch::unheard_since(blindness.leads_since(), node, moment);
    let trace = NodeWatch::new(node, since).trace(&pulses.tables());
    let blind = node_watch::excuse(&blindness, trace, moment);
    let unplaced = fresh_grace(state, node, &blindness, trace, moment);
    NodeObservation {
        heard: node_watch::sighting(trace, moment),
        excuse: blind.into_iter().chain(unplaced).max_by_key(|excuse| excuse.end()),
        excuses: excuses(&blindness, moment, trace),
        note: None,
        now: moment.stamp,
    }
}

/// The excuses in force that concern every node.
pub fn of_all_nodes(pulses: &PulseMonitor, moment: Moment) -> Vec<ExcuseNote> {
    let mut excuses = excuses(&pulses.blindness(), moment, Trace::Unplaced { since: moment.tick });
    excuses.retain(|note| note.concerns_this_node);
    excuses
}

/// A node that cannot be placed was not heard. It is judged as if it had been, at the moment when that became clear.
fn fresh_grace(state: &State, node: &Node, blindness: &Blindness, trace: Trace, moment: Moment) -> Option<Excuse> {
    let Trace::Unplaced { .. } = trace else { return None };
    let blind_until = moment.cluster_time_of(blindness.silent_since(trace, moment.tick));
    let conditions = &node.status.conditions;
    let (created, now) = (node.meta.created, moment.stamp);
    let evidence = Evidence { conditions, created, heard: Some(blind_until), excuse: None, now };
    Some(Excuse { blind_until, reattach_window: evidence.grace(state.policy()) })
}

/// Every excuse in force, in words, for a node with this trace.
fn excuses(blindness: &Blindness, moment: Moment, trace: Trace) -> Vec<ExcuseNote> {
    let note = |in_force: InForce| ExcuseNote {
        text: in_words(&in_force),
        until: moment.cluster_time_of(in_force.until),
        concerns_this_node: blindness.concerns(in_force.cause, trace, moment.tick),
    };
    blindness.in_force(moment.tick).take(EXCUSES_SHOWN_MAX).map(note).collect()
}

fn in_words(in_force: &InForce) -> String {
    match in_force.ended {
        None => in_force.cause.to_string(),
        Some(_) => format!("{}; that is over, and agents are given time to come back", in_force.cause),
    }
}
