//! Commands about Nodes.
//!
//! Every change goes the same way: find the node and check the precondition, build the node as it would be, and
//! [`commit`](Application::commit) it, which validates, numbers and publishes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::object::kind::Kind;
use crate::object::node::{NODES_MAX, Node, NodeDraft, NodeStatus};
use crate::object::taint::{self, Taint, TaintSelector};
use crate::rejection::Rejection;
use crate::rule;
use crate::rule::consequences;
use crate::value::invalid::Invalid;
use crate::value::meta::{ObjectMeta, Pairs, Uid};
use crate::value::text::Text;

const REGISTERED: &str = "RegisteredNode";
const REMOVING: &str = "RemovingNode";
const NOT_SCHEDULABLE: &str = "NodeNotSchedulable";
const SCHEDULABLE: &str = "NodeSchedulable";

/// How much of a name is quoted in a rejection: it may be any text.
const QUOTED_MAX: usize = 253;

type PairChanges = [(Text, Option<Text>)];

// === the commands ===

impl Application<'_> {
    pub(crate) fn create_node(&mut self, origin: &Origin, draft: &NodeDraft, uid: Uid) -> ApplyResult {
        self.create(origin, draft.to_new_node(uid, self.now))
    }

    /// Stores a new node under a name that is free.
    pub(crate) fn create(&mut self, origin: &Origin, node: Node) -> ApplyResult {
        rule::node::node(&node)?;
        if self.state.nodes.contains(&node.meta.name) {
            return Err(Rejection::AlreadyExists { kind: Kind::Node, name: node.meta.name });
        }
        self.register(origin, node)
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

// === what they have in common ===

impl Application<'_> {
    /// The node that a command is about, if it is the one that the caller saw.
    pub(crate) fn expect(&self, name: &Text, precondition: &Precondition) -> Result<Arc<Node>, Rejection> {
        let Some(node) = self.state.nodes.get(name) else {
            return Err(Rejection::NotFound { kind: Kind::Node, name: Text::clipped(name, QUOTED_MAX) });
        };
        self.check_precondition(Kind::Node, node.meta.name.clone(), &node.meta, precondition)?;
        Ok(node.clone())
    }

    /// Whether an object is the one that the caller saw.
    pub(crate) fn check_precondition(
        &self,
        kind: Kind,
        name: Text,
        meta: &ObjectMeta,
        precondition: &Precondition,
    ) -> Result<(), Rejection> {
        if let Some(expected) = precondition.uid.filter(|uid| *uid != meta.uid) {
            return Err(Rejection::OtherUid { kind, name, expected, actual: meta.uid });
        }
        if let Some(expected) = precondition.revision.filter(|revision| *revision != meta.revision) {
            return Err(Rejection::Conflict { kind, name, expected, actual: meta.revision });
        }
        Ok(())
    }

    /// Stores a valid new node. Its slot and incarnation are taken last, so that a refusal leaves no trace.
    pub(crate) fn register(&mut self, origin: &Origin, mut node: Node) -> ApplyResult {
        consequences::settle(&mut node, &[], self.now);
        if self.state.nodes.len() >= NODES_MAX {
            return Err(Rejection::LimitReached { what: Text::from("nodes"), limit: NODES_MAX as u64 });
        }
        self.require_uncontested(None, &node)?;
        node.meta.revision = self.next_revision();
        (node.slot, node.incarnation) = self.next_identity();
        rule::node::weight(origin, None, &node)?;
        self.take_identity(node.slot);
        self.address_new(&mut node);
        node.detach_texts(&mut self.state.derived.interner);
        let node = self.put_node(node);
        self.note(&node, REGISTERED, format!("node {} was registered by {origin}", node.meta.name));
        self.note_unaddressed(&node);
        Ok(Receipt { revision: node.meta.revision, effect: ReceiptEffect::Created })
    }

    /// Stores `after` in place of `before` if it differs and the rules allow it.
    pub(crate) fn commit(&mut self, origin: &Origin, before: &Arc<Node>, mut after: Node) -> ApplyResult {
        // Before the consequences are added, so that a refusal counts only the caller's taints.
        rule::node::node(&after)?;
        rule::node::update(before, &after)?;
        consequences::settle(&mut after, &before.spec.taints, self.now);
        if after == **before {
            return Ok(Receipt { revision: before.meta.revision, effect: ReceiptEffect::Unchanged });
        }
        if after.meta.deleted.is_some() && after.meta.finalizers.is_empty() {
            return Ok(self.bury(origin, before));
        }
        if after.spec != before.spec {
            after.meta.generation += 1;
        }
        self.require_uncontested(Some(before.as_ref()), &after)?;
        after.meta.revision = self.next_revision();
        rule::node::weight(origin, Some(before.as_ref()), &after)?;
        let after = self.put_node(after);
        if after.spec.unschedulable != before.spec.unschedulable {
            self.note_cordon(origin, &after);
        }
        Ok(Receipt { revision: after.meta.revision, effect: ReceiptEffect::Changed })
    }

    fn bury(&mut self, origin: &Origin, node: &Arc<Node>) -> Receipt {
        self.release_tenants(node);
        let revision = self.remove_node(node);
        self.note(node, REMOVING, format!("node {} was removed by {origin}", node.meta.name));
        Receipt { revision, effect: ReceiptEffect::Deleted }
    }

    fn note_cordon(&mut self, origin: &Origin, node: &Node) {
        let (reason, verb) = match node.spec.unschedulable {
            true => (NOT_SCHEDULABLE, "cordoned"),
            false => (SCHEDULABLE, "uncordoned"),
        };
        self.note(node, reason, format!("node {} was {verb} by {origin}", node.meta.name));
    }
}

fn change_pairs(pairs: &mut Pairs, field: &str, changes: &PairChanges, overwrite: bool) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (key, value) in changes {
        let quoted = || Text::clipped(key, QUOTED_MAX);
        if !seen.insert(key) {
            return Err(Invalid::new(field, format!("{:?} is named twice in one command", quoted())));
        }
        let Some(value) = value else {
            pairs.remove(key);
            continue;
        };
        match pairs.insert(key.clone(), value.clone()) {
            Some(known) if known != *value && !overwrite => {
                let known = Text::clipped(&known, 128);
                let rule = format!("{:?} already has the value {known:?}; --overwrite changes it", quoted());
                return Err(Invalid::new(field, rule));
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
            let shown = Text::clipped(&selector.to_string(), 400);
            return Err(Invalid::new("spec.taints", format!("taint {:?} not found", shown)));
        }
    }
    Ok(())
}

fn add_taints(taints: &mut Vec<Taint>, add: &[Taint], overwrite: bool) -> Result<(), Invalid> {
    for (index, taint) in add.iter().enumerate() {
        // The result of two additions in one command must not depend on their order.
        if add[..index].iter().any(|earlier| earlier.is_same(taint)) {
            let shown = Text::clipped(&taint.to_string(), 400);
            return Err(Invalid::new("spec.taints", format!("{shown:?} is named twice in one command")));
        }
        let known = taints.iter().find(|own| own.is_same(taint));
        if let Some(known) = known.filter(|known| known.value != taint.value && !overwrite) {
            let rule = format!("\"{known}\" is already there; --overwrite changes its value");
            return Err(Invalid::new("spec.taints", rule));
        }
        taint::add_or_update(taints, taint.clone());
    }
    Ok(())
}
