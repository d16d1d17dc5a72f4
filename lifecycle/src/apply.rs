//! Application of a batch to the state.
//!
//! This file holds what every command goes through: its place in time, its term, its retries, and the bookkeeping of
//! revisions, watchers and touched records. The files of `apply/` hold what each command means.

mod addressing;
mod eviction;
mod lifecycle;
mod node;
mod pod;
mod policy;
mod replica;
mod status;
mod trust;
mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::command::client::{CLIENTS_MAX, ClientRecord};
use crate::command::{
    Batch, Command, Entitled, Operation, Origin, Outcome, Position, Receipt, ReceiptEffect, RequestId,
};
use crate::object::event::{EVENTS_MAX, Event, EventType, Subject};
use crate::object::node::{Incarnation, Node, Slot};
use crate::object::record::RecordKey;
use crate::object::record::Stored;
use crate::object::slot::FreeSlot;
use crate::rejection::Rejection;
use crate::rule::garbage;
use crate::rule::node_restriction;
use crate::rule::taint_eviction;
use crate::state::{Applied, Counters, State};
use crate::store::change::{Change, Object};
use crate::value::meta::{ObjectMeta, Pairs, Revision, Uid};
use crate::value::text::{Text, fixed};
use crate::value::time::Stamp;

pub(crate) const EVENT_SOURCE: &str = "node-controller";
const NODE: &str = "Node";
/// The namespace of events about objects that have none.
const EVENT_NAMESPACE: &str = "default";

pub(crate) type ApplyResult = Result<Receipt, Rejection>;

/// One batch that is being applied. It is the only way to change a State, so that no change goes unnoticed.
pub(crate) struct Application<'a> {
    pub(crate) state: &'a mut State,
    /// The moment of this batch; never before that of an earlier one.
    pub(crate) now: Stamp,
    changes: Vec<Change>,
    touched: BTreeSet<RecordKey>,
}

/// The contents of an event, without its subject.
pub(crate) struct Note<'a> {
    pub(crate) event_type: EventType,
    pub(crate) reason: &'a str,
    pub(crate) message: String,
    pub(crate) source: &'a str,
}

impl State {
    /// Applies one log entry. It never fails: a command that cannot be done is rejected, and leaves no trace but its
    /// outcome.
    pub fn apply(&mut self, position: Position, batch: &Batch) -> Applied {
        let before = self.counters;
        let cluster = before.stamp.cluster.max(batch.stamp.cluster);
        let now = Stamp { cluster, wall: batch.stamp.wall };
        self.counters.stamp = now;
        let mut application = Application { state: self, now, changes: Vec::new(), touched: BTreeSet::new() };
        let outcomes = batch.commands.iter().map(|command| application.command(position, command)).collect();
        application.finish(outcomes, before)
    }
}

// === commands in general ===

