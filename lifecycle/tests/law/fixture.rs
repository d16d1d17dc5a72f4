//! Cluster of one state, with helpers for what tests do to it.

use muster_lifecycle::change::Object;
use muster_lifecycle::command::{
    Batch, Command, Operation, Origin, Outcome, Position, Precondition, Receipt, ReceiptEffect, RequestId,
};
use muster_lifecycle::invariant::check_all;
use muster_lifecycle::meta::{Pairs, Uid};
use muster_lifecycle::node::{Address, Condition, ConditionStatus, Node, NodeDraft, NodeStatus, Resources};
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::{Applied, State};
use muster_lifecycle::taint::Taint;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};

pub(crate) const TERM: u64 = 3;

/// Applies one batch after the other, each a second after the last, and checks every invariant on the way.
#[derive(Clone, Default)]
pub(crate) struct Cluster {
    pub(crate) state: State,
    /// How many leaders there were before this one.
    pub(crate) elections: u64,
    seconds: u64,
    index: u64,
    uids: u128,
}

impl Cluster {
    pub(crate) fn with_node(name: &str) -> Self {
        let mut cluster = Self::default();
        cluster.create(draft(name));
        cluster
    }

    pub(crate) fn submit(&mut self, command: Command) -> Applied {
        self.submit_all(vec![command])
    }

    pub(crate) fn submit_all(&mut self, commands: Vec<Command>) -> Applied {
        self.seconds += 1;
        self.index += 1;
        let batch = Batch { stamp: self.now(), commands };
        let applied = self.state.apply(Position { term: self.term(), index: self.index }, &batch);
        check_all(&self.state).expect("every invariant holds");
        applied
    }

    /// The moment of the last batch, or a later one up to which the test waited.
    pub(crate) fn now(&self) -> Stamp {
        stamp(self.seconds)
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.seconds += seconds;
    }

    /// After a restore the clock goes on from the last entry: the state does not know how long the test waited since.
    pub(crate) fn wind_back(&mut self) {
        self.seconds = self.state.cluster_time().0 / 1000;
    }

    pub(crate) fn term(&self) -> u64 {
        TERM + self.elections
    }

    pub(crate) fn run(&mut self, operation: Operation) -> Applied {
        self.submit(Command { origin: alice(), request: None, operation })
    }

    pub(crate) fn done(&mut self, operation: Operation) -> Receipt {
        match self.run(operation).outcomes.remove(0) {
            Outcome::Done(receipt) => receipt,
            Outcome::Rejected(rejection) => panic!("rejected: {rejection}"),
        }
    }

    pub(crate) fn rejected(&mut self, operation: Operation) -> Rejection {
        self.refused(Command { origin: alice(), request: None, operation })
    }

    /// The rejection of a command, after making sure that it left no trace but the time.
    pub(crate) fn refused(&mut self, command: Command) -> Rejection {
        let before: Vec<_> = self.state.records().skip(1).collect();
        let applied = self.submit(command);
        assert!(applied.changes.is_empty());
        assert_eq!(applied.touched, [RecordKey::Counters], "only time goes on");
        assert!(self.state.records().skip(1).eq(before), "a rejected command changes nothing");
        match applied.outcomes.into_iter().next() {
            Some(Outcome::Rejected(rejection)) => rejection,
            other => panic!("not rejected: {other:?}"),
        }
    }

    /// The outcome in one line: the effect, or the rejection's message.
    pub(crate) fn told(&mut self, operation: Operation) -> String {
        told(&self.run(operation).outcomes[0])
    }

    pub(crate) fn create(&mut self, draft: NodeDraft) -> Receipt {
        let uid = self.next_uid();
        self.done(Operation::CreateNode { draft: Box::new(draft), uid })
    }

    pub(crate) fn apply(&mut self, draft: NodeDraft) -> Receipt {
        let uid = self.next_uid();
        self.done(Operation::ApplyNode { draft: Box::new(draft), uid, precondition: ANY })
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.state.node(name).expect("the node is there")
    }

    pub(crate) fn taints(&self, name: &str) -> Vec<String> {
        self.node(name).spec.taints.iter().map(Taint::to_string).collect()
    }

    pub(crate) fn next_uid(&mut self) -> Uid {
        self.uids += 1;
        Uid(self.uids)
    }
}

pub(crate) const ANY: Precondition = Precondition { revision: None, uid: None };

