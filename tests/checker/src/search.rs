//! The search for an order that explains a history: the algorithm of Wing and Gong, with Lowe's memory of dead ends.
//!
//! An operation may come next if it started before every operation that is still to come has ended. The search takes
//! the first that the register's answer allows, and goes back where none is. A set of operations that were taken and
//! the register's state after them are never tried twice. An operation that changes nothing is taken as soon as it can
//! be, and no other is tried in its place: it stands in no other's way. Keys have searches of their own.
//!
//! We looked at crates first: `todc-utils` has this algorithm but neither calls without an answer nor a bound, and
//! `stateright` and `lincheck` explore models and threads rather than check a history.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use crate::register::{Bystanders, RegisterAnswer, RegisterCall, RegisterOperation, RegisterState};

/// Far more than the histories of tests need; a search that gives up is a failure, never a pass.
pub const STEPS_MAX: u64 = 4_000_000;
/// How many operations around a violation are shown.
const SHOWN: usize = 12;

/// The reason why a history does not count as linearizable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLinearizable {
    /// No order explains the answers.
    Violation(String),
    /// The search was given up.
    Undecided { key: usize, operations: usize, steps: u64 },
}

/// The operations of one key in order of their start.
struct Search<'a> {
    operations: &'a [&'a RegisterOperation],
    bystanders: Bystanders,
    taken: Taken,
    state: RegisterState,
    /// The choices made so far, with the state before each.
    path: Vec<(usize, RegisterState)>,
    dead_ends: HashSet<(TakenKey, RegisterState)>,
    steps: u64,
}

/// A set of operations by their number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Taken {
    words: Box<[u64]>,
}

/// A set of operations in little room: all before a number, and some after it.
type TakenKey = (usize, Box<[u64]>);

/// Checks every key of a history.
pub fn linearizable(operations: &[RegisterOperation], bystanders: Bystanders) -> Result<(), NotLinearizable> {
    linearizable_within(STEPS_MAX, operations, bystanders)
}

pub fn linearizable_within(
    steps_max: u64,
    operations: &[RegisterOperation],
    bystanders: Bystanders,
) -> Result<(), NotLinearizable> {
    let mut keys: BTreeMap<usize, Vec<&RegisterOperation>> = BTreeMap::new();
    for operation in operations {
        keys.entry(operation.key).or_default().push(operation);
    }
    keys.into_iter().try_for_each(|(key, operations)| check_key(key, operations, bystanders, steps_max))
}

fn check_key(
    key: usize,
    operations: Vec<&RegisterOperation>,
    bystanders: Bystanders,
    steps_max: u64,
) -> Result<(), NotLinearizable> {
    let mut ordered = relevant(operations, bystanders);
    ordered.sort_by_key(|operation| (operation.start, operation.end));
    let mut search = Search::new(&ordered, bystanders);
    match search.run(steps_max) {
        Some(Ok(())) => Ok(()),
        Some(Err(best)) => Err(NotLinearizable::Violation(describe(key, &ordered, &best))),
        None => Err(NotLinearizable::Undecided { key, operations: ordered.len(), steps: steps_max }),
    }
}

/// Leaves out what cannot matter: calls that certainly changed nothing, reads without an answer, old reads, and writes
/// without an answer whose value no read ever found. Such a write may as well never have happened, and each that stays
/// doubles the orders to try. A conflict stays only if no write without an answer can have caused it, because what
/// revision such a write gave the object is not known.
fn relevant(operations: Vec<&RegisterOperation>, bystanders: Bystanders) -> Vec<&RegisterOperation> {
    let found = |operation: &&RegisterOperation| match (operation.call, operation.answer) {
        (RegisterCall::Read, RegisterAnswer::Found { value, .. }) => value,
        _ => None,
    };
    let found: BTreeSet<_> = operations.iter().filter_map(found).collect();
    let unknown = |write: &&&RegisterOperation| write.is_unknown() && write.written().is_some();
    let first_unknown = operations.iter().filter(unknown).map(|write| write.start).min();
    let matters = |operation: &&RegisterOperation| match (operation.call, operation.answer) {
        (RegisterCall::StaleRead, _) | (_, RegisterAnswer::Failed) => false,
        (_, RegisterAnswer::Unknown) => operation.written().is_some_and(|value| found.contains(&value)),
        (RegisterCall::Swap { .. }, RegisterAnswer::Conflict) => {
            bystanders == Bystanders::Absent && first_unknown.is_none_or(|start| start > operation.end)
        }
        (
            RegisterCall::Read | RegisterCall::Write(_) | RegisterCall::Swap { .. },
            RegisterAnswer::Found { .. } | RegisterAnswer::Written { .. } | RegisterAnswer::Conflict,
        ) => true,
    };
    operations.into_iter().filter(matters).collect()
}

