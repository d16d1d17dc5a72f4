//! `cidrs`: the cost that node CIDRs add to a registration. The same entries on the state alone, with and without
//! addressing, in turns.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use muster_lifecycle::addressing::{AddressRequest, Addressing};
use muster_lifecycle::command::{Batch, Command, LeaderOperation, OperatorOperation, Precondition};
use muster_lifecycle::time::Period;

use crate::harness::local_state::{self, LocalState};
use crate::harness::options::BenchOptions;
use crate::harness::progress;
use crate::load::node;
use crate::measure::cpu_clock::timed;
use crate::report::figure::OTHER;
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;

/// The machine's speed moves, so every pair of runs is compared by itself.
const ROUNDS: usize = 5;
const RANGE: u32 = u32::from_be_bytes([10, 0, 0, 0]);
const RANGE_BITS: u8 = 8;
/// When blocks that were given back are free again.
const RESTED: u64 = 10_000;
const QUARANTINE: Period = Period::from_secs(1);

/// Some registrations, and the state before them.
struct Case {
    what: &'static str,
    blocks: usize,
    before: Vec<Batch>,
    measured: Vec<Batch>,
    /// Whether each of the measured nodes has a block afterwards.
    is_enough: bool,
}

/// The goal for the registrations of a new cluster, in percent.
const GOAL: Goal = Goal::at_most(OTHER, 10.0);

pub(super) async fn run(options: &BenchOptions) -> Result<ScenarioOutcome> {
    let nodes = options.nodes(5_000, 100_000);
    let batch = local_state::BATCH;
    let title = format!("registrations per second of processor time, entries of {batch}, state alone, {ROUNDS} rounds");
    let mut table = ReportTable::new(title, &["blocks", "nodes", "without /s", "with /s", "best adds", "median adds"]);
    let mut figures = Vec::new();
    for (case, goal) in [(fresh as fn(usize) -> Result<Case>, GOAL), (fragmented, Goal::NONE), (exhausted, Goal::NONE)]
    {
        let case = case(nodes)?;
        progress::print(case.what);
        let adds = case.row(&mut table, &case.compare()?);
        figures.push(Figure::new("cidrs", goal, case.what, adds, "%").with("nodes", nodes));
    }
    Ok(ScenarioOutcome { figures, tables: vec![table], ..ScenarioOutcome::default() })
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
    before.extend(local_state::batches(deletions, 0));
    let measured = register(blocks, blocks / 2, RESTED)?;
    Ok(Case { what: "every other free, woken on demand", blocks, before, measured, is_enough: true })
}

/// No block is free, and every node gets an event about it.
fn exhausted(nodes: usize) -> Result<Case> {
    let blocks = nodes.next_power_of_two() / 2;
    let (before, measured) = (register(0, blocks, 0)?, register(blocks, blocks / 2, 0)?);
    Ok(Case { what: "none free", blocks, before, measured, is_enough: false })
}

fn register(from: usize, count: usize, at: u64) -> Result<Vec<Batch>> {
    let commands = (from..from + count).map(node::registration).collect::<Result<_>>()?;
    Ok(local_state::batches(commands, at))
}

fn delete(number: usize) -> Command {
    let name = node::name(number).into();
    local_state::by_operator(OperatorOperation::DeleteNode { name, precondition: Precondition::default() })
}

// === impl Case ===

impl Case {
    /// How long each round took without and with addresses.
    fn compare(&self) -> Result<Vec<(Duration, Duration)>> {
        let plan = plan(self.blocks)?;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            // The second one finds caches warm, so they take turns in that too.
            let (without, with) = match round % 2 {
                0 => (self.time(None)?, self.time(Some(&plan))?),
                _ => {
                    let with = self.time(Some(&plan))?;
                    (self.time(None)?, with)
                }
            };
            rounds.push((without, with));
        }
        Ok(rounds)
    }

    /// Adds a row to the table, and returns the cost that addresses add in percent, in the median round.
    fn row(&self, table: &mut ReportTable, rounds: &[(Duration, Duration)]) -> f64 {
        let count = self.measured.iter().map(|batch| batch.commands.len()).sum::<usize>();
        let adds = |without: Duration, with: Duration| 100.0 * (with.as_secs_f64() / without.as_secs_f64() - 1.0);
        let best = |pick: fn(&(Duration, Duration)) -> Duration| rounds.iter().map(pick).min().unwrap_or_default();
        let (without, with) = (best(|round| round.0), best(|round| round.1));
        let mut each: Vec<f64> = rounds.iter().map(|(without, with)| adds(*without, *with)).collect();
        each.sort_by(f64::total_cmp);
        let median = each[each.len() / 2];
        let rate = |took: Duration| format!("{:.0}", count as f64 / took.as_secs_f64());
        let percent = |adds: f64| format!("{adds:.1} %");
        let (best, middle) = (percent(adds(without, with)), percent(median));
        table.row([self.what.to_owned(), count.to_string(), rate(without), rate(with), best, middle]);
        median
    }

    fn time(&self, plan: Option<&Addressing>) -> Result<Duration> {
        let mut local = LocalState::default();
        if let Some(plan) = plan {
            let found = LeaderOperation::FoundAddressing { plan: Box::new(plan.clone()) };
            local.apply(&local_state::batch(vec![local_state::by_leader(found)], 0))?;
        }
        local.apply_all(&self.before)?;
        let wanting = local.state.nodes_without_cidr().len();
        let ((), took) = timed(|| local.apply_all(&self.measured))?;
        let got_none = local.state.nodes_without_cidr().len() - wanting;
        ensure!((got_none == 0) == (plan.is_some() && self.is_enough), "{got_none} nodes got no block");
        Ok(took)
    }
}

/// A plan of so many blocks, which are a power of two.
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
