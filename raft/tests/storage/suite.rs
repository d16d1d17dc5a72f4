//! openraft's own test suite for stores, run on this one.

use std::sync::Arc;

use muster_raft::disk::real::RealDisk;
use muster_raft::disk::sim::SimDisk;
use muster_raft::log_store::LogStore;
use muster_raft::state_machine::StateMachine;
use muster_raft::types::TypeConfig;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use crate::fixture;

struct OnSimulatedDisks;
struct OnRealDisks;

impl StoreBuilder<TypeConfig, LogStore, StateMachine, SimDisk> for OnSimulatedDisks {
    async fn build(&self) -> Result<(SimDisk, LogStore, StateMachine), StorageError<TypeConfig>> {
        let sim = SimDisk::new();
        let opened = fixture::open_sim(&sim);
        Ok((sim, opened.log, opened.machine))
    }
}

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for OnRealDisks {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path().join("data")).unwrap();
        let opened = fixture::open(Arc::clone(&disk) as _, Some(dir.path().join("checkpoint"))).unwrap();
        Ok((dir, opened.log, opened.machine))
    }
}

#[test]
fn openraft_suite_passes_on_simulated_disks() {
    fixture::run(Suite::test_all(OnSimulatedDisks)).unwrap();
}

#[test]
fn openraft_suite_passes_on_real_disks() {
    fixture::run(Suite::test_all(OnRealDisks)).unwrap();
}
