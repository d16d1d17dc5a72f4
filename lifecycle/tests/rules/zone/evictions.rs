//! NE-4 to NE-6, Q-1 to Q-3 and I-04: which node is tainted for eviction, when, and from which bucket.

use muster_lifecycle::command::{
    Batch, Command, LeaderOperation, Operation, OperatorOperation, Origin, Outcome, Position,
};
use muster_lifecycle::kind::Kind;
use muster_lifecycle::node::{Incarnation, NodeDraft};
use muster_lifecycle::oversight::{EvictionStep, eviction_step};
use muster_lifecycle::record::RecordKey;
use muster_lifecycle::rejection::Rejection;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::{ClusterTime, Stamp};
use proptest::prelude::*;

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

/// Zone `a` with two lost nodes of five, beside a healthy one, assessed.
fn waiting() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.populate("a", 3, 2);
    cluster.populate("normal", 1, 0);
    cluster.assess();
    cluster
}

fn step(cluster: &Cluster) -> EvictionStep {
    eviction_step(&cluster.state, &key("a"), cluster.now().cluster)
}

/// I-04: a zone gets no token by vanishing and coming back.
#[test]
fn i_04_a_zone_that_returns_has_the_bucket_it_had() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 0, 1);
    cluster.populate("normal", 1, 0);
    cluster.assess();
    assert_eq!(cluster.evict("a-00"), "changed");
    cluster.told(delete("a-00"));
    cluster.assess();
    cluster.populate("a", 0, 1);
    cluster.assess();
    assert!(matches!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::NoToken { .. }));
    cluster.told(delete("a-00"));
    cluster.assess();
    assert!(cluster.state.zones().get(&key("a")).is_some_and(|zone| zone.is_retired()));
    cluster.wait(20);
    cluster.assess();
    assert!(cluster.state.zones().get(&key("a")).is_none(), "a full bucket is not stored");
}

#[test]
fn q_2_the_first_node_is_evicted_at_once_and_then_one_per_ten_seconds() {
    let mut cluster = waiting();
    let head = EvictionStep::Evict { name: Text::from("a-00"), incarnation: Incarnation(1) };
    assert_eq!(step(&cluster), head);
    let applied = cluster.lead(cluster.eviction("a-00"));
    let evicted_at = cluster.now().cluster.0;
    let event = "NodeTaintedForEviction: node.kubernetes.io/unreachable:NoExecute was added; zone r1/a evicts 0.1 nodes per second";
    assert_eq!(events(&applied), [event]);
    assert_eq!((cluster.queue("a"), cluster.absent()), (vec!["a-01".to_owned()], vec!["a-00".to_owned()]));
    assert_eq!(step(&cluster), EvictionStep::WaitUntil(ClusterTime(evicted_at + 10_000)));
    cluster.wait(8);
    assert_eq!(cluster.evict("a-01"), "zone r1/a has no token for an eviction now");
    assert_eq!(cluster.evict("a-01"), "changed");
    assert_eq!(cluster.now().cluster.0, evicted_at + 10_000);
    assert_eq!(step(&cluster), EvictionStep::Idle);
    assert_eq!(cluster.zone("a").evictions, 2);
}

#[test]
fn i_04_the_token_is_charged_in_the_entry_that_adds_the_taint() {
    let mut cluster = waiting();
    let applied = cluster.lead(cluster.eviction("a-00"));
    for record in [
        RecordKey::Node { name: Text::from("a-00") },
        RecordKey::Zone { region: Text::from("r1"), zone: Text::from("a") },
    ] {
        assert!(applied.touched.contains(&record), "{record}");
    }
    assert!(!cluster.zone("a").bucket.has_token(cluster.now().cluster));
    let taint = cluster.node("a-00").spec.taints.iter().find(|taint| taint.to_string() == UNREACHABLE).cloned();
    assert_eq!(taint.and_then(|taint| taint.added), Some(cluster.now()), "the pods' countdown starts here");
}

