//! What watchers see: one object change, with the object before and after.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::object::event::Event;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::workload::{Workload, WorkloadKind};
use crate::value::meta::{ObjectMeta, Revision};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    Node,
    Event,
    Pod,
    Workload(WorkloadKind),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    Node(Arc<Node>),
    Event(Arc<Event>),
    Pod(Arc<Pod>),
    Workload(Arc<Workload>),
}

/// `before` is `None` for a creation, `after` is `None` for a deletion.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub revision: Revision,
    pub before: Option<Object>,
    pub after: Option<Object>,
}

impl Object {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Node(_) => Kind::Node,
            Self::Event(_) => Kind::Event,
            Self::Pod(_) => Kind::Pod,
            Self::Workload(workload) => Kind::Workload(workload.kind),
        }
    }

    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Node(node) => &node.meta,
            Self::Event(event) => &event.meta,
            Self::Pod(pod) => &pod.meta,
            Self::Workload(workload) => &workload.meta,
        }
    }
}

impl Kind {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Event => "Event",
            Self::Pod => "Pod",
            Self::Workload(kind) => kind.as_str(),
        }
    }
}

/// As it stands in a sentence: `node`, `replicaset`.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_str().to_lowercase())
    }
}

impl Change {
    /// The object as it is now, or as it last was. `None` only for a change without either side, which `apply`
    /// never makes.
    pub fn object(&self) -> Option<&Object> {
        self.after.as_ref().or(self.before.as_ref())
    }
}
