//! Preconditions: the object that a command is about must still be the one that the caller saw.

use serde::{Deserialize, Serialize};

use crate::value::meta::{Revision, Uid};

/// What is `None` is not checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precondition {
    pub revision: Option<Revision>,
    pub uid: Option<Uid>,
}