#[test]
fn ne_6_better_than_upstream_a_rejection_costs_no_token() {
    let mut cluster = waiting();
    let bucket = cluster.zone("a").bucket.clone();
    let stale = LeaderOperation::EvictNode { name: Text::from("a-00"), incarnation: Incarnation(99) };
    let cases = [
        (stale, "node \"a-00\" is incarnation 1, this was meant for 99: it was deleted and created anew"),
        (cluster.eviction("a-02"), "node \"a-02\" does not wait to be evicted"),
        (
            LeaderOperation::EvictNode { name: Text::from("none"), incarnation: Incarnation(1) },
            "node \"none\" not found",
        ),
    ];
    for (operation, message) in cases {
        assert_eq!(cluster.refuses_leader(operation).to_string(), message);
        assert_eq!(cluster.zone("a").bucket, bucket);
    }
    let back = cluster.eviction("a-00");
    cluster.report("a-00", "Ready=True");
    assert_eq!(cluster.refuses_leader(back), Rejection::NotWaiting { name: Text::from("a-00") });
}

/// Upstream asks a cache when a node's turn comes. Muster asks the state that the entry is applied to.
#[test]
fn ne_5_at_its_turn_a_node_is_tainted_by_its_condition_or_left_out() {
    type Meanwhile = fn(&mut Cluster);
    let cases: [(&str, Meanwhile, &str, &[&str]); 5] = [
        ("still silent", |_| {}, "changed", &[UNREACHABLE]),
        ("says that it is not ready", |cluster| drop(cluster.report("a-00", "Ready=False")), "changed", &[NOT_READY]),
        ("ready", |cluster| drop(cluster.report("a-00", "Ready=True")), "node \"a-00\" does not wait", &[]),
        ("evicted already", |cluster| drop(cluster.evict("a-00")), "node \"a-00\" does not wait", &[UNREACHABLE]),
        ("cordoned", |cluster| drop(cluster.run(cordon("a-00", true))), "changed", &[UNREACHABLE]),
    ];
    for (case, meanwhile, told, taints) in cases {
        let mut cluster = waiting();
        meanwhile(&mut cluster);
        cluster.wait(10);
        cluster.assess();
        let told_now = cluster.evict("a-00");
        assert!(told_now.contains(told), "{case}: {told_now}");
        assert_eq!(cluster.no_execute("a-00"), taints, "{case}");
        assert!(!cluster.queue("a").contains(&"a-00".to_owned()), "{case}: it left the queue");
    }
    let mut cluster = waiting();
    let eviction = cluster.eviction("a-00");
    cluster.done(delete("a-00"));
    assert_eq!(cluster.refuses_leader(eviction), Rejection::NotFound { kind: Kind::Node, name: Text::from("a-00") });
    assert_eq!(cluster.queue("a"), ["a-01"], "gone from the queue with its node");
}

#[test]
fn a_retried_eviction_happens_once() {
    let mut cluster = waiting();
    let eviction = cluster.eviction("a-00");
    assert_eq!(cluster.led(eviction.clone()), "changed");
    cluster.wait(60);
    assert_eq!(cluster.refuses_leader(eviction), Rejection::NotWaiting { name: Text::from("a-00") });
    assert_eq!(cluster.zone("a").evictions, 1);
}

#[test]
fn no_token_is_spent_on_an_outdated_view_of_the_zones() {
    let mut cluster = waiting();
    cluster.silence("a-02");
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::ZonesMoved, "3 of 5 are lost now");
    cluster.assess();
    assert_eq!(cluster.zone_told("a"), "PartialDisruption 0");
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::NoToken { zone: "r1/a".parse().unwrap() });
    assert_eq!(step(&cluster), EvictionStep::Idle, "at rate zero no node is next");

    let mut unassessed = Cluster::default();
    unassessed.populate("a", 3, 1);
    assert_eq!(unassessed.refuses_leader(unassessed.eviction("a-00")), Rejection::ZonesMoved);
    assert_eq!(step(&unassessed), EvictionStep::Idle);
}

#[test]
fn ne_4_a_taint_removed_by_an_operator_is_added_again_in_turn() {
    let mut cluster = waiting();
    cluster.evict("a-00");
    cluster.done(taint("a-00", "", "node.kubernetes.io/unreachable:NoExecute-", false));
    assert_eq!(cluster.queue("a"), ["a-00", "a-01"], "at its old place, because it was lost no later");
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-00")), Rejection::NoToken { zone: "r1/a".parse().unwrap() });
    cluster.wait(10);
    assert_eq!(cluster.evict("a-00"), "changed");
}

