//! The rehearsal level: no released build announces it. It tests the raising of a level before one is needed.
//!
//! It has one of everything that a level can bring: a changed rule, a new command, and a new field in a record. All of
//! it stands here, and the rest of the crate calls it. Only the unreleased binary of `tests/next.rs` speaks it. A real
//! level takes its number when it comes; the rehearsal then moves up by one.

use crate::value::invalid::Invalid;
use crate::value::level::Level;
use crate::value::text::Text;
use crate::value::violation::ValueViolation;

/// The number of the rehearsal level.
pub const LEVEL: Level = Level(2);

/// Operators may set labels that begin so below the level. From the level on no one may.
pub const RESERVED_LABELS: &str = "rehearsal.muster/";

/// The longest note, in bytes.
pub const NOTE_MAX: usize = 256;

/// The changed rule: from the level on, no label with the reserved prefix can be set. One that is there may go.
pub(crate) fn check_labels(in_force: Level, changes: &[(Text, Option<Text>)]) -> Result<(), Invalid> {
    let reserved = |(key, value): &&(Text, Option<Text>)| value.is_some() && key.starts_with(RESERVED_LABELS);
    match changes.iter().find(reserved).filter(|_| in_force >= LEVEL) {
        Some((key, _)) => Err(Invalid::new("labels", ValueViolation::Reserved { key: Text::clipped(key, 64) })),
        None => Ok(()),
    }
}

/// The new command's own check.
pub(crate) fn check_note(note: &str) -> Result<(), Invalid> {
    match note.len() > NOTE_MAX {
        true => {
            let (bytes, most) = (note.len() as u64, NOTE_MAX as u64);
            Err(Invalid::new("note", ValueViolation::TooManyBytes { bytes, most }))
        }
        false => Ok(()),
    }
}

/// The version of a record that has the new field.
pub(crate) const NOTE_VERSION: u8 = 2;

/// The new field: an empty note is what a record of the version before has.
pub(crate) fn encode_note(note: &Text, version: u8, bytes: Vec<u8>) -> Vec<u8> {
    if version < NOTE_VERSION {
        return bytes;
    }
    postcard::to_extend(note, bytes).expect("postcard can write text, and the buffer grows as needed")
}

pub(crate) fn decode_note(version: u8, bytes: &[u8]) -> Result<(Text, &[u8]), postcard::Error> {
    if version < NOTE_VERSION { Ok((Text::default(), bytes)) } else { postcard::take_from_bytes(bytes) }
}
