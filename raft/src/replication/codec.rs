//! Codec of raft's messages.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tonic::Status;

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Bytes, Status> {
    let bytes = postcard::to_stdvec(value).map_err(|error| Status::internal(format!("cannot encode: {error}")))?;
    Ok(Bytes::from(bytes))
}

pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Status> {
    postcard::from_bytes(bytes).map_err(|error| not_understood(what, error))
}

pub(crate) fn not_understood(what: &str, error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{what}: not understood ({error}); do all replicas run the same version?"))
}
