//! Agenda of pods, by the moment at which something is due to happen to them, the earliest first.
//!
//! It follows from the tables. Cloning shares everything.

use imbl::{OrdMap, OrdSet};

use crate::object::pod::PodKey;
use crate::value::time::ClusterTime;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agenda {
    due: OrdSet<(ClusterTime, PodKey)>,
    moments: OrdMap<PodKey, ClusterTime>,
}

// === impl Agenda ===

impl Agenda {
    /// A pod has one moment, or none.
    pub(crate) fn set(&mut self, key: &PodKey, moment: Option<ClusterTime>) {
        if self.moment(key) == moment {
            return;
        }
        if let Some(before) = self.moments.remove(key) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(at) = moment {
            self.due.insert((at, key.clone()));
            self.moments.insert(key.clone(), at);
        }
    }

    pub(crate) fn moment(&self, key: &PodKey) -> Option<ClusterTime> {
        self.moments.get(key).copied()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (ClusterTime, &PodKey)> {
        self.due.iter().map(|(at, key)| (*at, key))
    }
}
