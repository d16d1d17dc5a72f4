//! Axis of a plot: its ticks and their labels.

/// An axis from the first tick to the last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub(crate) ticks: Vec<f64>,
    spacing: Spacing,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Spacing {
    /// Each tick is this much more than the one before.
    Even(f64),
    /// Each tick is ten times the one before.
    Decades,
}

/// About so many ticks.
const WANTED: f64 = 5.0;
/// Lengths of a step, by powers of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// The logarithm of a power of ten may be off by so much.
const ON_TICK: f64 = 1e-9;

// === impl Axis ===

impl Axis {
    /// Begins at zero, or below if there is anything below, and ends at or beyond the last value.
    pub(crate) fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((0.0, 0.0), |(low, high), value: f64| (f64::min(low, value), f64::max(high, value)));
        let high = if high > low { high } else { low + 1.0 };
        let step = step((high - low) / WANTED);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        Self { ticks: (first..=last).map(|tick| tick as f64 * step).collect(), spacing: Spacing::Even(step) }
    }

    /// Logarithmic, by powers of ten around all values. There is no place on it for zero or less.
    pub(crate) fn decades(values: impl Iterator<Item = f64>) -> Self {
        let powers = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let ends = powers.fold(None, |ends: Option<(f64, f64)>, power| {
            Some(ends.map_or((power, power), |(low, high)| (low.min(power), high.max(power))))
        });
        let (low, high) = ends.unwrap_or((0.0, 1.0));
        let first = (low + ON_TICK).floor() as i32;
        let last = ((high - ON_TICK).ceil() as i32).max(first + 1);
        Self { ticks: (first..=last).map(|power| 10_f64.powi(power)).collect(), spacing: Spacing::Decades }
    }

    /// The share of the way along the axis, from 0 to 1; not finite for a value that has no place on it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let along = |value: f64| match self.spacing {
            Spacing::Even(_) => value,
            Spacing::Decades => value.log10(),
        };
        (along(value) - along(self.low())) / (along(self.high()) - along(self.low()))
    }

    /// Ticks that are evenly spaced share a unit, those by powers of ten have one each.
    pub(crate) fn label(&self, tick: f64) -> String {
        let (step, most, thousands_from) = match self.spacing {
            Spacing::Even(step) => (step, self.high().abs().max(self.low().abs()), 1e4),
            Spacing::Decades => (tick, tick, 1e3),
        };
        let (unit, suffix) = match most {
            most if most >= 1e9 => (1e9, "G"),
            most if most >= 1e6 => (1e6, "M"),
            most if most >= thousands_from => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-((step / unit).log10() + ON_TICK).floor()).max(0.0) as usize;
        let suffix = if tick == 0.0 { "" } else { suffix };
        format!("{:.decimals$}{suffix}", tick / unit)
    }

    fn low(&self) -> f64 {
        self.ticks.first().copied().unwrap_or(0.0)
    }

    fn high(&self) -> f64 {
        self.ticks.last().copied().unwrap_or(1.0)
    }
}

/// The shortest step of 1, 2 or 5 times a power of ten that is no shorter than `least`.
fn step(least: f64) -> f64 {
    let power = 10_f64.powi(least.log10().floor() as i32);
    let enough = STEPS.into_iter().map(|times| times * power).find(|step| *step >= least * (1.0 - 1e-9));
    enough.unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64]) -> Vec<String> {
        let axis = Axis::over(values.iter().copied());
        axis.ticks.iter().map(|tick| axis.label(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_beyond_the_last_value() {
        for (values, expected) in [
            (&[0.0, 10.0][..], &["0", "2", "4", "6", "8", "10"][..]),
            (&[3.0, 47.0], &["0", "10", "20", "30", "40", "50"]),
            (&[0.42], &["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
            (&[1_234_567.0], &["0.0", "0.5M", "1.0M", "1.5M"]),
            (&[23_000.0], &["0", "5k", "10k", "15k", "20k", "25k"]),
            (&[6_000.0], &["0", "2000", "4000", "6000"]),
            (&[-3.0, 3.0], &["-4", "-2", "0", "2", "4"]),
            (&[0.0], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (&[], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (&[f64::NAN, f64::INFINITY, 5.0], &["0", "1", "2", "3", "4", "5"]),
        ] {
            assert_eq!(labels(values), expected, "{values:?}");
        }
    }

    #[test]
    fn decades_hold_all_values_above_zero() {
        let labels = |values: &[f64]| {
            let axis = Axis::decades(values.iter().copied());
            axis.ticks.iter().map(|tick| axis.label(*tick)).collect::<Vec<_>>()
        };
        for (values, expected) in [
            (&[300.0, 3_000.0][..], &["100", "1k", "10k"][..]),
            (&[1e3, 1e6], &["1k", "10k", "100k", "1M"]),
            (&[0.02, 0.0, -1.0, f64::NAN, 7.0], &["0.01", "0.1", "1", "10"]),
            (&[1e8, 2e9], &["100M", "1G", "10G"]),
            (&[100.0], &["100", "1k"]),
            (&[], &["1", "10"]),
        ] {
            assert_eq!(labels(values), expected, "{values:?}");
        }
        let axis = Axis::decades([1e3, 1e5].into_iter());
        assert_eq!([1e3, 1e4, 1e5].map(|value| axis.place(value)), [0.0, 0.5, 1.0]);
        assert!(!axis.place(0.0).is_finite());
    }

    #[test]
    fn a_place_is_a_fraction_of_the_axis() {
        let axis = Axis::over([0.0, 10.0].into_iter());
        assert_eq!([0.0, 5.0, 10.0].map(|value| axis.place(value)), [0.0, 0.5, 1.0]);
    }
}
