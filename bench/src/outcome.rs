//! What came of a scenario: figures held against goals, tables, and what was seen over time.

use serde_json::{Map, Value};

use crate::catalog::OTHER;
use crate::figure::grouped;
use crate::table::Table;
use crate::timeline::Timeline;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub tables: Vec<Table>,
    pub timeline: Timeline,
    /// What must not happen and did, one sentence each: beats lost, refused or late, verdicts against the living. With
    /// any of these the scenario counts as failed, whatever its figures.
    pub faults: Vec<String>,
}

/// One figure of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub scenario: &'static str,
    pub goal: Goal,
    /// The figure's short name inside the scenario.
    pub what: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub details: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// As in docs/performance.md: P1 to P8, `guard` for guard rails, `other` for all the rest.
    pub id: &'static str,
    pub bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Zero,
    /// The figure is only told.
    None,
}

// === impl Outcome ===

impl Outcome {
    pub fn failed(&self) -> bool {
        !self.faults.is_empty()
    }

    /// A small run is about whether anything is lost, not about how fast or how large: only what must not happen at all
    /// is held against it.
    pub fn forgive(&mut self) {
        for finding in &mut self.findings {
            if finding.goal.bound != Bound::Zero {
                finding.goal.bound = Bound::None;
            }
        }
    }
}

// === impl Finding ===

impl Finding {
    pub fn new(scenario: &'static str, goal: Goal, what: &'static str, value: f64, unit: &'static str) -> Self {
        Self { scenario, goal, what, value, unit, details: Map::new() }
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    pub fn met(&self) -> Option<bool> {
        self.goal.bound.met(self.value)
    }

    /// The goal in words, as ">= 1,000,000 beats/s".
    pub fn target(&self) -> Option<String> {
        match self.goal.bound {
            Bound::AtLeast(least) => Some(format!(">= {} {}", grouped(least), self.unit)),
            Bound::AtMost(most) => Some(format!("<= {} {}", grouped(most), self.unit)),
            Bound::Zero => Some(format!("0 {}", self.unit)),
            Bound::None => None,
        }
    }
}

// === impl Goal ===

impl Goal {
    /// Of a figure that belongs to none and is only told.
    pub const NONE: Self = Self { id: OTHER, bound: Bound::None };

    pub const fn at_least(id: &'static str, least: f64) -> Self {
        Self { id, bound: Bound::AtLeast(least) }
    }

    pub const fn at_most(id: &'static str, most: f64) -> Self {
        Self { id, bound: Bound::AtMost(most) }
    }

    pub const fn zero(id: &'static str) -> Self {
        Self { id, bound: Bound::Zero }
    }

    /// Whether people know the goal by its id.
    pub fn is_numbered(&self) -> bool {
        self.id != OTHER
    }

    /// A figure that belongs to a goal and is only told.
    pub const fn told(id: &'static str) -> Self {
        Self { id, bound: Bound::None }
    }
}

// === impl Bound ===

impl Bound {
    /// What is not a number meets nothing.
    pub fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::Zero => Some(value == 0.0),
            Self::None => None,
        }
    }

    /// By how many percent of the goal it is missed; nothing if it is met, or if a percentage would say nothing.
    pub fn missed_by(self, value: f64) -> Option<f64> {
        let percent = match self {
            Self::AtLeast(least) => 100.0 * (least - value) / least,
            Self::AtMost(most) => 100.0 * (value - most) / most,
            Self::Zero | Self::None => return None,
        };
        Some(percent).filter(|percent| percent.is_finite() && *percent > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_held_against_bounds() {
        for (bound, value, met, missed_by) in [
            (Bound::AtLeast(100.0), 100.0, Some(true), None),
            (Bound::AtLeast(100.0), 88.0, Some(false), Some(12.0)),
            (Bound::AtLeast(100.0), f64::NAN, Some(false), None),
            (Bound::AtMost(50.0), 50.0, Some(true), None),
            (Bound::AtMost(50.0), 75.0, Some(false), Some(50.0)),
            (Bound::AtMost(50.0), f64::INFINITY, Some(false), None),
            (Bound::Zero, 0.0, Some(true), None),
            (Bound::Zero, 1.0, Some(false), None),
            (Bound::None, 1.0, None, None),
        ] {
            assert_eq!((bound.met(value), bound.missed_by(value)), (met, missed_by), "{bound:?} {value}");
        }
    }

    #[test]
    fn a_goal_is_put_in_words() {
        let target = |goal| Finding::new("s", goal, "rate", 1.0, "beats/s").target();
        assert_eq!(target(Goal::at_least("P1", 1e6)).as_deref(), Some(">= 1,000,000 beats/s"));
        assert_eq!(target(Goal::at_most("P1", 2.5)).as_deref(), Some("<= 2.50 beats/s"));
        assert_eq!(target(Goal::zero("P1")).as_deref(), Some("0 beats/s"));
        assert_eq!(target(Goal::told("P1")), None);
    }
}
