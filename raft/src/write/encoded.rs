//! Encoded commands and batches: a batch together with its stored form is what a log entry carries.
//!
//! The replica that first takes a command up encodes it once. The log of the leader, the messages to its followers and
//! their logs copy those bytes. All readers of an entry share what was decoded of it.
//!
//! A batch begins with the level that was in force when it was encoded: a build that does not know the level reads no
//! further.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use muster_lifecycle::command::{Batch, Command};
use muster_lifecycle::level::Level;
use muster_lifecycle::time::Stamp;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

use crate::storage::persisted::{self, DecodeError};

/// Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedBatch {
    level: Level,
    batch: Arc<Batch>,
    encoded: Bytes,
}

/// A command with its encoded form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedCommand {
    command: Command,
    encoded: Bytes,
}

// === impl EncodedCommand ===

impl EncodedCommand {
    pub fn new(command: Command) -> Result<Self, DecodeError> {
        let encoded = persisted::encode(&command)?.into();
        Ok(Self { command, encoded })
    }

    /// All of `encoded` must be the command: in a batch another command follows.
    pub fn decode(encoded: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { command: persisted::decode(&encoded)?, encoded })
    }

    pub fn command(&self) -> &Command {
        &self.command
    }

    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

// === impl EncodedBatch ===

impl EncodedBatch {
    pub fn new(level: Level, batch: Batch) -> Result<Self, DecodeError> {
        let encoded = persisted::encode(&(level, &batch))?.into();
        Ok(Self { level, batch: Arc::new(batch), encoded })
    }

    /// A batch of these, in their order. Their encoded forms are joined in the way a batch is encoded: the level,
    /// the stamp, the number of commands, each command.
    pub fn of(level: Level, stamp: Stamp, drafts: Vec<EncodedCommand>) -> Result<Self, DecodeError> {
        let mut encoded = persisted::encode(&(level, stamp, drafts.len()))?;
        encoded.reserve_exact(drafts.iter().map(|draft| draft.encoded.len()).sum());
        drafts.iter().for_each(|draft| encoded.extend_from_slice(&draft.encoded));
        let commands = drafts.into_iter().map(|draft| draft.command).collect();
        Ok(Self { level, batch: Arc::new(Batch { stamp, commands }), encoded: encoded.into() })
    }

    pub fn decode(encoded: Bytes) -> Result<Self, DecodeError> {
        let (level, body) = postcard::take_from_bytes(&encoded).map_err(DecodeError::Undecodable)?;
        if level > Level::NEWEST {
            return Err(DecodeError::NewerLevel(level));
        }
        Ok(Self { level, batch: Arc::new(persisted::decode(body)?), encoded })
    }

    /// The level in which it is encoded.
    pub fn level(&self) -> Level {
        self.level
    }

    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }
}

impl Deref for EncodedBatch {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

impl fmt::Debug for EncodedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.batch, f)
    }
}

impl fmt::Display for EncodedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.batch, f)
    }
}

impl Serialize for EncodedBatch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.encoded)
    }
}

impl<'de> Deserialize<'de> for EncodedBatch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SealedVisitor;

        impl Visitor<'_> for SealedVisitor {
            type Value = EncodedBatch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an encoded batch")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<EncodedBatch, E> {
                EncodedBatch::decode(Bytes::copy_from_slice(bytes)).map_err(E::custom)
            }
        }

        deserializer.deserialize_bytes(SealedVisitor)
    }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::command::{LeaderOperation, Origin};
    use muster_lifecycle::time::{ClusterTime, WallTime};

    use super::*;

    fn command(number: u64) -> Command {
        Command {
            origin: Origin::Controller { term: number },
            request: None,
            operation: LeaderOperation::AssessZones.into(),
        }
    }

    #[test]
    fn a_batch_assembled_from_encoded_commands_equals_an_encoded_batch() {
        let stamp = Stamp { cluster: ClusterTime(70_000), wall: WallTime(-3) };
        for count in [0, 1, 3, 300] {
            let commands: Vec<Command> = (0..count).map(command).collect();
            let drafts = commands.iter().cloned().map(|command| EncodedCommand::new(command).unwrap()).collect();
            let together = EncodedBatch::of(Level(1), stamp, drafts).unwrap();
            assert_eq!(together, EncodedBatch::new(Level(1), Batch { stamp, commands }).unwrap());
            assert_eq!(EncodedBatch::decode(together.encoded().clone()).unwrap(), together);
        }
    }

    #[test]
    fn an_encoded_batch_is_read_from_a_message_unless_damaged() {
        let batch =
            EncodedBatch::of(Level(2), Stamp::default(), vec![EncodedCommand::new(command(1)).unwrap()]).unwrap();
        let message = postcard::to_stdvec(&(7_u8, &batch, 9_u8)).unwrap();
        assert_eq!(postcard::from_bytes::<(u8, EncodedBatch, u8)>(&message).unwrap(), (7, batch.clone(), 9));
        let mut longer = batch.encoded().to_vec();
        longer.push(0);
        // A vector of bytes is encoded in the same way as bytes.
        let message = postcard::to_stdvec(&longer).unwrap();
        assert!(postcard::from_bytes::<EncodedBatch>(&message).is_err());
    }

    #[test]
    fn i_25_a_batch_of_an_unknown_level_is_not_read() {
        let newer = Level(Level::NEWEST.0 + 1);
        let mut encoded = persisted::encode(&newer).unwrap();
        encoded.extend_from_slice(b"whatever a later build writes");
        assert_eq!(EncodedBatch::decode(encoded.into()), Err(DecodeError::NewerLevel(newer)));
    }

    #[test]
    fn a_command_with_trailing_bytes_is_refused() {
        let mut encoded = EncodedCommand::new(command(1)).unwrap().encoded().to_vec();
        encoded.push(0);
        assert_eq!(EncodedCommand::decode(encoded.into()), Err(DecodeError::TooLong(1)));
    }
}
