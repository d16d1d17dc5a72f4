//! Tests of a data directory made from a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::state::State;
use muster_raft::disk::sim::SimDisk;
use muster_raft::log_store::LogOpenError;
use muster_raft::persisted::log_id;
use muster_raft::snapshot_store::SnapshotFile;
use muster_raft::store::{ReplicaStore, ReplicaStoreError, Restoration};
use muster_raft::types::{Endpoint, TypeConfig, Vote};
use openraft::Raft;
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::storage::{RaftLogStorage, StorageHelper};
use proptest::prelude::*;

use crate::fixture::{self, BIRTH, IDENTITY, entries, open_sim, recorder, state_after};

fn raised() -> State {
    let mut state = state_after(&entries(4, 0..20));
    state.raise_revision(1_000_000, 1);
    state
}

fn members() -> BTreeMap<ReplicaId, Endpoint> {
    [1, 2, 3]
        .map(ReplicaId)
        .map(|id| (id, Endpoint { peer: format!("replica-{id}:7400"), ..Endpoint::default() }))
        .into()
}

fn restore(sim: &SimDisk, state: &State) -> Result<(), ReplicaStoreError> {
    let restoration = Restoration { identity: IDENTITY, store: BIRTH.store, state, members: members() };
    ReplicaStore::restore(&sim.mount(), &restoration, recorder())
}

#[test]
fn a_restored_replica_starts_as_a_member_without_being_initialized() {
    fixture::run(async {
        let (sim, state) = (SimDisk::new(), raised());
        restore(&sim, &state).unwrap();
        sim.power_loss(5);
        let mut store = open_sim(&sim);
        assert_eq!(store.machine.state().digest(), state.digest());
        assert_eq!((store.info.generation, store.info.initialized), (1, true));
        let initial = StorageHelper::new(&mut store.log, &mut store.machine)
            .with_id(ReplicaId(1))
            .get_initial_state()
            .await
            .unwrap();
        let voters: BTreeSet<_> = initial.membership_state.effective().voter_ids().collect();
        assert_eq!(voters, BTreeSet::from([1, 2, 3].map(ReplicaId)));
        let log = store.log.get_log_state().await.unwrap();
        assert_eq!((log.last_purged_log_id, log.last_log_id), (Some(log_id(1, 1)), Some(log_id(1, 1))));
        store.append(entries(2, 2..4)).await.unwrap();
        store.apply_up_to(3).await.unwrap();
        assert!(store.machine.state().revision() > state.revision());
    });
}

#[test]
fn a_restored_cluster_of_one_elects_itself_and_writes() {
    fixture::run(async {
        let (sim, state) = (SimDisk::new(), raised());
        let members = members().into_iter().take(1).collect();
        let restoration = Restoration { identity: IDENTITY, store: BIRTH.store, state: &state, members };
        ReplicaStore::restore(&sim.mount(), &restoration, recorder()).unwrap();
        let store = open_sim(&sim);
        let config = Arc::new(openraft::Config::default().validate().unwrap());
        let raft = Raft::new(ReplicaId(1), config, NoNetwork, store.log.clone(), store.machine).await.unwrap();
        raft.wait(Some(Duration::from_secs(20))).current_leader(ReplicaId(1), "elected").await.unwrap();
        let written = raft.client_write(fixture::sealed(fixture::batch(9, 100))).await.unwrap();
        assert_eq!(written.data.0.len(), 1);
        assert!(written.log_id > log_id(1, 1));
        assert_eq!(store.published.told().applied, Some(written.log_id), "published before it is answered");
        raft.shutdown().await.unwrap();
        store.log.close().await;
        let mut again = open_sim(&sim);
        assert!(again.entries().await.iter().any(|entry| entry.log_id == written.log_id));
    });
}

/// A network without any other replica.
struct NoNetwork;

impl RaftNetworkFactory<TypeConfig> for NoNetwork {
    type Network = NoNetwork;

    async fn new_client(&mut self, _: ReplicaId, _: &Endpoint) -> NoNetwork {
        NoNetwork
    }
}

impl RaftNetworkV2<TypeConfig> for NoNetwork {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(Unreachable::from_string("no peer is running")))
    }

    async fn vote(
        &mut self,
        _: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        Err(RPCError::Unreachable(Unreachable::from_string("no peer is running")))
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Err(StreamingError::Unreachable(Unreachable::from_string("no peer is running")))
    }
}

#[test]
fn restoring_over_data_is_refused() {
    fixture::run(async {
        let (sim, state) = (SimDisk::new(), raised());
        restore(&sim, &state).unwrap();
        let error = restore(&sim, &state).unwrap_err();
        assert!(matches!(error, ReplicaStoreError::Log(LogOpenError::Present { .. })), "{error}");
    });
}

#[test]
fn restoring_without_members_is_refused() {
    let state = raised();
    let restoration = Restoration { identity: IDENTITY, store: BIRTH.store, state: &state, members: BTreeMap::new() };
    let error = ReplicaStore::restore(&SimDisk::new().mount(), &restoration, recorder()).unwrap_err();
    assert!(matches!(error, ReplicaStoreError::NoMembers), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn an_interrupted_restore_can_be_repeated(stop in 0..80_u64, seed: u64) {
        let (sim, state) = (SimDisk::new(), raised());
        sim.halt_after(stop);
        let finished = restore(&sim, &state).is_ok();
        sim.power_loss(seed);
        let again = restore(&sim, &state);
        let present = matches!(again, Err(ReplicaStoreError::Log(LogOpenError::Present { .. })));
        prop_assert!(again.is_ok() || present, "{again:?}");
        prop_assert!(present || !finished, "a finished restore stays");
        prop_assert_eq!(open_sim(&sim).machine.state().digest(), state.digest());
    }
}
