//! Records, the flat form of the state: one key and one value each.
//!
//! Storage, snapshots and the digest all see the state this way. Keys sort as the state iterates: one prefix
//! byte per kind (with room between them for kinds to come), numbers big-endian. Values are a version byte
//! and a postcard body; the version is the kind's own, so that one kind can change without the others: see
//! [`Versioned`].

#[cfg(test)]
mod golden;

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, VariantArray};
use thiserror::Error;

use crate::object::kind::WorkloadKind;
use crate::value::replica_id::ReplicaId;
use crate::value::text::Text;

/// The key of a record. The order of the variants is the order of their prefixes, hence of the encoded keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(RecordKind), derive(VariantArray, PartialOrd, Ord))]
#[strum_discriminants(doc = "The kinds of records, without their keys.")]
pub enum RecordKey {
    Counters,
    LevelInForce,
    Node { name: Text },
    Event { sequence: u64 },
    Replica { id: ReplicaId },
    Client { id: u128 },
    FreeSlot { index: u32 },
    FleetPolicyState,
    Zone { region: Text, zone: Text },
    Aggregator { name: Text },
    Pod { namespace: Text, name: Text },
    Workload { kind: WorkloadKind, namespace: Text, name: Text },
    Addressing,
    Resting { cidr: IpNet },
    JoinToken { id: Text },
    Credential { node: Text },
}

/// A value of a record, which may have got fields with later levels.
///
/// Its own serialised form is version 1; fields that came later are skipped there and follow it. A value is written
/// in the lowest version that holds its content, so that the bytes, and with them the digest, depend on the content
/// alone: builds that know different versions agree on every byte as long as no later field is in use.
pub trait Versioned: Serialize + DeserializeOwned {
    /// The highest version that this build reads and writes.
    const NEWEST: u8 = 1;

    /// The lowest version that holds the content.
    fn version(&self) -> u8 {
        1
    }

    /// Writes the fields that came after version 1, up to this version.
    fn encode_later(&self, _version: u8, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    /// Reads the fields that came after version 1, up to this version, and returns the rest.
    fn decode_later<'a>(&mut self, _version: u8, bytes: &'a [u8]) -> Result<&'a [u8], postcard::Error> {
        Ok(bytes)
    }
}

/// An object or other value that is stored as a record under a key of its own.
pub trait Stored: Versioned {
    type Key: Ord + Clone + fmt::Debug;

    fn key(&self) -> Self::Key;
    fn record_key(key: &Self::Key) -> RecordKey;
}

const COUNTERS: u8 = 0x01;
const LEVEL_IN_FORCE: u8 = 0x08;
const NODE: u8 = 0x10;
const EVENT: u8 = 0x20;
const REPLICA: u8 = 0x30;
const CLIENT: u8 = 0x40;
const FREE_SLOT: u8 = 0x50;
const POLICY_STATE: u8 = 0x60;
const ZONE: u8 = 0x70;
const AGGREGATOR: u8 = 0x80;
const POD: u8 = 0x90;
const WORKLOAD: u8 = 0xa0;
const ADDRESSING: u8 = 0xb0;
const RESTING: u8 = 0xc0;
const JOIN_TOKEN: u8 = 0xd0;
const CREDENTIAL: u8 = 0xe0;

/// Between the two halves of a zone's key, or of a namespaced one. Sorts before every character of either half.
const SEPARATOR: char = '\0';

/// Bounds what one record may weigh, so that every store and message below can rely on it.
pub const RECORD_BYTES_MAX: usize = 64 * 1024 - 1;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("record key {key} is not known: it was written by a newer version or is damaged")]
    UnknownKey { key: Text },
    #[error("record {key} is empty: the store is damaged, rebuild it from a snapshot")]
    Empty { key: RecordKey },
    #[error("record {key} has version {found}, this build reads up to version {newest}: run the version that wrote it")]
    UnknownVersion { key: RecordKey, found: u8, newest: u8 },
    #[error("record {key} cannot be decoded ({detail}): the store is damaged, rebuild it from a snapshot")]
    Undecodable { key: RecordKey, detail: Text },
    #[error("record {key} holds {holds}: the store is damaged, rebuild it from a snapshot")]
    Misplaced { key: RecordKey, holds: RecordKey },
    #[error("record {key} occurs twice: the store is damaged, rebuild it from a snapshot")]
    Repeated { key: RecordKey },
    #[error("the counters record is missing beside {others} others: the store is damaged, rebuild it from a snapshot")]
    NoCounters { others: usize },
}

