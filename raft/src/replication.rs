//! The traffic between replicas: Raft's messages, requests to the leader, and the greeting that both begin with.

pub(crate) mod codec;
pub mod connector;
pub mod greeting;
pub mod hello;
pub(crate) mod leader_client;
pub mod network;
pub mod peer_service;
pub mod peers;
pub(crate) mod refusal;
