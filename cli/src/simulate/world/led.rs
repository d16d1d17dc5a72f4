//! The interface for a driver outside the world: the leader's pulses, what was committed, and a log to propose to.

use std::sync::Arc;

use muster_lifecycle::change::Change;
use muster_lifecycle::command::{Command, LeaderOperation, Origin, Outcome};
use muster_pulse::monitor::PulseMonitor;
use muster_pulse::tick::Tick;

use super::leader::Leader;
use super::{Driver, ReplicaIndex, Witness, World};

impl<W: Witness> World<W> {
    /// The pulses that a replica has heard, shared with it.
    pub fn pulses(&self, replica: ReplicaIndex) -> Arc<PulseMonitor> {
        Arc::clone(&self.replicas[replica].pulses)
    }

    /// The commits since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Arc<Change>> {
        std::mem::take(&mut self.news)
    }

    /// The leader's proposals, committed at once.
    pub fn propose(&mut self, operations: Vec<LeaderOperation>) -> Vec<Outcome> {
        let assesses = operations.contains(&LeaderOperation::AssessZones);
        let transition = assesses.then(|| self.state.zone_transition(self.stamp()));
        let origin = Origin::Controller { term: self.term };
        let command =
            |operation: LeaderOperation| Command { origin: origin.clone(), request: None, operation: operation.into() };
        let outcomes = self.apply(operations.into_iter().map(command).collect());
        if let Some(transition) = transition {
            self.witness.zones_moved(self.now, &transition);
        }
        outcomes
    }

    /// From here on this replica leads, as a leader since that tick.
    pub(super) fn lead(&mut self, replica: ReplicaIndex, since: Tick) {
        self.leader = Some(replica);
        let moment = self.moment();
        self.brain = match self.driver {
            Driver::Judge => Some(Leader::new(&self.state, self.machines.len(), since, self.now, moment)),
            Driver::Elsewhere => None,
        };
    }
}
