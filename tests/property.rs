//! Random faults against the whole cluster in virtual time: what must hold, holds, whatever goes wrong.
//!
//! A failure prints its seed and the command that plays it again.
#![allow(clippy::unwrap_used)]

#[path = "property/dice.rs"]
mod dice;
#[path = "property/driver.rs"]
mod driver;
#[path = "property/oracle.rs"]
mod oracle;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::driver::{Plan, Report};
use crate::oracle::Tally;

const SEED: &str = "MUSTER_SEED";

/// How much the fixed seeds do together.
const STEPS: u64 = 1_000_000;

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
fn fixed_seeds() {
    let mut sum = Tally::default();
    let mut seed = 0;
    while sum.steps < STEPS {
        seed += 1;
        sum = sum.plus(play(seed, Plan::of(seed, HOURS)).tally);
    }
    println!("{seed} seeds: {sum:?}");
    let Tally { actions, silenced, evicted, lifted, partial, dark, takeovers, stalls, .. } = sum;
    for (count, what) in [
        (actions, "actions"),
        (silenced, "silences"),
        (evicted, "evictions"),
        (lifted, "evictions taken back"),
        (partial, "partial disruptions"),
        (dark, "times when all was dark"),
        (takeovers, "take-overs"),
        (stalls, "standstills of a leader"),
    ] {
        assert!(count >= 10, "too few {what} to have shown anything: {count}");
    }
}

#[test]
fn a_fresh_seed() {
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
fn a_healthy_fleet_survives_all_our_faults() {
    for seed in 1..=20 {
        let report = play(seed, Plan { healthy: true, ..Plan::of(seed, HOURS) });
        assert_eq!((report.tally.silenced, report.tally.evicted), (0, 0), "seed {seed}");
        assert!(report.tally.takeovers > 0 && report.tally.stalls > 0, "seed {seed}: nothing went wrong");
    }
}

#[test]
fn wall_clocks_decide_nothing() {
    for seed in 1..=3 {
        let [with, without] = [true, false].map(|jumps| play(seed, Plan { wall_jumps: jumps, ..Plan::of(seed, HOURS) }));
        assert!(with.wall_jumps > 0, "seed {seed}: no clock jumped");
        assert_eq!(with.trace, without.trace, "seed {seed}");
    }
}
