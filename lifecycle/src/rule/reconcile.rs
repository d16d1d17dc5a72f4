//! Reconciliation (RG-4): an agent's registration changes only what describes the machine of a Node that exists.
//!
//! `apply` asks this for a registration. A replica asks the same beforehand, so that a fleet of agents that start
//! again writes nothing where nothing changed.

use crate::object::node::{Node, NodeDraft};
use crate::rule::node_restriction::MACHINE_LABELS;
use crate::value::meta::Pairs;
use crate::value::text::Text;

/// The labels of the machine that differ from its agent's description. Labels that the agent does not mention stay.
pub(crate) fn outdated_labels(known: &Pairs, described: Option<&Pairs>) -> Vec<(Text, Text)> {
    let described = |key: &'static str| described.and_then(|described| described.get(key)).map(|value| (key, value));
    let outdated = |(key, value): &(&str, &Text)| known.get(key) != Some(value);
    let labels = MACHINE_LABELS.into_iter().filter_map(described).filter(outdated);
    labels.map(|(key, value)| (Text::from(key), value.clone())).collect()
}

/// The part of `draft` that must be registered for the `known` Node; `None` if it would change nothing. The status is
/// left out: it is reported separately, and may be refused for a while. A draft of another node passes: `apply`
/// refuses it.
pub fn reconciliation(known: &Node, draft: NodeDraft) -> Option<NodeDraft> {
    let is_another = draft.name != known.meta.name;
    let is_news = is_another || !outdated_labels(&known.meta.labels, draft.labels.as_ref()).is_empty();
    is_news.then_some(NodeDraft { status: None, ..draft })
}
