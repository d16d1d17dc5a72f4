//! Latencies, summed up: the largest exactly, percentiles exactly below a quarter of a second and within 0.001 % above.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Decimal digits that are kept of a latency in microseconds.
const DIGITS: u8 = 5;
/// A latency of more than this counts as this: an hour, longer than any run.
const LIMIT_MICROS: u64 = 3_600_000_000;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Latencies {
    micros: Histogram<u64>,
    /// A histogram alone would round it.
    max: u64,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LatencySummary {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

// === impl Latencies ===

impl Default for Latencies {
    fn default() -> Self {
        // The constructor fails for more than five digits only.
        let micros = Histogram::new(DIGITS).expect("five digits are allowed");
        Self { micros, max: 0 }
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        let mut latencies = Self::default();
        samples.into_iter().for_each(|sample| latencies.record(sample));
        latencies
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LIMIT_MICROS).min(LIMIT_MICROS);
        // The histogram resizes itself, so every value up to the limit has its place.
        let _ = self.micros.record(micros);
        self.max = self.max.max(micros);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // The histogram resizes itself, so the other one fits.
        let _ = self.micros.add(&other.micros);
        self.max = self.max.max(other.max);
    }

    pub(crate) fn len(&self) -> u64 {
        self.micros.len()
    }

    /// p50, p99 and the largest; zeros without any latency.
    pub(crate) fn spread_ms(&self) -> [f64; 3] {
        [50, 99, 100].map(|percent| self.percentile_ms(percent))
    }

    /// Nothing without any latency.
    pub(crate) fn summary(&self) -> Option<LatencySummary> {
        let [p50_ms, p99_ms, max_ms] = self.spread_ms();
        (self.len() > 0).then_some(LatencySummary { p50_ms, p99_ms, max_ms })
    }

    /// The smallest latency that is not exceeded by `percent` of them, in milliseconds.
    pub(crate) fn percentile_ms(&self, percent: u8) -> f64 {
        let micros = self.micros.value_at_quantile(f64::from(percent) / 100.0).min(self.max);
        micros as f64 / 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_micros(micros: impl IntoIterator<Item = u64>) -> Latencies {
        micros.into_iter().map(Duration::from_micros).collect()
    }

    #[test]
    fn percentiles_are_values_of_samples() {
        let latencies: Latencies = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(latencies.percentile_ms(1), 1.0);
        assert_eq!(latencies.spread_ms(), [50.0, 99.0, 100.0]);
        assert_eq!(Latencies::default().percentile_ms(50), 0.0);
    }

    #[test]
    fn short_latencies_are_exact() {
        let latencies = of_micros((1..=100).rev());
        assert_eq!([1, 50, 99, 100].map(|percent| latencies.percentile_ms(percent)), [0.001, 0.05, 0.099, 0.1]);
    }

    #[test]
    fn long_latencies_are_within_a_hundred_thousandth() {
        for micros in [128, 129, 1_000, 14_999, 123_456, 987_654_321] {
            let seen = of_micros([micros, micros, LIMIT_MICROS]).percentile_ms(50) * 1_000.0;
            let off = (seen - micros as f64) / micros as f64;
            assert!((0.0..=0.000_01).contains(&off), "{micros} is read as {seen}");
        }
    }

    #[test]
    fn merged_latencies_equal_those_of_all_samples() {
        let mut sum = of_micros((1..=5_000).step_by(2));
        sum.add(&of_micros((2..=5_000).step_by(2)));
        assert_eq!(sum, of_micros(1..=5_000));
        assert_eq!(sum.len(), 5_000);
        let mut halves = Latencies::default();
        for half in [51..=100, 1..=50] {
            halves.add(&half.map(Duration::from_millis).collect());
        }
        assert_eq!(halves.spread_ms(), [50.0, 99.0, 100.0]);
    }

    #[test]
    fn the_largest_is_exact_and_bounded() {
        assert_eq!(of_micros([7, 1_234_567]).summary().unwrap().max_ms, 1_234.567);
        assert_eq!(of_micros([u64::MAX]).max, LIMIT_MICROS);
        assert_eq!(of_micros([]).summary(), None);
    }
}