impl RecordKey {
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Counters => vec![COUNTERS],
            Self::LevelInForce => vec![LEVEL_IN_FORCE],
            Self::Node { name } => prefixed(NODE, name.as_bytes()),
            Self::Event { sequence } => prefixed(EVENT, &sequence.to_be_bytes()),
            Self::Replica { id } => prefixed(REPLICA, &id.0.to_be_bytes()),
            Self::Client { id } => prefixed(CLIENT, &id.to_be_bytes()),
            Self::FreeSlot { index } => prefixed(FREE_SLOT, &index.to_be_bytes()),
            Self::FleetPolicyState => vec![POLICY_STATE],
            Self::Zone { region, zone } => prefixed(ZONE, format!("{region}{SEPARATOR}{zone}").as_bytes()),
            Self::Aggregator { name } => prefixed(AGGREGATOR, name.as_bytes()),
            Self::Pod { namespace, name } => prefixed(POD, format!("{namespace}{SEPARATOR}{name}").as_bytes()),
            Self::Workload { kind, namespace, name } => {
                let place = WorkloadKind::ALL.iter().position(|known| known == kind).unwrap_or_default();
                let name = format!("{namespace}{SEPARATOR}{name}");
                prefixed(WORKLOAD, &prefixed(place as u8, name.as_bytes()))
            }
            Self::Addressing => vec![ADDRESSING],
            Self::Resting { cidr } => prefixed(RESTING, &cidr_bytes(cidr)),
            Self::JoinToken { id } => prefixed(JOIN_TOKEN, id.as_bytes()),
            Self::Credential { node } => prefixed(CREDENTIAL, node.as_bytes()),
        }
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        Self::parse(bytes).ok_or_else(|| RecordError::UnknownKey { key: hex(bytes) })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&prefix, rest) = bytes.split_first()?;
        match prefix {
            COUNTERS => rest.is_empty().then_some(Self::Counters),
            LEVEL_IN_FORCE => rest.is_empty().then_some(Self::LevelInForce),
            NODE => Some(Self::Node { name: Text::from(std::str::from_utf8(rest).ok()?) }),
            EVENT => Some(Self::Event { sequence: u64::from_be_bytes(rest.try_into().ok()?) }),
            REPLICA => Some(Self::Replica { id: ReplicaId(u64::from_be_bytes(rest.try_into().ok()?)) }),
            CLIENT => Some(Self::Client { id: u128::from_be_bytes(rest.try_into().ok()?) }),
            FREE_SLOT => Some(Self::FreeSlot { index: u32::from_be_bytes(rest.try_into().ok()?) }),
            POLICY_STATE => rest.is_empty().then_some(Self::FleetPolicyState),
            ZONE => parse_pair(rest).map(|(region, zone)| Self::Zone { region, zone }),
            AGGREGATOR => Some(Self::Aggregator { name: Text::from(std::str::from_utf8(rest).ok()?) }),
            POD => parse_pair(rest).map(|(namespace, name)| Self::Pod { namespace, name }),
            WORKLOAD => {
                let (&place, rest) = rest.split_first()?;
                let kind = *WorkloadKind::ALL.get(usize::from(place))?;
                parse_pair(rest).map(|(namespace, name)| Self::Workload { kind, namespace, name })
            }
            ADDRESSING => rest.is_empty().then_some(Self::Addressing),
            RESTING => parse_cidr(rest).map(|cidr| Self::Resting { cidr }),
            JOIN_TOKEN => Some(Self::JoinToken { id: Text::from(std::str::from_utf8(rest).ok()?) }),
            CREDENTIAL => Some(Self::Credential { node: Text::from(std::str::from_utf8(rest).ok()?) }),
            _ => None,
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counters => f.write_str("counters"),
            Self::LevelInForce => f.write_str("level-in-force"),
            Self::Node { name } => write!(f, "node/{name}"),
            Self::Event { sequence } => write!(f, "event/{sequence}"),
            Self::Replica { id } => write!(f, "replica/{id}"),
            Self::Client { id } => write!(f, "client/{id:032x}"),
            Self::FreeSlot { index } => write!(f, "free-slot/{index}"),
            Self::FleetPolicyState => f.write_str("policy-state"),
            Self::Zone { region, zone } => write!(f, "zone/{region}/{zone}"),
            Self::Aggregator { name } => write!(f, "aggregator/{name}"),
            Self::Pod { namespace, name } => write!(f, "pod/{namespace}/{name}"),
            Self::Workload { kind, namespace, name } => {
                write!(f, "{}/{namespace}/{name}", kind.as_str().to_lowercase())
            }
            Self::Addressing => f.write_str("addressing"),
            Self::Resting { cidr } => write!(f, "resting/{cidr}"),
            Self::JoinToken { id } => write!(f, "join-token/{id}"),
            Self::Credential { node } => write!(f, "credential/{node}"),
        }
    }
}

