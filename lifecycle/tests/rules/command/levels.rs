//! I-25: the level in force rises when every replica speaks the next one, never before, and every build agrees on the
//! bytes below it.

use muster_lifecycle::command::{LeaderOperation, OperatorOperation, ReplicaOperation};
use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rehearsal;
use muster_lifecycle::replica::{ReplicaId, ReplicaRecord};
use muster_lifecycle::state::StateBuilder;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Period};
use muster_lifecycle::upgrade::{self, UpgradeOutlook};

use crate::command::every_operation::every_operation;
use crate::fixture::cluster::*;
use crate::fixture::fleet::rebuilt;

const NEXT: LevelRange = LevelRange::new(Level(1), Level(2));

fn announce(id: u64, version: &str, levels: LevelRange) -> ReplicaOperation {
    let replica = ReplicaRecord::new(ReplicaId(id), Uid(u128::from(id)), Text::from(version), levels);
    ReplicaOperation::AnnounceReplica { replica }
}

fn raise(to: u32) -> LeaderOperation {
    LeaderOperation::RaiseLevel { to: Level(to), version: Text::from("0.2.0") }
}

fn finalize() -> OperatorOperation {
    OperatorOperation::FinalizeUpgrade { version: Text::from("0.2.0") }
}

fn note(text: &str) -> OperatorOperation {
    OperatorOperation::RehearseNote { aggregator: Text::from("g"), note: Text::from(text) }
}

fn scope() -> OperatorOperation {
    OperatorOperation::SetAggregator { name: Text::from("g"), nodes: vec![Text::from("n-*")] }
}

fn set(name: &str, value: &str) -> OperatorOperation {
    OperatorOperation::SetPolicy { changes: vec![(Text::from(name), Text::from(value))] }
}

fn cluster(ranges: &[LevelRange]) -> Cluster {
    let mut cluster = Cluster::with_node("a");
    for (id, levels) in (1..).zip(ranges) {
        let version = if levels.max > Level::FIRST { "0.2.0" } else { "0.1.0" };
        cluster.done(announce(id, version, *levels));
    }
    cluster
}

#[test]
fn i_25_a_level_is_raised_only_when_every_replica_speaks_it() {
    let mut cluster = cluster(&[NEXT, LevelRange::SHIPPED, NEXT]);
    let held_back = "needs level 2; replica 2 runs 0.1.0 (levels 1 to 1)";
    for refused in [cluster.refuses_leader(raise(2)), cluster.rejected(finalize())] {
        assert!(refused.to_string().starts_with(held_back), "{refused}");
    }
    assert_eq!(upgrade::outlook(&cluster.state), UpgradeOutlook::HeldBack { to: Level(2) });
    cluster.done(ReplicaOperation::RetireReplica { id: ReplicaId(2) });
    assert_eq!(cluster.led(raise(2)), "changed");
    assert_eq!(cluster.led(raise(2)), "unchanged");
    let in_force = cluster.state.level_in_force();
    assert_eq!((in_force.level, &*in_force.raised_by), (Level(2), "0.2.0"));
    assert_eq!(upgrade::outlook(&cluster.state), UpgradeOutlook::Settled);
    assert!(
        cluster.refuses_leader(raise(3)).to_string().starts_with("needs level 3; replica 1 runs 0.2.0 (levels 1 to 2)")
    );
}

#[test]
fn i_25_an_older_replica_is_refused_after_the_raise_and_told_what_to_run() {
    let mut cluster = cluster(&[NEXT, NEXT]);
    assert_eq!(cluster.told(announce(1, "0.1.0", LevelRange::SHIPPED)), "changed", "before it the way back is free");
    cluster.done(announce(1, "0.2.0", NEXT));
    cluster.done(finalize());
    let refused = cluster.rejected(announce(1, "0.1.0", LevelRange::SHIPPED)).to_string();
    let wanted =
        "the cluster is at level 2, which version 0.2.0 raised; replica 1 speaks levels 1 to 1: run version 0.2.0";
    assert!(refused.starts_with(wanted), "{refused}");
    let none = LevelRange::new(Level(2), Level(1));
    cluster.rejected(announce(3, "odd", none));
}

