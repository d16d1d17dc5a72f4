//! Settings of the policy, by name: as flags, in `muster get config` and in messages.

pub const NODE_MONITOR_PERIOD: &str = "node-monitor-period";
pub const NODE_MONITOR_GRACE_PERIOD: &str = "node-monitor-grace-period";
pub const NODE_STARTUP_GRACE_PERIOD: &str = "node-startup-grace-period";
pub const POD_EVICTION_TIMEOUT: &str = "pod-eviction-timeout";
pub const NODE_EVICTION_RATE: &str = "node-eviction-rate";
pub const SECONDARY_NODE_EVICTION_RATE: &str = "secondary-node-eviction-rate";
pub const UNHEALTHY_ZONE_THRESHOLD: &str = "unhealthy-zone-threshold";
pub const LARGE_CLUSTER_SIZE_THRESHOLD: &str = "large-cluster-size-threshold";
pub const LARGE_CLUSTER_SIZE_SCOPE: &str = "large-cluster-size-scope";
pub const UPGRADE_FINALIZE_AFTER: &str = "upgrade-finalize-after";

/// In the order in which they are shown.
pub(crate) const ALL: [&str; 10] = [
    NODE_MONITOR_PERIOD,
    NODE_MONITOR_GRACE_PERIOD,
    NODE_STARTUP_GRACE_PERIOD,
    POD_EVICTION_TIMEOUT,
    NODE_EVICTION_RATE,
    SECONDARY_NODE_EVICTION_RATE,
    UNHEALTHY_ZONE_THRESHOLD,
    LARGE_CLUSTER_SIZE_THRESHOLD,
    LARGE_CLUSTER_SIZE_SCOPE,
    UPGRADE_FINALIZE_AFTER,
];
