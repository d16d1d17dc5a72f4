//! When a shortage is a pressure, and when it has passed.
//!
//! A threshold that was met stays met until so much more is available as it asks to be reclaimed (P-4), and a condition
//! stays on until no threshold of it was met for the transition period (P-5): pods that were turned away are not let in
//! again only to be turned away once more.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::sample::{Level, Sample};
use super::signal::PressureKind;
use super::threshold::{Threshold, Thresholds};

pub const TRANSITION_PERIOD: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Pressures {
    watches: Vec<Watch>,
    transition_period: Duration,
    /// When a threshold of the condition was last met.
    observed: BTreeMap<PressureKind, Instant>,
}

#[derive(Debug)]
struct Watch {
    threshold: Threshold,
    /// Since when it is met.
    met_since: Option<Instant>,
    /// It was met for longer than its grace and is not yet resolved.
    outstanding: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Calm,
    Pressed,
    /// Something that it depends on could not be read.
    Unknown(String),
}

/// A threshold that has been met for longer than its grace: the time to do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    pub threshold: Threshold,
    pub level: Level,
}

// === impl Pressures ===

impl Pressures {
    pub fn new(thresholds: &Thresholds, transition_period: Duration) -> Self {
        let watch = |threshold: &Threshold| Watch { threshold: *threshold, met_since: None, outstanding: false };
        Self { watches: thresholds.iter().map(watch).collect(), transition_period, observed: BTreeMap::new() }
    }

    /// Takes a look at the machine into account. Answers with the shortages that have just become outstanding.
    pub fn observe(&mut self, sample: &Sample, now: Instant) -> Vec<Shortage> {
        let mut shortages = Vec::new();
        for watch in &mut self.watches {
            let Ok(level) = sample.level(watch.threshold.signal) else { continue };
            let was_outstanding = watch.outstanding;
            watch.observe(level, now);
            if watch.met_since.is_some() {
                self.observed.insert(watch.threshold.signal.pressure(), now);
            }
            if watch.outstanding && !was_outstanding {
                shortages.push(Shortage { threshold: watch.threshold, level });
            }
        }
        shortages
    }

    /// What to report of a condition after the last observation, which was `sample`.
    pub fn verdict(&self, kind: PressureKind, sample: &Sample, now: Instant) -> Verdict {
        // Whatever the period: a threshold that is met is a pressure.
        let of_kind = self.watches.iter().filter(|watch| watch.threshold.signal.pressure() == kind);
        let is_met =
            of_kind.filter(|watch| sample.level(watch.threshold.signal).is_ok()).any(|watch| watch.met_since.is_some());
        let observed = self.observed.get(&kind);
        if is_met || observed.is_some_and(|observed| now.duration_since(*observed) < self.transition_period) {
            return Verdict::Pressed;
        }
        let unread = self.signals_of(kind).find_map(|signal| sample.level(signal).err());
        unread.map_or(Verdict::Calm, |reason| Verdict::Unknown(reason.to_owned()))
    }

    /// What a threshold watches and the sample lacks.
    pub fn unread<'a>(&'a self, sample: &'a Sample) -> Option<&'a str> {
        PressureKind::ALL
            .into_iter()
            .flat_map(|kind| self.signals_of(kind))
            .find_map(|signal| sample.level(signal).err())
    }

    fn signals_of(&self, kind: PressureKind) -> impl Iterator<Item = super::Signal> + '_ {
        self.watches.iter().map(|watch| watch.threshold.signal).filter(move |signal| signal.pressure() == kind)
    }
}

// === impl Watch ===

impl Watch {
    fn observe(&mut self, level: Level, now: Instant) {
        if !self.threshold.is_met(level.available, level.capacity, self.outstanding) {
            (self.met_since, self.outstanding) = (None, false);
            return;
        }
        let since = *self.met_since.get_or_insert(now);
        let grace = self.threshold.grace.unwrap_or_default();
        self.outstanding |= now.duration_since(since) >= grace;
    }
}

#[cfg(test)]
mod tests;
