//! Local state: a `State` in this process. Commands take effect at once and nothing is replicated.

use anyhow::{Result, ensure};
use muster_lifecycle::command::{
    AgentOperation, Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
};
use muster_lifecycle::state::State;
use muster_lifecycle::time::{ClusterTime, Stamp};

/// Commands in one entry.
pub const BATCH: usize = 256;

/// A leader's commands are accepted in its own term only.
const TERM: u64 = 1;

#[derive(Debug, Clone, Default)]
pub struct LocalState {
    pub state: State,
    index: u64,
}

impl LocalState {
    /// Fails if a command is rejected: what is measured is work that gets done.
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        self.index += 1;
        let applied = self.state.apply(Position { term: TERM, index: self.index }, batch);
        let rejected = applied.outcomes.iter().find(|outcome| matches!(outcome, Outcome::Rejected(_)));
        ensure!(rejected.is_none(), "a command was rejected: {rejected:?}");
        Ok(())
    }

    pub(crate) fn apply_all(&mut self, batches: &[Batch]) -> Result<()> {
        batches.iter().try_for_each(|batch| self.apply(batch))
    }
}

/// One entry at so many milliseconds of cluster time.
pub fn batch(commands: Vec<Command>, at: u64) -> Batch {
    Batch { stamp: Stamp { cluster: ClusterTime(at), ..Stamp::default() }, commands }
}

/// Entries of [`BATCH`] commands.
pub(crate) fn batches(commands: Vec<Command>, at: u64) -> Vec<Batch> {
    commands.chunks(BATCH).map(|chunk| batch(chunk.to_vec(), at)).collect()
}

pub(crate) fn by_operator(operation: OperatorOperation) -> Command {
    command(Origin::Operator { user: "bench".into() }, operation)
}

pub fn by_leader(operation: LeaderOperation) -> Command {
    command(Origin::Controller { term: TERM }, operation)
}

/// A command from the agent of the operation's node.
pub fn by_agent(operation: AgentOperation) -> Command {
    let name = operation.node_name().into();
    command(Origin::Node { name }, operation)
}

fn command(origin: Origin, operation: impl Into<Operation>) -> Command {
    Command { origin, request: None, operation: operation.into() }
}
