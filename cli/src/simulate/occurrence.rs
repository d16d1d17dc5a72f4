//! Occurrences: what happened, in the words of the output, and how it is written as JSON lines.

use std::collections::BTreeMap;
use std::io;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::node::{ConditionStatus, Node, READY};
use muster_lifecycle::pod::{Pod, PodKey};
use muster_lifecycle::policy::Rate;
use muster_lifecycle::record::Stored;
use muster_lifecycle::state::State;
use muster_lifecycle::taint::Taint;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::{ZoneKey, ZoneState};
use serde::Serialize;

use super::world::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    pub at: Millis,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Condition {
        node: Text,
        kind: Text,
        from: Option<ConditionStatus>,
        to: ConditionStatus,
        reason: Text,
    },
    Taint {
        node: Text,
        taint: String,
        action: TaintAction,
    },
    Pod {
        pod: Text,
        node: Option<Text>,
        action: PodAction,
        /// The taint that causes the eviction.
        taint: Option<String>,
    },
    Zone {
        zone: ZoneKey,
        from: ZoneState,
        to: ZoneState,
    },
    Rate {
        zone: ZoneKey,
        rate: Rate,
    },
    Leader {
        term: u64,
    },
    /// A rule refused an operation. It has no line in the JSON output; it goes to stderr.
    Refused {
        what: String,
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaintAction {
    Added,
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PodAction {
    Created,
    Bound,
    Ready,
    Unready,
    /// A taint evicts the pod: it is to stop.
    Evicted,
    /// The pod is to stop for another reason.
    Deleted,
    Gone,
}

/// The final state of the world.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ending {
    pub nodes: BTreeMap<Text, NodeEnding>,
    pub zones: BTreeMap<String, &'static str>,
    pub pods: BTreeMap<Text, PodEnding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeEnding {
    pub ready: &'static str,
    pub taints: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodEnding {
    /// `None` while the pod waits to be placed.
    pub node: Option<Text>,
    pub phase: &'static str,
    pub ready: bool,
    pub terminating: bool,
}

/// The word for a condition that is absent, as in the scenario file.
pub const NONE: &str = "none";

// === from what was committed ===

/// The occurrences that follow from a change. Of a node: its conditions, Ready first, then its taints. `causes` says
/// which taint evicts a pod.
pub fn of_change(change: &Change, causes: &mut BTreeMap<PodKey, String>) -> Vec<What> {
    match (&change.before, &change.after) {
        (None, Some(Object::Node(after))) => node(None, after),
        (Some(Object::Node(before)), Some(Object::Node(after))) => node(Some(before), after),
        (None, Some(Object::Pod(after))) => pod(None, after, None),
        (Some(Object::Pod(before)), Some(Object::Pod(after))) => pod(Some(before), after, causes.remove(&after.key())),
        (Some(Object::Pod(before)), None) => vec![what(before, PodAction::Gone, None)],
        (Some(_) | None, Some(_) | None) => Vec::new(),
    }
}

fn node(before: Option<&Node>, after: &Node) -> Vec<What> {
    conditions(before, after).chain(taints(before, after)).collect()
}

/// What is new about the pod. A pod that stops has only that one occurrence.
fn pod(before: Option<&Pod>, after: &Pod, cause: Option<String>) -> Vec<What> {
    if after.is_terminating() && !before.is_some_and(Pod::is_terminating) {
        let action = if cause.is_some() { PodAction::Evicted } else { PodAction::Deleted };
        return vec![what(after, action, cause)];
    }
    let is_bound = before.is_some_and(|before| before.node().is_none()) && after.node().is_some();
    let was_ready = before.is_some_and(Pod::is_ready);
    [
        (before.is_none(), PodAction::Created),
        (is_bound, PodAction::Bound),
        (!was_ready && after.is_ready(), PodAction::Ready),
        (was_ready && !after.is_ready(), PodAction::Unready),
    ]
    .into_iter()
    .filter(|(is_so, _)| *is_so)
    .map(|(_, action)| what(after, action, None))
    .collect()
}

fn what(pod: &Pod, action: PodAction, taint: Option<String>) -> What {
    What::Pod { pod: pod.meta.name.clone(), node: pod.node().cloned(), action, taint }
}

fn conditions<'a>(before: Option<&'a Node>, after: &'a Node) -> impl Iterator<Item = What> + 'a {
    let (ready, others): (Vec<_>, Vec<_>) =
        after.status.conditions.iter().partition(|condition| condition.kind == READY);
    ready.into_iter().chain(others).filter_map(move |condition| {
        let from = before.and_then(|before| before.status.condition(&condition.kind)).map(|known| known.status);
        (from != Some(condition.status)).then(|| What::Condition {
            node: after.meta.name.clone(),
            kind: condition.kind.clone(),
            from,
            to: condition.status,
            reason: condition.reason.clone(),
        })
    })
}

/// NE-7: of two taints that replace each other the new one comes first.
fn taints<'a>(before: Option<&'a Node>, after: &'a Node) -> impl Iterator<Item = What> + 'a {
    let known: &[Taint] = before.map_or(&[], |before| &before.spec.taints);
    let is_in = |taints: &[Taint], wanted: &Taint| {
        taints.iter().any(|taint| taint.is_same(wanted) && taint.value == wanted.value)
    };
    let what = |taint: &Taint, action| What::Taint { node: after.meta.name.clone(), taint: taint.to_string(), action };
    let added = after.spec.taints.iter().filter(move |taint| !is_in(known, taint));
    let removed = known.iter().filter(move |taint| !is_in(&after.spec.taints, taint));
    added
        .map(move |taint| what(taint, TaintAction::Added))
        .chain(removed.map(move |taint| what(taint, TaintAction::Removed)))
}

impl Ending {
    pub fn of(state: &State) -> Self {
        let node = |node: &Node| NodeEnding {
            ready: shown(node.status.ready().map(|ready| ready.status)),
            taints: node.spec.taints.iter().map(Taint::to_string).collect(),
        };
        let pod = |pod: &Pod| PodEnding {
            node: pod.node().cloned(),
            phase: pod.status.phase.as_str(),
            ready: pod.is_ready(),
            terminating: pod.is_terminating(),
        };
        Self {
            nodes: state.nodes().iter().map(|found| (found.meta.name.clone(), node(found))).collect(),
            zones: state.zones().iter().map(|zone| (zone.key.to_string(), zone.zone.state.as_str())).collect(),
            pods: state.pods().iter().map(|found| (found.meta.name.clone(), pod(found))).collect(),
        }
    }
}

pub fn shown(status: Option<ConditionStatus>) -> &'static str {
    status.map_or(NONE, ConditionStatus::as_str)
}

// === JSON lines ===

#[derive(Serialize)]
struct Line<T> {
    at: f64,
    event: &'static str,
    #[serde(flatten)]
    body: T,
}

#[derive(Serialize)]
struct ConditionBody<'a> {
    node: &'a str,
    r#type: &'a str,
    from: &'static str,
    to: &'static str,
    reason: &'a str,
}

#[derive(Serialize)]
struct TaintBody<'a> {
    node: &'a str,
    taint: &'a str,
    action: TaintAction,
}

