//! Waiting for what a monitor reports.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::node::ConditionStatus;
use muster_node_agent::conditions::{MachineCondition, MachineConditions, Monitor, MonitorConfig};
use tokio::time::timeout;

/// Long enough for a machine that is busy with something else.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn frequent(nodefs: &std::path::Path) -> MonitorConfig {
    MonitorConfig { interval: Duration::from_millis(50), ..MonitorConfig::this_machine(nodefs) }
}

pub(crate) fn start(config: MonitorConfig) -> Monitor {
    Monitor::start(config, Arc::new(|| Ok(())))
}

pub(crate) async fn until(
    monitor: &Monitor,
    what: &str,
    holds: impl FnMut(&MachineConditions) -> bool,
) -> MachineConditions {
    let mut conditions = monitor.conditions();
    match timeout(TIMEOUT, conditions.wait_for(holds)).await {
        Ok(found) => found.unwrap().clone(),
        Err(_) => panic!("waited in vain for {what}: {}", monitor.conditions().borrow().to_json()),
    }
}

pub(crate) async fn until_status(monitor: &Monitor, kind: &str, status: ConditionStatus) -> MachineCondition {
    let is_so = |conditions: &MachineConditions| conditions.status(kind) == Some(status);
    let conditions = until(monitor, &format!("{kind} {}", status.as_str()), is_so).await;
    conditions.get(kind).unwrap().clone()
}

pub(crate) async fn until_reason(monitor: &Monitor, kind: &str, reason: &str) -> MachineCondition {
    let is_so =
        |conditions: &MachineConditions| conditions.get(kind).is_some_and(|found| found.result.reason == reason);
    let conditions = until(monitor, &format!("{kind} {reason}"), is_so).await;
    conditions.get(kind).unwrap().clone()
}

/// Polls, for changes that are not announced.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let polling = async {
        let mut looks = tokio::time::interval(Duration::from_millis(10));
        while !holds() {
            looks.tick().await;
        }
    };
    assert!(timeout(TIMEOUT, polling).await.is_ok(), "waited in vain for {what}");
}
