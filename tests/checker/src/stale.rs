//! Reads that asked for no more than what a replica has: they may be old, but not invented, and not from the future.

use std::collections::BTreeMap;

use crate::register::{RegisterAnswer, RegisterCall, RegisterOperation, RegisterValue};

/// Every value that an old read found was written before that read ended, by a write that did not fail, and the
/// object's revision is not below that of the write.
pub fn found_what_existed(operations: &[RegisterOperation]) -> Result<(), String> {
    let writes: BTreeMap<(usize, RegisterValue), &RegisterOperation> =
        operations.iter().filter_map(|write| Some(((write.key, write.written()?), write))).collect();
    for (read, value, revision) in operations.iter().filter_map(stale_read) {
        let Some(value) = value else { continue };
        let Some(write) = writes.get(&(read.key, value)) else {
            return Err(format!("a value that was never written, or by a call that failed:\n  {read}"));
        };
        let too_early = matches!(write.answer, RegisterAnswer::Written { revision: after } if revision < after);
        if write.start > read.end || too_early {
            return Err(format!("a value from before its write:\n  {read}\n  {write}"));
        }
    }
    Ok(())
}

/// While its process runs, a replica never goes back in time: of two old reads of a key, one after the other through
/// the same replica, the later finds no earlier revision.
pub fn never_went_back(operations: &[RegisterOperation]) -> Result<(), String> {
    let mut places: BTreeMap<(u64, usize), Vec<(&RegisterOperation, u64)>> = BTreeMap::new();
    for (read, _, revision) in operations.iter().filter_map(stale_read) {
        places.entry((read.replica, read.key)).or_default().push((read, revision));
    }
    for mut reads in places.into_values() {
        reads.sort_by_key(|(read, _)| read.start);
        let mut ended: Vec<_> = reads.clone();
        ended.sort_by_key(|(read, _)| read.end);
        let mut newest: Option<(&RegisterOperation, u64)> = None;
        let mut ended = ended.into_iter().peekable();
        for (read, revision) in reads {
            while let Some(earlier) = ended.next_if(|(earlier, _)| earlier.end < read.start) {
                newest = newest.filter(|(_, known)| *known >= earlier.1).or(Some(earlier));
            }
            if let Some((earlier, _)) = newest.filter(|(_, known)| *known > revision) {
                return Err(format!("replica {} went back in time:\n  {earlier}\n  {read}", read.replica));
            }
        }
    }
    Ok(())
}

fn stale_read(operation: &RegisterOperation) -> Option<(&RegisterOperation, Option<RegisterValue>, u64)> {
    match (operation.call, operation.answer) {
        (RegisterCall::StaleRead, RegisterAnswer::Found { value, revision }) => Some((operation, value, revision)),
        _ => None,
    }
}
