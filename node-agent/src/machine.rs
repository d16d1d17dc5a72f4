//! The machine that an agent reports: the trait a real or simulated machine implements, and what was reported of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::pods::Runtime;

pub(crate) use report::MachineReport;
pub(crate) use status::StatusPosting;

mod report;
mod status;

pub const REPORT_EVERY: Duration = Duration::from_secs(300);

/// The machine that a session reports. The session's task calls these methods, so they must not block.
pub trait AgentMachine: Send + Sync + 'static {
    /// The Node as Kubernetes JSON, with its status: the body of a registration.
    fn node_json(&self) -> Bytes;
    /// The NodeStatus as Kubernetes JSON.
    fn status_json(&self) -> Bytes;
    /// How often the status is posted although it has not changed (S-1).
    fn report_every(&self) -> Duration {
        REPORT_EVERY
    }
    /// Whether registering may create its Node. Otherwise an operator creates it, and this node waits.
    fn registers(&self) -> bool {
        true
    }
    /// What runs its pods; asked for once, when the session begins. Without a runtime pods stay pending.
    fn runtime(&self) -> Option<Arc<dyn Runtime>> {
        None
    }
}

/// Equal for statuses that differ in nothing but their heartbeat times (S-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(status: &[u8]) -> Self {
        match serde_json::from_slice(status) {
            Ok(value) => Self(xxh3_64(without_heartbeats(value).to_string().as_bytes())),
            // The replica answers what is wrong with it; posting it twice would not help.
            Err(_) => Self(xxh3_64(status)),
        }
    }
}

/// The Node to register. While pods of a former incarnation run that do not die, it is not ready: the fleet accepts
/// it only so, and must know of it to keep the names of those pods.
pub(crate) fn registration_json(machine: &dyn AgentMachine, is_idle: bool) -> Bytes {
    let node = machine.node_json();
    if is_idle {
        return node;
    }
    let Ok(mut value) = serde_json::from_slice::<Value>(&node) else { return node };
    let conditions = value.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready") {
        condition["status"] = "False".into();
        condition["reason"] = "PodsStillRunning".into();
        condition["message"] = "pods of the former Node of this name were killed and have not ended".into();
    }
    value.to_string().into()
}

fn without_heartbeats(mut status: Value) -> Value {
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastHeartbeatTime");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(heartbeat: &str, ready: &str) -> Vec<u8> {
        format!(r#"{{"conditions":[{{"type":"Ready","status":"{ready}","lastHeartbeatTime":"{heartbeat}"}}]}}"#).into()
    }

    #[test]
    fn heartbeat_times_alone_do_not_change_the_fingerprint() {
        let one = Fingerprint::of(&status("2026-01-01T00:00:00Z", "True"));
        assert_eq!(one, Fingerprint::of(&status("2026-01-01T00:00:10Z", "True")));
        assert_ne!(one, Fingerprint::of(&status("2026-01-01T00:00:00Z", "False")));
    }

    #[test]
    fn a_status_that_is_not_json_has_a_fingerprint_too() {
        assert_eq!(Fingerprint::of(b"{"), Fingerprint::of(b"{"));
        assert_ne!(Fingerprint::of(b"{"), Fingerprint::of(b"{{"));
    }
}
