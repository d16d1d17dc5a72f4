//! Latencies by the million in a fixed amount of memory: exact below 128 µs, within 1.6 % above, the largest exactly.

use std::time::Duration;

/// Each doubling is divided into so many buckets, as a power of two.
const PRECISION: u32 = 6;
/// Below this a bucket is one microsecond wide.
const EXACT: u64 = 2 << PRECISION;
/// A latency of more than this counts as this: an hour, longer than any run.
const LIMIT_MICROS: u64 = 3_600_000_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

/// What is told of many latencies, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

// === impl Histogram ===

impl Histogram {
    pub(super) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LIMIT_MICROS).min(LIMIT_MICROS);
        let bucket = bucket(micros);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(micros);
    }

    pub(super) fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Nothing can be said of no latencies.
    pub(super) fn summary(&self) -> Option<Summary> {
        let millis = |micros: u64| micros as f64 / 1_000.0;
        (self.total > 0).then(|| Summary {
            p50_ms: millis(self.percentile(50)),
            p99_ms: millis(self.percentile(99)),
            max_ms: millis(self.max),
        })
    }

    /// The end of the bucket that holds the smallest latency not exceeded by `percent` of them.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        reached.map_or(self.max, |bucket| end(bucket).min(self.max))
    }
}

fn bucket(micros: u64) -> usize {
    let doublings = (micros | 1).ilog2().saturating_sub(PRECISION);
    (u64::from(doublings << PRECISION) + (micros >> doublings)) as usize
}

/// The largest latency of a bucket.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < EXACT {
        return bucket;
    }
    let doublings = (bucket >> PRECISION) - 1;
    let step = bucket - (doublings << PRECISION);
    ((step + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        micros.into_iter().for_each(|micros| histogram.record(Duration::from_micros(micros)));
        histogram
    }

    #[test]
    fn short_latencies_are_exact() {
        let histogram = of((1..=100).rev());
        assert_eq!([1, 50, 99, 100].map(|percent| histogram.percentile(percent)), [1, 50, 99, 100]);
    }

    #[test]
    fn every_bucket_ends_where_the_next_begins() {
        for index in 0..bucket(LIMIT_MICROS) {
            assert_eq!(bucket(end(index)), index);
            assert_eq!(bucket(end(index) + 1), index + 1);
        }
    }

    #[test]
    fn long_latencies_are_within_two_percent() {
        for micros in [128, 129, 1_000, 14_999, 123_456, 987_654_321] {
            let told = end(bucket(micros));
            assert!(told >= micros && told * 100 <= micros * 102, "{micros} is told as {told}");
        }
    }

    #[test]
    fn percentiles_of_parts_are_those_of_the_whole() {
        let mut sum = of((1..=5_000).step_by(2));
        sum.add(&of((2..=5_000).step_by(2)));
        assert_eq!(sum, of(1..=5_000));
        assert_eq!(sum.total(), 5_000);
    }

    #[test]
    fn the_largest_is_exact_and_bounded() {
        assert_eq!(of([7, 1_234_567]).summary().unwrap().max_ms, 1_234.567);
        assert_eq!(of([u64::MAX]).max, LIMIT_MICROS);
        assert_eq!(of([]).summary(), None);
    }
}
