//! IP-6 to IP-11 and I-07: the addresses that nodes get for their pods, and when another node may have them.

use muster_lifecycle::command::{Command, LeaderOperation, OperatorOperation, Origin};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::todo;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;
use crate::fixture::pods::*;

const FOUR_BLOCKS: &str = "10.0.0.0/22";

fn assign(names: &[&str]) -> LeaderOperation {
    LeaderOperation::AssignCidrs { names: names.iter().map(|name| Text::from(*name)).collect() }
}

// === the plan ===

#[test]
fn ip_6_service_ranges_and_existing_nodes_keep_their_blocks() {
    let mut cluster = Cluster::default();
    cluster.create(with_cidrs("old", "10.0.1.0/24"));
    cluster.create(with_cidrs("foreign", "192.168.0.0/24"));
    cluster.create(with_cidrs("six", "fd00::/64"));
    cluster.create(draft("bare"));
    assert_eq!(cluster.led(plan(FOUR_BLOCKS, "10.0.0.0/26 172.16.0.0/12", REST)), "created");
    assert_eq!(cluster.free(), [2], "upstream would not start with nodes whose ranges are not its own");
    cluster.create(draft("new"));
    assert_eq!(cluster.cidrs("new"), ["10.0.2.0/24"]);
    assert_eq!((cluster.cidrs("bare").len(), cluster.assign_cidrs()), (0, vec!["bare".to_owned()]));
    assert_eq!(cluster.cidrs("bare"), ["10.0.3.0/24"]);
    assert_eq!(cluster.led(plan("10.9.0.0/16", "", REST)), "unchanged", "the first plan stays in force");
}

#[test]
fn without_a_plan_no_node_gets_pod_cidrs() {
    let mut cluster = Cluster::with_node("a");
    assert_eq!((cluster.cidrs("a").len(), cluster.assign_cidrs().len()), (0, 0));
    assert_eq!(cluster.refuses_leader(assign(&["a"])), Rejection::NoAddressing);
    cluster.create(with_cidrs("b", "10.0.0.0/24"));
    cluster.done(delete("b"));
    assert!(cluster.state.resting().is_empty(), "no block is quarantined either");
}

// === given out ===

#[test]
fn ip_7_a_new_node_has_pod_cidrs_in_the_entry_that_creates_it() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    let applied = cluster.agent(register(draft("a")));
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24"]);
    for key in [RecordKey::Node { name: Text::from("a") }, RecordKey::Addressing] {
        assert!(applied.touched.contains(&key), "{key}");
    }
    cluster.create(draft("b"));
    assert_eq!((cluster.cidrs("b"), cluster.free()), (vec!["10.0.1.0/24".to_owned()], vec![2]));
    assert_eq!(cluster.told(create(draft("b"))), "node \"b\" already exists");
    assert_eq!(cluster.free(), [2], "a rejection costs nothing");
    cluster.agent(register(draft("a")));
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24"], "a node that has a block keeps it");
    let names: Vec<String> = ["a", "b"].map(str::to_owned).into();
    assert_eq!(cluster.led(assign(&["a", "b", "none"])), "unchanged", "{names:?} have theirs");
}

#[test]
fn ip_7_a_node_being_deleted_gets_no_pod_cidrs() {
    let mut cluster = Cluster::default();
    cluster.create(NodeDraft { finalizers: Some(Box::new([Text::from("f")])), ..draft("a") });
    cluster.create(draft("b"));
    cluster.done(delete("a"));
    cluster.lead(plan(FOUR_BLOCKS, "", REST));
    assert_eq!(cluster.assign_cidrs(), ["b"]);
    assert_eq!(cluster.led(assign(&["a"])), "unchanged");
    assert!(cluster.cidrs("a").is_empty() && cluster.assign_cidrs().is_empty());
}

#[test]
fn ip_8_without_a_free_block_there_is_an_event_and_a_later_assignment() {
    let mut cluster = Cluster::addressed("10.0.0.0/23");
    cluster.create(draft("a"));
    cluster.create(draft("b"));
    let applied = cluster.agent(register(draft("c")));
    let told = "CIDRNotAvailable: node c got no addresses for pods: 10.0.0.0/23 has 2 blocks, 0 of them free";
    assert_eq!(events(&applied)[1], told);
    assert!(cluster.assign_cidrs().is_empty(), "there is no free block");
    cluster.done(delete("a"));
    let freed = cluster.seconds_now();
    assert!(cluster.assign_cidrs().is_empty(), "it rests");
    let look = todo::cidr_assignments(&cluster.state, cluster.now().cluster, 10);
    assert_eq!(look.look_again_at.map(|at| at.0 / 1000), Some(freed + 60));
    cluster.wait(60);
    assert_eq!(cluster.assign_cidrs(), ["c"]);
    assert_eq!((cluster.cidrs("c"), cluster.state.resting().len()), (vec!["10.0.0.0/24".to_owned()], 0));
}

