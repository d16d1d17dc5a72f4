//! A register: one object that operators read, write, and write on condition of its revision.
//!
//! The model is sequential: what each call may answer, given the calls before it. Revisions are part of it. Other
//! writers (agents, the leader) may raise an object's revision without changing the value under test, so the model
//! knows a lower bound of the revision rather than the revision.

use std::fmt;

/// Values are unique: each write of a history writes another one.
pub type RegisterValue = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterCall {
    Read,
    /// A read that may be answered from an old state.
    StaleRead,
    Write(RegisterValue),
    /// A write on condition that the object still has this revision.
    Swap {
        expected: u64,
        value: RegisterValue,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterAnswer {
    /// To a read. `None` if no value was ever written.
    Found { value: Option<RegisterValue>, revision: u64 },
    /// To a write: the object's revision after it.
    Written { revision: u64 },
    /// The object had another revision, so nothing was written.
    Conflict,
    /// It is certain that the call changed nothing.
    Failed,
    /// No answer: the call may have had its effect, may have it at any later moment, or never.
    Unknown,
}

/// One call with the time at which it was made and the time at which it was answered, on one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterOperation {
    pub key: usize,
    pub client: usize,
    /// The replica that was asked.
    pub replica: u64,
    pub start: u64,
    pub end: u64,
    pub call: RegisterCall,
    pub answer: RegisterAnswer,
}

/// The register between two operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RegisterState {
    pub value: Option<RegisterValue>,
    /// The object's revision is this one or a later one.
    pub revision: u64,
}

/// Whether other writers raise the revision of the objects under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bystanders {
    /// A conflict may have no cause in the history.
    Present,
    /// Only the history's own writes touch the objects.
    Absent,
}

// === impl RegisterOperation ===

impl RegisterOperation {
    /// The value that this operation wrote or may have written.
    pub fn written(&self) -> Option<RegisterValue> {
        match (self.call, self.answer) {
            (RegisterCall::Read | RegisterCall::StaleRead, _) => None,
            (_, RegisterAnswer::Conflict | RegisterAnswer::Failed | RegisterAnswer::Found { .. }) => None,
            (
                RegisterCall::Write(value) | RegisterCall::Swap { value, .. },
                RegisterAnswer::Written { .. } | RegisterAnswer::Unknown,
            ) => Some(value),
        }
    }

    pub fn is_unknown(&self) -> bool {
        self.answer == RegisterAnswer::Unknown
    }
}

impl fmt::Display for RegisterOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, client, replica, start, end, call, answer } = self;
        write!(f, "[{start:>12} {end:>12}] key {key}, client {client}, replica {replica}: {call:?} -> {answer:?}")
    }
}

// === impl RegisterState ===

impl RegisterState {
    /// The state after this operation, or `None` if a register in this state does not answer so.
    pub fn after(self, operation: &RegisterOperation, bystanders: Bystanders) -> Option<Self> {
        let changed = |value, revision| Some(Self { value: Some(value), revision });
        match (operation.call, operation.answer) {
            (RegisterCall::Read, RegisterAnswer::Found { value, revision }) => {
                (value == self.value && revision >= self.revision).then_some(Self { value, revision })
            }
            (RegisterCall::Write(value), RegisterAnswer::Written { revision }) => {
                (revision > self.revision).then_some(Self { value: Some(value), revision })
            }
            (RegisterCall::Write(value), RegisterAnswer::Unknown) => changed(value, self.revision + 1),
            (RegisterCall::Swap { expected, value }, RegisterAnswer::Written { revision }) => {
                let held = expected >= self.revision && revision > expected;
                held.then_some(Self { value: Some(value), revision })
            }
            (RegisterCall::Swap { expected, value }, RegisterAnswer::Unknown) => {
                if expected >= self.revision {
                    changed(value, expected + 1)
                } else {
                    None
                }
            }
            (RegisterCall::Swap { expected, .. }, RegisterAnswer::Conflict) => {
                (bystanders == Bystanders::Present || self.revision > expected).then_some(self)
            }
            // Not part of the order: old reads are checked apart, and a failure says nothing.
            (_, RegisterAnswer::Failed) | (RegisterCall::StaleRead, _) => Some(self),
            (RegisterCall::Read, RegisterAnswer::Unknown) => Some(self),
            // An answer to another call.
            (RegisterCall::Read, RegisterAnswer::Written { .. } | RegisterAnswer::Conflict)
            | (RegisterCall::Write(_), RegisterAnswer::Found { .. } | RegisterAnswer::Conflict)
            | (RegisterCall::Swap { .. }, RegisterAnswer::Found { .. }) => None,
        }
    }

    /// Whether no state after this one allows this answer: revisions only rise.
    pub fn rules_out(self, operation: &RegisterOperation) -> bool {
        match (operation.call, operation.answer) {
            (RegisterCall::Read, RegisterAnswer::Found { revision, .. }) => revision < self.revision,
            (RegisterCall::Write(_) | RegisterCall::Swap { .. }, RegisterAnswer::Written { revision }) => {
                revision <= self.revision
            }
            _ => false,
        }
    }
}