#[test]
fn q_1_first_come_first_served_and_by_name_among_those_that_came_together() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 9, 0);
    let names = ["a-07", "a-03", "a-05"];
    for name in names {
        cluster.silence(name);
    }
    assert_eq!(cluster.queue("a"), names);
    let pair = ["a-02", "a-01"].map(|name| cluster.leads(cluster.silent(name, None)));
    cluster.submit_all(pair.into());
    assert_eq!(cluster.queue("a"), ["a-07", "a-03", "a-05", "a-01", "a-02"]);
}

#[test]
fn better_than_upstream_a_failover_changes_neither_queue_nor_bucket_nor_countdown() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 9, 0);
    cluster.populate("normal", 1, 0);
    for name in ["a-07", "a-03", "a-05"] {
        cluster.silence(name);
    }
    assert_eq!(cluster.pursue("a").as_deref(), Some("a-07"));
    let seen = |cluster: &Cluster| {
        let zone = cluster.zone("a").clone();
        (cluster.queue("a"), zone, cluster.node("a-07").spec.clone(), step(cluster), cluster.state.digest())
    };
    let before = seen(&cluster);
    cluster.fail_over();
    assert_eq!(seen(&cluster), before);
    let deposed = Origin::Controller { term: TERM };
    let late = Command { origin: deposed, request: None, operation: cluster.eviction("a-03").into() };
    assert_eq!(cluster.refused(late), Rejection::ForeignTerm { proposed: TERM, committed: TERM + 1 });
    assert_eq!(cluster.refuses_leader(cluster.eviction("a-03")), Rejection::NoToken { zone: "r1/a".parse().unwrap() });
}

#[test]
fn q_3_a_changed_rate_always_takes_effect() {
    let set = |rate: &str| OperatorOperation::SetPolicy {
        changes: vec![(Text::from("node-eviction-rate"), Text::from(rate))],
    };
    for (from, to, refill) in [("0", "1", 1), ("0", "0.1", 10), ("0.2", "0.1", 10), ("0.1", "1", 1)] {
        let mut cluster = Cluster::default();
        cluster.populate("a", 3, 2);
        cluster.done(set(from));
        cluster.assess();
        cluster.evict("a-00");
        cluster.done(set(to));
        assert_eq!(cluster.refuses_leader(cluster.eviction("a-01")), Rejection::ZonesMoved);
        cluster.assess();
        assert_eq!(cluster.zone_told("a"), format!("Normal {to}"), "from {from}");
        assert_eq!(cluster.zone("a").bucket.rate().to_string(), to);
        let changed = cluster.now().cluster.0;
        assert_eq!(
            step(&cluster),
            EvictionStep::WaitUntil(ClusterTime(changed + refill * 1000)),
            "Q-3: from {from} to {to}"
        );
        cluster.wait(refill - 1);
        let next = cluster.queue("a")[0].clone();
        assert_eq!(cluster.evict(&next), "changed");
    }
}

#[test]
fn q_3_a_token_that_is_there_survives_a_change_of_rate() {
    let mut cluster = waiting();
    cluster.done(OperatorOperation::SetPolicy { changes: vec![(Text::from("node-eviction-rate"), Text::from("0.5"))] });
    cluster.assess();
    assert!(matches!(step(&cluster), EvictionStep::Evict { .. }));
}

#[test]
fn a_not_ready_node_gets_the_not_ready_taint() {
    let mut cluster = waiting();
    cluster.report("a-00", "Ready=False");
    assert_eq!(cluster.evict("a-00"), "changed");
    assert_eq!(cluster.no_execute("a-00"), [NOT_READY]);
    cluster.create(NodeDraft { taints: Some(taints("mine:NoExecute")), ..in_zone("own", "a", "Ready=Unknown") });
    cluster.wait(10);
    cluster.assess();
    assert_eq!(cluster.evict("own"), "changed");
    assert_eq!(cluster.no_execute("own"), ["mine:NoExecute", UNREACHABLE], "NE-8");
}

// === I-04 as a property ===

/// One thing that happens between two evictions.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Evict,
    Wait(u64),
    Elect,
    SetRate(usize),
    Assess,
    Return,
}

