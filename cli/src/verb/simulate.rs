//! `muster simulate FILE`: plays a scenario in virtual time and prints what would happen.

use std::io::Read;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use muster_lifecycle::time::Period;

use crate::exit::Failure;
use crate::manifest::FILE_LIMIT;
use crate::output::{Out, say};
use crate::simulate::occurrence::{Occurrence, What};
use crate::simulate::play::Play;
use crate::simulate::scenario::Scenario;
use crate::simulate::timeline::Timeline;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The scenario (YAML or JSON); `-` reads stdin
    pub file: String,
    /// How to show what happens
    #[arg(short, long, value_enum, default_value_t = Format::Timeline)]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: a lane per zone
    Timeline,
    /// One object per line
    Json,
}

/// How many entries that do nothing are named.
const IDLE_NAMED_MAX: usize = 10;

pub async fn run(args: Args) -> Result<(), Failure> {
    let text = read(&args.file).map_err(Failure::Other)?;
    let scenario = Scenario::parse(&text).map_err(|fault| Failure::Other(anyhow!("{}:{fault}", args.file)))?;
    let play = Play::new(&scenario)
        .map_err(|rejection| Failure::Other(anyhow!("{}: the scenario cannot start: {rejection}", args.file)))?;
    warn_of_what_never_happens(&scenario);
    match args.output {
        Format::Json => json(&scenario, play).await,
        Format::Timeline => timeline(&scenario, play).await,
    }
}

fn read(file: &str) -> anyhow::Result<String> {
    let source: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin()),
        path => Box::new(std::fs::File::open(path).with_context(|| format!("cannot open {path}"))?),
    };
    let mut bytes = Vec::new();
    let limit = FILE_LIMIT as u64 + 1;
    source.take(limit).read_to_end(&mut bytes).with_context(|| format!("cannot read {file}"))?;
    if bytes.len() > FILE_LIMIT {
        return Err(anyhow!("{file}: larger than {} MiB: use counts and selectors instead of lists", FILE_LIMIT >> 20));
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("{file}: not UTF-8 text: is this a scenario?"))
}

fn warn_of_what_never_happens(scenario: &Scenario) {
    let late = scenario.timeline.iter().filter(|entry| entry.at > scenario.until).count();
    if late > 0 {
        say(format_args!("note: entries of the timeline that lie after `until` and do not happen: {late}"));
    }
    let unborn = scenario.machines.iter().filter(|machine| machine.created > scenario.until as i64).count();
    if unborn > 0 {
        say(format_args!("note: nodes that are `created` after `until` and never appear: {unborn}"));
    }
    for entry in scenario.timeline.iter().filter(|entry| entry.is_idle()).take(IDLE_NAMED_MAX) {
        say(format_args!(
            "note: the entry of the timeline at {} selects no node: its percent is too low",
            Period(entry.at)
        ));
    }
}

async fn json(scenario: &Scenario, mut play: Play<'_>) -> Result<(), Failure> {
    let mut out = Out::stdout();
    while let Some(happened) = play.play_on() {
        for occurrence in happened {
            match occurrence.to_json()? {
                Some(line) => out.line(line)?,
                None => say_refused(&occurrence),
            }
        }
        let_interrupt().await;
    }
    out.line(play.ending().to_json(scenario.until)?)?;
    out.flush()?;
    require_sound(&play)
}

fn say_refused(occurrence: &Occurrence) {
    if let What::Refused { what, why } = &occurrence.what {
        say(format_args!("note: at {} s {what} was refused: {why}", occurrence.at as f64 / 1_000.0));
    }
}

async fn timeline(scenario: &Scenario, mut play: Play<'_>) -> Result<(), Failure> {
    let mut out = Out::stdout();
    let mut timeline = Timeline::new(&scenario.machines);
    out.text(&timeline.header())?;
    while let Some(happened) = play.play_on() {
        out.text(&timeline.rows(&happened))?;
        let_interrupt().await;
    }
    out.text(&timeline.summary(scenario.until, &play.ending()))?;
    out.flush()?;
    require_sound(&play)
}

/// A scenario in which a pod ran twice fails, with an account of both.
fn require_sound(play: &Play<'_>) -> Result<(), Failure> {
    play.check_runs().map_err(|violation| Failure::Other(anyhow!("{violation}")))
}

/// A simulation computes and never waits, so it has to yield for Ctrl-C to be noticed.
async fn let_interrupt() {
    tokio::task::yield_now().await;
}