impl Application<'_> {
    fn command(&mut self, position: Position, command: &Command) -> Outcome {
        let answered = command.request.and_then(|request| {
            let client = self.state.clients.get(&request.client)?;
            client.answer(request)
        });
        if let Some(outcome) = answered {
            return outcome;
        }
        let outcome = match self.authorised(position, command) {
            Ok(receipt) => Outcome::Done(receipt),
            Err(rejection) => Outcome::Rejected(rejection),
        };
        if let Some(request) = command.request {
            self.remember(request, outcome.clone());
        }
        outcome
    }

    /// A controller may only act in the term it proposed in: a later leader has heard other pulses.
    fn authorised(&mut self, position: Position, command: &Command) -> ApplyResult {
        match command.origin {
            Origin::Controller { term } if term != position.term => {
                Err(Rejection::ForeignTerm { proposed: term, committed: position.term })
            }
            Origin::Operator { .. } | Origin::Controller { .. } | Origin::Replica { .. } | Origin::Node { .. } => {
                require_entitled(&command.origin, &command.operation)?;
                self.operation(&command.origin, &command.operation)
            }
        }
    }

    fn operation(&mut self, origin: &Origin, operation: &Operation) -> ApplyResult {
        match operation {
            Operation::CreateNode { draft, uid } => self.create_node(origin, draft, *uid),
            Operation::ApplyNode { draft, uid, precondition } => self.apply_node(origin, draft, *uid, precondition),
            Operation::ReplaceNode { draft, precondition } => self.replace_node(origin, draft, precondition),
            Operation::ReplaceNodeStatus { name, status, precondition } => {
                self.replace_node_status(origin, name, status, precondition)
            }
            Operation::LabelNode { name, changes, overwrite, precondition } => {
                self.label_node(origin, name, changes, *overwrite, precondition)
            }
            Operation::AnnotateNode { name, changes, overwrite, precondition } => {
                self.annotate_node(origin, name, changes, *overwrite, precondition)
            }
            Operation::TaintNode { name, add, remove, overwrite, precondition } => {
                self.taint_node(origin, name, add, remove, *overwrite, precondition)
            }
            Operation::CordonNode { name, unschedulable, precondition } => {
                self.cordon_node(origin, name, *unschedulable, precondition)
            }
            Operation::DeleteNode { name, precondition } => self.delete_node(origin, name, precondition),
            Operation::AnnounceReplica { replica } => self.announce_replica(replica),
            Operation::RetireReplica { id } => self.retire_replica(*id),
            Operation::RegisterNode { draft, uid, running } => {
                self.register_node(origin, draft, *uid, running.as_deref())
            }
            Operation::ReportStatus { name, incarnation, status, running } => {
                self.report_status(origin, name, *incarnation, status, running.as_deref())
            }
            Operation::MarkSilent { name, incarnation, from, heard, decided } => {
                self.mark_silent(origin, name, *incarnation, *from, *heard, *decided)
            }
            Operation::AssessZones => self.assess_zones(),
            Operation::EvictNode { name, incarnation } => self.evict_node(origin, name, *incarnation),
            Operation::LiftEvictions { names } => self.lift_evictions(origin, names),
            Operation::FoundPolicy { policy } => self.found_policy(policy),
            Operation::SetPolicy { changes } => self.set_policy(origin, changes),
            Operation::SetAggregator { name, nodes } => self.set_aggregator(name, nodes),
            Operation::NoteQuarantine { name, incarnation, reason } => self.note_quarantine(name, *incarnation, reason),
            Operation::CreatePod { draft, uid } => self.create_pod(draft, *uid),
            Operation::ApplyPod { draft, uid, precondition } => self.apply_pod(draft, *uid, precondition),
            Operation::DeletePod { key, grace, precondition } => self.delete_pod(origin, key, *grace, precondition),
            Operation::CreateWorkload { draft, uid } => self.create_workload(draft, *uid),
            Operation::ApplyWorkload { draft, uid, precondition } => self.apply_workload(draft, *uid, precondition),
            Operation::DeleteWorkload { key, precondition } => self.delete_workload(key, precondition),
            Operation::ReportPods { node, incarnation, reports } => self.report_pods(node, *incarnation, reports),
            Operation::EvictPod { key, uid } => self.evict_pod(key, *uid),
            Operation::CollectPod { key, uid } => self.collect_pod(key, *uid),
            Operation::BindPod { key, uid, node, incarnation } => self.bind_pod(key, *uid, node, *incarnation),
            Operation::NoteUnplaced { key, uid, why } => self.note_unplaced(key, *uid, why),
            Operation::StaffWorkload { key, uid, nodes } => self.staff_workload(origin, key, *uid, nodes),
            Operation::FoundAddressing { plan } => self.found_addressing(plan),
            Operation::AssignCidrs { names } => self.assign_cidrs(origin, names),
            Operation::CreateToken { id, hash, node, ttl_ms } => {
                self.create_token(origin, id, *hash, node.as_ref(), *ttl_ms)
            }
            Operation::RevokeToken { id } => self.revoke_token(id),
            Operation::EnrolNode { node, token, secret, signed } => self.enrol_node(node, token, *secret, signed),
            Operation::RenewCredential { node, from, signed, late } => {
                self.renew_credential(node, *from, signed, *late)
            }
            Operation::ConfirmCredential { node, key } => self.confirm_credential(node, *key),
            Operation::RevokeNode { name } => self.revoke_node(origin, name),
            Operation::NoteRefusal { node, why } => self.note_refusal(node, why),
            Operation::ForgetCredentials { names } => self.forget_credentials(names),
        }
    }

    fn remember(&mut self, request: RequestId, outcome: Outcome) {
        let RequestId { client: id, sequence } = request;
        self.state.counters.requests += 1;
        let used = self.state.counters.requests;
        let before = self.state.clients.insert(Arc::new(ClientRecord { id, sequence, outcome, used }));
        if let Some(before) = before {
            self.state.derived.recency.remove(&before.used);
        }
        self.state.derived.recency.insert(used, id);
        self.touch::<ClientRecord>(&id);
        if self.state.clients.len() > CLIENTS_MAX {
            self.forget_oldest_client();
        }
    }

    fn forget_oldest_client(&mut self) {
        let Some(&(used, id)) = self.state.derived.recency.get_min() else { return };
        self.state.derived.recency.remove(&used);
        self.state.clients.remove(&id);
        self.touch::<ClientRecord>(&id);
    }

    fn finish(mut self, outcomes: Vec<Outcome>, before: Counters) -> Applied {
        if self.state.counters != before {
            self.touched.insert(RecordKey::Counters);
        }
        Applied { outcomes, changes: self.changes, touched: self.touched.into_iter().collect() }
    }
}

// === bookkeeping ===