/// The longest order that was found, and the operations that could have come next.
fn describe(key: usize, operations: &[&RegisterOperation], best: &[(usize, RegisterState)]) -> String {
    let mut state = RegisterState::default();
    let taken: BTreeSet<usize> = best.iter().map(|(number, _)| *number).collect();
    let mut text =
        format!("key {key}: no order explains its {} operations.\nThe longest one ends with:\n", operations.len());
    for (number, after) in best.iter().skip(best.len().saturating_sub(SHOWN)) {
        let _ = writeln!(text, "  {}", operations[*number]);
        state = *after;
    }
    let _ = writeln!(text, "after which it is {state:?}. None of these fits:");
    let left = operations.iter().enumerate().filter(|(number, _)| !taken.contains(number));
    for (_, operation) in left.take(SHOWN) {
        let _ = writeln!(text, "  {operation}");
    }
    text
}

// === impl Search ===

impl<'a> Search<'a> {
    fn new(operations: &'a [&'a RegisterOperation], bystanders: Bystanders) -> Self {
        let (taken, state) = (Taken::none(operations.len()), RegisterState::default());
        Self { operations, bystanders, taken, state, path: Vec::new(), dead_ends: HashSet::new(), steps: 0 }
    }

    /// `Err` is the longest order found, each operation with the state after it. `None` if it took too long.
    fn run(&mut self, steps_max: u64) -> Option<Result<(), Vec<(usize, RegisterState)>>> {
        let mut best = Vec::new();
        let mut from = 0;
        while !self.is_complete() {
            let is_new = match self.next_from(from) {
                Some((number, after)) => {
                    self.path.push((number, self.state));
                    self.taken.put(number, true);
                    self.state = after;
                    // A place that was reached before leads nowhere, or the search would have ended there.
                    self.dead_ends.insert((self.taken.key(), after))
                }
                None => false,
            };
            if is_new {
                from = 0;
            } else {
                if self.path.len() > best.len() {
                    best = self.order();
                }
                match self.step_back() {
                    Some(next) => from = next,
                    None => return Some(Err(best)),
                }
            }
            self.steps += 1;
            if self.steps > steps_max {
                return None;
            }
        }
        Some(Ok(()))
    }

    /// Undoes the last choice that had an alternative; the number from which to look for another. `None` if all
    /// choices are undone.
    fn step_back(&mut self) -> Option<usize> {
        while let Some((number, before)) = self.path.pop() {
            self.taken.put(number, false);
            let changed_something = self.state != before;
            self.state = before;
            if changed_something {
                return Some(number + 1);
            }
        }
        None
    }

    /// The operation to take next, and the state after it: the first that changes nothing, or else the first from this
    /// number on after which all others still have a place.
    fn next_from(&self, from: usize) -> Option<(usize, RegisterState)> {
        let window = self.window();
        let after = |number: &usize| Some((*number, self.state.after(self.operations[*number], self.bystanders)?));
        let mut possible = window.iter().filter(|number| **number >= from).filter_map(after);
        let idle = possible.clone().find(|(_, after)| *after == self.state);
        let fits = |number: usize, after: RegisterState| {
            let mut others = window.iter().filter(|other| **other != number);
            others.all(|other| !after.rules_out(self.operations[*other]))
        };
        idle.or_else(|| possible.find(|(number, after)| fits(*number, *after)))
    }

    /// The operations that started before every operation still to come has ended.
    fn window(&self) -> Vec<usize> {
        let mut window = Vec::new();
        let mut first_end = u64::MAX;
        for number in self.taken.first_absent()..self.operations.len() {
            let operation = self.operations[number];
            if operation.start > first_end {
                break;
            }
            if self.taken.has(number) {
                continue;
            }
            if !operation.is_unknown() {
                first_end = first_end.min(operation.end);
            }
            window.push(number);
        }
        window
    }

    /// Whether every operation that was answered has its place. One without an answer need not have happened.
    fn is_complete(&self) -> bool {
        let left = self.operations[self.taken.first_absent()..].iter().enumerate();
        let offset = self.taken.first_absent();
        left.filter(|(number, _)| !self.taken.has(offset + number)).all(|(_, operation)| operation.is_unknown())
    }

    fn order(&self) -> Vec<(usize, RegisterState)> {
        let after = self.path.iter().skip(1).map(|(_, before)| *before).chain([self.state]);
        self.path.iter().map(|(number, _)| *number).zip(after).collect()
    }
}

// === impl Taken ===

impl Taken {
    fn none(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(64)].into() }
    }

    fn has(&self, number: usize) -> bool {
        self.words[number / 64] >> (number % 64) & 1 == 1
    }

    fn put(&mut self, number: usize, is_in: bool) {
        let bit = 1 << (number % 64);
        if is_in {
            self.words[number / 64] |= bit;
        } else {
            self.words[number / 64] &= !bit;
        }
    }

    fn key(&self) -> TakenKey {
        let full = self.words.iter().take_while(|word| **word == u64::MAX).count();
        let empty = self.words.iter().rev().take_while(|word| **word == 0).count();
        (full, self.words.get(full..self.words.len() - empty).unwrap_or_default().into())
    }

    fn first_absent(&self) -> usize {
        let full = self.words.iter().take_while(|word| **word == u64::MAX).count();
        full * 64 + self.words.get(full).map_or(0, |word| word.trailing_ones() as usize)
    }
}
