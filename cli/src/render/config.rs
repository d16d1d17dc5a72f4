//! The settings in force, one per row.

use muster_lifecycle::policy::Policy;
use serde_json::Value;

use super::{at, or, text};

pub const HEADERS: &[&str] = &["SETTING", "VALUE"];
pub const WIDE_HEADERS: &[&str] = &["SETTING", "VALUE", "DEFAULT"];

/// In the order of the documents. Wide also shows the defaults, and what follows from the settings.
pub fn rows(config: &Value, wide: bool) -> Vec<Vec<String>> {
    let defaults = Policy::default().settings();
    let shown = |(name, default): (&str, String)| {
        let value = or(text(config, &["settings", name]), "<unknown>");
        if wide { vec![name.to_owned(), value, default] } else { vec![name.to_owned(), value] }
    };
    let mut rows: Vec<_> = defaults.into_iter().map(shown).collect();
    if wide {
        let beat = or(text(config, &["beatInterval"]), "<unknown>");
        rows.push(vec!["(agents beat every)".into(), beat, String::new()]);
    }
    rows
}

/// What a person should know who looks at the settings of a fleet in trouble.
pub fn warning(config: &Value) -> Option<&'static str> {
    let dark = at(config, &["allZonesDark"]).as_bool() == Some(true);
    dark.then_some("all zones are dark: whatever the settings say, nothing is evicted")
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
        json!({"settings": settings, "beatInterval": "2s", "allZonesDark": false})
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
            ]
        );
    }

    #[test]
    fn wide_shows_defaults_and_what_follows() {
        let rows = rows(&config(), true);
        assert_eq!(rows[1], ["node-monitor-grace-period", "8s", "40s"]);
        assert_eq!(rows[9], ["(agents beat every)", "2s", ""]);
    }

    #[test]
    fn darkness_is_pointed_out() {
        assert_eq!(warning(&config()), None);
        assert!(warning(&json!({"allZonesDark": true})).is_some_and(|text| text.contains("nothing is evicted")));
    }
}
