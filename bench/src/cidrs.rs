//! What node CIDRs add to a registration: the same entries on the state alone, with addressing and without, in turns.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use muster_lifecycle::addressing::{AddressRequest, Addressing};
use muster_lifecycle::command::{Batch, Command, Operation, Precondition};
use muster_lifecycle::policy::Period;

use crate::ledger::{self, Ledger};
use crate::node;
use crate::processor::timed;

/// The machine's speed moves, so every pair of runs is compared by itself.
const ROUNDS: usize = 5;
const RANGE: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const RANGE_BITS: u8 = 8;
/// Blocks that were given back are free again by then.
const RESTED: u64 = 10_000;
const QUARANTINE: Period = Period::from_secs(1);

/// Some registrations, and what the state was like before.
struct Case {
    what: &'static str,
    blocks: usize,
    before: Vec<Batch>,
    measured: Vec<Batch>,
    /// Whether each of the measured nodes has a block afterwards.
    is_enough: bool,
}

pub fn run(nodes: usize) -> Result<()> {
    println!("registrations per second of processor time, entries of {}, state alone, {ROUNDS} rounds", ledger::BATCH);
    println!(
        "{:>40} {:>12} {:>14} {:>14} {:>12} {:>12}",
        "BLOCKS", "NODES", "WITHOUT /S", "WITH /S", "BEST ADDS", "MEDIAN ADDS"
    );
    for case in [fresh, fragmented, exhausted] {
        case(nodes)?.compare()?;
    }
    Ok(())
}

/// A new cluster: all blocks are free.
fn fresh(nodes: usize) -> Result<Case> {
    let (before, measured) = (Vec::new(), register(0, nodes, 0)?);
    Ok(Case { what: "all free", blocks: nodes.next_power_of_two(), before, measured, is_enough: true })
}

/// All blocks were given out, and every other was given back and has rested.
fn fragmented(nodes: usize) -> Result<Case> {
    let blocks = nodes.next_power_of_two() / 2;
    let mut before = register(0, blocks, 0)?;
    let deletions = (0..blocks).step_by(2).map(delete).collect();
    before.extend(ledger::batches(deletions, 0));
    let measured = register(blocks, blocks / 2, RESTED)?;
    Ok(Case { what: "every other free, woken on demand", blocks, before, measured, is_enough: true })
}

/// Nothing is free any more, and every node is told so.
fn exhausted(nodes: usize) -> Result<Case> {
    let blocks = nodes.next_power_of_two() / 2;
    let (before, measured) = (register(0, blocks, 0)?, register(blocks, blocks / 2, 0)?);
    Ok(Case { what: "none free", blocks, before, measured, is_enough: false })
}

fn register(from: usize, count: usize, at: u64) -> Result<Vec<Batch>> {
    let commands = (from..from + count).map(node::registration).collect::<Result<_>>()?;
    Ok(ledger::batches(commands, at))
}

fn delete(number: usize) -> Command {
    let name = format!("node-{number:07}").into();
    ledger::by_operator(Operation::DeleteNode { name, precondition: Precondition::default() })
}

// === impl Case ===

impl Case {
    fn compare(&self) -> Result<()> {
        let plan = plan(self.blocks)?;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            // Whoever comes second finds caches warm, so they take turns in that too.
            let (without, with) = match round % 2 {
                0 => (self.time(None)?, self.time(Some(&plan))?),
                _ => {
                    let with = self.time(Some(&plan))?;
                    (self.time(None)?, with)
                }
            };
            rounds.push((without, with));
        }
        self.print(&rounds);
        Ok(())
    }

    fn print(&self, rounds: &[(Duration, Duration)]) {
        let count = self.measured.iter().map(|batch| batch.commands.len()).sum::<usize>();
        let adds = |without: Duration, with: Duration| 100.0 * (with.as_secs_f64() / without.as_secs_f64() - 1.0);
        let best = |pick: fn(&(Duration, Duration)) -> Duration| rounds.iter().map(pick).min().unwrap_or_default();
        let (without, with) = (best(|round| round.0), best(|round| round.1));
        let mut each: Vec<f64> = rounds.iter().map(|(without, with)| adds(*without, *with)).collect();
        each.sort_by(f64::total_cmp);
        println!(
            "{:>40} {count:>12} {:>14.0} {:>14.0} {:>10.1} % {:>10.1} %",
            self.what,
            count as f64 / without.as_secs_f64(),
            count as f64 / with.as_secs_f64(),
            adds(without, with),
            each[each.len() / 2],
        );
    }

    fn time(&self, plan: Option<&Addressing>) -> Result<Duration> {
        let mut ledger = Ledger::default();
        if let Some(plan) = plan {
            let found = Operation::FoundAddressing { plan: Box::new(plan.clone()) };
            ledger.apply(&ledger::batch(vec![ledger::by_leader(found)], 0))?;
        }
        ledger.apply_all(&self.before)?;
        let wanting = ledger.state.nodes_without_cidr().len();
        let ((), took) = timed(|| ledger.apply_all(&self.measured))?;
        let got_none = ledger.state.nodes_without_cidr().len() - wanting;
        ensure!((got_none == 0) == (plan.is_some() && self.is_enough), "{got_none} nodes got no block");
        Ok(took)
    }
}

/// So many blocks, which are a power of two.
fn plan(blocks: usize) -> Result<Addressing> {
    let bits = u8::try_from(blocks.ilog2()).context("too many blocks")?;
    let range = IpNet::V4(Ipv4Net::new(RANGE.into(), RANGE_BITS)?);
    let request = AddressRequest {
        cluster_cidrs: vec![range],
        mask_size_ipv4: Some(RANGE_BITS + bits),
        quarantine: Some(QUARANTINE),
        ..AddressRequest::default()
    };
    Ok(request.plan()?)
}
