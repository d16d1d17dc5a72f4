//! Writer of the log database: the one thread that changes it.
//!
//! The writer takes the operations that wait in its queue, writes them in one durable transaction, and only then
//! answers the callers. Order in the queue is order on disk, votes and entries alike. After a failed write it answers
//! no caller any more: see [`crate::storage::abort`].

use std::io;
use std::sync::{Arc, PoisonError};

use openraft::storage::IOFlushed;
use redb::{Database, Durability, ReadableTable, Table};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::SharedLog;
use super::tables::{COMMITTED, LOG, META, PURGED, TRANSACTIONS, VOTE, meta_frame};
use super::witness::Witness;
use crate::storage::abort::Abort;
use crate::storage::persisted::{LogIdRecord, VoteRecord};
use crate::types::{LogId, TypeConfig, Vote};

/// Operations that may share one transaction. Their bytes are bounded where they are queued.
const GROUP_MAX: usize = 256;

type Reply = oneshot::Sender<()>;
type LogTable<'a> = Table<'a, u64, &'static [u8]>;
type MetaTable<'a> = Table<'a, &'static str, &'static [u8]>;

pub(super) enum Op {
    Vote {
        vote: Vote,
        reply: Reply,
    },
    Append(Append),
    Truncate {
        from: u64,
        reply: Reply,
    },
    Purge {
        upto: LogId,
    },
    Committed {
        committed: LogId,
    },
    /// Writes nothing, and syncs all the same.
    Probe,
    Close {
        reply: Reply,
    },
}

pub(super) struct Append {
    pub(super) number: u64,
    pub(super) frames: Vec<(u64, Vec<u8>)>,
    pub(super) flushed: IOFlushed<TypeConfig>,
    /// Its share of the bytes that may wait to be written.
    pub(super) room: OwnedSemaphorePermit,
}

pub(super) struct Writer {
    pub(super) shared: Arc<SharedLog>,
    pub(super) queue: mpsc::Receiver<Op>,
    pub(super) abort: Arc<dyn Abort>,
    pub(super) witness: Witness,
    pub(super) transactions: u64,
    /// A position known to be committed and not yet written: it goes with the next transaction that happens anyway.
    pub(super) committed: Option<LogId>,
}

// === impl Writer ===

impl Writer {
    pub(super) fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            let group = self.gather(first);
            let health = self.shared.health.clone();
            if let Err(error) = health.time(|| self.write(&group)) {
                return self.fail(error, group);
            }
            if let Some(closing) = self.acknowledge(group) {
                self.close();
                // The caller may no longer wait for the answer, and that is fine.
                let _ = closing.send(());
                return;
            }
        }
        self.close();
    }

    /// The operations that can be written together: all that wait, up to a bound or an order to close.
    fn gather(&mut self, first: Op) -> Vec<Op> {
        let mut group = vec![first];
        while group.len() < GROUP_MAX && !matches!(group.last(), Some(Op::Close { .. })) {
            let Ok(next) = self.queue.try_recv() else { break };
            group.push(next);
        }
        group
    }

    fn write(&mut self, group: &[Op]) -> io::Result<()> {
        let mut needs_transaction = false;
        for op in group {
            match op {
                Op::Committed { committed } => self.committed = Some(*committed),
                Op::Close { .. } => {}
                Op::Vote { .. } | Op::Append(_) | Op::Truncate { .. } | Op::Purge { .. } | Op::Probe => {
                    needs_transaction = true;
                }
            }
        }
        if needs_transaction { self.transact(group) } else { Ok(()) }
    }

    fn transact(&mut self, group: &[Op]) -> io::Result<()> {
        let database = self.shared.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or_else(super::closed)?;
        let number = self.transactions + 1;
        if write_group(database, number, group, self.committed).map_err(into_io)? {
            self.committed = None;
        }
        self.transactions = number;
        self.witness.write(number)
    }

    /// Answers every waiting caller. Returns the reply of an order to close.
    fn acknowledge(&self, group: Vec<Op>) -> Option<Reply> {
        let newest = group.iter().filter_map(|op| if let Op::Append(append) = op { Some(append.number) } else { None });
        if let Some(number) = newest.max() {
            self.shared.tail().made_durable(number);
        }
        let mut closing = None;
        for op in group {
            match op {
                Op::Vote { reply, .. } | Op::Truncate { reply, .. } => {
                    let _ = reply.send(());
                }
                Op::Append(append) => {
                    drop(append.room);
                    append.flushed.io_completed(Ok(()));
                }
                Op::Close { reply } => closing = Some(reply),
                Op::Purge { .. } | Op::Committed { .. } | Op::Probe => {}
            }
        }
        closing
    }

    /// Ends the process. Dropping an operation answers votes and truncations with an error; appends are told
    /// explicitly.
    fn fail(self, error: io::Error, group: Vec<Op>) {
        let reason = explain(&error, &self.shared.location);
        tracing::error!(error = %error, location = %self.shared.location, "{reason}");
        self.abort.abort(&reason);
        for op in group {
            if let Op::Append(append) = op {
                append.flushed.io_completed(Err(io::Error::new(error.kind(), reason.clone())));
            }
        }
    }

    /// Writes the committed position that still waits for a transaction, and releases the file.
    fn close(&mut self) {
        if self.committed.is_some()
            && let Err(error) = self.transact(&[])
        {
            tracing::warn!(%error, "the committed position was not saved on closing; the next start replays from an older one");
        }
        drop(self.shared.database.write().unwrap_or_else(PoisonError::into_inner).take());
        if let Err(error) = self.witness.sync() {
            tracing::warn!(%error, "the witness of the log was not synced on closing");
        }
    }
}

