//! Levels: numbers for what replicas say to each other, write into the log and compute from it.
//!
//! One level is in force in a cluster at a time, and everything that two replicas must agree on byte by byte follows
//! it. A build speaks a range of levels, so that it can work beside the build before it and the build after it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A level. Levels are numbered from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Level(pub u32);

/// The levels that a build speaks, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LevelRange {
    pub min: Level,
    pub max: Level,
}

impl Level {
    /// The level at which every cluster begins.
    pub const FIRST: Self = Self(1);
    /// The highest level of which this code knows the bytes. No build can speak a higher one; a build may speak less.
    pub const NEWEST: Self = Self(2);

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl LevelRange {
    /// What the released binary speaks.
    pub const SHIPPED: Self = Self { min: Level::FIRST, max: Level::FIRST };

    pub const fn new(min: Level, max: Level) -> Self {
        Self { min, max }
    }

    pub fn contains(self, level: Level) -> bool {
        self.min <= level && level <= self.max
    }
}

impl Default for LevelRange {
    fn default() -> Self {
        Self::SHIPPED
    }
}

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "levels {} to {}", self.min, self.max)
    }
}