#[test]
fn i_25_the_leader_raises_when_all_have_spoken_it_for_a_while() {
    let mut cluster = cluster(&[NEXT, LevelRange::SHIPPED]);
    assert_eq!(upgrade::raise_due(&cluster.state, ClusterTime(u64::MAX)), None);
    cluster.done(announce(2, "0.2.0", NEXT));
    let since = cluster.state.cluster_time();
    let at = Period::from_secs(600).after(since);
    assert_eq!(upgrade::outlook(&cluster.state), UpgradeOutlook::Due { to: Level(2), at });
    assert_eq!(upgrade::raise_due(&cluster.state, ClusterTime(at.0 - 1)), None);
    assert_eq!(upgrade::raise_due(&cluster.state, at), Some(Level(2)));
    cluster.told(announce(2, "0.2.0", NEXT));
    assert_eq!(upgrade::raise_due(&cluster.state, at), Some(Level(2)), "a restart does not begin the wait anew");
    cluster.done(set("upgrade-finalize-after", "manual"));
    assert_eq!(upgrade::outlook(&cluster.state), UpgradeOutlook::Manual { to: Level(2) });
    assert_eq!(upgrade::raise_due(&cluster.state, ClusterTime(u64::MAX)), None);
}

#[test]
fn i_25_a_command_above_the_level_in_force_is_refused_with_who_holds_it_back() {
    let mut cluster = cluster(&[NEXT, LevelRange::SHIPPED]);
    cluster.done(scope());
    let refused = upgrade::admit(&cluster.state, rehearsal::LEVEL).unwrap_err().to_string();
    assert!(refused.starts_with("needs level 2; replica 2 runs 0.1.0 (levels 1 to 1)"), "{refused}");
    assert!(cluster.rejected(note("n")).to_string().starts_with("needs level 2; replica 2"));
    cluster.done(announce(2, "0.2.0", NEXT));
    let refused = upgrade::admit(&cluster.state, rehearsal::LEVEL).unwrap_err().to_string();
    assert!(refused.starts_with("needs level 2; level 1 is in force; every replica speaks level 2"), "{refused}");
    cluster.done(finalize());
    assert_eq!(cluster.told(note("n")), "changed");
    for operation in every_operation() {
        assert!((Level::FIRST..=Level::NEWEST).contains(&operation.level()), "{}", operation.label());
    }
}

#[test]
fn i_25_rules_follow_the_level_in_force() {
    let mut cluster = cluster(&[NEXT]);
    let reserved = |value: &str| label("a", &format!("{}x={value}", rehearsal::RESERVED_LABELS), true);
    assert_eq!(cluster.told(reserved("1")), "changed");
    cluster.done(finalize());
    assert!(cluster.rejected(reserved("2")).to_string().contains("is reserved"));
}

/// The digest covers the level; a field of a later level that is not in use leaves no trace in a record.
#[test]
fn i_25_a_record_is_written_in_the_lowest_version_that_holds_it() {
    let mut cluster = cluster(&[NEXT]);
    cluster.done(scope());
    let key = RecordKey::Aggregator { name: Text::from("g") };
    let before = cluster.state.record(&key).unwrap();
    assert_eq!(before[0], 1);
    let digest = cluster.state.digest();
    cluster.done(finalize());
    assert_ne!(cluster.state.digest(), digest);
    assert_eq!(cluster.state.record(&key).unwrap(), before, "a raise rewrites no record");
    cluster.done(note("n"));
    let noted = cluster.state.record(&key).unwrap();
    assert_eq!((noted[0], &noted[1..before.len()]), (2, &before[1..]));
    let read = rebuilt(&cluster.state);
    assert_eq!(read.digest(), cluster.state.digest());
    assert_eq!(&*read.aggregators().get("g").unwrap().note, "n");
    assert_eq!(read.level(), Level(2));
    cluster.done(note(""));
    assert_eq!(cluster.state.record(&key).unwrap(), before);
    let error = StateBuilder::new().push(&key, &[&[3], &noted[1..]].concat()).unwrap_err().to_string();
    assert!(error.contains("has version 3, this build reads up to version 2"), "{error}");
}

#[test]
fn i_25_a_restore_keeps_the_level() {
    let mut cluster = cluster(&[NEXT]);
    cluster.done(finalize());
    cluster.state.raise_revision(1_000, 1);
    assert_eq!((cluster.state.level(), cluster.state.replicas().len()), (Level(2), 0));
}
