//! Tests of the pure cores of the node lifecycle. Each is named by the rule it holds to (T, NH, TC, NE, LB, Q, Z, TE,
//! IP), or by what is better than upstream on purpose.

mod addressing;
mod cidr;
mod condition_taint;
mod eviction;
mod fixture;
mod health;
mod placement;
mod policy;
mod requests;
mod toleration;
#[path = "../words/tolerations.rs"]
mod tolerations;
mod zone;
