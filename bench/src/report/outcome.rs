//! Outcome of a scenario: figures, tables, timelines, and faults.

use super::figure::{Figure, Limit};
use super::table::ReportTable;
use super::timeline::{MeasuredTimeline, Series};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ScenarioOutcome {
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<ReportTable>,
    pub(crate) timeline: MeasuredTimeline,
    /// Costs by the number of nodes.
    pub(crate) curves: Vec<Series>,
    /// Faults, one sentence each: beats lost, refused or late, verdicts on living nodes. With any of these the
    /// scenario counts as failed, whatever its figures.
    pub(crate) faults: Vec<String>,
}

// === impl ScenarioOutcome ===

impl ScenarioOutcome {
    pub(crate) fn failed(&self) -> bool {
        !self.faults.is_empty()
    }

    /// Drops all goals but those of zero: a small run is about whether anything is lost, not about how fast or how
    /// large.
    pub(crate) fn drop_size_goals(&mut self) {
        for figure in &mut self.figures {
            if figure.goal.limit != Limit::Zero {
                figure.goal.limit = Limit::None;
            }
        }
    }
}
