//! Objects of a cluster and their parts, each with its record.

pub mod addressing;
pub mod aggregator;
pub mod credential;
pub(crate) mod draft;
pub mod event;
pub mod join_token;
pub mod kind;
pub mod level_in_force;
pub mod node;
pub mod pod;
pub mod pod_requests;
pub mod policy;
pub mod policy_state;
pub mod record;
pub mod replica;
pub mod selector;
pub mod slot;
pub mod taint;
pub mod token_bucket;
pub mod toleration;
pub mod workload;
pub mod zone;
