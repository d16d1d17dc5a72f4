//! Application of a batch to the state.
//!
//! This file holds what every command goes through: its place in time, its term, its retries, who may ask for it, and
//! the bookkeeping of revisions, watchers and touched records. The files of `apply/` hold what each command means and
//! are named after what it is about.

mod addressing;
mod aggregator;
mod credential;
mod enrolment;
mod event;
mod level;
mod node;
mod pod;
mod policy;
mod replica;
mod token;
mod workload;
mod zone;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::command::client::{CLIENTS_MAX, ClientRecord};
use crate::command::{
    AgentOperation, Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
    Precondition, Receipt, ReceiptEffect, ReplicaOperation, RequestId,
};
use crate::judge::upgrade;
use crate::object::kind::Kind;
use crate::object::record::{RecordKey, Stored};
use crate::rejection::Rejection;
use crate::rule::node_restriction;
use crate::state::{Applied, Counters, State};
use crate::store::change::{Change, Object};
use crate::value::meta::{ObjectMeta, Revision};
use crate::value::text::Text;
use crate::value::time::Stamp;

pub(crate) type ApplyResult = Result<Receipt, Rejection>;

/// One batch that is being applied. It is the only way to change a State, so that no change goes unnoticed.
pub(crate) struct Application<'a> {
    pub(crate) state: &'a mut State,
    /// The moment of this batch; never before that of an earlier one.
    pub(crate) now: Stamp,
    changes: Vec<Change>,
    touched: BTreeSet<RecordKey>,
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
                upgrade::admit(self.state, command.operation.level())?;
                self.operation(&command.origin, &command.operation)
            }
        }
    }

    fn operation(&mut self, origin: &Origin, operation: &Operation) -> ApplyResult {
        match operation {
            Operation::Operator(operation) => self.operator_operation(origin, operation),
            Operation::Leader(operation) => self.leader_operation(origin, operation),
            Operation::Agent(operation) => self.agent_operation(origin, operation),
            Operation::Replica(operation) => self.replica_operation(operation),
        }
    }

    fn operator_operation(&mut self, origin: &Origin, operation: &OperatorOperation) -> ApplyResult {
        match operation {
            OperatorOperation::CreateNode { draft, uid } => self.create_node(origin, draft, *uid),
            OperatorOperation::ApplyNode { draft, uid, precondition } => {
                self.apply_node(origin, draft, *uid, precondition)
            }
            OperatorOperation::ReplaceNode { draft, precondition } => self.replace_node(origin, draft, precondition),
            OperatorOperation::ReplaceNodeStatus { name, status, precondition } => {
                self.replace_node_status(origin, name, status, precondition)
            }
            OperatorOperation::LabelNode { name, changes, overwrite, precondition } => {
                self.label_node(origin, name, changes, *overwrite, precondition)
            }
            OperatorOperation::AnnotateNode { name, changes, overwrite, precondition } => {
                self.annotate_node(origin, name, changes, *overwrite, precondition)
            }
            OperatorOperation::TaintNode { name, add, remove, overwrite, precondition } => {
                self.taint_node(origin, name, add, remove, *overwrite, precondition)
            }
            OperatorOperation::CordonNode { name, unschedulable, precondition } => {
                self.cordon_node(origin, name, *unschedulable, precondition)
            }
            OperatorOperation::DeleteNode { name, precondition } => self.delete_node(origin, name, precondition),
            OperatorOperation::RevokeNode { name } => self.revoke_node(origin, name),
            OperatorOperation::CreatePod { draft, uid } => self.create_pod(draft, *uid),
            OperatorOperation::ApplyPod { draft, uid, precondition } => self.apply_pod(draft, *uid, precondition),
            OperatorOperation::DeletePod { key, grace, precondition } => {
                self.delete_pod(origin, key, *grace, precondition)
            }
            OperatorOperation::CreateWorkload { draft, uid } => self.create_workload(draft, *uid),
            OperatorOperation::ApplyWorkload { draft, uid, precondition } => {
                self.apply_workload(draft, *uid, precondition)
            }
            OperatorOperation::DeleteWorkload { key, precondition } => self.delete_workload(key, precondition),
            OperatorOperation::SetPolicy { changes } => self.set_policy(origin, changes),
            OperatorOperation::SetAggregator { name, nodes } => self.set_aggregator(name, nodes),
            OperatorOperation::CreateToken { id, hash, node, ttl_ms } => {
                self.create_token(origin, id, *hash, node.as_ref(), *ttl_ms)
            }
            OperatorOperation::RevokeToken { id } => self.revoke_token(id),
            OperatorOperation::FinalizeUpgrade { version } => self.finalize_upgrade(version),
            OperatorOperation::RehearseNote { aggregator, note } => self.rehearse_note(aggregator, note),
        }
    }

    fn leader_operation(&mut self, origin: &Origin, operation: &LeaderOperation) -> ApplyResult {
        match operation {
            LeaderOperation::MarkSilent { name, incarnation, from, heard, decided } => {
                self.mark_silent(origin, name, *incarnation, *from, *heard, *decided)
            }
            LeaderOperation::NoteQuarantine { name, incarnation, reason } => {
                self.note_quarantine(name, *incarnation, reason)
            }
            LeaderOperation::AssessZones => self.assess_zones(),
            LeaderOperation::EvictNode { name, incarnation } => self.evict_node(origin, name, *incarnation),
            LeaderOperation::LiftEvictions { names } => self.lift_evictions(origin, names),
            LeaderOperation::EvictPod { key, uid } => self.evict_pod(key, *uid),
            LeaderOperation::CollectPod { key, uid } => self.collect_pod(key, *uid),
            LeaderOperation::BindPod { key, uid, node, incarnation } => self.bind_pod(key, *uid, node, *incarnation),
            LeaderOperation::NoteUnplaced { key, uid, why } => self.note_unplaced(key, *uid, why),
            LeaderOperation::StaffWorkload { key, uid, nodes } => self.staff_workload(origin, key, *uid, nodes),
            LeaderOperation::FoundPolicy { policy } => self.found_policy(policy),
            LeaderOperation::FoundAddressing { plan } => self.found_addressing(plan),
            LeaderOperation::AssignCidrs { names } => self.assign_cidrs(origin, names),
            LeaderOperation::ForgetCredentials { names } => self.forget_credentials(names),
            LeaderOperation::RaiseLevel { to, version } => self.raise_level(*to, version),
        }
    }

    fn agent_operation(&mut self, origin: &Origin, operation: &AgentOperation) -> ApplyResult {
        match operation {
            AgentOperation::RegisterNode { draft, uid, running } => {
                self.register_node(origin, draft, *uid, running.as_deref())
            }
            AgentOperation::ReportStatus { name, incarnation, status, running } => {
                self.report_status(origin, name, *incarnation, status, running.as_deref())
            }
            AgentOperation::ReportPods { node, incarnation, reports } => self.report_pods(node, *incarnation, reports),
            AgentOperation::EnrolNode { node, token, secret, signed } => self.enrol_node(node, token, *secret, signed),
            AgentOperation::RenewCredential { node, from, signed, late } => {
                self.renew_credential(node, *from, signed, *late)
            }
            AgentOperation::ConfirmCredential { node, key } => self.confirm_credential(node, *key),
            AgentOperation::NoteRefusal { node, remote, why } => self.note_refusal(node, *remote, why),
        }
    }

    fn replica_operation(&mut self, operation: &ReplicaOperation) -> ApplyResult {
        match operation {
            ReplicaOperation::AnnounceReplica { replica } => self.announce_replica(replica),
            ReplicaOperation::RetireReplica { id } => self.retire_replica(*id),
            ReplicaOperation::ReportReplica { id, trouble } => Ok(self.report_replica(*id, *trouble)),
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

    /// The answer to a command that concerns no object, or changed none.
    pub(crate) fn receipt(&self, effect: ReceiptEffect) -> Receipt {
        Receipt { revision: self.state.revision(), effect }
    }

    pub(crate) fn publish(&mut self, before: Option<Object>, after: Option<Object>) -> Revision {
        let revision = self.next_revision();
        self.state.counters.revision = revision;
        self.changes.push(Change { revision, before, after });
        revision
    }
}

// === entitlement ===

/// Some operations are for the leader alone, others for an agent, and then only for its own node.
fn require_entitled(origin: &Origin, operation: &Operation) -> Result<(), Rejection> {
    match (operation, origin) {
        (Operation::Agent(operation), Origin::Node { name }) => require_own_node(operation.node_name(), name),
        (Operation::Leader(_), Origin::Controller { .. })
        | (
            Operation::Operator(_) | Operation::Replica(_),
            Origin::Operator { .. } | Origin::Controller { .. } | Origin::Replica { .. },
        ) => Ok(()),
        (Operation::Agent(_), Origin::Operator { .. } | Origin::Controller { .. } | Origin::Replica { .. })
        | (Operation::Leader(_), Origin::Operator { .. } | Origin::Replica { .. } | Origin::Node { .. })
        | (Operation::Operator(_) | Operation::Replica(_), Origin::Node { .. }) => {
            Err(Rejection::NotEntitled { what: Text::from(operation.label()), origin: origin.author() })
        }
    }
}

fn require_own_node(name: &str, own: &str) -> Result<(), Rejection> {
    if name == own { Ok(()) } else { Err(node_restriction::of_another(name, own)) }
}
