//! Pressures: when a shortage becomes a pressure, and when it is over.
//!
//! A threshold that was met stays met until its minimum reclaim is available as well (P-4). A condition stays on until
//! none of its thresholds was met for the transition period (P-5), so that pods are not admitted again only to be
//! evicted once more.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::sample::{MachineSample, ResourceLevel};
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
    /// It was met for longer than its grace and is not resolved yet.
    overdue: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PressureState {
    NoPressure,
    Pressure,
    /// A signal it depends on could not be read.
    Unknown(String),
}

/// A threshold that has been met for longer than its grace: time to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetThreshold {
    pub threshold: Threshold,
    pub level: ResourceLevel,
}

// === impl Pressures ===

impl Pressures {
    pub fn new(thresholds: &Thresholds, transition_period: Duration) -> Self {
        let watch = |threshold: &Threshold| Watch { threshold: *threshold, met_since: None, overdue: false };
        Self { watches: thresholds.iter().map(watch).collect(), transition_period, observed: BTreeMap::new() }
    }

    /// Evaluates a sample. Returns the thresholds that have just been met for longer than their grace.
    pub fn observe(&mut self, sample: &MachineSample, now: Instant) -> Vec<MetThreshold> {
        let mut shortages = Vec::new();
        for watch in &mut self.watches {
            let Ok(level) = sample.level(watch.threshold.signal) else { continue };
            let was_overdue = watch.overdue;
            watch.observe(level, now);
            if watch.met_since.is_some() {
                self.observed.insert(watch.threshold.signal.pressure(), now);
            }
            if watch.overdue && !was_overdue {
                shortages.push(MetThreshold { threshold: watch.threshold, level });
            }
        }
        shortages
    }

    /// The state to report after the last observation, `sample`.
    pub fn state(&self, kind: PressureKind, sample: &MachineSample, now: Instant) -> PressureState {
        // A threshold that is met is a pressure, whatever the transition period.
        let of_kind = self.watches.iter().filter(|watch| watch.threshold.signal.pressure() == kind);
        let is_met =
            of_kind.filter(|watch| sample.level(watch.threshold.signal).is_ok()).any(|watch| watch.met_since.is_some());
        let observed = self.observed.get(&kind);
        if is_met || observed.is_some_and(|observed| now.duration_since(*observed) < self.transition_period) {
            return PressureState::Pressure;
        }
        let unread = self.signals_of(kind).find_map(|signal| sample.level(signal).err());
        unread.map_or(PressureState::NoPressure, |reason| PressureState::Unknown(reason.to_owned()))
    }

    /// Why a signal with a threshold could not be read.
    pub fn unread<'a>(&'a self, sample: &'a MachineSample) -> Option<&'a str> {
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
    fn observe(&mut self, level: ResourceLevel, now: Instant) {
        if !self.threshold.is_met(level.available, level.capacity, self.overdue) {
            (self.met_since, self.overdue) = (None, false);
            return;
        }
        let since = *self.met_since.get_or_insert(now);
        let grace = self.threshold.grace.unwrap_or_default();
        self.overdue |= now.duration_since(since) >= grace;
    }
}

#[cfg(test)]
mod tests;
