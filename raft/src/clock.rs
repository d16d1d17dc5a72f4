//! The two clocks a replica reads, injected so that tests can move them.

use std::time::Duration;

use muster_lifecycle::time::WallTime;

pub trait Clock: Send + Sync + 'static {
    /// Time since boot, counting suspension. Never jumps.
    fn boot_time(&self) -> Duration;
    /// The time a person would read off the wall. May jump; decides nothing.
    fn wall_time(&self) -> WallTime;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn boot_time(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn wall_time(&self) -> WallTime {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        WallTime(now.tv_sec * 1_000 + now.tv_nsec / 1_000_000)
    }
}
