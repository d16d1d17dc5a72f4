//! Tolerations: which taints a pod tolerates, and for how long (T-2 to T-4, TE-11, TE-12).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::object::taint::NOT_READY_TAINT;
use crate::object::taint::{
    DISK_PRESSURE_TAINT, MEMORY_PRESSURE_TAINT, NETWORK_UNAVAILABLE_TAINT, PID_PRESSURE_TAINT, UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
};
use crate::object::taint::{Effect, Taint};
use crate::value::invalid::Invalid;
use crate::value::name;
use crate::value::text::Text;
use crate::value::time::Period;
use crate::value::violation::PodViolation;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
    Lt,
    Gt,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Empty for every key.
    pub key: Text,
    pub operator: TolerationOperator,
    pub value: Text,
    /// `None` for every effect.
    pub effect: Option<Effect>,
    /// `None` for ever.
    pub seconds: Option<i64>,
}

/// How long a pod tolerates a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Patience {
    /// Not at all.
    None,
    For(Period),
    Endless,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not one of Equal, Exists, Lt, Gt")]
pub struct OperatorError {
    pub text: Text,
}

/// How many tolerations a pod may have, so that checking a pod stays short.
pub const TOLERATIONS_MAX: usize = 256;

/// TE-11: the taints that get a default toleration in pods without one.
const LOST_NODE_TAINTS: [&str; 2] = [NOT_READY_TAINT, UNREACHABLE_TAINT];

/// TE-12: the pods of a DaemonSet tolerate these, because they belong on every node.
const DAEMON_NO_SCHEDULE: [&str; 4] =
    [DISK_PRESSURE_TAINT, MEMORY_PRESSURE_TAINT, PID_PRESSURE_TAINT, UNSCHEDULABLE_TAINT];

// === impl Toleration ===

impl Toleration {
    pub fn exists(key: &str, effect: Effect, seconds: Option<i64>) -> Self {
        Self {
            key: Text::from(key),
            operator: TolerationOperator::Exists,
            value: Text::default(),
            effect: Some(effect),
            seconds,
        }
    }

    /// T-2.
    pub fn matches(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_none_or(|effect| effect == taint.effect);
        let key = self.key.is_empty() || self.key == taint.key;
        effect && key && self.accepts(&taint.value)
    }

    fn accepts(&self, value: &str) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == value,
            TolerationOperator::Lt => number(value).zip(number(&self.value)).is_some_and(|(taint, own)| taint < own),
            TolerationOperator::Gt => number(value).zip(number(&self.value)).is_some_and(|(taint, own)| taint > own),
        }
    }

    /// T-3; `path` is where the toleration stands.
    pub fn check(&self, path: &str) -> Result<(), Invalid> {
        let wrong = |field: &str, rule: PodViolation| Err(Invalid::new(format!("{path}.{field}"), rule));
        let compares = matches!(self.operator, TolerationOperator::Lt | TolerationOperator::Gt);
        if self.key.is_empty() && self.operator != TolerationOperator::Exists {
            return wrong("operator", PodViolation::OperatorWithoutKey);
        }
        if self.operator == TolerationOperator::Exists && !self.value.is_empty() {
            return wrong("value", PodViolation::ValueWithExists);
        }
        if compares && self.value.parse::<i64>().is_err() {
            return wrong("value", PodViolation::ValueNoNumber);
        }
        if self.seconds.is_some() && self.effect != Some(Effect::NoExecute) {
            return wrong("effect", PodViolation::SecondsWithoutNoExecute);
        }
        if !self.key.is_empty() {
            name::qualified_name(&self.key).map_err(|rule| Invalid::new(format!("{path}.key"), rule))?;
        }
        name::label_value(&self.value).map_err(|rule| Invalid::new(format!("{path}.value"), rule))
    }

    fn patience(&self) -> Patience {
        match self.seconds {
            None => Patience::Endless,
            Some(seconds) => Patience::For(Period::from_secs(u64::try_from(seconds).unwrap_or(0))),
        }
    }

    /// T-4: whether both are the same apart from their duration.
    fn is_same(&self, other: &Self) -> bool {
        let timeless = |toleration: &Self| Self { seconds: None, ..toleration.clone() };
        timeless(self) == timeless(other)
    }
}

