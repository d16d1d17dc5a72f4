//! `growth`: costs of a fleet that grows from a thousand nodes to a million. No cost may grow faster than the fleet
//! does.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::harness::options::{BenchOptions, BenchScale};
use crate::harness::progress;
use crate::harness::shared_fleet::{GrowthStep, SharedFleet};
use crate::harness::test_bed::TestBed;
use crate::measure::exponent::{Point, exponent, steepest};
use crate::measure::sweep::SweepTimes;
use crate::measure::usage::{ResourceUsage, UsageMeter};
use crate::report::figure::{Figure, Goal};
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::Series;

const SCENARIO: &str = "growth";
/// Costs in proportion, and a quarter more per step of ten times the nodes, by which two runs of the same differ.
const GOAL: Goal = Goal::at_most("growth", 1.1);
const STEPS_SMALL: &[usize] = &[300, 1_000];
const STEPS_FULL: &[usize] = &[1_000, 10_000, 100_000];
/// The time until the processes have given back the memory that only registration needed.
const COOL_DOWN: Duration = Duration::from_secs(10);
const COOL_DOWN_SMALL: Duration = Duration::from_secs(1);
/// How long the fleet is measured at rest: two beats of every node.
const REST_SECONDS: u64 = 20;
const REST_SECONDS_SMALL: u64 = 3;

/// The cost of so many nodes together. Memory is counted on top of that of a cluster without nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sample {
    nodes: usize,
    /// The cost to register all of them, and each of the last step.
    registering_cpu_s: f64,
    registering_cpu_us_per_node: f64,
    leader_mb: f64,
    follower_mb: f64,
    sweep_ms: f64,
    rest_cores: f64,
}

struct Cost {
    name: &'static str,
    unit: &'static str,
    /// A cost below this is overhead that is there without any nodes.
    floor: f64,
    of: fn(&Sample) -> f64,
}

const COSTS: [Cost; 5] = [
    Cost { name: "registering", unit: "cpu s", floor: 1.0, of: |sample| sample.registering_cpu_s },
    Cost { name: "leader memory", unit: "MB", floor: 50.0, of: |sample| sample.leader_mb },
    Cost { name: "follower memory", unit: "MB", floor: 50.0, of: |sample| sample.follower_mb },
    Cost { name: "sweep", unit: "ms", floor: 1.0, of: |sample| sample.sweep_ms },
    Cost { name: "processor time at rest", unit: "cores", floor: 0.1, of: |sample| sample.rest_cores },
];

/// The fleet is complete afterwards and goes on beating.
pub(super) async fn measure(fleet: &mut SharedFleet, options: &BenchOptions) -> Result<ScenarioOutcome> {
    ensure!(fleet.steps.is_empty(), "the fleet was registered before this scenario could measure it");
    let steps = steps(fleet.nodes, options.scale);
    ensure!(steps.len() > 1, "{} nodes are too few to grow to", fleet.nodes);
    let mut samples = Vec::new();
    for nodes in steps {
        progress::print(format_args!("the fleet grows to {nodes} nodes"));
        fleet.grow(nodes).await?;
        samples.push(sample(fleet, options).await?);
    }
    let cost = |cost: &Cost| (cost.figure(&samples), cost.curve(&samples));
    let (figures, mut curves): (Vec<_>, Vec<_>) = COSTS.iter().map(cost).unzip();
    curves.push(in_proportion(&curves));
    let tables = vec![by_step(&samples), by_cost(&samples)];
    Ok(ScenarioOutcome { figures, tables, curves, ..ScenarioOutcome::default() })
}

/// The steps of the scale below `nodes`, or a tenth of a fleet that is smaller than any of them; then all nodes.
fn steps(nodes: usize, scale: BenchScale) -> Vec<usize> {
    let below = |step: &usize| *step < nodes;
    let mut steps: Vec<usize> = scale.pick(STEPS_SMALL, STEPS_FULL).iter().copied().filter(below).collect();
    if steps.is_empty() {
        steps.extend(Some(nodes / 10).filter(|tenth| *tenth > 0));
    }
    steps.push(nodes);
    steps
}

async fn sample(fleet: &SharedFleet, options: &BenchOptions) -> Result<Sample> {
    let (bed, nodes) = (&fleet.bed, fleet.load.nodes);
    bed.wait_watched(nodes).await?;
    sleep(options.scale.pick(COOL_DOWN_SMALL, COOL_DOWN)).await;
    let leader = bed.cluster.leader().await?;
    let (swept, start) = (SweepTimes::of(&bed.cluster, leader).await?, Instant::now());
    let meter = UsageMeter::start(&bed.processes()?);
    sleep(options.duration(REST_SECONDS_SMALL, REST_SECONDS)).await;
    let (usage, elapsed) = (meter.stop(), start.elapsed().as_secs_f64());
    let (leader_mb, follower_mb) = memory_mb(bed, &usage, leader)?;
    Ok(Sample {
        nodes,
        registering_cpu_s: fleet.steps.iter().map(|step| step.usage.server_cpu_seconds()).sum(),
        registering_cpu_us_per_node: fleet
            .steps
            .last()
            .map(GrowthStep::cpu_us_per_node)
            .context("no nodes were registered")?,
        leader_mb,
        follower_mb,
        sweep_ms: SweepTimes::of(&bed.cluster, leader).await?.millis_since(&swept)?,
        rest_cores: usage.server_cpu_seconds() / elapsed,
    })
}

