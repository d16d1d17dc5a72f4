//! Changes that watchers see: one object, before and after.

use std::sync::Arc;

use crate::object::event::Event;
use crate::object::kind::Kind;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::object::workload::Workload;
use crate::value::meta::{ObjectMeta, Revision};

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

impl Change {
    /// The object as it is now, or as it last was. `None` only for a change without either side, which `apply` never
    /// makes.
    pub fn object(&self) -> Option<&Object> {
        self.after.as_ref().or(self.before.as_ref())
    }
}
