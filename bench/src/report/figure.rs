//! Figures of a scenario, and the goals they are held against.

use serde_json::{Map, Value};

use crate::report::number::grouped;

/// Id of figures that belong to no goal.
pub const OTHER: &str = "other";
/// Id of the guard rails.
pub(crate) const GUARD: &str = "guard";

/// One figure of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    pub(crate) scenario: &'static str,
    pub(crate) goal: Goal,
    /// Its short name inside the scenario.
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) details: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal {
    /// As in docs/performance.md: P1 to P8, `growth`, `guard` for guard rails, `other` for all the rest.
    pub(crate) id: &'static str,
    pub(crate) limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
    Zero,
    /// The figure is only reported.
    None,
}

/// The amount by which a goal was missed, in the form that says most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Miss {
    /// How many times too much or too little.
    Factor(f64),
    /// Percent of the goal, and how much that is.
    Percent(f64, f64),
    /// The difference from a goal of zero.
    Difference(f64),
}

/// From this factor on, percents say little.
const FAR: f64 = 2.0;

// === impl Figure ===

impl Figure {
    pub(crate) fn new(scenario: &'static str, goal: Goal, what: &'static str, value: f64, unit: &'static str) -> Self {
        Self { scenario, goal, what, value, unit, details: Map::new() }
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn met(&self) -> Option<bool> {
        self.goal.limit.met(self.value)
    }

    /// Whether the goal was met, or by how much it was missed; empty without a goal.
    pub(crate) fn result(&self) -> String {
        match (self.met(), self.goal.limit.missed_by(self.value)) {
            (Some(true), _) => "met".to_owned(),
            (Some(false), Some(miss)) => format!("missed by {}", miss.in_words(self.unit)),
            (Some(false), None) => "missed".to_owned(),
            (None, _) => String::new(),
        }
    }

    /// The goal in words, as ">= 1,000,000 beats/s".
    pub(crate) fn target(&self) -> Option<String> {
        match self.goal.limit {
            Limit::AtLeast(least) => Some(format!(">= {} {}", grouped(least), self.unit)),
            Limit::AtMost(most) => Some(format!("<= {} {}", grouped(most), self.unit)),
            Limit::Zero => Some(format!("0 {}", self.unit)),
            Limit::None => None,
        }
    }
}

// === impl Goal ===

impl Goal {
    /// The goal of a figure that belongs to no goal and is only reported.
    pub(crate) const NONE: Self = Self { id: OTHER, limit: Limit::None };

    pub(crate) const fn at_least(id: &'static str, least: f64) -> Self {
        Self { id, limit: Limit::AtLeast(least) }
    }

    pub(crate) const fn at_most(id: &'static str, most: f64) -> Self {
        Self { id, limit: Limit::AtMost(most) }
    }

    pub(crate) const fn zero(id: &'static str) -> Self {
        Self { id, limit: Limit::Zero }
    }

    /// Whether the goal has an id that people know.
    pub(crate) fn is_numbered(&self) -> bool {
        self.id != OTHER
    }

    /// The goal of a figure that belongs to a goal and is only reported.
    pub(crate) const fn reported(id: &'static str) -> Self {
        Self { id, limit: Limit::None }
    }
}

// === impl Limit ===

impl Limit {
    /// NaN meets no limit.
    pub(crate) fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::Zero => Some(value == 0.0),
            Self::None => None,
        }
    }

    /// Nothing if the limit is met, or if the value is not finite.
    pub(crate) fn missed_by(self, value: f64) -> Option<Miss> {
        let (wanted, factor) = match self {
            Self::AtLeast(least) => (least, least / value),
            Self::AtMost(most) => (most, value / most),
            Self::Zero => (0.0, f64::NAN),
            Self::None => return None,
        };
        let difference = (value - wanted).abs();
        let is_miss = self.met(value) == Some(false) && difference.is_finite();
        is_miss.then(|| match factor {
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
    fn figures_are_compared_with_their_limits() {
        for (limit, value, met, missed_by) in [
            (Limit::AtLeast(100.0), 100.0, Some(true), None),
            (Limit::AtLeast(100.0), 88.0, Some(false), Some(Miss::Percent(12.0, 12.0))),
            (Limit::AtLeast(100.0), 40.0, Some(false), Some(Miss::Factor(2.5))),
            (Limit::AtLeast(100.0), 0.0, Some(false), Some(Miss::Difference(100.0))),
            (Limit::AtLeast(100.0), f64::NAN, Some(false), None),
            (Limit::AtMost(50.0), 50.0, Some(true), None),
            (Limit::AtMost(50.0), 75.0, Some(false), Some(Miss::Percent(50.0, 25.0))),
            (Limit::AtMost(50.0), 400.0, Some(false), Some(Miss::Factor(8.0))),
            (Limit::AtMost(50.0), f64::INFINITY, Some(false), None),
            (Limit::Zero, 0.0, Some(true), None),
            (Limit::Zero, 1.0, Some(false), Some(Miss::Difference(1.0))),
            (Limit::None, 1.0, None, None),
        ] {
            assert_eq!((limit.met(value), limit.missed_by(value)), (met, missed_by), "{limit:?} {value}");
        }
    }

    #[test]
    fn a_goal_is_printed_with_its_unit() {
        let target = |goal| Figure::new("s", goal, "rate", 1.0, "beats/s").target();
        assert_eq!(target(Goal::at_least("P1", 1e6)).as_deref(), Some(">= 1,000,000 beats/s"));
        assert_eq!(target(Goal::at_most("P1", 2.5)).as_deref(), Some("<= 2.50 beats/s"));
        assert_eq!(target(Goal::zero("P1")).as_deref(), Some("0 beats/s"));
        assert_eq!(target(Goal::reported("P1")), None);
    }
}
