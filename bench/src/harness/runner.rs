//! Runner: runs scenarios one after the other and writes their results to the terminal, as JSON lines and as a page.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::harness::options::{BenchOptions, BenchScale};
use crate::harness::progress;
use crate::report::figure::Figure;
use crate::report::json_line::JsonLine;
use crate::report::machine::MachineInfo;
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::page::{self, ReportSection};
use crate::scenario::{BenchScenario, Flag};

/// Files that figures are written to, besides stdout.
#[derive(Debug, Clone, Default)]
pub struct OutputFiles {
    /// One JSON object per line and figure.
    pub json: Option<PathBuf>,
    /// A folder for a page with plots, and for each plot as a file.
    pub report: Option<PathBuf>,
}

/// How many scenarios failed. A missed goal is no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunSummary {
    pub failed: usize,
    pub total: usize,
}

struct ResultWriter {
    machine: MachineInfo,
    json: Option<File>,
    report: Option<PathBuf>,
    sections: Vec<ReportSection>,
}

/// Runs all scenarios, also after one that fails. Fails only if the results cannot be written.
pub async fn run(
    scenarios: &[&'static BenchScenario],
    options: &BenchOptions,
    files: OutputFiles,
) -> Result<RunSummary> {
    let mut writer = ResultWriter::open(files)?;
    let (mut failed, mut fleet) = (0, None);
    for scenario in scenarios {
        progress::print(format_args!("{}: {}", scenario.name, scenario.about));
        let started = Instant::now();
        let mut outcome =
            scenario.run(options, &mut fleet).await.unwrap_or_else(|error| ScenarioOutcome::broken(&error));
        if options.scale == BenchScale::Small {
            outcome.drop_size_goals();
        }
        progress::print(format_args!("{}: done after {:.0} s", scenario.name, started.elapsed().as_secs_f64()));
        failed += usize::from(outcome.failed());
        writer.write(scenario, outcome)?;
    }
    drop(fleet);
    writer.finish();
    Ok(RunSummary { failed, total: scenarios.len() })
}

/// Checks the options: a flag that would change nothing is refused, not ignored.
pub fn check(scenarios: &[&'static BenchScenario], options: &BenchOptions) -> Result<()> {
    ensure!(!scenarios.is_empty(), "there is no scenario to run; `muster bench --help` lists them");
    for flag in options.given() {
        ensure!(
            scenarios.iter().any(|scenario| scenario.takes(flag)),
            "{} means nothing to {}: leave it out",
            flag.name(),
            scenarios.first().map_or("all", |scenario| scenario.name)
        );
    }
    Ok(())
}

// === impl ResultWriter ===

impl ResultWriter {
    /// A file that cannot be written is an error now and not after an hour.
    fn open(files: OutputFiles) -> Result<Self> {
        let machine = MachineInfo::this();
        put(format_args!("muster bench, {machine}"));
        let create = |path: &PathBuf| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let json = files.json.as_ref().map(create).transpose()?;
        let writer = Self { machine, json, report: files.report, sections: Vec::new() };
        writer.write_report()?;
        Ok(writer)
    }

    /// Writes a result as soon as it is known, so that an interrupt loses only those to come.
    fn write(&mut self, scenario: &BenchScenario, outcome: ScenarioOutcome) -> Result<()> {
        for table in &outcome.tables {
            put(format_args!("\n{}", table.to_string().trim_end()));
        }
        put("");
        outcome.figures.iter().for_each(|figure| put(sentence(figure)));
        outcome.faults.iter().for_each(|fault| put(format_args!("{}: FAILED: {fault}", scenario.name)));
        self.write_lines(scenario, &outcome)?;
        self.sections.push(ReportSection::new(scenario, outcome));
        self.write_report()
    }

    fn write_lines(&mut self, scenario: &BenchScenario, outcome: &ScenarioOutcome) -> Result<()> {
        let Some(file) = &mut self.json else { return Ok(()) };
        for figure in &outcome.figures {
            file.write_all(JsonLine::of(figure, &self.machine).render()?.as_bytes())?;
        }
        if outcome.failed() {
            let failure = JsonLine::failure(scenario.name, scenario.goal, &outcome.faults, &self.machine);
            file.write_all(failure.render()?.as_bytes())?;
        }
        Ok(())
    }

    fn write_report(&self) -> Result<()> {
        let Some(dir) = &self.report else { return Ok(()) };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot write into {}", dir.display()))?;
        write_file(&dir.join("index.html"), &page::page(&self.machine, &self.sections))?;
        // The plots of the other scenarios are written already.
        let plots = self.sections.last().map(ReportSection::plots).unwrap_or_default();
        plots.iter().try_for_each(|plot| write_file(&dir.join(&plot.file), &plot.svg))
    }

    /// Prints the figures of all scenarios once more, together.
    fn finish(&self) {
        if self.sections.len() > 1 {
            put("\nall together");
            for section in &self.sections {
                section.outcome.figures.iter().for_each(|figure| put(sentence(figure)));
                section.outcome.faults.iter().for_each(|fault| put(format_args!("{}: FAILED: {fault}", section.name)));
            }
        }
        if let Some(dir) = &self.report {
            progress::print(format_args!("the report is in {}", dir.join("index.html").display()));
        }
    }
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints one line of data. After a closed pipe the files are still written.
fn put(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// "P1 heartbeats, accepted: 1,234,567 beats/s, goal >= 1,000,000 beats/s: met".
pub(crate) fn sentence(figure: &Figure) -> String {
    let Figure { scenario, what, unit, .. } = figure;
    let id = if figure.goal.is_numbered() && figure.goal.id != *scenario {
        format!("{} ", figure.goal.id)
    } else {
        String::new()
    };
    let text = format!("{id}{scenario}, {what}: {} {unit}", grouped(figure.value));
    match figure.target() {
        Some(target) => format!("{text}, goal {target}: {}", figure.result()),
        None => text,
    }
}

// === impl BenchOptions ===

impl BenchOptions {
    /// Flags that were given.
    fn given(&self) -> impl Iterator<Item = Flag> {
        [
            (Flag::Nodes, self.nodes.is_some()),
            (Flag::Seconds, self.seconds.is_some()),
            (Flag::Dir, self.dir.is_some()),
            (Flag::Kills, self.kills.is_some()),
            (Flag::Pods, self.pods.is_some()),
            (Flag::Rate, self.rate.is_some()),
        ]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
    }
}

// === impl ScenarioOutcome ===

impl ScenarioOutcome {
    /// The outcome of a scenario that ended with an error.
    fn broken(error: &anyhow::Error) -> Self {
        Self { faults: vec![format!("{error:#}")], ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Goal;
    use crate::scenario;

    #[test]
    fn a_figure_is_printed_with_its_goal_and_verdict() {
        let said = |goal, value| sentence(&Figure::new("heartbeats", goal, "accepted", value, "beats/s"));
        for (goal, value, expected) in [
            (Goal::at_least("P1", 1e6), 1_234_567.0, "1,234,567 beats/s, goal >= 1,000,000 beats/s: met"),
            (
                Goal::at_least("P1", 1e6),
                880_000.0,
                "880,000 beats/s, goal >= 1,000,000 beats/s: missed by 12 % (120,000 beats/s)",
            ),
            (Goal::at_least("P1", 33e3), 4_350.0, "4,350 beats/s, goal >= 33,000 beats/s: missed by a factor of 7.6"),
            (Goal::at_least("P1", 1.0), f64::NAN, "NaN beats/s, goal >= 1 beats/s: missed"),
            (Goal::at_most("P1", 50.0), 75.0, "75 beats/s, goal <= 50 beats/s: missed by 50 % (25 beats/s)"),
            (
                Goal::at_most("P1", 50.0),
                50.25,
                "50.25 beats/s, goal <= 50 beats/s: missed by less than 1 % (0.25 beats/s)",
            ),
            (Goal::zero("P1"), 3.0, "3 beats/s, goal 0 beats/s: missed by 3 beats/s"),
            (Goal::reported("P1"), 3.0, "3 beats/s"),
        ] {
            assert_eq!(said(goal, value), format!("P1 heartbeats, accepted: {expected}"));
        }
        assert_eq!(said(Goal::NONE, 3.5), "heartbeats, accepted: 3.50 beats/s");
    }

    #[test]
    fn a_flag_that_the_scenario_does_not_use_is_refused() {
        let options = BenchOptions { kills: Some(1), ..BenchOptions::default() };
        assert!(check(&scenario::select("gap"), &options).is_ok());
        let refused = check(&scenario::select("state"), &options).unwrap_err();
        assert_eq!(refused.to_string(), "--kills means nothing to state: leave it out");
    }
}
