//! Pending writes of one node: the newest registration, status and pod report, one write at a time.
//!
//! A node's own stream holds one [`PendingWrites`], an aggregator's stream one per handle. The rules for both:
//! - A message waits as it came. One that a newer message of its kind replaces is never parsed.
//! - One write of a node is under way at a time: first the registration, then the status, then the pods.
//! - A registration creates a node that is not bound; of a node that is bound it describes the machine (RG-4).
//! - Status and pod reports count only while the node is bound: an agent that was asked to register reports with that.
//! - A welcome answers every registration that came before it.
//! - Once the node is gone, what waits is dropped, and what is under way is not answered.

use muster_lifecycle::node::Incarnation;
use muster_lifecycle::text::Text;
use muster_proto::v1;
use muster_proto::v1::server_message::Message as Down;

use crate::session::stream::caller::Caller;
use crate::session::stream::refusal::SessionRefusal;
use crate::session::write::admission::{Admission, Admitted};
use crate::session::write::pods::report_pods;
use crate::session::write::reconcile::reconcile;
use crate::session::write::report::report_status;

#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    /// Boxed, because few agents ever send it to a stream that is bound.
    registration: Option<Box<v1::Register>>,
    status: Option<v1::StatusReport>,
    pods: Option<v1::PodsReport>,
    under_way: UnderWay,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UnderWay {
    #[default]
    Nothing,
    Current,
    /// It was begun for a node that is gone from the stream.
    Outdated,
}

/// A write that an agent asks for, as it came.
#[derive(Debug)]
pub(super) enum WriteRequest {
    Register(v1::Register),
    Status(v1::StatusReport),
    Pods(v1::PodsReport),
}

/// A write that is due.
#[derive(Debug, PartialEq)]
pub(super) enum Write {
    Register(Box<v1::Register>),
    Reconcile(Incarnation, Box<v1::Register>),
    Status(Incarnation, v1::StatusReport),
    Pods(Incarnation, v1::PodsReport),
}

/// The outcome of a write.
#[derive(Debug)]
pub(super) enum WriteEnd {
    /// The node was registered, and its session claimed.
    Admitted(Admitted),
    /// The node was not registered.
    Refused(SessionRefusal),
    /// A message for the agent.
    Answered(Down),
    /// The node is no longer the one that wrote.
    Gone,
}

// === impl PendingWrites ===

impl PendingWrites {
    pub(super) fn add(&mut self, request: WriteRequest, is_bound: bool) {
        match request {
            WriteRequest::Register(register) => self.registration = Some(Box::new(register)),
            WriteRequest::Status(report) if is_bound => self.status = Some(report),
            WriteRequest::Pods(report) if is_bound => self.pods = Some(report),
            WriteRequest::Status(_) | WriteRequest::Pods(_) => {}
        }
    }

    /// Whether something waits and nothing is under way.
    pub(super) fn is_due(&self) -> bool {
        self.under_way == UnderWay::Nothing && self.is_waiting()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == UnderWay::Nothing && !self.is_waiting()
    }

    /// The next write, under way from now on. `bound` is the incarnation of the node if it is bound.
    pub(super) fn begin(&mut self, bound: Option<Incarnation>) -> Option<Write> {
        let write = match bound {
            Some(incarnation) => self.next_of_bound(incarnation),
            None => self.registration.take().map(Write::Register),
        };
        if write.is_some() {
            self.under_way = UnderWay::Current;
        }
        write
    }

    fn next_of_bound(&mut self, incarnation: Incarnation) -> Option<Write> {
        let registration = self.registration.take().map(|register| Write::Reconcile(incarnation, register));
        registration
            .or_else(|| self.status.take().map(|report| Write::Status(incarnation, report)))
            .or_else(|| self.pods.take().map(|report| Write::Pods(incarnation, report)))
    }

    /// The write under way has ended. False if its node is gone from the stream since it was begun.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.under_way) == UnderWay::Current
    }

    /// The node is bound: the welcome answers the registration that waits.
    pub(super) fn welcome(&mut self) {
        self.registration = None;
    }

    /// The node is gone from the stream.
    pub(super) fn clear(&mut self) {
        let under_way = match self.under_way {
            UnderWay::Nothing => UnderWay::Nothing,
            UnderWay::Current | UnderWay::Outdated => UnderWay::Outdated,
        };
        *self = Self { under_way, ..Self::default() };
    }

    fn is_waiting(&self) -> bool {
        self.registration.is_some() || self.status.is_some() || self.pods.is_some()
    }
}

