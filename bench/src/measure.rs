//! Instruments of the scenarios, and the guard rails they share.

pub(crate) mod accepted_rate;
pub(crate) mod cpu_clock;
pub(crate) mod exponent;
pub(crate) mod latency;
pub(crate) mod no_false_verdicts;
pub(crate) mod recovery;
pub(crate) mod scrape;
pub(crate) mod sweep;
pub(crate) mod usage;
pub(crate) mod verdicts;
pub(crate) mod visibility;
