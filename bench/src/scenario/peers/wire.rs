//! The few messages of etcd's v3 interface that the comparison needs, with only the fields that it reads or sets.
//!
//! Written by hand: the whole interface would need etcd's own definitions at build time for five calls.

use bytes::Bytes;
use prost::Message;

/// The target of a [`Compare`]: the revision of the key's last change.
pub(super) const TARGET_MOD_REVISION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    /// The revision of the whole store, when the call was carried out.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    /// The leader, according to the member that answers.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

/// One step of a transaction: here always a put.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<PutRequest>,
}

/// Holds if the value is equal: the field for other relations stays at its default.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    /// Zero means that there is no such key, and must be on the wire.
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// Zero if the lease is gone.
    #[prost(int64, tag = "3")]
    pub(super) ttl_seconds: i64,
}

// === impl TxnRequest ===

impl TxnRequest {
    /// Puts `value`, but only if the key was last changed at `revision`.
    pub(super) fn renewal(key: &Bytes, revision: i64, value: &Bytes) -> Self {
        let compare = Compare { target: TARGET_MOD_REVISION, key: key.clone(), mod_revision: Some(revision) };
        let put = PutRequest { key: key.clone(), value: value.clone() };
        Self { compare: vec![compare], success: vec![RequestOp { put: Some(put) }] }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    const HEADER: [u8; 10] = [0x0a, 0x08, 0x08, 0x01, 0x10, 0x02, 0x18, 0x03, 0x20, 0x04];

    fn check_both_ways<M: Message + PartialEq + Default + Debug>(message: &M, bytes: &[u8]) {
        assert_eq!(message.encode_to_vec(), bytes);
        assert_eq!(&M::decode(bytes).unwrap(), message);
    }

    /// As etcd sends it: behind a header with fields that are of no interest here.
    fn answer<M: Message + Default>(rest: &[u8]) -> M {
        M::decode([HEADER.as_slice(), rest].concat().as_slice()).unwrap()
    }

    #[test]
    fn requests_are_encoded_as_etcd_expects() {
        check_both_ways(&LeaseGrantRequest { ttl_seconds: 60 }, &[0x08, 60]);
        check_both_ways(&LeaseKeepAliveRequest { id: 300 }, &[0x08, 0xac, 0x02]);
        check_both_ways(&RangeRequest { key: "k".into() }, &[0x0a, 1, b'k']);
    }

    #[test]
    fn a_renewal_always_encodes_the_revision_even_zero() {
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        for revision in [9, 0] {
            let compare = [0x0a, 7, 0x10, 2, 0x1a, 1, b'k', 0x30, revision];
            let put = [0x12, 8, 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v'];
            let bytes = [compare.as_slice(), put.as_slice()].concat();
            check_both_ways(&TxnRequest::renewal(&key, revision.into(), &value), &bytes);
        }
    }

    #[test]
    fn unknown_fields_of_answers_are_skipped() {
        let header = Some(ResponseHeader { member_id: 2, revision: 3 });
        let granted: LeaseGrantResponse = answer(&[0x10, 5, 0x18, 60]);
        assert_eq!(granted, LeaseGrantResponse { id: 5 });
        let kept: LeaseKeepAliveResponse = answer(&[0x10, 5, 0x18, 60]);
        assert_eq!(kept, LeaseKeepAliveResponse { id: 5, ttl_seconds: 60 });
        let changed: TxnResponse = answer(&[0x10, 1, 0x1a, 2, 0x12, 0]);
        assert_eq!(changed, TxnResponse { header: header.clone(), succeeded: true });
        let status: StatusResponse = answer(&[0x12, 1, b'3', 0x18, 9, 0x20, 2]);
        assert_eq!(status, StatusResponse { header: header.clone(), leader: 2 });
        let found: RangeResponse = answer(&[0x12, 3, 0x0a, 1, b'k', 0x20, 1]);
        assert_eq!(found, RangeResponse { header, count: 1 });
    }
}
