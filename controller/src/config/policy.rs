//! The lifecycle settings among an operator's settings: `[policy]` in the file, flags of the same names.
//!
//! A new cluster gets them as its policy; later they are only compared with it. So it matters which of them an operator
//! wrote down and which are only defaults.

use std::collections::BTreeMap;
use std::fmt;

use muster_lifecycle::invalid::Invalid;
use muster_lifecycle::policy::Policy;
use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Settings by their flags' names, in written form. Each value is valid; `resolve` checks whether the values agree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PolicyLayer(BTreeMap<String, String>);

// === impl PolicyLayer ===

impl PolicyLayer {
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        Policy::default().set(name, value)?;
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settings of this layer, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// This layer; `below` supplies every setting that this layer does not name.
    pub(super) fn over(self, mut below: Self) -> Self {
        below.0.extend(self.0);
        below
    }

    /// The whole policy, and the settings that an operator wrote down, in the form in which policies are compared.
    pub(super) fn resolve(&self) -> Result<(Policy, BTreeMap<String, String>), Invalid> {
        let mut policy = Policy::default();
        for (name, value) in &self.0 {
            policy.set(name, value)?;
        }
        policy.validate()?;
        let written = policy.settings().into_iter().filter(|(name, _)| self.0.contains_key(*name));
        let written = written.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok((policy, written))
    }
}

impl<'de> Deserialize<'de> for PolicyLayer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Settings)
    }
}

struct Settings;

impl<'de> Visitor<'de> for Settings {
    type Value = PolicyLayer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings by name, such as node-monitor-period = \"5s\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut settings: A) -> Result<PolicyLayer, A::Error> {
        let mut layer = PolicyLayer::default();
        while let Some(name) = settings.next_key::<String>()? {
            let value = settings.next_value_seed(Setting { name: &name })?;
            layer.0.insert(name, value);
        }
        Ok(layer)
    }
}

/// One value, checked where it stands, so that a mistake is reported with its line. Numbers need no quotes.
struct Setting<'a> {
    name: &'a str,
}

impl Setting<'_> {
    fn checked<E: serde::de::Error>(&self, value: String) -> Result<String, E> {
        match Policy::default().set(self.name, &value) {
            Ok(()) => Ok(value),
            Err(invalid) => Err(E::custom(invalid.rule)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Setting<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Setting<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting's value, such as \"5s\", 0.1 or 50")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<String, E> {
        self.checked(value.to_owned())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<String, E> {
        self.checked(value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<String, E> {
        self.checked(value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<String, E> {
        self.checked(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use muster_pki::settings::parse;

    #[derive(Debug, Deserialize)]
    struct File {
        policy: PolicyLayer,
    }

    fn read(settings: &str) -> Result<PolicyLayer, String> {
        let text = format!("[policy]\nnode-startup-grace-period = \"1m\"\n{settings}\n");
        parse::<File>(Path::new("config.toml"), &text).map(|file| file.policy).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_may_be_text_or_a_number() {
        let layer = read("node-eviction-rate = 0.5\nlarge-cluster-size-threshold = 20\nnode-monitor-period = \"2s\"");
        let (policy, written) = layer.unwrap().resolve().unwrap();
        let settings: BTreeMap<_, _> = policy.settings().into_iter().collect();
        assert_eq!(settings["node-eviction-rate"], "0.5");
        assert_eq!(settings["large-cluster-size-threshold"], "20");
        assert_eq!(settings["node-monitor-period"], "2s");
        assert_eq!(settings["node-monitor-grace-period"], "40s");
        assert!(!written.contains_key("node-monitor-grace-period"));
    }

    #[test]
    fn an_error_names_its_line_and_setting() {
        let table = [
            (
                "node-monitor-period = \"5 apples\"",
                "config.toml:3: `policy.node-monitor-period`: \"5 apples\" is not a duration",
            ),
            ("node-eviction-rate = -1", "config.toml:3: `policy.node-eviction-rate`: \"-1\" is not a rate"),
            (
                "unhealthy-zone-threshold = true",
                "config.toml:3: `policy.unhealthy-zone-threshold`: invalid type: boolean",
            ),
            ("grace = \"5s\"", "config.toml:3: `policy.grace`: no such setting: use one of node-monitor-period, "),
        ];
        for (settings, wanted) in table {
            let message = read(settings).unwrap_err();
            assert!(message.starts_with(wanted), "wanted {wanted:?}, got {message:?}");
        }
    }

    #[test]
    fn equal_values_in_different_spellings_are_equal() {
        let mut layer = PolicyLayer::default();
        layer.set("node-monitor-grace-period", "90s").unwrap();
        assert!(layer.set("node-monitor-grace-period", "soon").is_err());
        let (_, written) = layer.resolve().unwrap();
        assert_eq!(written, BTreeMap::from([("node-monitor-grace-period".to_owned(), "1m30s".to_owned())]));
    }

    #[test]
    fn a_layer_reads_what_it_writes() {
        let mut layer = PolicyLayer::default();
        layer.set("node-eviction-rate", "0.1").unwrap();
        layer.set("large-cluster-size-scope", "cluster").unwrap();
        assert_eq!(toml::from_str::<PolicyLayer>(&toml::to_string(&layer).unwrap()).unwrap(), layer);
    }
}
