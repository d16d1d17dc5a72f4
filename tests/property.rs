//! Random faults against the whole cluster in virtual time: the invariants hold, whatever goes wrong.
//!
//! A failure prints its seed and the command that plays it again.
#![allow(clippy::unwrap_used)]

#[path = "property/dice.rs"]
mod dice;
#[path = "property/driver.rs"]
mod driver;
#[path = "property/fleet.rs"]
mod fleet;
#[path = "property/oracle.rs"]
mod oracle;

use std::time::{SystemTime, UNIX_EPOCH};

use muster_cli::simulate::world::{InitialReady, MachineSpec, Witness, World};
use muster_lifecycle::command::{Command, LeaderOperation, Origin};
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::node::{ConditionStatus, Incarnation};
use muster_lifecycle::policy::Policy;
use muster_lifecycle::state::State;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;

use crate::driver::{Plan, Report};
use crate::oracle::{Oracle, Tally};

const SEED: &str = "MUSTER_SEED";

/// How much the fixed seeds do together: beats heard, commands decided. Digests between replicas are not counted.
const STEPS: u64 = 3_000_000;

/// Virtual time per seed.
const HOURS: u64 = 1;

fn play(seed: u64, plan: Plan) -> Report {
    let report = driver::run(seed, plan);
    if let Some(violation) = &report.violation {
        panic!(
            "seed {seed}: {violation}\nplay it again with\n  \
             {SEED}={seed} cargo test -p muster --test property replay -- --exact --nocapture"
        );
    }
    report
}

#[test]
fn fixed_seeds_keep_every_invariant() {
    let mut sum = Tally::default();
    let mut seed = 0;
    while sum.steps < STEPS {
        seed += 1;
        sum = sum.plus(play(seed, Plan::of(seed, HOURS)).tally);
    }
    println!("{seed} seeds: {sum:?}");
    let Tally { actions, silenced, evicted, lifted, partial, fully_disrupted, takeovers, stalls, .. } = sum;
    for (count, what) in [
        (actions, "actions"),
        (silenced, "silences"),
        (evicted, "evictions"),
        (lifted, "evictions taken back"),
        (partial, "partial disruptions"),
        (fully_disrupted, "full disruptions"),
        (takeovers, "take-overs"),
        (stalls, "standstills of a leader"),
    ] {
        assert!(count >= 10, "too few {what} to have shown anything: {count}");
    }
}

#[test]
fn a_fresh_seed_keeps_every_invariant() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = now.as_nanos() as u64;
    println!("seed {seed}");
    play(seed, Plan::of(seed, HOURS));
}

/// Plays `MUSTER_SEED`, telling every decision; without it, some seed.
#[test]
fn replay() {
    let given = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or(42);
    let report = play(seed, Plan { verbose: given.is_some(), ..Plan::of(seed, HOURS) });
    println!("{:?}", report.tally);
}

/// I-05: with every machine alive, no fault of ours makes one look dead.
#[test]
fn faults_of_replicas_harm_no_healthy_node() {
    for seed in 1..=4 {
        let report = play(seed, Plan { healthy: true, ..Plan::of(seed, HOURS) });
        assert_eq!((report.tally.silenced, report.tally.evicted), (0, 0), "seed {seed}");
        assert!(report.tally.takeovers > 0 && report.tally.stalls > 0, "seed {seed}: nothing went wrong");
    }
}

#[test]
fn jumps_of_wall_clocks_change_no_decision() {
    const SEED_WITH_JUMPS: u64 = 1;
    let run = |wall_jumps| play(SEED_WITH_JUMPS, Plan { wall_jumps, ..Plan::of(SEED_WITH_JUMPS, HOURS) });
    let (with, without) = (run(true), run(false));
    assert!(with.wall_jumps > 0, "no clock jumped");
    assert_eq!(with.trace, without.trace);
}

// === the oracle itself ===

/// A state after half a minute: `a` and `b` live, `dead` is silent and was last heard at 20 s.
fn half_a_minute() -> World<Oracle> {
    let machine = |name: &str| MachineSpec {
        name: Text::from(name),
        labels: Pairs::default(),
        taints: Vec::new(),
        ready: InitialReady::Says(ConditionStatus::True),
        heartbeat: Some(10_000),
        status: Some(300_000),
        created: -3_600_000,
    };
    let machines = ["a", "b", "dead"].map(machine).to_vec();
    let mut world = World::new(Policy::default(), machines, Oracle::default()).unwrap();
    *world.witness_mut() = Oracle::new(world.state(), false);
    world.run_to(25_000);
    world.silence(2);
    world.witness_mut().fell_silent(&Text::from("dead"), 25_000);
    world.run_to(30_000);
    assert_eq!(world.witness().violation, None);
    world
}

fn command(operation: LeaderOperation) -> Command {
    Command { origin: Origin::Controller { term: 1 }, request: None, operation: operation.into() }
}

fn mark_silent(name: &str) -> Command {
    let from = Some(ConditionStatus::True);
    let incarnation = Incarnation(1);
    command(LeaderOperation::MarkSilent {
        name: Text::from(name),
        incarnation,
        from,
        heard: None,
        decided: ClusterTime(0),
    })
}

fn evict(name: &str) -> Command {
    command(LeaderOperation::EvictNode { name: Text::from(name), incarnation: Incarnation(1) })
}

fn verdict(world: &mut World<Oracle>, at: u64, wrong: &[Command]) -> String {
    let state: State = world.state().clone();
    let oracle = world.witness_mut();
    wrong.iter().for_each(|command| oracle.proposed(at, command, &state));
    oracle.violation.clone().unwrap_or_default()
}

#[test]
fn the_oracle_detects_every_violation() {
    let living = verdict(&mut half_a_minute(), 100_000, &[mark_silent("a")]);
    assert!(living.starts_with("I-05"), "{living}");
    let early = verdict(&mut half_a_minute(), 59_000, &[mark_silent("dead")]);
    assert!(early.starts_with("I-02"), "{early}");
    let on_time = verdict(&mut half_a_minute(), 61_000, &[mark_silent("dead")]);
    assert_eq!(on_time, "");
    let twice = verdict(&mut half_a_minute(), 61_000, &[evict("dead"), evict("dead")]);
    assert!(twice.starts_with("I-04"), "{twice}");
    let mut blind = half_a_minute();
    blind.witness_mut().leads(50_000, 2, 1);
    let blind = verdict(&mut blind, 61_000, &[mark_silent("dead")]);
    assert!(blind.starts_with("I-03"), "{blind}");
    let mut disrupted = half_a_minute();
    (0..2).for_each(|place| disrupted.silence(place));
    disrupted.run_to(200_000);
    disrupted.witness_mut().violation = None;
    let disrupted = verdict(&mut disrupted, 200_000, &[evict("dead")]);
    assert!(disrupted.starts_with("I-06"), "{disrupted}");
    let mut unnoticed = half_a_minute();
    let state = unnoticed.state().clone();
    unnoticed.witness_mut().check_liveness(30_000, &state);
    assert!(unnoticed.witness().violation.as_ref().is_some_and(|violation| violation.starts_with("I-23")));
}