// === impl Write ===

impl Write {
    /// Parses the write and submits it.
    pub(super) async fn run(self, node: Text, caller: Caller, admission: Admission) -> WriteEnd {
        let writes = admission.writes();
        let answered = match self {
            Self::Register(register) => {
                return match admission.register(&node, &register, &caller).await {
                    Ok(admitted) => WriteEnd::Admitted(admitted),
                    Err(refusal) => WriteEnd::Refused(refusal),
                };
            }
            Self::Reconcile(incarnation, register) => {
                reconcile(writes, &node, incarnation, &register).await.map(Down::Registered)
            }
            Self::Status(incarnation, report) => {
                report_status(writes, &node, incarnation, report).await.map(Down::StatusTaken)
            }
            Self::Pods(incarnation, report) => {
                report_pods(writes, &node, incarnation, report).await.map(Down::PodsTaken)
            }
        };
        answered.map_or(WriteEnd::Gone, WriteEnd::Answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Option<Incarnation> = Some(Incarnation(3));

    #[test]
    fn one_write_runs_and_the_newest_of_each_kind_waits() {
        let mut pending = PendingWrites::default();
        pending.add(status(1), true);
        assert_eq!(pending.begin(BOUND), Some(Write::Status(Incarnation(3), report(1))));
        pending.add(status(2), true);
        pending.add(pods(3), true);
        pending.add(status(4), true);
        assert!(!pending.is_due(), "the first is still under way");
        assert!(pending.end());
        pending.add(registration("m"), true);
        let kinds: Vec<&str> = std::iter::from_fn(|| pending.begin(BOUND)).map(|write| kind(&write)).collect();
        assert_eq!(kinds, ["reconcile", "status 4", "pods 3"]);
        assert!(pending.end() && pending.is_idle());
    }

    #[test]
    fn a_node_that_is_not_bound_only_registers() {
        let mut pending = PendingWrites::default();
        pending.add(status(1), false);
        pending.add(pods(1), false);
        assert!(pending.is_idle());
        pending.add(registration("m"), false);
        assert!(matches!(pending.begin(None), Some(Write::Register(_))));
    }

    #[test]
    fn a_welcome_answers_the_registrations_before_it() {
        let mut pending = PendingWrites::default();
        pending.add(registration("first"), false);
        assert!(pending.begin(None).is_some());
        pending.add(registration("second"), false);
        assert!(pending.end());
        assert!(pending.is_due(), "it would be tried if the first was refused");
        pending.welcome();
        assert!(pending.is_idle());
    }

    #[test]
    fn a_deleted_node_writes_nothing_more_and_gets_no_answer() {
        let mut pending = PendingWrites::default();
        pending.add(status(1), true);
        pending.begin(BOUND);
        pending.add(status(2), true);
        pending.clear();
        pending.add(registration("m"), false);
        assert!(!pending.is_due(), "one write at a time, outdated or not");
        assert!(!pending.end(), "the answer is for a node that is gone");
        assert!(matches!(pending.begin(None), Some(Write::Register(_))));
        assert!(pending.end());
    }

    fn status(sequence: u64) -> WriteRequest {
        WriteRequest::Status(report(sequence))
    }

    fn report(sequence: u64) -> v1::StatusReport {
        v1::StatusReport { sequence, ..v1::StatusReport::default() }
    }

    fn pods(sequence: u64) -> WriteRequest {
        WriteRequest::Pods(v1::PodsReport { sequence, ..v1::PodsReport::default() })
    }

    fn registration(node: &str) -> WriteRequest {
        WriteRequest::Register(v1::Register { node: node.to_owned().into(), running: None })
    }

    fn kind(write: &Write) -> &'static str {
        match write {
            Write::Register(_) => "register",
            Write::Reconcile(..) => "reconcile",
            Write::Status(_, report) if report.sequence == 4 => "status 4",
            Write::Pods(_, report) if report.sequence == 3 => "pods 3",
            Write::Status(..) | Write::Pods(..) => "another report",
        }
    }
}
