//! One moment on both clocks: the replica's own, by which it hears, and the cluster's, by which it judges.
//!
//! Both run at the same pace, so the age of a moment is the same on either, and one known pair converts all others.

use std::time::Duration;

use muster_lifecycle::time::{ClusterTime, Stamp};

use crate::tick::Tick;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub tick: Tick,
    pub stamp: Stamp,
}

// === impl Moment ===

impl Moment {
    /// Never earlier than the start of cluster time.
    pub fn cluster_time_of(self, tick: Tick) -> ClusterTime {
        let (age, ahead) = (self.tick.elapsed_since(tick), tick.elapsed_since(self.tick));
        ClusterTime(self.stamp.cluster.0.saturating_add(millis(ahead)).saturating_sub(millis(age)))
    }

    /// Never beyond the ends of local time.
    pub fn tick_of(self, time: ClusterTime) -> Tick {
        let age = Duration::from_millis(self.stamp.cluster.0.saturating_sub(time.0));
        let ahead = Duration::from_millis(time.0.saturating_sub(self.stamp.cluster.0));
        self.tick.before(age).after(ahead)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::time::WallTime;

    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::since_boot(Duration::from_millis(millis))
    }

    fn moment(tick: Tick, cluster: u64) -> Moment {
        Moment { tick, stamp: Stamp { cluster: ClusterTime(cluster), wall: WallTime(0) } }
    }

    #[test]
    fn past_and_future_ticks_convert_to_cluster_time_and_back() {
        let now = moment(at(10_000), 500_000);
        for (tick, time) in [(at(10_000), 500_000), (at(4_000), 494_000), (at(11_000), 501_000)] {
            assert_eq!(now.cluster_time_of(tick), ClusterTime(time));
            assert_eq!(now.tick_of(ClusterTime(time)), tick);
        }
    }

    #[test]
    fn a_beat_from_before_this_process_started_keeps_its_age() {
        let now = moment(at(1_000), 500_000);
        let before_boot = Tick::BOOT.before(Duration::from_secs(60));
        assert_eq!(now.cluster_time_of(before_boot), ClusterTime(439_000));
        assert_eq!(now.tick_of(ClusterTime(439_000)), before_boot);
    }

    #[test]
    fn conversions_saturate() {
        let now = moment(at(10_000), 2_000);
        assert_eq!(now.cluster_time_of(at(0)), ClusterTime(0));
        assert_eq!(now.tick_of(ClusterTime(u64::MAX)), Tick::MAX);
    }
}
