//! Workloads: owners that keep a number of pods, and the pods they make.
//!
//! They do what is needed to use a fleet without Kubernetes' controllers, and no more: a changed template counts for
//! pods that are made from then on, and no pod is replaced for it.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::object::kind::WorkloadKind;
use crate::object::pod::PodTemplate;
use crate::object::record::RecordKey;
use crate::object::record::{Stored, Versioned};
use crate::value::meta::{ObjectMeta, OwnerReference, Pairs, Uid};
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkloadKey {
    pub kind: WorkloadKind,
    pub namespace: Text,
    pub name: Text,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub meta: ObjectMeta,
    pub spec: WorkloadSpec,
    /// How many pods the workload has made. It keeps names and uids from being used twice.
    pub made: u64,
    pub unmodelled: Option<Text>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkloadSpec {
    /// Means nothing for a DaemonSet.
    pub replicas: u32,
    /// Labels that its pods have.
    pub selector: Pairs,
    pub labels: Pairs,
    pub annotations: Pairs,
    pub template: PodTemplate,
}

/// What a manifest asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadDraft {
    pub key: WorkloadKey,
    pub labels: Option<Pairs>,
    pub annotations: Option<Pairs>,
    pub finalizers: Option<Box<[Text]>>,
    pub owners: Option<Box<[OwnerReference]>>,
    /// `None` means one.
    pub replicas: Option<i64>,
    pub selector: Pairs,
    pub pod_labels: Pairs,
    pub pod_annotations: Pairs,
    pub template: PodTemplate,
    pub unmodelled: Option<Text>,
}

pub const WORKLOADS_MAX: usize = 100_000;
pub const REPLICAS_MAX: u32 = 1_000_000;

pub const API_VERSION: &str = "apps/v1";

/// Kubernetes' alphabet for names that it makes up: no vowels, so no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

// === impl Workload ===

impl Workload {
    /// The owner reference of its pods.
    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: Text::from(API_VERSION),
            kind: Text::from(self.kind.as_str()),
            name: self.meta.name.clone(),
            uid: self.meta.uid,
            controller: true,
            block_owner_deletion: true,
        }
    }

    /// The name of the pod of this number.
    pub fn ordinal_name(&self, ordinal: u32) -> Text {
        Text::from(format!("{}-{ordinal}", self.meta.name))
    }

    /// The number in the name of a pod of `owner`; the reverse of [`ordinal_name`](Self::ordinal_name).
    pub(crate) fn ordinal(owner: &str, name: &str) -> Option<u32> {
        let digits = name.strip_prefix(owner)?.strip_prefix('-')?;
        digits.parse().ok().filter(|ordinal: &u32| ordinal.to_string() == digits)
    }

    /// Names and uids are made inside `apply`, where nothing is random: they are hashes of input that never repeats.
    pub(crate) fn coined_name(&self, attempt: u64) -> Text {
        let mut bits = self.hash(attempt);
        let suffix: String = (0..SUFFIX_LENGTH)
            .map(|_| {
                let letter = ALPHABET[(bits % ALPHABET.len() as u128) as usize];
                bits /= ALPHABET.len() as u128;
                char::from(letter)
            })
            .collect();
        Text::from(format!("{}-{suffix}", self.meta.name))
    }

    /// A uid in the shape of a version 8 UUID.
    pub(crate) fn coined_uid(&self, attempt: u64) -> Uid {
        let version_and_variant_cleared = !(0xf000_u128 << 64 | 0xc000_u128 << 48);
        Uid(self.hash(!attempt) & version_and_variant_cleared | 0x8000_u128 << 64 | 0x8000_u128 << 48)
    }

    fn hash(&self, attempt: u64) -> u128 {
        let mut bytes = self.meta.uid.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(&attempt.to_be_bytes());
        xxh3_128(&bytes)
    }
}

impl Versioned for Workload {}

impl Stored for Workload {
    type Key = WorkloadKey;

    fn key(&self) -> WorkloadKey {
        let namespace = self.meta.namespace.clone().unwrap_or_default();
        WorkloadKey { kind: self.kind, namespace, name: self.meta.name.clone() }
    }

    fn record_key(key: &WorkloadKey) -> RecordKey {
        RecordKey::Workload { kind: key.kind, namespace: key.namespace.clone(), name: key.name.clone() }
    }
}

// === impl WorkloadKey ===

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.namespace, self.name))
    }
}
