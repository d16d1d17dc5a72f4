//! Golden bytes of raft's own messages: the payloads that the peers' door carries as opaque bytes.
//!
//! The types are the consensus library's, so a new version of it may change them. Then replicas of two builds could not
//! talk, and nothing else would notice before an upgrade.

use std::path::Path;

use muster_golden::GoldenBytes;
use muster_lifecycle::command::{Batch, Command, LeaderOperation, Origin, Outcome, Receipt, ReceiptEffect};
use muster_lifecycle::meta::Revision;
use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::time::{ClusterTime, Stamp, WallTime};
use openraft::EntryPayload;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::Serialize;

use crate::membership::MembershipChange;
use crate::replication::codec;
use crate::replication::network::SnapshotAnnouncement;
use crate::storage::persisted::{MembershipRecord, log_id};
use crate::types::{Endpoint, LogEntry, Outcomes, TypeConfig, Vote};
use crate::write::encoded::EncodedBatch;

fn encoded<T: Serialize>(value: &T) -> Vec<u8> {
    codec::encode(value).unwrap().to_vec()
}

fn endpoint() -> Endpoint {
    Endpoint { peer: "p:1".into(), agent: "a:1".into(), client: "c:1".into() }
}

fn entries() -> Vec<LogEntry> {
    let operation = LeaderOperation::AssessZones.into();
    let command = Command { origin: Origin::Controller { term: 3 }, request: None, operation };
    let stamp = Stamp { cluster: ClusterTime(300), wall: WallTime(-1) };
    let batch = EncodedBatch::new(Batch { stamp, commands: vec![command] }).unwrap();
    let record =
        MembershipRecord { voters: vec![[ReplicaId(1)].into()], endpoints: [(ReplicaId(1), endpoint())].into() };
    let payloads =
        [EntryPayload::Blank, EntryPayload::Normal(batch), EntryPayload::Membership(record.try_into().unwrap())];
    payloads.into_iter().zip(500..).map(|(payload, index)| LogEntry { log_id: log_id(3, index), payload }).collect()
}

fn pin_appends(golden: &mut GoldenBytes) {
    let (vote, last) = (Vote::new_committed(3, ReplicaId(2)), Some(log_id(3, 499)));
    let append = AppendEntriesRequest::<TypeConfig> {
        vote,
        prev_log_id: last,
        entries: entries(),
        leader_commit: Some(log_id(2, 7)),
    };
    golden.pin("append/request", encoded(&append));
    let answers = [
        ("success", AppendEntriesResponse::<TypeConfig>::Success),
        ("partial-success", AppendEntriesResponse::PartialSuccess(last)),
        ("conflict", AppendEntriesResponse::Conflict),
        ("higher-vote", AppendEntriesResponse::HigherVote(vote)),
    ];
    answers.iter().for_each(|(name, answer)| golden.pin(format!("append/{name}"), encoded(answer)));
}

fn pin_elections(golden: &mut GoldenBytes) {
    let (vote, last) = (Vote::new(3, ReplicaId(2)), Some(log_id(3, 499)));
    golden.pin("vote/request", encoded(&VoteRequest::<TypeConfig>::new(vote, last)));
    golden.pin("vote/response", encoded(&VoteResponse::<TypeConfig>::new(vote, last, true)));
    let transfer = TransferLeaderRequest::<TypeConfig>::new(vote, ReplicaId(3), last);
    golden.pin("transfer/request", encoded(&transfer));
    let answers: [(&str, TransferLeaderResponse<TypeConfig>); 3] = [
        ("done", Ok(())),
        ("vote-changed", Err(TransferLeaderError::VoteChanged { expected: vote, actual: vote })),
        ("log-not-flushed", Err(TransferLeaderError::LogNotFlushed { expected: last, actual: None })),
    ];
    answers.iter().for_each(|(name, answer)| golden.pin(format!("transfer/{name}"), encoded(answer)));
}

fn pin_snapshots(golden: &mut GoldenBytes) {
    let vote = Vote::new_committed(3, ReplicaId(2));
    let announcement = SnapshotAnnouncement { vote, last_log_id: Some(log_id(3, 499)) };
    golden.pin("snapshot/announcement", encoded(&announcement));
    golden.pin("snapshot/response", encoded(&SnapshotResponse::<TypeConfig>::new(vote)));
}

fn pin_requests(golden: &mut GoldenBytes) {
    let receipt = Receipt { revision: Revision(300), effect: ReceiptEffect::Changed };
    golden.pin("outcomes", encoded(&Outcomes(vec![Outcome::Done(receipt)])));
    let id = ReplicaId(2);
    let changes = [
        ("add", MembershipChange::Add { id, endpoint: endpoint() }),
        ("promote", MembershipChange::Promote { id }),
        ("remove", MembershipChange::Remove { id }),
        ("transfer", MembershipChange::Transfer { to: Some(id) }),
    ];
    changes.iter().for_each(|(name, change)| golden.pin(format!("membership/{name}"), encoded(change)));
}

#[test]
fn the_bytes_of_messages_between_replicas_are_pinned() {
    let mut golden = GoldenBytes::default();
    pin_appends(&mut golden);
    pin_elections(&mut golden);
    pin_snapshots(&mut golden);
    pin_requests(&mut golden);
    golden.check(Path::new("golden/messages.txt"));
}
