//! Runs scenarios one after the other, and tells what came of them: on the terminal, as JSON lines, as a page.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::catalog::{Flag, Scenario};
use crate::figure::grouped;
use crate::line::Line;
use crate::machine::Machine;
use crate::outcome::{Finding, Outcome};
use crate::progress::say;
use crate::report::{self, Section};
use crate::setting::{Scale, Setting};

/// Where figures go besides stdout.
#[derive(Debug, Clone, Default)]
pub struct Outlets {
    /// A file for one JSON object per finding.
    pub json: Option<PathBuf>,
    /// A folder for a page with plots, and for each plot as a file.
    pub report: Option<PathBuf>,
}

/// How it went, apart from goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub failed: usize,
    pub total: usize,
}

struct Frame {
    machine: Machine,
    json: Option<File>,
    report: Option<PathBuf>,
    sections: Vec<Section>,
}

/// Runs them all, whatever becomes of one. Fails only if the results cannot be told.
pub async fn run(scenarios: &[&'static Scenario], setting: &Setting, outlets: Outlets) -> Result<Tally> {
    let mut frame = Frame::open(outlets)?;
    let (mut failed, mut garrison) = (0, None);
    for scenario in scenarios {
        say(format_args!("{}: {}", scenario.name, scenario.about));
        let started = Instant::now();
        let mut outcome = scenario.run(setting, &mut garrison).await.unwrap_or_else(|error| Outcome::broken(&error));
        if setting.scale == Scale::Small {
            outcome.forgive();
        }
        say(format_args!("{}: done after {:.0} s", scenario.name, started.elapsed().as_secs_f64()));
        failed += usize::from(outcome.failed());
        frame.tell(scenario, outcome)?;
    }
    drop(garrison);
    frame.close();
    Ok(Tally { failed, total: scenarios.len() })
}

/// Whether they can be asked for so: a flag that would change nothing is refused, not ignored.
pub fn check(scenarios: &[&'static Scenario], setting: &Setting) -> Result<()> {
    ensure!(!scenarios.is_empty(), "there is no scenario to run; `muster bench --help` lists them");
    for flag in setting.given() {
        ensure!(
            scenarios.iter().any(|scenario| scenario.takes(flag)),
            "{} means nothing to {}: leave it out",
            flag.name(),
            scenarios.first().map_or("all", |scenario| scenario.name)
        );
    }
    Ok(())
}

// === impl Frame ===

impl Frame {
    /// What cannot be written is said now and not after an hour.
    fn open(outlets: Outlets) -> Result<Self> {
        let machine = Machine::this();
        put(format_args!("muster bench, {machine}"));
        let create = |path: &PathBuf| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let json = outlets.json.as_ref().map(create).transpose()?;
        let frame = Self { machine, json, report: outlets.report, sections: Vec::new() };
        frame.write_report()?;
        Ok(frame)
    }

    /// Everything is written as soon as it is known, so that whoever interrupts loses only what is not.
    fn tell(&mut self, scenario: &Scenario, outcome: Outcome) -> Result<()> {
        for table in &outcome.tables {
            put(format_args!("\n{}", table.to_string().trim_end()));
        }
        put("");
        outcome.findings.iter().for_each(|finding| put(sentence(finding)));
        outcome.faults.iter().for_each(|fault| put(format_args!("{}: FAILED: {fault}", scenario.name)));
        self.write_lines(scenario, &outcome)?;
        self.sections.push(Section::new(scenario, outcome));
        self.write_report()
    }

    fn write_lines(&mut self, scenario: &Scenario, outcome: &Outcome) -> Result<()> {
        let Some(file) = &mut self.json else { return Ok(()) };
        for finding in &outcome.findings {
            file.write_all(Line::of(finding, &self.machine).render()?.as_bytes())?;
        }
        if outcome.failed() {
            let failure = Line::failure(scenario.name, scenario.goal, &outcome.faults, &self.machine);
            file.write_all(failure.render()?.as_bytes())?;
        }
        Ok(())
    }

    fn write_report(&self) -> Result<()> {
        let Some(dir) = &self.report else { return Ok(()) };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot write into {}", dir.display()))?;
        write(&dir.join("index.html"), &report::page(&self.machine, &self.sections))?;
        // Those of the others are there already.
        let plots = self.sections.last().map(Section::plots).unwrap_or_default();
        plots.iter().try_for_each(|plot| write(&dir.join(&plot.file), &plot.svg))
    }

    /// Findings of many scenarios once more, together.
    fn close(&self) {
        if self.sections.len() > 1 {
            put("\nall together");
            for section in &self.sections {
                section.outcome.findings.iter().for_each(|finding| put(sentence(finding)));
                section.outcome.faults.iter().for_each(|fault| put(format_args!("{}: FAILED: {fault}", section.name)));
            }
        }
        if let Some(dir) = &self.report {
            say(format_args!("the report is in {}", dir.join("index.html").display()));
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// One line of data. Whoever closes the pipe still gets the files.
fn put(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// "P1 heartbeats, accepted: 1,234,567 beats/s, goal >= 1,000,000 beats/s: met".
pub fn sentence(finding: &Finding) -> String {
    let Finding { scenario, what, unit, .. } = finding;
    let id = if finding.goal.is_numbered() && finding.goal.id != *scenario {
        format!("{} ", finding.goal.id)
    } else {
        String::new()
    };
    let figure = format!("{id}{scenario}, {what}: {} {unit}", grouped(finding.value));
    match finding.target() {
        Some(target) => format!("{figure}, goal {target}: {}", finding.verdict()),
        None => figure,
    }
}

// === impl Setting ===

impl Setting {
    /// What was set by hand.
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

// === impl Outcome ===

impl Outcome {
    /// Of a scenario that did not get to its end.
    fn broken(error: &anyhow::Error) -> Self {
        Self { faults: vec![format!("{error:#}")], ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use crate::outcome::Goal;

    #[test]
    fn a_finding_is_one_sentence() {
        let said = |goal, value| sentence(&Finding::new("heartbeats", goal, "accepted", value, "beats/s"));
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
            (Goal::told("P1"), 3.0, "3 beats/s"),
        ] {
            assert_eq!(said(goal, value), format!("P1 heartbeats, accepted: {expected}"));
        }
        assert_eq!(said(Goal::NONE, 3.5), "heartbeats, accepted: 3.50 beats/s");
    }

    #[test]
    fn a_flag_that_changes_nothing_is_refused() {
        let setting = Setting { kills: Some(1), ..Setting::default() };
        assert!(check(&catalog::select("gap"), &setting).is_ok());
        let refused = check(&catalog::select("state"), &setting).unwrap_err();
        assert_eq!(refused.to_string(), "--kills means nothing to state: leave it out");
    }
}
