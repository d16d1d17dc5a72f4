//! The fleet and the policy that a run begins with.

use muster_cli::simulate::world::{InitialReady, MachineSpec, Millis};
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::policy::{Policy, Rate};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;

use crate::dice::Dice;

pub(crate) const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
pub(crate) const ZONES: [&str; 3] = ["z1", "z2", "z3"];

pub(crate) fn policy(dice: &mut Dice, grace: Millis) -> Policy {
    Policy {
        node_monitor_period: Period(dice.pick(&[1_000, 2_000, 5_000])),
        node_monitor_grace_period: Period(grace),
        node_startup_grace_period: Period(grace + dice.pick(&[0, grace / 2])),
        node_eviction_rate: Rate(dice.pick(&[100_000, 500_000, 1_000_000])),
        secondary_node_eviction_rate: Rate(dice.pick(&[0, 10_000, 100_000])),
        large_cluster_size_threshold: dice.pick(&[3, 10, 50]),
        ..Policy::default()
    }
}

/// Agents beat at the interval that the policy tells them, or more often.
pub(crate) fn machine(dice: &mut Dice, index: u64, zones: usize, interval: Millis) -> MachineSpec {
    MachineSpec {
        name: Text::from(format!("n-{index:02}")),
        labels: Pairs::from_iter([(ZONE_LABEL, dice.pick(&ZONES[..zones]))]),
        taints: Vec::new(),
        ready: InitialReady::Says(ConditionStatus::True),
        heartbeat: Some(dice.pick(&[interval, interval / 2])),
        status: Some(30_000),
        created: -3_600_000,
    }
}
