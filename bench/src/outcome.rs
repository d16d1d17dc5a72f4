//! What came of a scenario: figures held against goals, tables, and what was seen over time.

use serde_json::{Map, Value};

use crate::catalog::OTHER;
use crate::figure::grouped;
use crate::table::Table;
use crate::timeline::{Series, Timeline};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub findings: Vec<Finding>,
    pub tables: Vec<Table>,
    pub timeline: Timeline,
    /// Costs by the number of nodes.
    pub curves: Vec<Series>,
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
    /// As in docs/performance.md: P1 to P8, `growth`, `guard` for guard rails, `other` for all the rest.
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

/// By how much a goal was missed, in the way that says most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Miss {
    /// So many times too much or too little.
    Factor(f64),
    /// Of the goal, and how much that is.
    Percent(f64, f64),
    /// From a goal of which there is no part.
    Difference(f64),
}

/// From so many times on, percents say little.
const FAR: f64 = 2.0;

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

    /// Whether the goal was met, or by how much it was missed; nothing if there is none.
    pub fn verdict(&self) -> String {
        match (self.met(), self.goal.bound.missed_by(self.value)) {
            (Some(true), _) => "met".to_owned(),
            (Some(false), Some(miss)) => format!("missed by {}", miss.in_words(self.unit)),
            (Some(false), None) => "missed".to_owned(),
            (None, _) => String::new(),
        }
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

    /// Nothing if it is met, or if nothing can be said of what was seen.
    pub fn missed_by(self, value: f64) -> Option<Miss> {
        let (wanted, factor) = match self {
            Self::AtLeast(least) => (least, least / value),
            Self::AtMost(most) => (most, value / most),
            Self::Zero => (0.0, f64::NAN),
            Self::None => return None,
        };
        let difference = (value - wanted).abs();
        let told = self.met(value) == Some(false) && difference.is_finite();
        told.then(|| match factor {
            far if far.is_finite() && far >= FAR => Miss::Factor(far),
            near if near.is_finite() && near > 0.0 => Miss::Percent(100.0 * difference / wanted, difference),
            _ => Miss::Difference(difference),
        })
    }
}

// === impl Miss ===

impl Miss {
    fn in_words(self, unit: &str) -> String {
        match self {
            Self::Factor(factor) => format!("a factor of {factor:.1}"),
            Self::Percent(percent, difference) if percent < 1.0 => {
                format!("less than 1 % ({} {unit})", grouped(difference))
            }
            Self::Percent(percent, difference) => format!("{percent:.0} % ({} {unit})", grouped(difference)),
            Self::Difference(difference) => format!("{} {unit}", grouped(difference)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_held_against_bounds() {
        for (bound, value, met, missed_by) in [
            (Bound::AtLeast(100.0), 100.0, Some(true), None),
            (Bound::AtLeast(100.0), 88.0, Some(false), Some(Miss::Percent(12.0, 12.0))),
            (Bound::AtLeast(100.0), 40.0, Some(false), Some(Miss::Factor(2.5))),
            (Bound::AtLeast(100.0), 0.0, Some(false), Some(Miss::Difference(100.0))),
            (Bound::AtLeast(100.0), f64::NAN, Some(false), None),
            (Bound::AtMost(50.0), 50.0, Some(true), None),
            (Bound::AtMost(50.0), 75.0, Some(false), Some(Miss::Percent(50.0, 25.0))),
            (Bound::AtMost(50.0), 400.0, Some(false), Some(Miss::Factor(8.0))),
            (Bound::AtMost(50.0), f64::INFINITY, Some(false), None),
            (Bound::Zero, 0.0, Some(true), None),
            (Bound::Zero, 1.0, Some(false), Some(Miss::Difference(1.0))),
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
