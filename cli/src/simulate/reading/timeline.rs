//! The `timeline` section: what happens when, and to which nodes.

use std::collections::BTreeMap;

use muster_lifecycle::name;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::taint::TaintSelector;
use muster_lifecycle::text::Text;

use super::duration;
use super::node::{condition_status, label_value, taints};
use super::selection::{Among, Roster};
use crate::simulate::located::{Fault, Field, Fields, clipped};
use crate::simulate::scenario::{Action, Entry};
use crate::simulate::world::Millis;

const ENTRIES_MAX: usize = 100_000;

/// How many nodes all entries may name together, counting a node once per entry.
const MENTIONS_MAX: usize = 10_000_000;

const DOWNTIME_DEFAULT: Millis = 3_000;

/// The actions, and the fields that each takes.
const ACTIONS: [(&str, &[&str]); 12] = [
    ("silence", &["at", "do", "nodes"]),
    ("resume", &["at", "do", "nodes"]),
    ("post", &["at", "do", "nodes", "conditions"]),
    ("renew", &["at", "do", "nodes"]),
    ("taint", &["at", "do", "nodes", "taints"]),
    ("untaint", &["at", "do", "nodes", "taints"]),
    ("cordon", &["at", "do", "nodes"]),
    ("uncordon", &["at", "do", "nodes"]),
    ("label", &["at", "do", "nodes", "labels"]),
    ("delete", &["at", "do", "nodes"]),
    ("create", &["at", "do", "nodes"]),
    ("failover", &["at", "do", "downtime"]),
];

/// In order of time, and of the file within one moment.
pub(super) fn timeline(field: &Field<'_>, mut roster: Roster) -> Result<Vec<Entry>, Fault> {
    let items = field.items()?;
    if items.len() > ENTRIES_MAX {
        return Err(field.fault(format!("{} entries are too many: at most {ENTRIES_MAX}", items.len())));
    }
    let mut drafts = items.iter().map(Draft::read).collect::<Result<Vec<_>, _>>()?;
    drafts.sort_by_key(|draft| draft.at);
    let mut entries = Vec::new();
    let (mut mentions, mut leaderless_until) = (0, 0);
    for draft in drafts {
        let action = draft.action(&mut roster)?;
        mentions += action.nodes().len();
        if mentions > MENTIONS_MAX {
            return Err(draft.item.fault(format!("the timeline names more than {MENTIONS_MAX} nodes: select fewer")));
        }
        if let Action::Failover { downtime } = action {
            draft.expect_leader(leaderless_until)?;
            leaderless_until = draft.at.saturating_add(downtime);
        }
        entries.push(Entry { at: draft.at, action });
    }
    Ok(entries)
}

/// An entry whose nodes are still to be looked up, which has to wait for the entries before it.
struct Draft<'a> {
    item: &'a Field<'a>,
    at: Millis,
    word: &'static str,
    fields: Fields<'a>,
}

// === impl Draft ===

impl<'a> Draft<'a> {
    fn read(item: &'a Field<'a>) -> Result<Self, Fault> {
        let named = item.entries()?;
        let Some(entry) = named.iter().find(|entry| entry.name == "do") else {
            return Err(item.fault(format!("has no do: say what happens, one of {}", words())));
        };
        let word = entry.field.text()?;
        let Some((word, known)) = ACTIONS.into_iter().find(|(known, _)| *known == word) else {
            return Err(entry.field.fault(format!("{:?} is not one of {}", clipped(&word), words())));
        };
        let fields = item.fields(known)?;
        let at = duration(fields.require("at", "say when, such as at: 30s")?)?;
        Ok(Self { item, at, word, fields })
    }

    fn action(&self, roster: &mut Roster) -> Result<Action, Fault> {
        if self.word == "failover" {
            let downtime = self.fields.get("downtime").map_or(Ok(DOWNTIME_DEFAULT), duration)?;
            return Ok(Action::Failover { downtime });
        }
        let among = if self.word == "create" { Among::Absent } else { Among::Present };
        let field = self.fields.require("nodes", "say which nodes, such as nodes: [a-0] or nodes: {zone: z1}")?;
        let nodes = roster.select(field, among)?;
        Ok(match self.word {
            "silence" => Action::Silence(nodes),
            "resume" => Action::Resume(nodes),
            "post" => Action::Post(nodes, self.conditions()?),
            "renew" => Action::Renew(nodes),
            "taint" => Action::Taint(nodes, taints(self.taints()?)?),
            "untaint" => Action::Untaint(nodes, selectors(self.taints()?)?),
            "cordon" => Action::Cordon(nodes),
            "uncordon" => Action::Uncordon(nodes),
            "label" => {
                let labels = self.labels()?;
                roster.relabel(&nodes, &labels);
                Action::Label(nodes, labels)
            }
            "delete" => {
                roster.set_present(&nodes, false);
                Action::Delete(nodes)
            }
            _ => {
                roster.set_present(&nodes, true);
                Action::Create(nodes)
            }
        })
    }

    fn conditions(&self) -> Result<BTreeMap<Text, ConditionStatus>, Fault> {
        let field = self.fields.require("conditions", "say what it posts, such as conditions: {Ready: \"False\"}")?;
        let mut conditions = BTreeMap::new();
        for entry in field.entries()? {
            name::qualified_name(entry.name).map_err(|rule| entry.field.fault(rule))?;
            let text = entry.field.text()?;
            let wrong = || entry.field.fault(format!("{:?} is not one of True, False, Unknown", clipped(&text)));
            conditions.insert(Text::from(entry.name), condition_status(&text).ok_or_else(wrong)?);
        }
        Ok(conditions)
    }

    fn taints(&self) -> Result<&Field<'a>, Fault> {
        self.fields.require("taints", "say which, such as taints: [\"k=v:NoExecute\"]")
    }

    /// A label without a value is removed.
    fn labels(&self) -> Result<Vec<(Text, Option<Text>)>, Fault> {
        let field = self.fields.require("labels", "say which, such as labels: {k: v}")?;
        let mut labels = Vec::new();
        for entry in field.entries()? {
            name::qualified_name(entry.name).map_err(|rule| entry.field.fault(rule))?;
            let value = if entry.field.is_null() { None } else { Some(label_value(&entry.field)?) };
            labels.push((Text::from(entry.name), value));
        }
        Ok(labels)
    }

    fn expect_leader(&self, leaderless_until: Millis) -> Result<(), Fault> {
        match self.at < leaderless_until {
            true => Err(self.item.fault("no replica leads at that moment, so no leader can die: begin it later")),
            false => Ok(()),
        }
    }
}

fn selectors(field: &Field<'_>) -> Result<Vec<TaintSelector>, Fault> {
    let selector = |item: &Field<'_>| item.text()?.parse().map_err(|error| item.fault(error));
    field.items()?.iter().map(selector).collect()
}

fn words() -> String {
    ACTIONS.map(|(word, _)| word).join(", ")
}