/// The memory of the leader, and of the follower that has more: on top of what each had without nodes.
fn memory_mb(bed: &TestBed, usage: &ResourceUsage, leader: u64) -> Result<(f64, f64)> {
    let grown = |(id, idle): (&u64, &u64)| {
        let process =
            usage.of(&crate::harness::cluster::label(*id)).with_context(|| format!("replica {id} was not measured"))?;
        Ok((*id, process.rss_bytes.saturating_sub(*idle) as f64 / 1e6))
    };
    let grown: Vec<(u64, f64)> = bed.idle.iter().map(grown).collect::<Result<_>>()?;
    let (leading, following): (Vec<_>, Vec<_>) = grown.into_iter().partition(|(id, _)| *id == leader);
    let most = |replicas: &[(u64, f64)]| replicas.iter().map(|(_, grown)| *grown).fold(0.0, f64::max);
    Ok((most(&leading), most(&following)))
}

/// The line to compare the curves with: it ends where the highest of them does.
fn in_proportion(curves: &[Series]) -> Series {
    let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    let most = |of: fn(Point) -> f64| points().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let per_node = most(|(_, cost)| cost) / most(|(nodes, _)| nodes);
    let nodes = curves.first().into_iter().flat_map(|curve| curve.points.iter().map(|(nodes, _)| *nodes));
    Series {
        name: "in proportion".to_owned(),
        unit: "",
        points: nodes.map(|nodes| (nodes, nodes * per_node)).collect(),
    }
}

fn by_step(samples: &[Sample]) -> ReportTable {
    let mut table = ReportTable::new(
        "step by step; memory on top of a cluster without nodes",
        &["nodes", "registering cpu us/node", "leader B/node", "follower B/node", "sweep ms", "cores at rest"],
    );
    for sample in samples {
        let per_node = |megabytes: f64| format!("{:.0}", megabytes * 1e6 / sample.nodes as f64);
        table.row([
            sample.nodes.to_string(),
            format!("{:.0}", sample.registering_cpu_us_per_node),
            per_node(sample.leader_mb),
            per_node(sample.follower_mb),
            format!("{:.3}", sample.sweep_ms),
            format!("{:.3}", sample.rest_cores),
        ]);
    }
    table
}

fn by_cost(samples: &[Sample]) -> ReportTable {
    let mut table = ReportTable::new(
        "how costs grow: 1 is in proportion; what is below the floor is overhead and does not count",
        &["cost", "exponent", "steepest step: nodes x", "cost x", "floor"],
    );
    for cost in &COSTS {
        let points = cost.points(samples);
        let steepest = steepest(&points, cost.floor)
            .map_or(["-".to_owned(), "-".to_owned()], |(nodes, cost)| [nodes, cost].map(|times| format!("{times:.1}")));
        let exponent = exponent(&points, cost.floor).map_or("-".to_owned(), |exponent| format!("{exponent:.2}"));
        let [nodes, times] = steepest;
        table.row([cost.name.to_owned(), exponent, nodes, times, format!("{} {}", cost.floor, cost.unit)]);
    }
    table
}

// === impl Cost ===

impl Cost {
    fn points(&self, samples: &[Sample]) -> Vec<Point> {
        samples.iter().map(|sample| (sample.nodes as f64, (self.of)(sample))).collect()
    }

    fn curve(&self, samples: &[Sample]) -> Series {
        Series { name: format!("{}, {}", self.name, self.unit), unit: self.unit, points: self.points(samples) }
    }

    fn figure(&self, samples: &[Sample]) -> Figure {
        let points = self.points(samples);
        let grown = exponent(&points, self.floor).unwrap_or(f64::NAN);
        let steepest =
            steepest(&points, self.floor).map(|(nodes, cost)| json!({ "nodes_times": nodes, "cost_times": cost }));
        Figure::new(SCENARIO, GOAL, self.name, grown, "exponent")
            .with("costs_by_nodes", json!(points))
            .with("costs_unit", self.unit)
            .with("overhead_below", self.floor)
            .with("steepest_step", steepest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_grows_through_the_steps_below_its_size() {
        for (nodes, scale, expected) in [
            (1_000_000, BenchScale::Full, &[1_000, 10_000, 100_000, 1_000_000][..]),
            (50_000, BenchScale::Full, &[1_000, 10_000, 50_000]),
            (10_000, BenchScale::Full, &[1_000, 10_000]),
            (1_000, BenchScale::Full, &[100, 1_000]),
            (9, BenchScale::Full, &[9]),
            (3_000, BenchScale::Small, &[300, 1_000, 3_000]),
        ] {
            assert_eq!(steps(nodes, scale), expected, "{nodes}");
        }
    }

    #[test]
    fn each_cost_has_a_finding_and_a_curve() {
        let sample =
            |nodes: usize, times: f64| Sample { nodes, leader_mb: 100.0 * times, sweep_ms: 0.1, ..Sample::default() };
        let samples = [sample(1_000, 1.0), sample(10_000, 20.0)];
        let found: Vec<Figure> = COSTS.iter().map(|cost| cost.figure(&samples)).collect();
        let met: Vec<Option<bool>> = found.iter().map(Figure::met).collect();
        assert_eq!(met, [true, false, true, true, true].map(Some), "twenty times the memory for ten times the nodes");
        assert_eq!(found[1].details["steepest_step"], json!({ "nodes_times": 10.0, "cost_times": 20.0 }));
        assert_eq!(found[3].value, 0.0, "below the floor");
        let curve = COSTS[1].curve(&samples);
        assert_eq!((curve.name.as_str(), curve.points.len()), ("leader memory, MB", 2));
        assert_eq!(in_proportion(&[curve]).points, [(1e3, 200.0), (1e4, 2_000.0)]);
    }
}