const RATES: [(&str, u64); 4] = [("0", 0), ("0.1", 100_000), ("0.5", 500_000), ("1", 1_000_000)];

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        8 => Just(Turn::Evict),
        6 => (1_u64..4000).prop_map(Turn::Wait),
        1 => (1_u64..30_000).prop_map(Turn::Wait),
        2 => Just(Turn::Elect),
        1 => (0..RATES.len()).prop_map(Turn::SetRate),
        2 => Just(Turn::Assess),
        1 => Just(Turn::Return),
    ]
}

struct Fleet {
    state: State,
    now: u64,
    term: u64,
    /// When nodes were evicted.
    evictions: Vec<u64>,
}

impl Fleet {
    fn new() -> Self {
        let mut cluster = Cluster::default();
        cluster.populate("a", 40, 30);
        cluster.populate("normal", 1, 0);
        cluster.assess();
        Self { state: cluster.state, now: 10_000, term: TERM, evictions: Vec::new() }
    }

    fn apply(&mut self, origin: Origin, operation: impl Into<Operation>) -> bool {
        let stamp = Stamp { cluster: ClusterTime(self.now), ..stamp(0) };
        let batch = Batch { stamp, commands: vec![Command { origin, request: None, operation: operation.into() }] };
        let applied = self.state.apply(Position { term: self.term, index: 0 }, &batch);
        matches!(applied.outcomes[0], Outcome::Done(_))
    }

    fn lead(&mut self, operation: LeaderOperation) -> bool {
        self.apply(Origin::Controller { term: self.term }, operation)
    }

    /// A hasty leader: it asks without checking whether the eviction would be granted.
    fn evict(&mut self) {
        self.lead(LeaderOperation::AssessZones);
        let head = self.state.queue(&key("a")).and_then(|queue| queue.head().map(|(name, _)| name.clone()));
        let Some(name) = head else { return };
        let incarnation = self.state.node(&name).expect("a waiting node exists").incarnation;
        if self.lead(LeaderOperation::EvictNode { name, incarnation }) {
            self.evictions.push(self.now);
        }
    }

    /// The node that was evicted last is back, and lost again.
    fn bring_back(&mut self) {
        let Some(name) = self.state.absent().get_max().cloned() else { return };
        for said in ["Ready=True", "Ready=Unknown"] {
            self.apply(alice(), replace_status(&name, status(said)));
        }
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Evict => self.evict(),
            Turn::Wait(millis) => self.now += millis,
            Turn::Elect => {
                self.term += 1;
                self.state = rebuilt(&self.state);
            }
            Turn::SetRate(rate) => {
                let changes = vec![(Text::from("node-eviction-rate"), Text::from(RATES[rate].0))];
                self.apply(alice(), OperatorOperation::SetPolicy { changes });
            }
            Turn::Assess => assert!(self.lead(LeaderOperation::AssessZones)),
            Turn::Return => self.bring_back(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// In any window there are at most as many evictions as the burst and the highest rate allow, over all leaders.
    #[test]
    fn i_04_the_rate_holds_across_leaders(turns in proptest::collection::vec(any_turn(), 20..120)) {
        let mut fleet = Fleet::new();
        let highest = turns.iter().map(|turn| match turn {
            Turn::SetRate(rate) => RATES[*rate].1,
            Turn::Evict | Turn::Wait(_) | Turn::Elect | Turn::Assess | Turn::Return => 0,
        });
        let highest = highest.chain([100_000]).max().unwrap_or_default();
        turns.into_iter().for_each(|turn| fleet.turn(turn));
        for (first, start) in fleet.evictions.iter().enumerate() {
            for (count, end) in (1_u64..).zip(&fleet.evictions[first..]) {
                let window_millis = end - start;
                prop_assert!((count - 1) * 1_000_000_000 <= highest * window_millis, "{count} in {window_millis} ms");
            }
        }
        prop_assert_eq!(fleet.evictions.len() as u64, fleet.state.zones().get(&key("a")).map_or(0, |zone| zone.evictions));
    }
}

/// The property above is not vacuous: a leader that never waits too long gets every token.
#[test]
fn i_04_a_leader_that_never_misses_a_token_evicts_at_exactly_the_rate() {
    let mut fleet = Fleet::new();
    for _ in 0..100 {
        fleet.turn(Turn::Evict);
        fleet.turn(Turn::Elect);
        fleet.turn(Turn::Wait(1000));
    }
    assert_eq!(fleet.evictions.len(), 10, "one at once and nine more in 99 s at 0.1 per second");
}