pub(crate) fn alice() -> Origin {
    Origin::Operator { user: Text::from("alice") }
}

pub(crate) fn stamp(seconds: u64) -> Stamp {
    Stamp { cluster: ClusterTime(seconds * 1000), wall: WallTime(1_700_000_000_000 + seconds as i64 * 1000) }
}

pub(crate) fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(receipt) => match receipt.effect {
            ReceiptEffect::Created => "created".to_owned(),
            ReceiptEffect::Changed => "changed".to_owned(),
            ReceiptEffect::Unchanged => "unchanged".to_owned(),
            ReceiptEffect::Deleted => "deleted".to_owned(),
        },
        Outcome::Rejected(rejection) => rejection.to_string(),
    }
}

/// The reasons and messages of the events among the changes.
pub(crate) fn events(applied: &Applied) -> Vec<String> {
    let told = |object: &Object| match object {
        Object::Event(event) => Some(format!("{}: {}", event.reason, event.message)),
        Object::Node(_) | Object::Pod(_) | Object::Workload(_) => None,
    };
    applied.changes.iter().filter_map(|change| change.after.as_ref().and_then(told)).collect()
}

pub(crate) fn draft(name: &str) -> NodeDraft {
    NodeDraft { name: Text::from(name), ..NodeDraft::default() }
}

pub(crate) fn pairs(text: &str) -> Pairs {
    text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect()
}

pub(crate) fn taints(text: &str) -> Box<[Taint]> {
    text.split_whitespace().map(|taint| taint.parse().expect("a taint")).collect()
}

/// Parsed by hand, so that tests can make invalid taints too.
pub(crate) fn raw_taint(text: &str) -> Taint {
    let (rest, effect) = text.rsplit_once(':').expect("key:Effect");
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Taint { key: Text::from(key), value: Text::from(value), effect: effect.parse().expect("an effect"), added: None }
}

pub(crate) fn resources(text: &str) -> Resources {
    text.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.parse().expect("a quantity")))
        .collect()
}

pub(crate) fn ready(status: ConditionStatus) -> NodeStatus {
    let condition = Condition {
        kind: Text::from("Ready"),
        status,
        last_heartbeat: None,
        last_transition: None,
        reason: Text::from("KubeletReady"),
        message: Text::default(),
    };
    NodeStatus { conditions: Box::new([condition]), ..NodeStatus::default() }
}

pub(crate) fn address(kind: &str, address: &str) -> Address {
    Address { kind: Text::from(kind), address: Text::from(address) }
}

pub(crate) fn request(client: u128, sequence: u64) -> Option<RequestId> {
    Some(RequestId { client, sequence })
}

pub(crate) fn create(draft: NodeDraft) -> Operation {
    Operation::CreateNode { draft: Box::new(draft), uid: Uid(1) }
}

pub(crate) fn replace(draft: NodeDraft) -> Operation {
    Operation::ReplaceNode { draft: Box::new(draft), precondition: ANY }
}

pub(crate) fn replace_status(name: &str, status: NodeStatus) -> Operation {
    Operation::ReplaceNodeStatus { name: Text::from(name), status: Box::new(status), precondition: ANY }
}

/// `a=1` sets, `a-` removes.
pub(crate) fn label(name: &str, changes: &str, overwrite: bool) -> Operation {
    let change = |word: &str| match word.split_once('=') {
        Some((key, value)) => (Text::from(key), Some(Text::from(value))),
        None => (Text::from(word.trim_end_matches('-')), None),
    };
    let changes = changes.split_whitespace().map(change).collect();
    Operation::LabelNode { name: Text::from(name), changes, overwrite, precondition: ANY }
}

pub(crate) fn taint(name: &str, add: &str, remove: &str, overwrite: bool) -> Operation {
    let add = taints(add).into_vec();
    let remove = remove.split_whitespace().map(|text| text.parse().expect("a taint selector")).collect();
    Operation::TaintNode { name: Text::from(name), add, remove, overwrite, precondition: ANY }
}

pub(crate) fn cordon(name: &str, unschedulable: bool) -> Operation {
    Operation::CordonNode { name: Text::from(name), unschedulable, precondition: ANY }
}

pub(crate) fn delete(name: &str) -> Operation {
    Operation::DeleteNode { name: Text::from(name), precondition: ANY }
}
