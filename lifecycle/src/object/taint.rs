//! Taints and their algebra (T-1, T-6): identity is (key, effect).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::time::Stamp;

/// Every Node is created with it (NV-6), so that no pod lands before the first Ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
pub const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
pub const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";
pub const DISK_PRESSURE_TAINT: &str = "node.kubernetes.io/disk-pressure";
pub const PID_PRESSURE_TAINT: &str = "node.kubernetes.io/pid-pressure";
pub const NETWORK_UNAVAILABLE_TAINT: &str = "node.kubernetes.io/network-unavailable";
/// An operator says with this taint, whatever its effect and value, that the machine is off.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: Effect,
    /// Set by `apply` for NoExecute taints that were given without a time.
    pub added: Option<Stamp>,
}

/// Which taints to remove: every effect of a key, or one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaintSelector {
    pub key: Text,
    pub effect: Option<Effect>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TaintError {
    #[error("{text:?} is not a taint: write key:Effect or key=value:Effect")]
    Malformed { text: Text },
    #[error("{text:?} is not one of NoSchedule, PreferNoSchedule, NoExecute")]
    UnknownEffect { text: Text },
    #[error("{text:?} names no taint to remove: write key- or key:Effect-")]
    MalformedSelector { text: Text },
    #[error("{0}")]
    Invalid(Invalid),
}

impl Effect {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Effect {
    type Err = TaintError;

    fn from_str(text: &str) -> Result<Self, TaintError> {
        [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute]
            .into_iter()
            .find(|effect| effect.as_str() == text)
            .ok_or_else(|| TaintError::UnknownEffect { text: Text::clipped(text, 64) })
    }
}

impl Taint {
    /// T-1: value and time are not part of a taint's identity.
    pub fn is_same(&self, other: &Taint) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// NV-2 for one taint; `path` is where it stands.
    pub fn check(&self, path: &str) -> Result<(), Invalid> {
        name::qualified_name(&self.key).map_err(|rule| Invalid::new(format!("{path}.key"), rule))?;
        name::label_value(&self.value).map_err(|rule| Invalid::new(format!("{path}.value"), rule))
    }
}

/// T-1: replaces the taint with the same identity, or adds this one at the end. False if nothing changed.
pub fn add_or_update(taints: &mut Vec<Taint>, taint: Taint) -> bool {
    match taints.iter_mut().find(|own| own.is_same(&taint)) {
        Some(own) if *own == taint => false,
        Some(own) => {
            *own = taint;
            true
        }
        None => {
            taints.push(taint);
            true
        }
    }
}

/// Sets since when each of the `wanted` taints has been there.
///
/// A taint that was there with the same value keeps its time, whatever a manifest says, because tolerations count
/// down from it. A new NoExecute taint starts now; of a time that came with it only the wall half is kept, because no
/// client knows cluster time.
pub fn settle_times(wanted: &mut [Taint], before: &[Taint], now: Stamp) {
    for taint in wanted {
        let known = before.iter().find(|own| own.is_same(taint) && own.value == taint.value);
        taint.added = match (known, taint.effect, taint.added) {
            (Some(known), _, given) => known.added.or(given),
            (None, Effect::NoExecute, None) => Some(now),
            (None, _, given) => given.map(|given| Stamp { cluster: now.cluster, wall: given.wall }),
        };
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}:{}", self.key, self.effect),
            value => write!(f, "{}={value}:{}", self.key, self.effect),
        }
    }
}

impl FromStr for Taint {
    type Err = TaintError;

    fn from_str(text: &str) -> Result<Self, TaintError> {
        let malformed = || TaintError::Malformed { text: Text::clipped(text, 128) };
        let (rest, effect) = text.rsplit_once(':').ok_or_else(malformed)?;
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        if key.is_empty() {
            return Err(malformed());
        }
        let taint = Self { key: Text::from(key), value: Text::from(value), effect: effect.parse()?, added: None };
        taint.check("taint").map_err(TaintError::Invalid)?;
        Ok(taint)
    }
}

impl TaintSelector {
    pub fn matches(&self, taint: &Taint) -> bool {
        self.key == taint.key && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

impl fmt::Display for TaintSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.effect {
            None => write!(f, "{}", self.key),
            Some(effect) => write!(f, "{}:{effect}", self.key),
        }
    }
}

impl FromStr for TaintSelector {
    type Err = TaintError;

