//! Nodes as they are stored: found, checked, numbered, put, removed and published, with what is derived from them.

use std::sync::Arc;

use crate::apply::{Application, ApplyResult};
use crate::command::{Origin, Precondition, Receipt, ReceiptEffect};
use crate::object::event::NodeHappening;
use crate::object::kind::Kind;
use crate::object::node::{Incarnation, NODES_MAX, Node, Slot};
use crate::object::slot::FreeSlot;
use crate::rejection::{Limit, Rejection};
use crate::rule::{self, consequences, garbage, taint_eviction};
use crate::state::State;
use crate::store::change::Object;
use crate::value::meta::Revision;
use crate::value::text::Text;

/// How much of a name is quoted in a rejection: it may be any text.
pub(crate) const QUOTED_MAX: usize = 253;

impl Application<'_> {
    /// The node that a command is about, if it is the one that the caller saw.
    pub(crate) fn expect(&self, name: &Text, precondition: &Precondition) -> Result<Arc<Node>, Rejection> {
        let Some(node) = self.state.nodes.get(name) else {
            return Err(Rejection::NotFound { kind: Kind::Node, name: Text::clipped(name, QUOTED_MAX) });
        };
        self.check_precondition(Kind::Node, node.meta.name.clone(), &node.meta, precondition)?;
        Ok(node.clone())
    }

    /// The node that a message is about, if it has not been created anew since.
    pub(crate) fn incarnate(&self, name: &Text, expected: Incarnation) -> Result<Arc<Node>, Rejection> {
        let node = self.expect(name, &Precondition::default())?;
        match node.incarnation {
            actual if actual == expected => Ok(node),
            actual => Err(Rejection::OtherIncarnation { name: node.meta.name.clone(), expected, actual }),
        }
    }

    /// Stores a new node under a name that is free.
    pub(crate) fn create(&mut self, origin: &Origin, node: Node) -> ApplyResult {
        rule::node::node(&node)?;
        if self.state.nodes.contains(&node.meta.name) {
            return Err(Rejection::AlreadyExists { kind: Kind::Node, name: node.meta.name });
        }
        self.register(origin, node)
    }

    /// Stores a valid new node. Its slot and incarnation are taken last, so that a refusal leaves no trace.
    pub(crate) fn register(&mut self, origin: &Origin, mut node: Node) -> ApplyResult {
        consequences::settle(&mut node, &[], self.now);
        if self.state.nodes.len() >= NODES_MAX {
            return Err(Rejection::limit(Limit::Nodes, NODES_MAX));
        }
        self.require_uncontested(None, &node)?;
        node.meta.revision = self.next_revision();
        (node.slot, node.incarnation) = self.next_identity();
        rule::node::weight(origin, None, &node)?;
        self.take_identity(node.slot);
        self.address_new(&mut node);
        node.detach_texts(&mut self.state.derived.interner);
        let node = self.put_node(node);
        self.note(&node, NodeHappening::Registered { by: origin.author() });
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
        self.note(node, NodeHappening::Removed { by: origin.author() });
        Receipt { revision, effect: ReceiptEffect::Deleted }
    }

    fn note_cordon(&mut self, origin: &Origin, node: &Node) {
        let by = origin.author();
        let happening = match node.spec.unschedulable {
            true => NodeHappening::Cordoned { by },
            false => NodeHappening::Uncordoned { by },
        };
        self.note(node, happening);
    }

    /// The slot and incarnation that the next node will get.
    pub(crate) fn next_identity(&self) -> (Slot, Incarnation) {
        (self.state.next_slot(), Incarnation(self.state.counters.incarnations + 1))
    }

    /// Takes slot and incarnation for a node that is about to be stored.
    pub(crate) fn take_identity(&mut self, slot: Slot) {
        match self.state.free_slots.remove(&slot.index) {
            Some(_) => self.touch::<FreeSlot>(&slot.index),
            None => self.state.counters.slots += 1,
        }
        self.state.counters.incarnations += 1;
    }

    /// Stores a node under the next revision.
    pub(crate) fn put_node(&mut self, mut node: Node) -> Arc<Node> {
        node.meta.revision = self.next_revision();
        node.share_texts(&mut self.state.derived.interner);
        let node = Arc::new(node);
        let before = self.state.nodes.insert(node.clone());
        before.iter().for_each(|before| self.state.derived.leave(before));
        self.state.derived.enter(&node);
        if before.is_none() {
            self.claim_name(&node.meta.name, true);
        }
        self.wake_under(&node);
        self.follow_node(before.as_deref(), &node);
        self.touch::<Node>(&node.meta.name);
        self.publish(before.map(Object::Node), Some(Object::Node(node.clone())));
        node
    }

    /// Updates what depends on a node's addresses and taints.
    fn follow_node(&mut self, before: Option<&Node>, after: &Node) {
        let State { derived, pods, addressing, .. } = &mut *self.state;
        let plan = addressing.as_deref();
        let holding = |node: &Node| (node.spec.pod_cidrs.clone(), node.meta.deleted.is_some());
        if before.is_none_or(|before| holding(before) != holding(after)) {
            before.into_iter().for_each(|before| derived.addresses.leave(before, plan));
            derived.addresses.enter(after, plan);
            debug_assert!(!derived.addresses.is_contested(after), "{} shares addresses", after.meta.name);
        }
        if before.is_none_or(|before| concerns_pods(before, after)) {
            derived.pods.node_changed(&after.meta.name, Some(after), pods);
        }
    }

    fn claim_name(&mut self, name: &Text, is_claimed: bool) {
        if let Some(credential) = self.state.credentials.get(name) {
            self.state.derived.claim(credential, is_claimed);
        }
    }

    /// Removes a node and frees its slot.
    pub(crate) fn remove_node(&mut self, node: &Arc<Node>) -> Revision {
        self.state.nodes.remove(&node.meta.name);
        self.state.derived.leave(node);
        let State { derived, pods, addressing, .. } = &mut *self.state;
        derived.addresses.leave(node, addressing.as_deref());
        derived.pods.node_changed(&node.meta.name, None, pods);
        self.claim_name(&node.meta.name, false);
        self.rest_addresses(node);
        self.touch::<Node>(&node.meta.name);
        if let Some(free) = FreeSlot::after(node.slot) {
            self.state.free_slots.insert(Arc::new(free));
            self.touch::<FreeSlot>(&free.index);
        }
        self.publish(Some(Object::Node(node.clone())), None)
    }
}

/// Whether the change of the node may matter to its pods.
fn concerns_pods(before: &Node, after: &Node) -> bool {
    let (was, is) = (taint_eviction::no_execute(&before.spec.taints), taint_eviction::no_execute(&after.spec.taints));
    before.incarnation != after.incarnation
        || garbage::is_out_of_service(before) != garbage::is_out_of_service(after)
        || was.ne(is)
}
