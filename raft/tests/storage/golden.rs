//! Golden bytes on disk: log entries, votes, positions, and the snapshot file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::level::Level;
use muster_lifecycle::replica::ReplicaId;
use muster_raft::frame;
use muster_raft::persisted::{
    LogIdRecord, MembershipRecord, StoredMembershipRecord, VoteRecord, encode, encode_entry, log_id,
};
use muster_raft::snapshot_store::{SnapshotHeader, read_header, write_snapshot};
use muster_raft::types::{Endpoint, LogEntry};
use openraft::EntryPayload;

use crate::fixture::{entry, state_after};

fn membership() -> MembershipRecord {
    let endpoint = Endpoint { peer: "p:1".into(), agent: "a:1".into(), client: "c:1".into() };
    MembershipRecord {
        voters: vec![BTreeSet::from([ReplicaId(1)])],
        endpoints: BTreeMap::from([(ReplicaId(1), endpoint)]),
    }
}

fn stored_membership() -> StoredMembershipRecord {
    StoredMembershipRecord { established: Some(LogIdRecord { term: 1, index: 0 }), membership: membership() }
}

fn header() -> SnapshotHeader {
    SnapshotHeader {
        last_log_id: Some(LogIdRecord { term: 3, index: 9 }),
        membership: stored_membership(),
        fleet: 0xf1ee7,
        generation: 2,
        revision: 77,
        digest: 0xd16e57,
        level: Level(1),
        raised_by: String::new(),
    }
}

/// As the log stores it: with a checksum over its index and its bytes.
fn sealed(entry: &LogEntry) -> Vec<u8> {
    frame::seal(&entry.log_id.index.to_be_bytes(), &encode_entry(entry).unwrap())
}

#[test]
fn the_bytes_on_disk_are_pinned() {
    let blank = LogEntry { log_id: log_id(3, 500), payload: EntryPayload::Blank };
    let change =
        LogEntry { log_id: log_id(3, 501), payload: EntryPayload::Membership(membership().try_into().unwrap()) };
    let vote = VoteRecord { term: 300, candidate: ReplicaId(2), committed: true };
    let mut golden = GoldenBytes::default();
    golden.pin("log/blank", sealed(&blank));
    golden.pin("log/membership", sealed(&change));
    golden.pin("log/batch", sealed(&entry(3, 502)));
    golden.pin("vote", encode(&vote).unwrap());
    golden.pin("log-id", encode(&LogIdRecord { term: 300, index: 7 }).unwrap());
    golden.pin("stored-membership", encode(&stored_membership()).unwrap());
    golden.pin("snapshot/header", encode(&header()).unwrap());
    let mut file = Vec::new();
    write_snapshot(&mut file, &header(), &state_after(&[entry(3, 1)])).unwrap();
    assert_eq!(read_header(file.as_slice()).unwrap(), header());
    golden.pin("snapshot/file", file);
    golden.check(Path::new("golden/storage.txt"));
}
