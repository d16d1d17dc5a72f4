//! Format of the snapshot file, which is also the backup file.
//!
//! ```text
//! magic (8 bytes) | format: u32
//! header:  length: u32 | crc32: u32 | header
//! chunks:  length: u32 (> 0) | crc32: u32 | records: (key length: u32, key, value length: u32, value) ...
//! footer:  0: u32 | records: u64 | xxh3-128 of everything before: u128
//! ```
//!
//! All numbers are little-endian. Lengths are checked before anything is allocated for them. The state's own digest is
//! in the header, so a file that is intact but was made from another state is detected as well.

use std::io::{self, Read, Write};

use muster_lifecycle::level::Level;
use muster_lifecycle::record::{RecordError, RecordKey};
use muster_lifecycle::state::{State, StateBuilder};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use crate::level_guard::{Outgrown, raised, to_run};
use crate::storage::persisted::{self, DecodeError, LogIdRecord, StoredMembershipRecord};
use crate::types::{LogId, SnapshotMeta, StoredMembership};

const MAGIC: [u8; 8] = *b"MUSTERSN";
pub const FORMAT: u32 = 2;
/// Records are gathered up to this size.
const CHUNK_BYTES: usize = 1024 * 1024;
/// The largest chunk: one record more may be in it, with its two lengths.
const CHUNK_BYTES_MAX: usize = CHUNK_BYTES + 2 * 64 * 1024;
const HEADER_BYTES_MAX: usize = 1024 * 1024;

/// The description of a snapshot: which state it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHeader {
    pub last_log_id: Option<LogIdRecord>,
    pub membership: StoredMembershipRecord,
    pub fleet: u128,
    pub generation: u64,
    pub revision: u64,
    pub digest: u128,
    /// The level in force, and the version that raised it.
    pub level: Level,
    pub raised_by: String,
}

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("the snapshot cannot be read or written")]
    Io(#[from] io::Error),
    #[error("this is not a snapshot or backup of Muster: check the file name")]
    NotASnapshot,
    #[error(
        "the snapshot has format {found}, this build reads format {FORMAT}: use the release that wrote it, or a newer one"
    )]
    OtherFormat { found: u32 },
    #[error(
        "the snapshot is of level {level}{}, this build knows levels up to {}: run {}",
        raised(raised_by),
        Level::NEWEST,
        to_run(raised_by)
    )]
    NewerLevel { level: Level, raised_by: String },
    #[error(transparent)]
    Outgrown(Outgrown),
    #[error("the snapshot is damaged ({detail}): use another copy")]
    Damaged { detail: String },
    #[error("the snapshot belongs to fleet {found:032x}, this is fleet {expected:032x}: it comes from somewhere else")]
    OtherFleet { found: u128, expected: u128 },
    #[error(
        "the snapshot is of generation {found}, this replica of generation {expected}: it is from before a restore"
    )]
    OlderGeneration { found: u64, expected: u64 },
    #[error("snapshots are already being received: try again later")]
    Busy,
    #[error("the disk is nearly full: free some space on this replica")]
    DiskFull,
}

// === impl SnapshotHeader ===

impl SnapshotHeader {
    pub fn new(state: &State, fleet: u128, applied: Option<LogId>, membership: &StoredMembership) -> Self {
        Self {
            last_log_id: applied.map(LogIdRecord::from),
            membership: membership.into(),
            fleet,
            generation: state.generation(),
            revision: state.revision().0,
            digest: state.digest().0,
            level: state.level(),
            raised_by: state.level_in_force().raised_by.to_string(),
        }
    }

    pub fn log_id(&self) -> Option<LogId> {
        self.last_log_id.map(LogId::from)
    }

    pub fn stored_membership(&self) -> Result<StoredMembership, DecodeError> {
        self.membership.clone().try_into()
    }

    /// The metadata that the consensus library wants.
    pub fn meta(&self) -> Result<SnapshotMeta, DecodeError> {
        Ok(SnapshotMeta { last_log_id: self.log_id(), last_membership: self.stored_membership()? })
    }
}

// === writing ===

/// Writes a whole snapshot. The caller makes it durable.
pub fn write_snapshot(out: impl Write, header: &SnapshotHeader, state: &State) -> Result<(), SnapshotError> {
    let mut out = Hashing { inner: out, hash: Xxh3::new() };
    out.write_all(&MAGIC)?;
    out.write_all(&FORMAT.to_le_bytes())?;
    let header = persisted::encode(header).map_err(io::Error::other)?;
    write_part(&mut out, &header)?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES_MAX);
    let mut records = 0_u64;
    for (key, value) in state.records() {
        push_bytes(&mut chunk, &key.to_bytes())?;
        push_bytes(&mut chunk, &value)?;
        records += 1;
        if chunk.len() >= CHUNK_BYTES {
            write_part(&mut out, &chunk)?;
            chunk.clear();
        }
    }
    if !chunk.is_empty() {
        write_part(&mut out, &chunk)?;
    }
    out.write_all(&0_u32.to_le_bytes())?;
    out.write_all(&records.to_le_bytes())?;
    let hash = out.hash.digest128();
    out.inner.write_all(&hash.to_le_bytes())?;
    out.inner.flush()?;
    Ok(())
}

