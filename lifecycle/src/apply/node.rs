//! Commands of operators about Nodes.
//!
//! Every change goes the same way: find the node and check the precondition, build the node as it would be, and
//! [`commit`](Application::commit) it, which validates, numbers and publishes it.

mod addresses;
mod eviction;
mod registration;
mod silence;
mod status;
mod stored;

use std::collections::BTreeSet;

use crate::apply::node::stored::QUOTED_MAX;
use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, Precondition};
use crate::object::node::{Node, NodeDraft, NodeStatus};
use crate::object::taint::{self, Taint, TaintSelector};
use crate::rehearsal;
use crate::rule;
use crate::value::invalid::Invalid;
use crate::value::meta::{Pairs, Uid};
use crate::value::text::Text;
use crate::value::violation::{NodeViolation, ValueViolation};

type PairChanges = [(Text, Option<Text>)];

impl Application<'_> {
    pub(crate) fn create_node(&mut self, origin: &Origin, draft: &NodeDraft, uid: Uid) -> ApplyResult {
        self.create(origin, draft.to_new_node(uid, self.now))
    }

    pub(crate) fn apply_node(
        &mut self,
        origin: &Origin,
        draft: &NodeDraft,
        uid: Uid,
        precondition: &Precondition,
    ) -> ApplyResult {
        let is_new = !self.state.nodes.contains(&draft.name);
        if is_new && *precondition == Precondition::default() {
            return self.create_node(origin, draft, uid);
        }
        let before = self.expect(&draft.name, precondition)?;
        let after = draft.applied_to(&before, self.now);
        self.commit(origin, &before, after)
    }

    pub(crate) fn replace_node(
        &mut self,
        origin: &Origin,
        draft: &NodeDraft,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(&draft.name, precondition)?;
        let after = draft.in_place_of(&before, self.now);
        self.commit(origin, &before, after)
    }

    pub(crate) fn replace_node_status(
        &mut self,
        origin: &Origin,
        name: &Text,
        status: &NodeStatus,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        rule::node::addresses_once(&status.addresses)?;
        let mut after = Node { status: status.clone(), ..before.as_ref().clone() };
        after.status.settle_times(&before.status, self.now);
        self.require_stopped(Some(before.as_ref()), &after, None)?;
        self.commit(origin, &before, after)
    }

    pub(crate) fn label_node(
        &mut self,
        origin: &Origin,
        name: &Text,
        changes: &PairChanges,
        overwrite: bool,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        let mut after = before.as_ref().clone();
        rehearsal::check_labels(self.state.level(), changes)?;
        change_pairs(&mut after.meta.labels, "metadata.labels", changes, overwrite)?;
        self.commit(origin, &before, after)
    }

    pub(crate) fn annotate_node(
        &mut self,
        origin: &Origin,
        name: &Text,
        changes: &PairChanges,
        overwrite: bool,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        let mut after = before.as_ref().clone();
        change_pairs(&mut after.meta.annotations, "metadata.annotations", changes, overwrite)?;
        self.commit(origin, &before, after)
    }

    pub(crate) fn taint_node(
        &mut self,
        origin: &Origin,
        name: &Text,
        add: &[Taint],
        remove: &[TaintSelector],
        overwrite: bool,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        let mut taints = before.spec.taints.to_vec();
        remove_taints(&mut taints, remove)?;
        add_taints(&mut taints, add, overwrite)?;
        taint::settle_times(&mut taints, &before.spec.taints, self.now);
        let mut after = before.as_ref().clone();
        after.spec.taints = taints.into_boxed_slice();
        self.commit(origin, &before, after)
    }

    pub(crate) fn cordon_node(
        &mut self,
        origin: &Origin,
        name: &Text,
        unschedulable: bool,
        precondition: &Precondition,
    ) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        let mut after = before.as_ref().clone();
        after.spec.unschedulable = unschedulable;
        self.commit(origin, &before, after)
    }

    /// With finalizers, a delete only marks the node. The node goes with the last finalizer.
    pub(crate) fn delete_node(&mut self, origin: &Origin, name: &Text, precondition: &Precondition) -> ApplyResult {
        let before = self.expect(name, precondition)?;
        let mut after = before.as_ref().clone();
        after.meta.deleted = after.meta.deleted.or(Some(self.now));
        self.commit(origin, &before, after)
    }
}

fn change_pairs(pairs: &mut Pairs, field: &str, changes: &PairChanges, overwrite: bool) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (key, value) in changes {
        let quoted = || Text::clipped(key, QUOTED_MAX);
        if !seen.insert(key) {
            return Err(Invalid::new(field, ValueViolation::NamedTwice { key: quoted() }));
        }
        let Some(value) = value else {
            pairs.remove(key);
            continue;
        };
        match pairs.insert(key.clone(), value.clone()) {
            Some(known) if known != *value && !overwrite => {
                let (key, known) = (quoted(), Text::clipped(&known, 128));
                return Err(Invalid::new(field, ValueViolation::HasOtherValue { key, known }));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn remove_taints(taints: &mut Vec<Taint>, remove: &[TaintSelector]) -> Result<(), Invalid> {
    for selector in remove {
        let count = taints.len();
        taints.retain(|taint| !selector.matches(taint));
        if taints.len() == count {
            let taint = Text::clipped(&selector.to_string(), 400);
            return Err(Invalid::new("spec.taints", NodeViolation::NoSuchTaint { taint }));
        }
    }
    Ok(())
}

fn add_taints(taints: &mut Vec<Taint>, add: &[Taint], overwrite: bool) -> Result<(), Invalid> {
    for (index, taint) in add.iter().enumerate() {
        // The result of two additions in one command must not depend on their order.
        if add[..index].iter().any(|earlier| earlier.is_same(taint)) {
            let key = Text::clipped(&taint.to_string(), 400);
            return Err(Invalid::new("spec.taints", ValueViolation::NamedTwice { key }));
        }
        let known = taints.iter().find(|own| own.is_same(taint));
        if let Some(known) = known.filter(|known| known.value != taint.value && !overwrite) {
            let taint = Text::from(known.to_string());
            return Err(Invalid::new("spec.taints", NodeViolation::TaintThere { taint }));
        }
        taint::add_or_update(taints, taint.clone());
    }
    Ok(())
}
