//! The build of a replica, and the guard that ends the replica when its cluster has outgrown the build.
//!
//! A build speaks a range of levels. It is a value that the program's entry point gives, so that one test can run
//! replicas of several builds. A replica that meets a level it does not speak, in its data, in an entry, in a snapshot
//! or in a greeting, must neither apply nor store any of it: it halts and says which version to run.

use muster_lifecycle::level::{Level, LevelRange};
use muster_lifecycle::level_in_force::LevelInForce;
use thiserror::Error;
use tokio::sync::watch;

/// The version of a binary and the levels that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build {
    pub version: &'static str,
    pub levels: LevelRange,
}

/// The level in force is not one that this build speaks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the cluster is at level {level}{}; this is version {}, which speaks {}: run {}; nothing was changed",
    raised(raised_by),
    build.version,
    build.levels,
    to_run(raised_by)
)]
pub struct Outgrown {
    pub level: Level,
    /// Empty if it is not known.
    pub raised_by: String,
    pub build: Build,
}

/// Shared by all parts of a replica that learn of levels.
#[derive(Debug)]
pub struct LevelGuard {
    build: Build,
    outgrown: watch::Sender<Option<Outgrown>>,
}

/// How a message goes on about the version that raised a level.
pub(crate) fn raised(by: &str) -> String {
    if by.is_empty() { String::new() } else { format!(", which version {by} raised") }
}

/// What a message tells to run.
pub(crate) fn to_run(raised_by: &str) -> String {
    if raised_by.is_empty() { "the version that the other replicas run".into() } else { format!("version {raised_by}") }
}

// === impl LevelGuard ===

impl LevelGuard {
    pub fn new(build: Build) -> Self {
        Self { build, outgrown: watch::channel(None).0 }
    }

    pub fn build(&self) -> Build {
        self.build
    }

    /// Whether this build speaks the level.
    pub fn check(&self, in_force: &LevelInForce) -> Result<(), Outgrown> {
        self.check_level(in_force.level, &in_force.raised_by)
    }

    pub(crate) fn check_level(&self, level: Level, raised_by: &str) -> Result<(), Outgrown> {
        match self.build.levels.contains(level) {
            true => Ok(()),
            false => Err(Outgrown { level, raised_by: raised_by.to_owned(), build: self.build }),
        }
    }

    /// Another replica says that this level is in force. A lower level than those of this build is not a reason to
    /// halt: the other replica may lag behind.
    pub(crate) fn told(&self, level: u32, raised_by: &str) -> Result<(), Outgrown> {
        if level <= self.build.levels.max.0 {
            return Ok(());
        }
        let outgrown = Outgrown { level: Level(level), raised_by: raised_by.to_owned(), build: self.build };
        self.halt(outgrown.clone());
        Err(outgrown)
    }

    pub(crate) fn halt(&self, outgrown: Outgrown) {
        self.outgrown.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(outgrown);
            first
        });
    }

    /// Completes when the replica must halt.
    pub async fn halted(&self) -> Outgrown {
        let mut outgrown = self.outgrown.subscribe();
        let halted = outgrown.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        match halted {
            Some(outgrown) => outgrown,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILD: Build = Build { version: "0.1.0", levels: LevelRange::SHIPPED };

    #[tokio::test]
    async fn i_25_a_replica_halts_at_a_level_above_its_own_and_says_what_to_run() {
        let guard = LevelGuard::new(BUILD);
        assert_eq!(guard.told(0, ""), Ok(()), "a replica that says nothing is at the first level");
        assert_eq!(guard.told(1, ""), Ok(()));
        let outgrown = guard.told(2, "0.2.0").unwrap_err();
        assert_eq!(
            outgrown.to_string(),
            "the cluster is at level 2, which version 0.2.0 raised; this is version 0.1.0, which speaks levels 1 to 1: \
             run version 0.2.0; nothing was changed"
        );
        assert!(guard.told(3, "").unwrap_err().to_string().contains("run the version that the other replicas run"));
        assert_eq!(guard.halted().await, outgrown, "the first reason counts");
    }
}
