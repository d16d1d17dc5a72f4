//! Writes in a node's name: who is admitted, and what becomes of registrations and reports.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod catch_up;
pub(crate) mod pods;
pub(crate) mod reconcile;
pub(crate) mod report;
pub(crate) mod trust;
