//! What happened, in the words of the output, and how it is written as JSON lines.

use std::collections::BTreeMap;
use std::io;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::node::{ConditionStatus, Node, READY};
use muster_lifecycle::policy::Rate;
use muster_lifecycle::state::State;
use muster_lifecycle::taint::Taint;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::{ZoneKey, ZoneState};
use serde::Serialize;

use super::scenario::PodSpec;
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
    /// Something that was asked for is against the law. No line of the JSON output: it is said on stderr.
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

/// How things stand at the end.
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
    pub node: Text,
    pub phase: &'static str,
    pub terminating: bool,
}

/// What stands for a condition that is not there, as in the scenario file.
pub const NONE: &str = "none";

// === from what was committed ===

/// What a change of a node means to onlookers: its conditions, Ready first, then its taints.
pub fn of_change(change: &Change) -> Vec<What> {
    let before = match &change.before {
        Some(Object::Node(node)) => Some(node.as_ref()),
        Some(Object::Event(_)) | None => None,
    };
    match &change.after {
        Some(Object::Node(after)) => conditions(before, after).chain(taints(before, after)).collect(),
        Some(Object::Event(_)) | None => Vec::new(),
    }
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

/// NE-7: of two that take each other's place the new one comes first.
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
    pub fn of(state: &State, pods: &BTreeMap<Text, PodSpec>) -> Self {
        let node = |node: &Node| NodeEnding {
            ready: shown(node.status.ready().map(|ready| ready.status)),
            taints: node.spec.taints.iter().map(Taint::to_string).collect(),
        };
        let pod = |spec: &PodSpec| PodEnding { node: spec.node.clone(), phase: "Running", terminating: false };
        Self {
            nodes: state.nodes().iter().map(|found| (found.meta.name.clone(), node(found))).collect(),
            zones: state.zones().iter().map(|zone| (zone.key.to_string(), zone.zone.state.as_str())).collect(),
            pods: pods.iter().map(|(name, spec)| (name.clone(), pod(spec))).collect(),
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
    /// One line of the JSON output; `None` for what is not part of it.
    pub fn to_json(&self) -> Result<Option<String>, io::Error> {
        let line = match &self.what {
            What::Condition { node, kind, from, to, reason } => {
                let body = ConditionBody { node, r#type: kind, from: shown(*from), to: to.as_str(), reason };
                line(self.at, "condition", body)
            }
            What::Taint { node, taint, action } => line(self.at, "taint", TaintBody { node, taint, action: *action }),
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
        let cases = [
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