fn parse_pair(bytes: &[u8]) -> Option<(Text, Text)> {
    let (first, second) = std::str::from_utf8(bytes).ok()?.split_once(SEPARATOR)?;
    Some((Text::from(first), Text::from(second)))
}

/// Sorts as the ranges do: IPv4 first, then by address, then by length.
fn cidr_bytes(cidr: &IpNet) -> Vec<u8> {
    match cidr {
        IpNet::V4(net) => [&[4][..], &net.addr().octets(), &[net.prefix_len()]].concat(),
        IpNet::V6(net) => [&[6][..], &net.addr().octets(), &[net.prefix_len()]].concat(),
    }
}

fn parse_cidr(bytes: &[u8]) -> Option<IpNet> {
    let (&family, rest) = bytes.split_first()?;
    let (&length, address) = rest.split_last()?;
    let address: IpAddr = match family {
        4 => <[u8; 4]>::try_from(address).ok()?.into(),
        6 => <[u8; 16]>::try_from(address).ok()?.into(),
        _ => return None,
    };
    IpNet::new(address, length).ok()
}

fn prefixed(prefix: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + rest.len());
    bytes.push(prefix);
    bytes.extend_from_slice(rest);
    bytes
}

/// The beginning of an unknown key, enough to find it by.
fn hex(bytes: &[u8]) -> Text {
    Text::from(bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// Encodes the value of a record.
pub(crate) fn encode<T: Versioned>(value: &T) -> Vec<u8> {
    encode_onto(value, Vec::new())
}

/// Encodes the value of a record behind the bytes that are there already.
pub(crate) fn encode_onto<T: Versioned>(value: &T, mut bytes: Vec<u8>) -> Vec<u8> {
    let version = value.version();
    bytes.push(version);
    // Postcard can write the type of every field of our records, and the buffer grows as needed, so this cannot fail.
    let bytes = postcard::to_extend(value, bytes).expect("records are made of types that postcard can write");
    value.encode_later(version, bytes)
}

/// The length of the encoded value.
pub(crate) fn encoded_len<T: Versioned>(value: &T) -> usize {
    // The one is the version byte.
    1 + part_len(value) + value.encode_later(value.version(), Vec::new()).len()
}

/// The length of a part of a record.
pub(crate) fn part_len<T: Serialize>(part: &T) -> usize {
    // Cannot fail, as above.
    postcard::experimental::serialized_size(part).expect("records are made of types that postcard can write")
}

pub(crate) fn decode<T: Versioned>(key: &RecordKey, bytes: &[u8]) -> Result<T, RecordError> {
    let (&version, body) = bytes.split_first().ok_or_else(|| RecordError::Empty { key: key.clone() })?;
    if version == 0 || version > T::NEWEST {
        return Err(RecordError::UnknownVersion { key: key.clone(), found: version, newest: T::NEWEST });
    }
    let undecodable = |detail: Text| RecordError::Undecodable { key: key.clone(), detail };
    match decode_body(version, body) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(undecodable(Text::from(format!("{} bytes too many", rest.len())))),
        Err(error) => Err(undecodable(Text::from(error.to_string()))),
    }
}

fn decode_body<T: Versioned>(version: u8, body: &[u8]) -> Result<(T, &[u8]), postcard::Error> {
    let (mut value, rest) = postcard::take_from_bytes::<T>(body)?;
    let rest = value.decode_later(version, rest)?;
    Ok((value, rest))
}
