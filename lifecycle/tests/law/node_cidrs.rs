//! IP-6 to IP-11 and I-07: the addresses that nodes get for their pods, and when another node may have them.

use muster_lifecycle::command::{Command, Operation, Origin};
use muster_lifecycle::meta::Uid;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::todo;

use crate::fixture::*;
use crate::fleet::*;
use crate::work::*;

const FOUR_BLOCKS: &str = "10.0.0.0/22";

fn assign(names: &[&str]) -> Operation {
    Operation::AssignCidrs { names: names.iter().map(|name| Text::from(*name)).collect() }
}

// === the plan ===

#[test]
fn ip_6_services_and_nodes_that_were_there_first_keep_what_they_have() {
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
    assert_eq!(cluster.led(plan("10.9.0.0/16", "", REST)), "unchanged", "nodes live by the first plan");
}

#[test]
fn without_a_plan_nobody_gets_addresses() {
    let mut cluster = Cluster::with_node("a");
    assert_eq!((cluster.cidrs("a").len(), cluster.assign_cidrs().len()), (0, 0));
    assert_eq!(cluster.refuses_leader(assign(&["a"])), Rejection::NoAddressing);
    cluster.create(with_cidrs("b", "10.0.0.0/24"));
    cluster.done(delete("b"));
    assert!(cluster.state.resting().is_empty(), "nothing rests either");
}

// === given out ===

#[test]
fn ip_7_a_new_node_has_its_addresses_in_the_entry_that_makes_it() {
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
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24"], "who has some keeps them");
    let names: Vec<String> = ["a", "b"].map(str::to_owned).into();
    assert_eq!(cluster.led(assign(&["a", "b", "none"])), "unchanged", "{names:?} have theirs");
}

#[test]
fn ip_7_who_is_being_deleted_gets_nothing() {
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
fn ip_8_when_nothing_is_free_it_is_told_and_made_up_for_later() {
    let mut cluster = Cluster::addressed("10.0.0.0/23");
    cluster.create(draft("a"));
    cluster.create(draft("b"));
    let applied = cluster.agent(register(draft("c")));
    let told = "CIDRNotAvailable: node c got no addresses for pods: 10.0.0.0/23 has 2 blocks, 0 of them free";
    assert_eq!(events(&applied)[1], told);
    assert!(cluster.assign_cidrs().is_empty(), "there is nothing to be had");
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
fn ip_10_what_a_node_gives_back_rests_before_somebody_else_gets_it() {
    let mut cluster = Cluster::addressed("10.0.0.0/24");
    cluster.create(NodeDraft { finalizers: Some(Box::new([Text::from("f")])), ..draft("a") });
    cluster.done(delete("a"));
    assert_eq!((cluster.free(), cluster.state.resting().len()), (vec![0], 0), "marked only: it may still use them");
    cluster.apply(NodeDraft { finalizers: Some(Box::default()), ..draft("a") });
    let freed = cluster.seconds_now();
    let resting = cluster.state.resting().first().cloned().unwrap();
    assert_eq!((resting.node.as_str(), resting.until.0 / 1000), ("a", freed + 60));
    cluster.create(draft("a"));
    assert!(cluster.cidrs("a").is_empty(), "not even the same name: it is another life");
    cluster.fail_over();
    cluster.wait(freed + 59 - cluster.seconds_now());
    assert_eq!(cluster.led(assign(&["a"])), "changed", "at the moment it ends");
    assert_eq!(cluster.cidrs("a"), ["10.0.0.0/24"]);
}

/// IP-3 as users see it: a block that was given back is used again only after all others had their turn.
#[test]
fn ip_10_blocks_go_round() {
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
fn ip_11_better_than_upstream_nobody_is_given_what_somebody_else_has() {
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
    let late = cluster.rejected(Operation::ApplyNode {
        draft: Box::new(with_cidrs("auto", "10.0.9.0/24")),
        uid: Uid(4711),
        precondition: ANY,
    });
    assert!(late.to_string().contains("cannot be changed or cleared once set"), "{late}");
}

#[test]
fn ip_11_an_agent_does_not_choose_its_addresses() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    let refused = cluster.refused(by_agent(register(with_cidrs("a", "10.0.1.0/24"))));
    assert_eq!(refused.to_string(), "spec.podCIDRs: is not for a node's agent to set (NR-3)");
}

#[test]
fn a_node_without_addresses_can_be_given_some_by_hand() {
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
fn i_07_a_block_that_was_taken_by_hand_after_its_rest_rests_again() {
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
fn i_07_a_range_is_refused_while_any_part_of_it_rests() {
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
fn the_first_address_of_all_is_an_address_like_any_other() {
    let mut cluster = Cluster::default();
    cluster.create(with_cidrs("a", "0.0.0.0/32 ::/128"));
    let refused = cluster.rejected(create(with_cidrs("b", "::/64"))).to_string();
    assert_eq!(refused, "spec.podCIDRs[0]: \"::/64\" overlaps what node \"a\" has");
}

#[test]
fn a_range_at_the_very_end_comes_and_goes() {
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
fn i_07_after_a_restore_nothing_is_given_out_for_a_while() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    cluster.create(draft("a"));
    cluster.state.raise_revision(1000, 1);
    cluster.fail_over();
    let applied = cluster.agent(register(draft("b")));
    assert!(events(&applied)[1].contains("after a restore nothing is given out for a while"));
    let restored = cluster.seconds_now() - 1;
    let look = todo::cidr_assignments(&cluster.state, cluster.now().cluster, 10);
    assert_eq!((look.operations.len(), look.look_again_at.map(|at| at.0 / 1000)), (0, Some(restored + 60)));
    assert_eq!(cluster.led(assign(&["b"])), "unchanged", "whatever the leader thinks");
    cluster.wait(restored + 60 - cluster.seconds_now());
    assert_eq!(cluster.assign_cidrs(), ["b"]);
    assert_eq!(
        (cluster.cidrs("a"), cluster.cidrs("b")),
        (vec!["10.0.0.0/24".to_owned()], vec!["10.0.1.0/24".to_owned()])
    );
    assert_eq!(cluster.state.addressing().and_then(|plan| plan.held_until), None);
}

#[test]
fn what_is_too_much_for_one_entry_or_not_for_whoever_asks_is_refused() {
    let mut cluster = Cluster::addressed(FOUR_BLOCKS);
    let flood = assign(&["a"; 257]);
    assert_eq!(cluster.refuses_leader(flood).to_string(), "limit reached: nodes in one entry (at most 256)");
    let refused = cluster.rejected(plan(FOUR_BLOCKS, "", Period::from_secs(1))).to_string();
    assert_eq!(refused, "found-addressing is not for alice to do");
    let stale = Command { origin: Origin::Controller { term: TERM - 1 }, request: None, operation: assign(&["a"]) };
    assert!(matches!(cluster.refused(stale), Rejection::ForeignTerm { .. }));
}