    /// Takes the command line's form with or without its trailing `-`. A value is allowed and ignored, because it is
    /// not part of a taint's identity.
    fn from_str(text: &str) -> Result<Self, TaintError> {
        let bare = text.strip_suffix('-').unwrap_or(text);
        let (rest, effect) = match bare.rsplit_once(':') {
            Some((rest, effect)) => (rest, Some(effect.parse()?)),
            None => (bare, None),
        };
        let key = rest.split_once('=').map_or(rest, |(key, _)| key);
        if key.is_empty() {
            return Err(TaintError::MalformedSelector { text: Text::clipped(text, 128) });
        }
        name::qualified_name(key).map_err(|rule| TaintError::Invalid(Invalid::new("taint.key", rule)))?;
        Ok(Self { key: Text::from(key), effect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::time::{ClusterTime, WallTime};

    fn taint(text: &str) -> Taint {
        text.parse().unwrap()
    }

    fn stamp(cluster: u64, wall: i64) -> Stamp {
        Stamp { cluster: ClusterTime(cluster), wall: WallTime(wall) }
    }

    #[test]
    fn t_1_a_taint_is_added_or_updated_by_key_and_effect() {
        let mut taints = vec![taint("a=1:NoSchedule"), taint("b:NoExecute")];
        assert!(!add_or_update(&mut taints, taint("a=1:NoSchedule")), "fully equal is no change");
        assert!(add_or_update(&mut taints, taint("a=2:NoSchedule")), "another value is an update in place");
        assert!(add_or_update(&mut taints, taint("a=1:NoExecute")), "another effect is another taint");
        let shown: Vec<String> = taints.iter().map(Taint::to_string).collect();
        assert_eq!(shown, ["a=2:NoSchedule", "b:NoExecute", "a=1:NoExecute"]);
    }

    #[test]
    fn t_6_the_command_line_syntax_of_a_taint() {
        for text in ["a:NoSchedule", "a=b:PreferNoSchedule", "example.com/a=b:NoExecute"] {
            assert_eq!(taint(text).to_string(), text);
        }
        assert_eq!(taint("a=:NoSchedule").to_string(), "a:NoSchedule");
        let wrong = [
            ("a", "\"a\" is not a taint: write key:Effect or key=value:Effect"),
            (":NoSchedule", "\":NoSchedule\" is not a taint: write key:Effect or key=value:Effect"),
            ("a:NoRun", "\"NoRun\" is not one of NoSchedule, PreferNoSchedule, NoExecute"),
        ];
        for (text, message) in wrong {
            assert_eq!(text.parse::<Taint>().unwrap_err().to_string(), message);
        }
        for (text, field) in [("a b:NoSchedule", "taint.key"), ("a=b c:NoSchedule", "taint.value")] {
            assert!(matches!(text.parse::<Taint>(), Err(TaintError::Invalid(invalid)) if invalid.field == field));
        }
    }

    #[test]
    fn t_6_removal_names_a_key_or_one_effect_of_it() {
        let (schedule, execute) = (taint("a=1:NoSchedule"), taint("a:NoExecute"));
        for text in ["a", "a-"] {
            let selector: TaintSelector = text.parse().unwrap();
            assert!(selector.matches(&schedule) && selector.matches(&execute));
            assert_eq!(selector.to_string(), "a");
        }
        for text in ["a:NoExecute", "a:NoExecute-", "a=x:NoExecute-"] {
            let selector: TaintSelector = text.parse().unwrap();
            assert!(!selector.matches(&schedule) && selector.matches(&execute));
            assert_eq!(selector.to_string(), "a:NoExecute");
        }
        for text in ["", "-", ":NoExecute-", "a:NoRun-", "a b-"] {
            assert!(text.parse::<TaintSelector>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_unchanged_taint_keeps_its_time() {
        let (then, now) = (stamp(5, 50), stamp(9, 90));
        let before = [Taint { added: Some(then), ..taint("a=1:NoExecute") }, taint("b:NoSchedule")];
        let given = Taint { added: Some(stamp(0, 70)), ..taint("a=1:NoExecute") };
        let mut wanted = [given, taint("b:NoSchedule")];
        settle_times(&mut wanted, &before, now);
        assert_eq!([wanted[0].added, wanted[1].added], [Some(then), None]);
    }

    #[test]
    fn a_new_or_changed_no_execute_taint_gets_the_current_time() {
        let now = stamp(9, 90);
        let before = [Taint { added: Some(stamp(5, 50)), ..taint("a=1:NoExecute") }];
        let timed = Taint { added: Some(stamp(0, 70)), ..taint("c:NoExecute") };
        let mut wanted = [taint("a=2:NoExecute"), taint("b:NoSchedule"), timed];
        settle_times(&mut wanted, &before, now);
        assert_eq!(wanted.map(|taint| taint.added), [Some(now), None, Some(stamp(9, 70))]);
    }
}
