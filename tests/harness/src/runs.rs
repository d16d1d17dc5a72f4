//! The checker of I-12 and I-14 over what machines really ran: at no time two pods of one name, and no order obeyed by
//! a clone. Every cluster with simulated machines checks their journal when it ends.

use std::path::Path;

use muster_lifecycle::invariant::runs::RunHistory;
use muster_node_agent::pods::read_runs;

/// Fails the test with the two runs that were in each other's way. Says nothing in a test that fails already.
pub fn require_sound(history: &RunHistory) {
    if let Err(violation) = history.check()
        && !std::thread::panicking()
    {
        panic!("{violation}");
    }
}

/// The same for the journals in these files; returns how many runs they tell of. A machine that never ran a pod has
/// none.
pub fn require_sound_in<'a>(journals: impl IntoIterator<Item = &'a Path>) -> usize {
    let mut history = RunHistory::default();
    for journal in journals {
        match read_runs(journal) {
            Ok(read) => history.merge(read),
            Err(error) => panic!("{}: {error}", journal.display()),
        }
    }
    require_sound(&history);
    history.runs().len()
}