impl Application<'_> {
    pub(crate) fn next_revision(&self) -> Revision {
        Revision(self.state.counters.revision.0 + 1)
    }

    pub(crate) fn touch<T: Stored>(&mut self, key: &T::Key) {
        self.touch_key(T::record_key(key));
    }

    pub(crate) fn touch_key(&mut self, key: RecordKey) {
        self.touched.insert(key);
    }

    /// The answer to a command that concerns no object, or changed none.
    pub(crate) fn receipt(&self, effect: ReceiptEffect) -> Receipt {
        Receipt { revision: self.state.revision(), effect }
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

    /// Writes a normal event about a node in the controller's name.
    pub(crate) fn note(&mut self, node: &Node, reason: &str, message: String) {
        let note = Note { event_type: EventType::Normal, reason, message, source: EVENT_SOURCE };
        self.record_event(node_subject(node), note);
    }

    /// Writes an event. The oldest one makes room, unseen by watchers.
    pub(crate) fn record_event(&mut self, subject: Subject, note: Note<'_>) {
        self.state.counters.events += 1;
        let mut event = self.event(self.state.counters.events, subject, note);
        event.share_texts(&mut self.state.derived.interner);
        let event = Arc::new(event);
        self.state.events.insert(event.clone());
        self.touch::<Event>(&event.sequence);
        self.publish(None, Some(Object::Event(event)));
        while self.state.events.len() > EVENTS_MAX
            && let Some(oldest) = self.state.events.first().map(|event| event.sequence)
        {
            self.state.events.remove(&oldest);
            self.touch::<Event>(&oldest);
        }
    }

    fn event(&self, sequence: u64, subject: Subject, note: Note<'_>) -> Event {
        // A subject that is no object of its own may have a name that no object could have.
        let is_object = subject.kind == NODE || subject.namespace.is_some();
        let stem = if is_object { subject.name.to_string() } else { subject.kind.to_lowercase() };
        Event {
            meta: ObjectMeta {
                name: Text::from(format!("{stem}.{sequence:x}")),
                namespace: Some(subject.namespace.clone().unwrap_or(fixed!(EVENT_NAMESPACE))),
                uid: event_uid(sequence, subject.uid),
                revision: self.next_revision(),
                generation: 1,
                created: self.now,
                deleted: None,
                labels: Pairs::default(),
                annotations: Pairs::default(),
                owners: Box::default(),
                finalizers: Box::default(),
            },
            sequence,
            subject,
            event_type: note.event_type,
            reason: Text::from(note.reason),
            message: Text::from(note.message),
            source: Text::from(note.source),
            at: self.now,
        }
    }

    pub(crate) fn publish(&mut self, before: Option<Object>, after: Option<Object>) -> Revision {
        let revision = self.next_revision();
        self.state.counters.revision = revision;
        self.changes.push(Change { revision, before, after });
        revision
    }
}

/// Some operations are for the leader alone, others for an agent, and then only for its own node.
fn require_entitled(origin: &Origin, operation: &Operation) -> Result<(), Rejection> {
    let entitled = match (operation.entitled(), origin) {
        (Entitled::Anyone, Origin::Node { .. }) => false,
        (Entitled::Anyone, _) => true,
        (Entitled::Controller, origin) => matches!(origin, Origin::Controller { .. }),
        (Entitled::Agent, Origin::Node { name }) => operation.object_name() == Some(name.as_str()),
        (Entitled::Agent, _) => false,
    };
    if entitled {
        return Ok(());
    }
    if let (Entitled::Agent, Origin::Node { name }) = (operation.entitled(), origin) {
        return Err(node_restriction::of_another(operation.object_name().unwrap_or_default(), name));
    }
    let (what, origin) = (Text::from(operation.label()), Text::from(origin.to_string()));
    Err(Rejection::NotEntitled { what, origin })
}

pub(crate) fn node_subject(node: &Node) -> Subject {
    Subject { kind: fixed!(NODE), name: node.meta.name.clone(), namespace: None, uid: node.meta.uid }
}

/// Whether the change of the node may matter to its pods.
fn concerns_pods(before: &Node, after: &Node) -> bool {
    let (was, is) = (taint_eviction::no_execute(&before.spec.taints), taint_eviction::no_execute(&after.spec.taints));
    before.incarnation != after.incarnation
        || garbage::is_out_of_service(before) != garbage::is_out_of_service(after)
        || was.ne(is)
}

/// Events are made inside `apply`, where nothing is random: their uid is a hash, in the shape of a version 8 UUID.
fn event_uid(sequence: u64, subject: Uid) -> Uid {
    let mut bytes = subject.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&sequence.to_be_bytes());
    let version_and_variant_cleared = !(0xf000_u128 << 64 | 0xc000_u128 << 48);
    Uid(xxh3_128(&bytes) & version_and_variant_cleared | 0x8000_u128 << 64 | 0x8000_u128 << 48)
}
