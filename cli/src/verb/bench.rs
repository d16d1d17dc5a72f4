//! `muster bench`: measure a cluster of this very binary.

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use muster_bench::{ALL, BenchOptions, CATALOG, OTHER, OutputFiles, RunSummary, runner};

use super::Context;
use crate::exit::{Exit, Failure};

#[derive(Debug, Clone, clap::Args)]
#[command(after_long_help = EXIT_HELP)]
pub struct Args {
    /// What to measure
    #[arg(value_parser = names())]
    pub scenario: String,
    /// How large: small finishes within two minutes and tells whether anything is lost, full is what the goals are
    /// about
    #[arg(long, value_enum, default_value_t = Scale::Full)]
    pub scale: Scale,
    /// How many nodes [default: what the scale says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub nodes: Option<u32>,
    /// How long to measure, in seconds [default: what the scale says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// gap: how often to kill the leader
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub kills: Option<u32>,
    /// placement, evictions: how many pods; those evicted are a hundred to a node, in the zone that falls silent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub pods: Option<u32>,
    /// evictions: nodes tainted per second [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rate: Option<u32>,
    /// Write one JSON object per figure and line to this file, anew
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots to index.html in this folder, and each plot as SCENARIO-WHAT.svg
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scale {
    Small,
    Full,
}

const EXIT_HELP: &str = "\
Every scenario starts three replicas of its own and ends them, unless --dir names the folder of a running `muster dev`: \
that is measured as it is, and killed or restarted only by scenarios that say so. `all` registers one large fleet, step by \
step, and runs everything about a large fleet on it.

Progress goes to stderr; tables and figures go to stdout. Each line of --json is \
{\"scenario\",\"goal\",\"value\",\"unit\",\"met\",\"details\"}; `met` is null where there is no goal.

Exit code: 0 if every scenario ran to its end with nothing lost, whether or not goals were met: a missed goal is \
reported, by which factor or difference; 1 if a scenario failed: beats lost, refused or late, a verdict against a living node, or an error; \
2 if what was asked for makes no sense. `all` goes on with the others and says at the end how many failed.";

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let scenarios = muster_bench::select(&args.scenario);
    let files = OutputFiles { json: args.json.clone(), report: args.report.clone() };
    let options = args.options(context)?;
    runner::check(&scenarios, &options).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    let RunSummary { failed, total } = runner::run(&scenarios, &options, files).await.map_err(Failure::Other)?;
    match failed {
        0 => Ok(()),
        failed => Err(Failure::Several { failed, total, exit: Exit::Error }),
    }
}

// === impl Args ===

impl Args {
    fn options(&self, context: &Context) -> Result<BenchOptions, Failure> {
        let count = |number: Option<u32>| number.map(|number| number as usize);
        Ok(BenchOptions {
            binary: std::env::current_exe()?,
            scale: self.scale.into(),
            nodes: count(self.nodes),
            seconds: self.seconds,
            dir: context.dir.clone(),
            kills: count(self.kills),
            pods: count(self.pods),
            rate: self.rate,
        })
    }
}

// === impl Scale ===

impl From<Scale> for muster_bench::BenchScale {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Small => Self::Small,
            Scale::Full => Self::Full,
        }
    }
}

/// The names of the catalog with their descriptions.
fn names() -> impl TypedValueParser<Value = String> {
    let named = CATALOG.iter().map(|scenario| {
        let about = match scenario.goal {
            OTHER => scenario.about.to_owned(),
            goal => format!("{goal}: {}", scenario.about),
        };
        PossibleValue::new(scenario.name).help(about)
    });
    let all = PossibleValue::new(ALL).help("All goals P1 to P8, growth and the guard rails, one after the other");
    PossibleValuesParser::new(named.chain([all]))
}