#[derive(Serialize)]
struct PodBody<'a> {
    pod: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a Text>,
    action: PodAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    taint: Option<&'a str>,
}

#[derive(Serialize)]
struct ZoneBody {
    zone: String,
    from: &'static str,
    to: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RateBody {
    zone: String,
    per_second: f64,
}

#[derive(Serialize)]
struct LeaderBody {
    term: u64,
}

impl Occurrence {
    /// One line of the JSON output; `None` for an occurrence that is not part of it.
    pub fn to_json(&self) -> Result<Option<String>, io::Error> {
        let line = match &self.what {
            What::Condition { node, kind, from, to, reason } => {
                let body = ConditionBody { node, r#type: kind, from: shown(*from), to: to.as_str(), reason };
                line(self.at, "condition", body)
            }
            What::Taint { node, taint, action } => line(self.at, "taint", TaintBody { node, taint, action: *action }),
            What::Pod { pod, node, action, taint } => {
                let body = PodBody { pod, node: node.as_ref(), action: *action, taint: taint.as_deref() };
                line(self.at, "pod", body)
            }
            What::Zone { zone, from, to } => {
                line(self.at, "zone", ZoneBody { zone: zone.to_string(), from: from.as_str(), to: to.as_str() })
            }
            What::Rate { zone, rate } => {
                line(self.at, "rate", RateBody { zone: zone.to_string(), per_second: rate.0 as f64 / 1_000_000.0 })
            }
            What::Leader { term } => line(self.at, "leader", LeaderBody { term: *term }),
            What::Refused { .. } => return Ok(None),
        };
        line.map(Some)
    }
}

impl Ending {
    pub fn to_json(&self, at: Millis) -> Result<String, io::Error> {
        line(at, "end", self)
    }
}

/// Thousandths of a second are exact in the shortest form of the quotient, for longer than any simulation lasts.
fn line(at: Millis, event: &'static str, body: impl Serialize) -> Result<String, io::Error> {
    serde_json::to_string(&Line { at: at as f64 / 1_000.0, event, body }).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_documented_shape() {
        let condition = What::Condition {
            node: Text::from("a-0"),
            kind: Text::from("Ready"),
            from: Some(ConditionStatus::True),
            to: ConditionStatus::Unknown,
            reason: Text::from("NodeStatusUnknown"),
        };
        let zone: ZoneKey = "r1/z1".parse().unwrap();
        let added = TaintAction::Added;
        let taint = What::Taint { node: Text::from("a-0"), taint: "k=v:NoExecute".into(), action: added };
        let pod = |action, taint: Option<&str>| What::Pod {
            pod: Text::from("p-0"),
            node: taint.map(|_| Text::from("a-0")),
            action,
            taint: taint.map(str::to_owned),
        };
        let cases = [
            (
                361_000,
                pod(PodAction::Evicted, Some("k:NoExecute")),
                r#"{"at":361.0,"event":"pod","pod":"p-0","node":"a-0","action":"evicted","taint":"k:NoExecute"}"#,
            ),
            (361_000, pod(PodAction::Created, None), r#"{"at":361.0,"event":"pod","pod":"p-0","action":"created"}"#),
            (
                61_000,
                condition,
                r#"{"at":61.0,"event":"condition","node":"a-0","type":"Ready","from":"True","to":"Unknown","reason":"NodeStatusUnknown"}"#,
            ),
            (61_250, taint, r#"{"at":61.25,"event":"taint","node":"a-0","taint":"k=v:NoExecute","action":"added"}"#),
            (
                0,
                What::Zone { zone: zone.clone(), from: ZoneState::Initial, to: ZoneState::Normal },
                r#"{"at":0.0,"event":"zone","zone":"r1/z1","from":"Initial","to":"Normal"}"#,
            ),
            (
                1,
                What::Rate { zone, rate: Rate(10_000) },
                r#"{"at":0.001,"event":"rate","zone":"r1/z1","perSecond":0.01}"#,
            ),
            (31_622_400_001, What::Leader { term: 2 }, r#"{"at":31622400.001,"event":"leader","term":2}"#),
        ];
        for (at, what, expected) in cases {
            assert_eq!(Occurrence { at, what }.to_json().unwrap().as_deref(), Some(expected));
        }
    }
}