/// Upstream loses a block of the first family with every try.
#[test]
fn ip_9_better_than_upstream_both_families_or_none() {
    let mut cluster = Cluster::addressed("10.0.0.0/22 fd00::/64");
    cluster.create(draft("a"));
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24", "fd00::/64"]);
    assert_eq!(cluster.free(), [3, 0]);
    let applied = cluster.agent(register(draft("b")));
    assert!(events(&applied)[1].contains("fd00::/64 has 1 blocks, 0 of them free"));
    for _ in 0..5 {
        assert_eq!(cluster.led(assign(&["b"])), "unchanged");
    }
    assert_eq!((cluster.cidrs("b").len(), cluster.free()), (0, vec![3, 0]), "nothing leaks");
    cluster.done(delete("a"));
    cluster.wait(60);
    assert_eq!(cluster.assign_cidrs(), ["b"]);
    assert_eq!(cluster.cidrs("b"), ["10.0.1.0/24", "fd00::/64"]);
}

// === given back ===

#[test]
fn ip_10_a_freed_block_is_quarantined_before_another_node_gets_it() {
    let mut cluster = Cluster::addressed("10.0.0.0/24");
    cluster.create(NodeDraft { finalizers: Some(Box::new([Text::from("f")])), ..draft("a") });
    cluster.done(delete("a"));
    assert_eq!(
        (cluster.free(), cluster.state.resting().len()),
        (vec![0], 0),
        "it is only marked as deleted: it may still use them"
    );
    cluster.apply(NodeDraft { finalizers: Some(Box::default()), ..draft("a") });
    let freed = cluster.seconds_now();
    let resting = cluster.state.resting().first().cloned().unwrap();
    assert_eq!((resting.node.as_str(), resting.until.0 / 1000), ("a", freed + 60));
    cluster.create(draft("a"));
    assert!(cluster.cidrs("a").is_empty(), "not even a new node of the same name");
    cluster.fail_over();
    cluster.wait(freed + 59 - cluster.seconds_now());
    assert_eq!(cluster.led(assign(&["a"])), "changed", "at the moment it ends");
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24"]);
}

/// IP-3 as users see it: a block that was given back is used again only after all others had their turn.
#[test]
fn ip_10_a_freed_block_is_used_again_after_all_others() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    for (round, expected) in
        ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"].iter().enumerate()
    {
        let name = format!("n{round}");
        cluster.create(draft(&name));
        assert_eq!(cluster.cidrs(&name), [*expected]);
        cluster.done(delete(&name));
        cluster.wait(20);
    }
}

// === by hand ===

#[test]
fn ip_11_better_than_upstream_no_node_is_given_the_block_of_another() {
    let mut cluster = Cluster::default();
    cluster.lead(plan(FOUR_BLOCKS, "10.0.3.0/26", REST));
    cluster.create(with_cidrs("a", "10.0.1.0/24"));
    cluster.create(draft("auto"));
    cluster.create(with_cidrs("gone", "10.0.2.0/25"));
    cluster.done(delete("gone"));
    let held = "overlaps what node \"a\" has";
    let cases = [
        ("10.0.1.0/24", held),
        ("10.0.1.128/25", held),
        ("10.0.0.0/8", "overlaps what node \"auto\" has"),
        ("10.0.3.0/24", "overlaps the service range 10.0.3.0/26"),
        ("10.0.2.0/24", "was freed a moment ago and rests for another"),
        ("10.0.2.5/32", "was freed a moment ago and rests for another"),
    ];
    for (wanted, rule) in cases {
        for operation in [create(with_cidrs("b", wanted)), create(with_cidrs("b", &format!("fd00::/64 {wanted}")))] {
            let told = cluster.rejected(operation).to_string();
            assert!(told.starts_with("spec.podCIDRs[") && told.contains(rule), "{wanted}: {told}");
        }
    }
    cluster.create(with_cidrs("b", "10.0.2.128/25"));
    assert_eq!(
        (cluster.cidrs("b"), cluster.free()),
        (vec!["10.0.2.128/25".to_owned()], vec![0]),
        "part of a block takes it"
    );
    let late = cluster.rejected(OperatorOperation::ApplyNode {
        draft: Box::new(with_cidrs("auto", "10.0.9.0/24")),
        uid: Uid(4711),
        precondition: ANY,
    });
    assert!(late.to_string().contains("cannot be changed or cleared once set"), "{late}");
}

#[test]
fn ip_11_an_agent_cannot_choose_its_pod_cidrs() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    let refused = cluster.refused(by_agent(register(with_cidrs("a", "10.0.1.0/24"))));
    assert_eq!(refused.to_string(), "spec.podCIDRs: is not for a node's agent to set (NR-3)");
}

#[test]
fn an_operator_can_set_the_pod_cidrs_of_a_node_without_any() {
    let mut cluster = Cluster::default();
    cluster.create(draft("a"));
    cluster.create(draft("b"));
    cluster.lead(plan(FOUR_BLOCKS, "", REST));
    cluster.apply(with_cidrs("a", "10.0.3.0/24"));
    assert_eq!(cluster.assign_cidrs(), ["b"]);
    assert_eq!(
        (cluster.cidrs("a"), cluster.cidrs("b")),
        (vec!["10.0.3.0/24".to_owned()], vec!["10.0.0.0/24".to_owned()])
    );
}

