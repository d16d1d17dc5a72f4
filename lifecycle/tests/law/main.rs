//! Tests of the law as its users see it: batches in; outcomes, changes and records out.
//!
//! Tests are named by the rule they hold to (NV-1 to NV-9, T-1 to T-6, RG-4, NH-8 to Z-10, PD, TE, GC, OOS, IP) or by
//! the behaviour that operators rely on.

mod aggregators;
mod commands;
mod darkness;
mod deletion;
mod entitlement;
mod evictions;
mod explain_node;
mod explain_zone;
mod fixture;
mod fleet;
mod forgetting;
mod garbage;
mod limits;
mod node_cidrs;
mod node_restriction;
mod node_rules;
mod pod_readiness;
mod pods;
mod policy_changes;
mod properties;
mod registration;
mod rejections;
mod retries;
mod selectors;
mod settlement;
mod silence;
mod status_reports;
mod taint_eviction;
#[path = "../words/tolerations.rs"]
mod tolerations;
mod trust;
mod work;
mod work_properties;
mod workloads;
mod zones;
