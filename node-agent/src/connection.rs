//! Connection of an agent to one replica at a time: which endpoint to dial, the stream it opens there, and whether the
//! replica behind it still answers. Sessions of one node and of an aggregator share it.
//!
//! ```text
//!   Attachment --next endpoint, not before--> ReplicaSearch (with Backoff)
//!       |  \---attempt--> Opener --> dial (TCP, TLS, HTTP/2, tether) --> Link, with its first answer
//!       +--holds--> Link                          ReplicaLiveness: silent for too long? then search again
//! ```

mod attachment;
mod backoff;
pub(crate) mod dial;
mod endpoint;
mod failure;
mod link;
mod liveness;
mod search;
mod terms;
mod tether;

pub(crate) use attachment::{Attachment, AttachmentEvent, Dice};
pub(crate) use backoff::Backoff;
pub(crate) use endpoint::Endpoint;
pub use endpoint::SessionSetupError;
pub use failure::SessionFailure;
pub(crate) use failure::quoted;
pub(crate) use link::{AggregatorStream, Link, NodeStream, Opener};
pub(crate) use liveness::ReplicaLiveness;
pub use terms::SessionTerms;