/// Writes a group durably. Returns whether `committed` was part of it.
fn write_group(database: &Database, number: u64, group: &[Op], committed: Option<LogId>) -> Result<bool, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    // Reopening after a crash takes moments then, instead of a walk through the whole file.
    transaction.set_quick_repair(true);
    let saved;
    {
        let mut log = transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert(TRANSACTIONS, meta_frame(TRANSACTIONS, &number)?.as_slice())?;
        for op in group {
            stage(op, &mut log, &mut meta)?;
        }
        saved = stage_committed(committed, &log, &mut meta)?;
    }
    transaction.commit()?;
    Ok(saved)
}

fn stage(op: &Op, log: &mut LogTable<'_>, meta: &mut MetaTable<'_>) -> Result<(), redb::Error> {
    match op {
        Op::Vote { vote, .. } => {
            meta.insert(VOTE, meta_frame(VOTE, &VoteRecord::from(*vote))?.as_slice())?;
        }
        Op::Append(append) => {
            for (index, frame) in &append.frames {
                log.insert(index, frame.as_slice())?;
            }
        }
        Op::Truncate { from, .. } => log.retain_in(*from.., |_, _| false)?,
        Op::Purge { upto } => {
            log.retain_in(..=upto.index, |_, _| false)?;
            meta.insert(PURGED, meta_frame(PURGED, &LogIdRecord::from(*upto))?.as_slice())?;
        }
        Op::Committed { .. } | Op::Probe | Op::Close { .. } => {}
    }
    Ok(())
}

/// Writes the committed position unless it is beyond the durable entries. Such a position would ask the next start to
/// replay entries that it does not have, so it waits for its entries.
fn stage_committed(
    committed: Option<LogId>,
    log: &LogTable<'_>,
    meta: &mut MetaTable<'_>,
) -> Result<bool, redb::Error> {
    let Some(committed) = committed else { return Ok(false) };
    let last = log.last()?.map(|(index, _)| index.value());
    if last.is_none_or(|last| last < committed.index) {
        return Ok(false);
    }
    meta.insert(COMMITTED, meta_frame(COMMITTED, &LogIdRecord::from(committed))?.as_slice())?;
    Ok(true)
}

fn into_io(error: redb::Error) -> io::Error {
    if let redb::Error::Io(error) = error { error } else { io::Error::other(error) }
}

/// The last line that an operator sees of this process: what happened and what to do.
fn explain(error: &io::Error, location: &str) -> String {
    let advice = if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        "the disk is full: free some space and start this replica again"
    } else {
        "the disk failed: check it, then start this replica again; if its data is lost, replace the replica (`muster \
         member remove`, then `muster member add` with a new id)"
    };
    format!("the log in {location} could not be written ({error}); {advice}; the other replicas go on without this one")
}
