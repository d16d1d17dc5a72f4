//! The settings in force as JSON. They are only printed: operators change them one by one, by name.

use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::policy_state::FleetPolicyState;
use serde_json::{Map, Value, json};

use super::OWN_API_VERSION;

/// The name of the one configuration of a cluster.
pub const CONFIG_NAME: &str = "cluster";

/// Every setting under its flag's name, and the values derived from them or from the state of the fleet.
pub fn config_to_json(policy_state: &FleetPolicyState, addressing: Option<&Addressing>) -> Value {
    let settings: Map<String, Value> =
        policy_state.policy.settings().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut json = json!({
        "apiVersion": OWN_API_VERSION,
        "kind": "Config",
        "metadata": { "name": CONFIG_NAME },
        "settings": settings,
        "beatInterval": policy_state.policy.beat_interval().to_string(),
        "founded": policy_state.founded,
        "allZonesDisrupted": policy_state.all_disrupted,
    });
    if let Some(plan) = addressing {
        let settings = plan.settings().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
        json["addressing"] = Value::Object(settings.collect());
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_appear_under_their_flags_names() {
        let mut policy_state = FleetPolicyState { founded: true, ..FleetPolicyState::default() };
        policy_state.policy.set("node-monitor-grace-period", "8s").unwrap();
        let wanted = json!({
            "apiVersion": "muster/v1",
            "kind": "Config",
            "metadata": { "name": "cluster" },
            "settings": {
                "node-monitor-period": "5s",
                "node-monitor-grace-period": "8s",
                "node-startup-grace-period": "1m",
                "pod-eviction-timeout": "5m",
                "node-eviction-rate": "0.1",
                "secondary-node-eviction-rate": "0.01",
                "unhealthy-zone-threshold": "0.55",
                "large-cluster-size-threshold": "50",
                "large-cluster-size-scope": "zone",
                "upgrade-finalize-after": "10m",
            },
            "beatInterval": "2s",
            "founded": true,
            "allZonesDisrupted": false,
        });
        assert_eq!(config_to_json(&policy_state, None), wanted);
    }
}
