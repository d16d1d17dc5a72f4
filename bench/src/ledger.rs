//! A replicated state in this process: what is applied to it takes effect at once, and nothing is replicated.

use anyhow::{Result, ensure};
use muster_lifecycle::command::{Batch, Command, Operation, Origin, Outcome, Position};
use muster_lifecycle::state::State;
use muster_lifecycle::time::{ClusterTime, Stamp};

/// Commands in one entry.
pub const BATCH: usize = 256;

/// A leader's commands are only taken in its own term.
const TERM: u64 = 1;

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub state: State,
    index: u64,
}

impl Ledger {
    /// Fails if any of it is refused: what is measured is work that gets done.
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        self.index += 1;
        let applied = self.state.apply(Position { term: TERM, index: self.index }, batch);
        let refused = applied.outcomes.iter().find(|outcome| matches!(outcome, Outcome::Rejected(_)));
        ensure!(refused.is_none(), "refused: {refused:?}");
        Ok(())
    }

    pub fn apply_all(&mut self, batches: &[Batch]) -> Result<()> {
        batches.iter().try_for_each(|batch| self.apply(batch))
    }
}

/// One entry, so many milliseconds after the cluster was founded.
pub fn batch(commands: Vec<Command>, at: u64) -> Batch {
    Batch { stamp: Stamp { cluster: ClusterTime(at), ..Stamp::default() }, commands }
}

/// Entries of [`BATCH`] commands.
pub fn batches(commands: Vec<Command>, at: u64) -> Vec<Batch> {
    commands.chunks(BATCH).map(|chunk| batch(chunk.to_vec(), at)).collect()
}

pub fn by_operator(operation: Operation) -> Command {
    command(Origin::Operator { user: "bench".into() }, operation)
}

pub fn by_leader(operation: Operation) -> Command {
    command(Origin::Controller { term: TERM }, operation)
}

/// The agent of the node that the operation is about.
pub fn by_agent(operation: Operation) -> Command {
    let name = operation.object_name().unwrap_or_default().into();
    command(Origin::Node { name }, operation)
}

fn command(origin: Origin, operation: Operation) -> Command {
    Command { origin, request: None, operation }
}
