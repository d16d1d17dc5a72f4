//! The settings in force, one per row: those of the lifecycle, and where node CIDRs come from if they are allocated.

use muster_lifecycle::policy::Policy;
use serde_json::Value;

use super::{at, or, text};

pub const HEADERS: &[&str] = &["SETTING", "VALUE"];
pub const WIDE_HEADERS: &[&str] = &["SETTING", "VALUE", "DEFAULT"];

/// The groups of settings in the object.
const GROUPS: [&str; 2] = ["settings", "addressing"];

/// Leaves only the settings of these names, or all of them if there is no name. Returns the names that are no
/// settings.
pub fn keep_only(config: &mut Value, names: &[String]) -> Vec<String> {
    let is_known = |name: &&String| GROUPS.iter().any(|group| !at(config, &[group, name.as_str()]).is_null());
    let unknown = names.iter().filter(|name| !is_known(name)).cloned().collect();
    if !names.is_empty() {
        for group in GROUPS {
            if let Some(settings) = config.get_mut(group).and_then(Value::as_object_mut) {
                settings.retain(|name, _| names.contains(name));
            }
        }
        config["beatInterval"].take();
    }
    unknown
}

/// In the order of the documents. Wide also shows the defaults, and what follows from the settings.
pub fn rows(config: &Value, wide: bool) -> Vec<Vec<String>> {
    let mut defaults = Policy::default().settings().to_vec();
    defaults.retain(|(name, _)| !at(config, &["settings", name]).is_null());
    let shown = |(name, default): (&str, String)| {
        let value = text(config, &["settings", name]).to_owned();
        if wide { vec![name.to_owned(), value, default] } else { vec![name.to_owned(), value] }
    };
    let mut rows: Vec<_> = defaults.into_iter().map(shown).collect();
    rows.extend(addressing(config, wide));
    let beat = text(config, &["beatInterval"]).to_owned();
    if wide && !beat.is_empty() {
        rows.push(vec!["(agents beat every)".into(), beat, String::new()]);
    }
    rows
}

/// There is no default for ranges.
fn addressing(config: &Value, wide: bool) -> impl Iterator<Item = Vec<String>> {
    let settings = at(config, &["addressing"]).as_object().into_iter().flatten();
    settings.map(move |(name, value)| {
        let value = or(value.as_str().unwrap_or_default(), "<none>");
        if wide { vec![name.clone(), value, String::new()] } else { vec![name.clone(), value] }
    })
}

/// A warning about the settings, for a fleet in trouble.
pub fn warning(config: &Value) -> Option<&'static str> {
    let all_disrupted = at(config, &["allZonesDisrupted"]).as_bool() == Some(true);
    all_disrupted.then_some("all zones are fully disrupted: whatever the settings say, nothing is evicted")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::table;

    fn config() -> Value {
        let mut settings = serde_json::Map::new();
        for (name, value) in Policy::default().settings() {
            settings.insert(name.into(), value.into());
        }
        settings["node-monitor-grace-period"] = "8s".into();
        json!({"settings": settings, "beatInterval": "2s", "allZonesDisrupted": false})
    }

    #[test]
    fn settings_are_listed_by_flag_name() {
        assert_eq!(
            table::render(HEADERS, &rows(&config(), false), true),
            [
                "SETTING                        VALUE",
                "node-monitor-period            5s",
                "node-monitor-grace-period      8s",
                "node-startup-grace-period      1m",
                "pod-eviction-timeout           5m",
                "node-eviction-rate             0.1",
                "secondary-node-eviction-rate   0.01",
                "unhealthy-zone-threshold       0.55",
                "large-cluster-size-threshold   50",
                "large-cluster-size-scope       zone",
                "upgrade-finalize-after         10m",
            ]
        );
    }

    #[test]
    fn wide_shows_defaults_and_derived_values() {
        let rows = rows(&config(), true);
        assert_eq!(rows[1], ["node-monitor-grace-period", "8s", "40s"]);
        assert_eq!(rows[10], ["(agents beat every)", "2s", ""]);
    }

    #[test]
    fn named_settings_are_shown_alone() {
        let names = ["node-eviction-rate", "node-monitor-grace-period", "nope"].map(String::from);
        let mut some = config();
        assert_eq!(keep_only(&mut some, &names), ["nope"]);
        assert_eq!(rows(&some, false), [["node-monitor-grace-period", "8s"], ["node-eviction-rate", "0.1"]]);
        assert_eq!(rows(&some, true).len(), 2, "and nothing that follows from the others");
        let mut all = config();
        assert!(keep_only(&mut all, &[]).is_empty());
        assert_eq!(all, config());
    }

    #[test]
    fn cidr_ranges_are_shown_if_they_are_allocated() {
        let mut config = config();
        config["addressing"] = json!({"cluster-cidr": "10.0.0.0/16", "service-cluster-ip-range": ""});
        let shown = rows(&config, false);
        assert_eq!(shown[10..], [["cluster-cidr", "10.0.0.0/16"], ["service-cluster-ip-range", "<none>"]]);
        assert!(rows(&config, true).iter().all(|row| row.len() == WIDE_HEADERS.len()));
        assert_eq!(keep_only(&mut config, &["cluster-cidr".to_owned(), "nope".to_owned()]), ["nope"]);
        assert_eq!(rows(&config, true), [["cluster-cidr", "10.0.0.0/16", ""]]);
    }

    #[test]
    fn full_disruption_is_shown_as_a_warning() {
        assert_eq!(warning(&config()), None);
        assert!(warning(&json!({"allZonesDisrupted": true})).is_some_and(|text| text.contains("nothing is evicted")));
    }
}
