//! Halt of the state machine: an entry of the log whose application panicked.
//!
//! The entry would panic again, on each start and perhaps on each replica. So it is not tried again by the same
//! release: the replica writes down the entry, its position and the panic, stops applying and takes no part. A start
//! by another release tries the entry again.

use std::io::{self, Write};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::storage::disk::{Appender, Disk, Scanner};
use crate::storage::{frame, persisted};

pub const HALT_FILE: &str = "apply-panic.dump";
const HALT_FILE_NEW: &str = "apply-panic.dump.tmp";
/// The release that runs.
pub(crate) const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The content of the dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltDump {
    pub term: u64,
    pub index: u64,
    /// The release in which the panic happened.
    pub release: String,
    pub panic: String,
    /// The entry as the log holds it.
    pub entry: Vec<u8>,
}

/// The reason why a replica does not apply any further.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "log entry {index} (term {term}) made this replica panic ({panic}); it applies nothing any more and takes no part. \
     The entry is in {file}: report it. Start this replica with a release that mends it; or, if the other replicas \
     went on, replace this one (`muster member remove`, then `muster member add` under a new id). To try the entry \
     again with this release, stop the replica and remove the file"
)]
pub struct Halt {
    pub term: u64,
    pub index: u64,
    pub panic: String,
    pub file: String,
}

/// The place of the dump.
#[derive(Debug, Clone)]
pub(crate) struct HaltFile(pub(crate) Arc<dyn Disk>);

// === impl HaltFile ===

impl HaltFile {
    /// The halt that an earlier run left behind, unless another release is to try again.
    pub(crate) fn read(&self) -> io::Result<Option<Halt>> {
        if !self.0.exists(HALT_FILE)? {
            return Ok(None);
        }
        let mut stored = Vec::new();
        io::Read::read_to_end(&mut Scanner::new(self.0.open(HALT_FILE)?)?, &mut stored)?;
        let payload = frame::open(HALT_FILE.as_bytes(), &stored).ok();
        let dump: Option<HaltDump> = payload.and_then(|payload| persisted::decode(payload).ok());
        Ok(match dump {
            Some(dump) if dump.release != RELEASE => {
                tracing::warn!(
                    index = dump.index,
                    release = dump.release,
                    "trying an entry that another release panicked on"
                );
                None
            }
            Some(HaltDump { term, index, panic, .. }) => Some(self.halt(term, index, panic)),
            None => Some(self.halt(0, 0, "the dump is unreadable".to_owned())),
        })
    }

    /// Writes the dump. One that cannot be written is logged: the replica halts all the same.
    pub(crate) fn write(&self, dump: &HaltDump) -> Halt {
        if let Err(error) = self.store(dump) {
            tracing::error!(%error, "the dump of the entry could not be written");
        }
        self.halt(dump.term, dump.index, dump.panic.clone())
    }

    fn store(&self, dump: &HaltDump) -> io::Result<()> {
        let payload = persisted::encode(dump).map_err(io::Error::other)?;
        let file = self.0.create(HALT_FILE_NEW)?;
        Appender::new(Arc::clone(&file)).write_all(&frame::seal(HALT_FILE.as_bytes(), &payload))?;
        file.sync()?;
        self.0.rename(HALT_FILE_NEW, HALT_FILE)?;
        self.0.sync_dir()
    }

    fn halt(&self, term: u64, index: u64, panic: String) -> Halt {
        Halt { term, index, panic, file: format!("{}/{HALT_FILE}", self.0.location()) }
    }
}
