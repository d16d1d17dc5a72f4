//! A scenario: the nodes and pods at the start, and what happens to them when.

use std::collections::BTreeMap;

use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::policy::Policy;
use muster_lifecycle::taint::{Taint, TaintSelector};
use muster_lifecycle::text::Text;

use super::world::{MachineSpec, Millis, PodSpec};

#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub policy: Policy,
    /// By name.
    pub machines: Vec<MachineSpec>,
    /// By name.
    pub pods: BTreeMap<Text, PodSpec>,
    /// In order of time, and of the file within one moment.
    pub timeline: Vec<Entry>,
    pub until: Millis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub at: Millis,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Silence(Vec<Text>),
    Resume(Vec<Text>),
    Post(Vec<Text>, BTreeMap<Text, ConditionStatus>),
    Renew(Vec<Text>),
    Taint(Vec<Text>, Vec<Taint>),
    Untaint(Vec<Text>, Vec<TaintSelector>),
    Cordon(Vec<Text>),
    Uncordon(Vec<Text>),
    /// `None` removes a label.
    Label(Vec<Text>, Vec<(Text, Option<Text>)>),
    Delete(Vec<Text>),
    Create(Vec<Text>),
    Failover {
        downtime: Millis,
    },
}

impl Entry {
    /// Whether the action is about nodes, but about none of them.
    pub fn is_idle(&self) -> bool {
        !matches!(self.action, Action::Failover { .. }) && self.action.nodes().is_empty()
    }
}

impl Action {
    /// The nodes that the action concerns.
    pub fn nodes(&self) -> &[Text] {
        match self {
            Self::Silence(nodes)
            | Self::Resume(nodes)
            | Self::Post(nodes, _)
            | Self::Renew(nodes)
            | Self::Taint(nodes, _)
            | Self::Untaint(nodes, _)
            | Self::Cordon(nodes)
            | Self::Uncordon(nodes)
            | Self::Label(nodes, _)
            | Self::Delete(nodes)
            | Self::Create(nodes) => nodes,
            Self::Failover { .. } => &[],
        }
    }
}
