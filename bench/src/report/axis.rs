//! Where an axis has its ticks, and what is written at them.

/// An axis from the first tick to the last.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub ticks: Vec<f64>,
    step: f64,
}

/// About so many ticks.
const WANTED: f64 = 5.0;
/// Lengths of a step, by powers of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

// === impl Axis ===

impl Axis {
    /// Begins at zero, or below if there is anything below, and ends at or beyond the last value.
    pub fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((0.0, 0.0), |(low, high), value: f64| (f64::min(low, value), f64::max(high, value)));
        let high = if high > low { high } else { low + 1.0 };
        let step = step((high - low) / WANTED);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
        Self { ticks: (first..=last).map(|tick| tick as f64 * step).collect(), step }
    }

    /// The share of the way along the axis, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        (value - self.low()) / (self.high() - self.low())
    }

    pub fn label(&self, tick: f64) -> String {
        let (unit, suffix) = match self.high().abs().max(self.low().abs()) {
            most if most >= 1e9 => (1e9, "G"),
            most if most >= 1e6 => (1e6, "M"),
            most if most >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(self.step / unit).log10().floor()).max(0.0) as usize;
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
    fn places_are_shares_of_the_way() {
        let axis = Axis::over([0.0, 10.0].into_iter());
        assert_eq!([0.0, 5.0, 10.0].map(|value| axis.place(value)), [0.0, 0.5, 1.0]);
    }
}