/// A node that takes a rested block wakes it. A trace of the first rest would end the second one early.
#[test]
fn i_07_a_block_set_by_an_operator_after_its_quarantine_is_quarantined_again() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    cluster.create(with_cidrs("a", "10.0.2.0/24"));
    cluster.done(delete("a"));
    cluster.wait(60);
    cluster.create(with_cidrs("b", "10.0.2.0/24"));
    assert_eq!(cluster.state.resting().len(), 0);
    cluster.done(delete("b"));
    cluster.create(draft("c"));
    let refused = cluster.rejected(create(with_cidrs("d", "10.0.2.0/24"))).to_string();
    assert!(refused.contains("was freed a moment ago"), "{refused}");
}

#[test]
fn i_07_a_range_is_refused_while_any_part_of_it_is_quarantined() {
    let mut cluster = Cluster::addressed("10.0.0.0/16");
    cluster.create(with_cidrs("early", "10.0.4.0/24"));
    cluster.create(with_cidrs("late", "10.0.5.0/24"));
    cluster.done(delete("early"));
    cluster.wait(50);
    cluster.done(delete("late"));
    cluster.wait(10);
    let wide = || create(with_cidrs("wide", "10.0.4.0/22"));
    let refused = cluster.rejected(wide()).to_string();
    assert!(refused.contains("was freed a moment ago"), "{refused}");
    cluster.wait(60);
    assert_eq!(cluster.told(wide()), "created");
    cluster.done(delete("wide"));
    let inside = cluster.rejected(create(with_cidrs("x", "10.0.6.0/24"))).to_string();
    assert!(inside.contains("was freed a moment ago"), "the whole of it rests: {inside}");
}

#[test]
fn the_first_address_of_a_family_is_checked_for_overlap() {
    let mut cluster = Cluster::default();
    cluster.create(with_cidrs("a", "0.0.0.0/32 ::/128"));
    let refused = cluster.rejected(create(with_cidrs("b", "::/64"))).to_string();
    assert_eq!(refused, "spec.podCIDRs[0]: \"::/64\" overlaps what node \"a\" has");
}

#[test]
fn a_range_at_the_end_of_the_address_space_is_allocated_and_freed() {
    let mut cluster = Cluster::addressed("255.255.252.0/22 ffff:ffff:ffff:fff0::/60");
    for name in ["a", "b", "c", "d"] {
        cluster.create(draft(name));
    }
    assert_eq!(cluster.cidrs("d"), ["255.255.255.0/24", "ffff:ffff:ffff:fff3::/64"]);
    cluster.create(with_cidrs("last", "ffff:ffff:ffff:ffff::/64"));
    for name in ["d", "last"] {
        cluster.done(delete(name));
    }
    cluster.wait(60);
    cluster.create(draft("e"));
    assert_eq!(cluster.cidrs("e"), ["255.255.255.0/24", "ffff:ffff:ffff:fff4::/64"]);
    assert_eq!(cluster.free(), [0, 12]);
}

// === after a restore ===

#[test]
fn i_07_after_a_restore_no_block_is_assigned_during_the_quarantine() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    cluster.create(draft("a"));
    cluster.state.raise_revision(1000, 1);
    cluster.fail_over();
    let applied = cluster.agent(register(draft("b")));
    assert!(events(&applied)[1].contains("after a restore nothing is given out for a while"));
    let restored = cluster.seconds_now() - 1;
    let look = todo::cidr_assignments(&cluster.state, cluster.now().cluster, 10);
    assert_eq!((look.operations.len(), look.look_again_at.map(|at| at.0 / 1000)), (0, Some(restored + 60)));
    assert_eq!(cluster.led(assign(&["b"])), "unchanged", "even if the leader proposes it");
    cluster.wait(restored + 60 - cluster.seconds_now());
    assert_eq!(cluster.assign_cidrs(), ["b"]);
    assert_eq!(
        (cluster.cidrs("a"), cluster.cidrs("b")),
        (vec!["10.0.0.0/24".to_owned()], vec!["10.0.1.0/24".to_owned()])
    );
    assert_eq!(cluster.state.addressing().and_then(|plan| plan.held_until), None);
}

#[test]
fn assignments_are_bounded_and_only_the_leader_may_propose_them() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    let flood = assign(&["a"; 257]);
    assert_eq!(cluster.refuses_leader(flood).to_string(), "limit reached: nodes in one entry (at most 256)");
    let refused = cluster.rejected(plan(FOUR_BLOCKS, "", Period::from_secs(1))).to_string();
    assert_eq!(refused, "found-addressing is not for alice to do");
    let stale =
        Command { origin: Origin::Controller { term: TERM - 1 }, request: None, operation: assign(&["a"]).into() };
    assert!(matches!(cluster.refused(stale), Rejection::ForeignTerm { .. }));
}
