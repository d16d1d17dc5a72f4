//! Witnesses of a world: the output of `muster simulate`, and the oracle of the random test.

use muster_lifecycle::change::Change;
use muster_lifecycle::command::{Command, Outcome};
use muster_lifecycle::disruption::Transition;
use muster_lifecycle::node::Slot;
use muster_lifecycle::state::State;

use super::{Millis, ReplicaIndex};

/// Every method does nothing unless the witness cares.
pub trait Witness {
    /// A replica heard the holder of a slot itself.
    fn heard(&mut self, _at: Millis, _slot: Slot, _through: ReplicaIndex) {}

    /// A replica has received all that another has heard.
    fn told(&mut self, _at: Millis, _listener: ReplicaIndex, _teller: ReplicaIndex) {}

    /// A command is about to be applied to this state.
    fn proposed(&mut self, _at: Millis, _command: &Command, _state: &State) {}

    fn decided(&mut self, _at: Millis, _command: &Command, _outcome: &Outcome) {}

    fn changed(&mut self, _at: Millis, _change: &Change) {}

    fn zones_moved(&mut self, _at: Millis, _transition: &Transition) {}

    fn leads(&mut self, _at: Millis, _term: u64, _replica: ReplicaIndex) {}
}

/// A witness that ignores everything.
impl Witness for () {}
