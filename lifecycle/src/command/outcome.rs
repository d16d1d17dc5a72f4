//! Outcomes: what became of a command.

use serde::{Deserialize, Serialize};

use crate::rejection::Rejection;
use crate::value::meta::Revision;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done(Receipt),
    Rejected(Rejection),
}

/// What a command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The revision of the object after the command; the state's revision if no object is concerned.
    pub revision: Revision,
    pub effect: ReceiptEffect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptEffect {
    Created,
    Changed,
    Unchanged,
    Deleted,
}
