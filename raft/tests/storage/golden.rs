//! Golden bytes on disk: a change here is a change of the data version.

use std::collections::{BTreeMap, BTreeSet};

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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn membership() -> MembershipRecord {
    let endpoint = Endpoint { peer: "p:1".into(), agent: "a:1".into(), client: "c:1".into() };
    MembershipRecord {
        voters: vec![BTreeSet::from([ReplicaId(1)])],
        endpoints: BTreeMap::from([(ReplicaId(1), endpoint)]),
    }
}

#[test]
fn the_bytes_of_log_entries_are_pinned() {
    let blank = LogEntry { log_id: log_id(3, 500), payload: EntryPayload::Blank };
    let change =
        LogEntry { log_id: log_id(3, 501), payload: EntryPayload::Membership(membership().try_into().unwrap()) };
    let sealed = |entry: &LogEntry| hex(&frame::seal(&entry.log_id.index.to_be_bytes(), &encode_entry(entry).unwrap()));
    assert_eq!(sealed(&blank), "01be92b8be03f40300");
    assert_eq!(sealed(&change), "0142c6f54603f50302010101010103703a3103613a3103633a31");
    assert_eq!(&sealed(&entry(3, 502))[10..18], "03f60301", "id and kind; the batch is pinned in lifecycle");
}

#[test]
fn the_bytes_of_vote_and_position_are_pinned() {
    assert_eq!(hex(&encode(&VoteRecord { term: 300, candidate: ReplicaId(2), committed: true }).unwrap()), "ac020201");
    assert_eq!(hex(&encode(&LogIdRecord { term: 300, index: 7 }).unwrap()), "ac0207");
}

#[test]
fn the_bytes_of_a_snapshot_head_are_pinned() {
    let header = SnapshotHeader {
        last_log_id: Some(LogIdRecord { term: 3, index: 9 }),
        membership: StoredMembershipRecord {
            established: Some(LogIdRecord { term: 1, index: 0 }),
            membership: membership(),
        },
        fleet: 0xf1ee7,
        generation: 2,
        revision: 77,
        digest: 0xd16e57,
        level: Level(1),
        raised_by: String::new(),
    };
    let mut file = Vec::new();
    write_snapshot(&mut file, &header, &state_after(&[])).unwrap();
    assert_eq!(read_header(file.as_slice()).unwrap(), header);
    let length = 20 + encode(&header).unwrap().len();
    assert_eq!(
        hex(&file[..length]),
        "4d5553544552534e0200000022000000192c68c4010309010100010101010103703a3103613a3103633a31e7bd3c024dd7dcc5060100"
    );
}
