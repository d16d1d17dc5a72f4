//! Selectors: the nodes that an entry means, by name, or by zone, region and share.
//!
//! Selectors go by what the file itself has said up to that moment: which nodes were created and deleted, and which
//! zone labels they were given.

use std::collections::BTreeMap;

use muster_lifecycle::meta::Pairs;
use muster_lifecycle::text::Text;
use muster_lifecycle::zone::ZoneKey;

use super::node::label_value;
use crate::simulate::located::{Fault, Field, clipped};
use crate::simulate::world::MachineSpec;

/// The nodes that exist as far as the file says.
pub(super) struct Roster(BTreeMap<Text, Member>);

struct Member {
    labels: Pairs,
    present: bool,
    /// The node is created after the start.
    comes_later: bool,
}

/// Which nodes a selector considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    Present,
    Absent,
}

const FIELDS: [&str; 4] = ["zone", "region", "all", "percent"];

// === impl Roster ===

impl Roster {
    pub(super) fn new(machines: &[MachineSpec]) -> Self {
        let member =
            |spec: &MachineSpec| Member { labels: spec.labels.clone(), present: true, comes_later: spec.created > 0 };
        Self(machines.iter().map(|spec| (spec.name.clone(), member(spec))).collect())
    }

    pub(super) fn relabel(&mut self, nodes: &[Text], changes: &[(Text, Option<Text>)]) {
        for node in nodes {
            let Some(member) = self.0.get_mut(node) else { continue };
            for (key, value) in changes {
                match value {
                    Some(value) => drop(member.labels.insert(key.clone(), value.clone())),
                    None => drop(member.labels.remove(key)),
                }
            }
        }
    }

    pub(super) fn set_present(&mut self, nodes: &[Text], present: bool) {
        for node in nodes {
            if let Some(member) = self.0.get_mut(node) {
                member.present = present;
            }
        }
    }

    pub(super) fn comes_later(&self, node: &str) -> bool {
        self.0.get(node).is_some_and(|member| member.comes_later)
    }

    /// The nodes that the field means, by name or in the order given.
    pub(super) fn select(&self, field: &Field<'_>, among: Among) -> Result<Vec<Text>, Fault> {
        if field.is_map() {
            return self.matching(field, among);
        }
        if field.is_list() {
            let items = field.items()?;
            if items.is_empty() {
                return Err(field.fault("names no node: name at least one node, or leave the entry out"));
            }
            return items.iter().map(|item| self.named(item)).collect();
        }
        Ok(vec![self.named(field)?])
    }

    pub(super) fn named(&self, field: &Field<'_>) -> Result<Text, Fault> {
        let name = field.text()?;
        match self.0.get_key_value(name.as_str()) {
            Some((known, _)) => Ok(known.clone()),
            None => {
                let rule = "there is no node";
                Err(field.fault(format!("{rule} {:?}: name one of the nodes section", clipped(&name))))
            }
        }
    }

    fn matching(&self, field: &Field<'_>, among: Among) -> Result<Vec<Text>, Fault> {
        let fields = field.fields(&FIELDS)?;
        let zone = fields.get("zone").map(label_value).transpose()?;
        let region = fields.get("region").map(label_value).transpose()?;
        let all = fields.get("all").map_or(Ok(false), Field::truth)?;
        if zone.is_none() && region.is_none() && !all {
            return Err(field.fault("selects nothing: name zone, region or all: true"));
        }
        let is_meant = |member: &&Member| {
            let key = ZoneKey::from_labels(&member.labels);
            member.present == (among == Among::Present)
                && zone.as_ref().is_none_or(|zone| key.zone == **zone)
                && region.as_ref().is_none_or(|region| key.region == **region)
        };
        let meant: Vec<Text> =
            self.0.iter().filter(|(_, member)| is_meant(member)).map(|(name, _)| name.clone()).collect();
        if meant.is_empty() {
            return Err(field.fault("no node matches: check zone and region against the nodes section"));
        }
        let percent = fields.get("percent").map_or(Ok(100), |percent| percent.count(0, 100))?;
        let share = usize::try_from(meant.len() as u64 * percent / 100).unwrap_or(meant.len());
        Ok(meant.into_iter().take(share).collect())
    }
}