fn write_part(out: &mut impl Write, part: &[u8]) -> io::Result<()> {
    out.write_all(&length(part)?.to_le_bytes())?;
    out.write_all(&crc32fast::hash(part).to_le_bytes())?;
    out.write_all(part)
}

fn push_bytes(chunk: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    chunk.extend_from_slice(&length(bytes)?.to_le_bytes());
    chunk.extend_from_slice(bytes);
    Ok(())
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

// === reading ===

/// Reads and verifies a whole snapshot, to the last byte.
pub fn read_snapshot(input: impl Read) -> Result<(SnapshotHeader, State), SnapshotError> {
    let mut input = Hashing { inner: input, hash: Xxh3::new() };
    let header = read_head(&mut input)?;
    if header.level > Level::NEWEST {
        return Err(SnapshotError::NewerLevel { level: header.level, raised_by: header.raised_by });
    }
    let mut builder = StateBuilder::new();
    let mut records = 0_u64;
    while let Some(chunk) = read_part(&mut input, CHUNK_BYTES_MAX)? {
        records += push_records(&mut builder, &chunk)?;
    }
    let counted = u64::from_le_bytes(read_array(&mut input)?);
    let expected = input.hash.digest128();
    let found = u128::from_le_bytes(read_array(&mut input.inner)?);
    if found != expected {
        return Err(damaged("the checksum of the whole file is wrong"));
    }
    if counted != records {
        return Err(damaged(&format!("it holds {records} records and should hold {counted}")));
    }
    if input.inner.read(&mut [0])? != 0 {
        return Err(damaged("something follows its end"));
    }
    let state = builder.finish().map_err(|error| damaged(&error))?;
    check_state(&header, &state)?;
    Ok((header, state))
}

/// Reads the header of a snapshot, without verifying the rest.
pub fn read_header(input: impl Read) -> Result<SnapshotHeader, SnapshotError> {
    read_head(&mut Hashing { inner: input, hash: Xxh3::new() })
}

fn read_head(input: &mut impl Read) -> Result<SnapshotHeader, SnapshotError> {
    let magic: [u8; 8] = read_array(input).map_err(|_| SnapshotError::NotASnapshot)?;
    if magic != MAGIC {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = u32::from_le_bytes(read_array(input)?);
    if found != FORMAT {
        return Err(SnapshotError::OtherFormat { found });
    }
    let header = read_part(input, HEADER_BYTES_MAX)?.ok_or_else(|| damaged("it has no header"))?;
    persisted::decode(&header).map_err(|error| damaged(&error))
}

/// A part of non-zero length; `None` at the mark that ends the parts.
fn read_part(input: &mut impl Read, bytes_max: usize) -> Result<Option<Vec<u8>>, SnapshotError> {
    let length = u32::from_le_bytes(read_array(input)?) as usize;
    if length == 0 {
        return Ok(None);
    }
    if length > bytes_max {
        return Err(damaged(&format!("a part claims {length} bytes, at most {bytes_max} are possible")));
    }
    let expected = u32::from_le_bytes(read_array(input)?);
    let mut part = vec![0; length];
    fill(input, &mut part)?;
    if crc32fast::hash(&part) != expected {
        return Err(damaged("the checksum of a part is wrong"));
    }
    Ok(Some(part))
}

fn push_records(builder: &mut StateBuilder, mut chunk: &[u8]) -> Result<u64, SnapshotError> {
    let mut records = 0;
    let describe = |error: RecordError| damaged(&error);
    while !chunk.is_empty() {
        let key = RecordKey::from_bytes(take_bytes(&mut chunk)?).map_err(describe)?;
        builder.push(&key, take_bytes(&mut chunk)?).map_err(describe)?;
        records += 1;
    }
    Ok(records)
}

fn take_bytes<'a>(chunk: &mut &'a [u8]) -> Result<&'a [u8], SnapshotError> {
    let short = || damaged("a record ends beyond its chunk");
    let (length, rest) = chunk.split_first_chunk::<4>().ok_or_else(short)?;
    let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    *chunk = rest;
    Ok(bytes)
}

fn check_state(header: &SnapshotHeader, state: &State) -> Result<(), SnapshotError> {
    if state.digest().0 != header.digest || state.revision().0 != header.revision || state.level() != header.level {
        return Err(damaged("its records do not have the digest, revision and level that its header names"));
    }
    header.stored_membership().map_err(|error| damaged(&error))?;
    Ok(())
}

fn read_array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], SnapshotError> {
    let mut bytes = [0; N];
    fill(input, &mut bytes)?;
    Ok(bytes)
}

fn fill(input: &mut impl Read, out: &mut [u8]) -> Result<(), SnapshotError> {
    input.read_exact(out).map_err(|error| {
        let short = error.kind() == io::ErrorKind::UnexpectedEof;
        if short { damaged("it ends too early") } else { SnapshotError::Io(error) }
    })
}

fn damaged(detail: &(impl ToString + ?Sized)) -> SnapshotError {
    SnapshotError::Damaged { detail: detail.to_string() }
}

/// Passes bytes on and computes their hash.
struct Hashing<T> {
    inner: T,
    hash: Xxh3,
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(data)?;
        self.hash.update(&data[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(out)?;
        self.hash.update(&out[..count]);
        Ok(count)
    }
}
