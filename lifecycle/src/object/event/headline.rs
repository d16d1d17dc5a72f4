//! Headlines of events: reason, type and source, by upstream's words where upstream has the event.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Normal,
    Warning,
}

/// What follows from the kind of a happening alone. Made where an event is read, never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headline {
    pub event_type: EventType,
    pub reason: &'static str,
    /// The component that the event comes from.
    pub source: &'static str,
}

pub(super) const NODE_CONTROLLER: &str = "node-controller";

// === impl EventType ===

impl EventType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

// === impl Headline ===

/// In the node controller's name.
pub(super) const fn normal(reason: &'static str) -> Headline {
    Headline { event_type: EventType::Normal, reason, source: NODE_CONTROLLER }
}

/// In the node controller's name.
pub(super) const fn warning(reason: &'static str) -> Headline {
    Headline { event_type: EventType::Warning, reason, source: NODE_CONTROLLER }
}

impl Headline {
    pub(super) const fn from(self, source: &'static str) -> Self {
        Self { source, ..self }
    }
}
