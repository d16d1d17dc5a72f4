//! A handful of durations, summed up.

use std::time::Duration;

/// Sorted samples.
#[derive(Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Self {
        let mut sorted: Vec<_> = samples.into_iter().collect();
        sorted.sort_unstable();
        Self(sorted)
    }
}

impl Latencies {
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().flat_map(|part| part.0).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// p50, p99 and the largest.
    pub fn spread_ms(&self) -> [f64; 3] {
        [50, 99, 100].map(|percent| self.percentile_ms(percent))
    }

    /// The smallest sample that is not exceeded by `percent` of them, in milliseconds.
    pub fn percentile_ms(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).map_or(0.0, |sample| sample.as_secs_f64() * 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let latencies: Latencies = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(latencies.percentile_ms(1), 1.0);
        assert_eq!(latencies.spread_ms(), [50.0, 99.0, 100.0]);
        assert_eq!(Latencies::default().percentile_ms(50), 0.0);
        let halves = [51..=100, 1..=50].map(|half| half.map(Duration::from_millis).collect());
        assert_eq!(Latencies::of_all(halves).spread_ms(), [50.0, 99.0, 100.0]);
    }
}
