//! The wire: messages between agents, replicas and operators, and their conversions to domain types.
//!
//! Generated types live in [`v1`] and stop at this crate's conversions; the rest of Muster sees only valid domain
//! types. [`manifest`] turns Kubernetes JSON into domain objects and back. [`operation`] turns write requests into
//! commands. [`agent`] reads agents' reports of their nodes. [`status`] turns rejections into gRPC statuses and back.
//! [`token`] is the token with which a machine joins. [`certified_name`] is a node's name as its certificate holds it.
//! `codec` sets the initial size of a stream's buffers.

pub mod agent;
pub mod certified_name;
mod codec;
mod field;
#[cfg(test)]
mod golden;
pub mod manifest;
pub mod operation;
pub mod protocol;
pub mod status;
pub mod token;

pub mod v1 {
    //! Generated from `muster/v1/*.proto`.
    #![allow(clippy::all, clippy::pedantic, clippy::unwrap_used, clippy::wildcard_enum_match_arm, unreachable_pub)]
    tonic::include_proto!("muster.v1");
}