/// The most patient of the tolerations that match. Upstream takes the first in the list, so there a wildcard behind a
/// short one does not help.
pub fn patience(tolerations: &[Toleration], taint: &Taint) -> Patience {
    let matching = tolerations.iter().filter(|toleration| toleration.matches(taint));
    matching.map(Toleration::patience).max().unwrap_or(Patience::None)
}

pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| toleration.matches(taint))
}

/// The first taint that keeps the pod away from a node. A NoExecute taint that the pod does not tolerate for any time
/// counts too: the pod would be evicted and placed there again without end.
pub fn first_untolerated<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    let keeps_away = |taint: &&Taint| match taint.effect {
        Effect::PreferNoSchedule => false,
        Effect::NoSchedule => !tolerates(tolerations, taint),
        Effect::NoExecute => patience(tolerations, taint) <= Patience::For(Period(0)),
    };
    taints.iter().find(keeps_away)
}

/// TE-11: pods that say nothing about lost nodes stay on them for `timeout`.
pub fn with_defaults(tolerations: &[Toleration], timeout: Period) -> Box<[Toleration]> {
    let seconds = i64::try_from(timeout.0 / 1000).unwrap_or(i64::MAX);
    let lost = LOST_NODE_TAINTS.map(|key| Toleration::exists(key, Effect::NoExecute, Some(seconds)));
    completed(tolerations, lost.into_iter())
}

/// TE-12.
pub fn with_daemon_defaults(tolerations: &[Toleration], host_network: bool) -> Box<[Toleration]> {
    let lost = LOST_NODE_TAINTS.into_iter().map(|key| Toleration::exists(key, Effect::NoExecute, None));
    let network = host_network.then_some(NETWORK_UNAVAILABLE_TAINT);
    let busy = DAEMON_NO_SCHEDULE.into_iter().chain(network);
    let busy = busy.map(|key| Toleration::exists(key, Effect::NoSchedule, None));
    tolerations.iter().cloned().chain(lost.chain(busy).filter(|added| !tolerations.contains(added))).collect()
}

fn completed(tolerations: &[Toleration], defaults: impl Iterator<Item = Toleration>) -> Box<[Toleration]> {
    let speaks_of = |wanted: &Toleration| {
        tolerations.iter().any(|own| {
            let effect = own.effect.is_none_or(|effect| Some(effect) == wanted.effect);
            effect && (own.key.is_empty() || own.key == wanted.key)
        })
    };
    let missing: Vec<Toleration> = defaults.filter(|wanted| !speaks_of(wanted)).collect();
    tolerations.iter().cloned().chain(missing).collect()
}

/// T-4: tolerations may be added, or last longer or shorter; none may be removed.
pub fn check_update(before: &[Toleration], after: &[Toleration], path: &str) -> Result<(), Invalid> {
    match before.iter().find(|known| !after.iter().any(|own| own.is_same(known))) {
        None => Ok(()),
        Some(gone) => {
            let toleration = Text::from(gone.to_string());
            Err(Invalid::new(path, PodViolation::TolerationGone { toleration }))
        }
    }
}

/// `key=value:Effect for 300s`, the form for people.
impl fmt::Display for Toleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { "*" } else { self.key.as_str() };
        match self.operator {
            TolerationOperator::Exists => f.write_str(key)?,
            TolerationOperator::Equal => write!(f, "{key}={}", self.value)?,
            TolerationOperator::Lt => write!(f, "{key}<{}", self.value)?,
            TolerationOperator::Gt => write!(f, "{key}>{}", self.value)?,
        }
        if let Some(effect) = self.effect {
            write!(f, ":{effect}")?;
        }
        self.seconds.map_or(Ok(()), |seconds| write!(f, " for {seconds}s"))
    }
}

impl TolerationOperator {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "Equal",
            Self::Exists => "Exists",
            Self::Lt => "Lt",
            Self::Gt => "Gt",
        }
    }
}

impl FromStr for TolerationOperator {
    type Err = OperatorError;

    fn from_str(text: &str) -> Result<Self, OperatorError> {
        [Self::Equal, Self::Exists, Self::Lt, Self::Gt]
            .into_iter()
            .find(|operator| operator.as_str() == text)
            .ok_or_else(|| OperatorError { text: Text::clipped(text, 64) })
    }
}
