//! Persisted forms of the consensus library's types.
//!
//! The library's own serialised forms belong to a pre-release version and carry compatibility slots. The data on an
//! operator's disk must not change because a dependency did. So every stored type is spelled out here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::EntryPayload;
use openraft::alias::CommittedLeaderIdOf;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::types::{Endpoint, LogEntry, LogId, StoredMembership, TypeConfig, Vote};
use crate::write::encoded::EncodedBatch;
use muster_lifecycle::level::Level;
use muster_lifecycle::replica::ReplicaId;

type Membership = openraft::Membership<ReplicaId, Endpoint>;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("the content cannot be decoded ({0})")]
    Undecodable(postcard::Error),
    #[error("{0} bytes follow the content")]
    TooLong(usize),
    #[error("the membership is not a valid one ({0})")]
    Membership(String),
    #[error("it is of level {0}, this build knows levels up to {newest}", newest = Level::NEWEST)]
    NewerLevel(Level),
    #[error("entries of kind {0} are not known")]
    UnknownKind(u32),
}

/// The position of an entry in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogIdRecord {
    pub term: u64,
    pub index: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteRecord {
    pub term: u64,
    pub candidate: ReplicaId,
    pub committed: bool,
}

/// Voters (two sets while they change), and the addresses of every member, learners included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipRecord {
    pub voters: Vec<BTreeSet<ReplicaId>>,
    pub endpoints: BTreeMap<ReplicaId, Endpoint>,
}

/// A membership and the entry that established it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMembershipRecord {
    pub established: Option<LogIdRecord>,
    pub membership: MembershipRecord,
}

/// The head of an entry, before its content.
#[derive(Serialize, Deserialize)]
struct EntryHead {
    id: LogIdRecord,
    kind: u32,
}

const BLANK: u32 = 0;
const BATCH: u32 = 1;
const MEMBERSHIP: u32 = 2;

/// Makes an id from its parts.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderIdOf::<TypeConfig>::new(term), index)
}

pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, DecodeError> {
    postcard::to_stdvec(value).map_err(DecodeError::Undecodable)
}

/// Decodes all of `bytes`: a rest is a sign of damage or of another version.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(bytes).map_err(DecodeError::Undecodable)? {
        (value, []) => Ok(value),
        (_, rest) => Err(DecodeError::TooLong(rest.len())),
    }
}

pub fn encode_entry(entry: &LogEntry) -> Result<Vec<u8>, DecodeError> {
    let (kind, content) = match &entry.payload {
        EntryPayload::Blank => (BLANK, Bytes::new()),
        EntryPayload::Normal(batch) => (BATCH, batch.encoded().clone()),
        EntryPayload::Membership(membership) => (MEMBERSHIP, encode(&MembershipRecord::from(membership))?.into()),
    };
    let mut bytes = encode(&EntryHead { id: entry.log_id.into(), kind })?;
    bytes.extend_from_slice(&content);
    Ok(bytes)
}

pub fn decode_entry(bytes: &[u8]) -> Result<LogEntry, DecodeError> {
    let (head, content): (EntryHead, _) = postcard::take_from_bytes(bytes).map_err(DecodeError::Undecodable)?;
    let payload = match head.kind {
        BLANK => decode::<()>(content).map(|()| EntryPayload::Blank)?,
        BATCH => EntryPayload::Normal(EncodedBatch::decode(Bytes::copy_from_slice(content))?),
        MEMBERSHIP => EntryPayload::Membership(decode::<MembershipRecord>(content)?.try_into()?),
        unknown => return Err(DecodeError::UnknownKind(unknown)),
    };
    Ok(LogEntry { log_id: head.id.into(), payload })
}

// === conversions ===

impl From<LogId> for LogIdRecord {
    fn from(id: LogId) -> Self {
        Self { term: id.leader_id.term, index: id.index }
    }
}

impl From<LogIdRecord> for LogId {
    fn from(record: LogIdRecord) -> Self {
        log_id(record.term, record.index)
    }
}

impl From<Vote> for VoteRecord {
    fn from(vote: Vote) -> Self {
        Self { term: vote.leader_id.term, candidate: vote.leader_id.voted_for, committed: vote.committed }
    }
}

impl From<VoteRecord> for Vote {
    fn from(record: VoteRecord) -> Self {
        let make = if record.committed { Vote::new_committed } else { Vote::new };
        make(record.term, record.candidate)
    }
}

impl From<&Membership> for MembershipRecord {
    fn from(membership: &Membership) -> Self {
        Self {
            voters: membership.get_joint_config().clone(),
            endpoints: membership.nodes().map(|(id, endpoint)| (*id, endpoint.clone())).collect(),
        }
    }
}

impl TryFrom<MembershipRecord> for Membership {
    type Error = DecodeError;

    fn try_from(record: MembershipRecord) -> Result<Self, DecodeError> {
        if record.voters.is_empty() && record.endpoints.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(record.voters, record.endpoints).map_err(|error| DecodeError::Membership(error.to_string()))
    }
}

impl From<&StoredMembership> for StoredMembershipRecord {
    fn from(stored: &StoredMembership) -> Self {
        Self { established: stored.log_id().map(LogIdRecord::from), membership: stored.membership().into() }
    }
}

impl TryFrom<StoredMembershipRecord> for StoredMembership {
    type Error = DecodeError;

    fn try_from(record: StoredMembershipRecord) -> Result<Self, DecodeError> {
        Ok(StoredMembership::new(record.established.map(LogId::from), record.membership.try_into()?))
    }
}
