//! Eviction thresholds: the values of the eviction flags.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_lifecycle::quantity::Quantity;
use muster_lifecycle::time::Period;
use thiserror::Error;

use super::signal::Signal;

/// Upstream's hard thresholds on Linux (P-1). There is none for process ids.
pub const HARD_DEFAULT: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,\
                                imagefs.available<15%,imagefs.inodesFree<5%";

const HARD: &str = "--eviction-hard";
const SOFT: &str = "--eviction-soft";
const SOFT_GRACE: &str = "--eviction-soft-grace-period";
const MINIMUM_RECLAIM: &str = "--eviction-minimum-reclaim";

const WHOLE: i128 = 100_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Absolute(Quantity),
    /// A percentage of the capacity.
    Share(Quantity),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    pub signal: Signal,
    pub amount: Amount,
    /// How long it may be met before the agent acts. A hard threshold has no grace.
    pub grace: Option<Duration>,
    /// Once met, so much more must become available until it is resolved.
    pub minimum_reclaim: Option<Amount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds(Vec<Threshold>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{flag} {item:?}: {rule}")]
pub struct ThresholdError {
    pub flag: &'static str,
    pub item: String,
    pub rule: String,
}

// === impl Amount ===

impl Amount {
    /// The smallest whole number that satisfies it.
    pub fn of(self, capacity: u64) -> u64 {
        let whole = match self {
            Self::Absolute(quantity) => i128::from(quantity.to_i64_ceil()),
            Self::Share(percent) => i128::from(capacity).saturating_mul(percent.nanos()) / WHOLE,
        };
        u64::try_from(whole).unwrap_or(if whole < 0 { 0 } else { u64::MAX })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (number, amount): (_, fn(Quantity) -> Self) = match text.strip_suffix('%') {
            Some(percentage) => (percentage, Self::Share),
            None => (text, Self::Absolute),
        };
        let quantity: Quantity = number.parse().map_err(|error| format!("{error}"))?;
        let amount = amount(quantity);
        let exceeds_all = matches!(amount, Self::Share(percent) if percent > Quantity::from(100));
        match () {
            () if quantity.is_negative() => Err("it must not be negative".into()),
            () if exceeds_all => Err("it must be at most 100%".into()),
            () => Ok(amount),
        }
    }

    /// P-4: 0 % and 100 % mean that there is no threshold.
    fn is_void(self) -> bool {
        matches!(self, Self::Share(percent) if percent.is_zero() || percent == Quantity::from(100))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(quantity) => quantity.fmt(f),
            Self::Share(percent) => write!(f, "{percent}%"),
        }
    }
}

// === impl Threshold ===

impl Threshold {
    /// Whether less is available than the threshold, or than would resolve it (P-4).
    pub(crate) fn is_met(&self, available: u64, capacity: u64, until_resolved: bool) -> bool {
        let reclaim = self.minimum_reclaim.filter(|_| until_resolved).map_or(0, |reclaim| reclaim.of(capacity));
        self.amount.of(capacity).saturating_add(reclaim) > available
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.signal, self.amount)
    }
}

// === impl Thresholds ===

impl Default for Thresholds {
    fn default() -> Self {
        // A test proves that the constant parses.
        Self::parse(None, None, None, None).unwrap_or(Self(Vec::new()))
    }
}

impl Thresholds {
    /// Parses the values of the flags that are given. Hard thresholds replace all defaults (P-2); an empty value means
    /// none.
    pub fn parse(
        hard: Option<&str>,
        soft: Option<&str>,
        soft_grace: Option<&str>,
        minimum_reclaim: Option<&str>,
    ) -> Result<Self, ThresholdError> {
        let graces = by_signal(SOFT_GRACE, soft_grace, '=', duration)?;
        let reclaims = by_signal(MINIMUM_RECLAIM, minimum_reclaim, '=', Amount::parse)?;
        let hard = by_signal(HARD, Some(hard.unwrap_or(HARD_DEFAULT)), '<', Amount::parse)?;
        let soft = by_signal(SOFT, soft, '<', Amount::parse)?;
        let mut all = Vec::new();
        for (signal, amount) in hard {
            all.push(Threshold { signal, amount, grace: None, minimum_reclaim: reclaims.get(&signal).copied() });
        }
        for (signal, amount) in soft {
            let grace = Some(*graces.get(&signal).ok_or_else(|| without_grace(signal, amount))?);
            all.push(Threshold { signal, amount, grace, minimum_reclaim: reclaims.get(&signal).copied() });
        }
        all.retain(|threshold| !threshold.amount.is_void());
        Ok(Self(all))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Threshold> {
        self.0.iter()
    }

    /// The amount that pods cannot use, because a hard threshold would be met before.
    pub fn kept_free(&self, signal: Signal, capacity: u64) -> u64 {
        let hard = self.iter().filter(|threshold| threshold.signal == signal && threshold.grace.is_none());
        hard.map(|threshold| threshold.amount.of(capacity)).max().unwrap_or(0)
    }
}

fn without_grace(signal: Signal, amount: Amount) -> ThresholdError {
    let rule = format!("a soft threshold needs a grace period: give {SOFT_GRACE} {signal}=1m30s");
    ThresholdError { flag: SOFT, item: format!("{signal}<{amount}"), rule }
}

fn by_signal<T>(
    flag: &'static str,
    text: Option<&str>,
    operator: char,
    parse: fn(&str) -> Result<T, String>,
) -> Result<BTreeMap<Signal, T>, ThresholdError> {
    let mut all = BTreeMap::new();
    for item in text.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let refused = |rule| ThresholdError { flag, item: item.to_owned(), rule };
        let (signal, value) = assignment(item, operator, parse).map_err(refused)?;
        if all.insert(signal, value).is_some() {
            return Err(refused(format!("{signal} is given twice")));
        }
    }
    Ok(all)
}

fn assignment<T>(item: &str, operator: char, parse: fn(&str) -> Result<T, String>) -> Result<(Signal, T), String> {
    let (name, value) = item.split_once(operator).ok_or_else(|| format!("it must be SIGNAL{operator}VALUE"))?;
    let known = || Signal::ALL.map(Signal::as_str).join(", ");
    let signal = Signal::named(name.trim()).ok_or_else(|| format!("its signal must be one of {}", known()))?;
    Ok((signal, parse(value.trim())?))
}

/// A duration such as `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let period: Result<Period, _> = text.parse();
    period
        .map(|period| Duration::from_millis(period.0))
        .map_err(|_| format!("{text:?} is not a duration such as 90s or 1m30s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(thresholds: &Thresholds) -> Vec<String> {
        thresholds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn p_1_the_defaults_are_upstreams_and_leave_process_ids_alone() {
        let expected = [
            "memory.available<100Mi",
            "nodefs.available<10%",
            "nodefs.inodesFree<5%",
            "imagefs.available<15%",
            "imagefs.inodesFree<5%",
        ];
        assert_eq!(shown(&Thresholds::default()), expected);
        assert!(Thresholds::default().iter().all(|threshold| threshold.grace.is_none()));
    }

    #[test]
    fn p_2_hard_thresholds_replace_all_defaults() {
        let given = Thresholds::parse(Some("pid.available<1k"), None, None, None).unwrap();
        assert_eq!(shown(&given), ["pid.available<1k"]);
        assert!(shown(&Thresholds::parse(Some(""), None, None, None).unwrap()).is_empty());
    }

    #[test]
    fn p_4_zero_and_a_hundred_percent_are_ignored() {
        let given = "memory.available<0%,nodefs.available<100%,imagefs.available<100.0%,pid.available<0.5%";
        assert_eq!(shown(&Thresholds::parse(Some(given), None, None, None).unwrap()), ["pid.available<500m%"]);
    }

    #[test]
    fn soft_thresholds_come_with_a_grace_and_both_kinds_with_a_minimum_to_reclaim() {
        let given = Thresholds::parse(
            Some("memory.available<1Gi"),
            Some("memory.available<2Gi, nodefs.available<20%"),
            Some("memory.available=1m30s,nodefs.available=0s"),
            Some("memory.available=500Mi,nodefs.available=5%"),
        );
        let given = given.unwrap();
        let found: Vec<_> = given.iter().map(|one| (one.grace, one.minimum_reclaim.map(|it| it.to_string()))).collect();
        let (memory, disk) = (Some("500Mi".to_owned()), Some("5%".to_owned()));
        let seconds = |count| Some(Duration::from_secs(count));
        assert_eq!(found, [(None, memory.clone()), (seconds(90), memory), (seconds(0), disk)]);
    }

    #[test]
    fn s_9_only_hard_thresholds_are_kept_from_pods() {
        let given = Thresholds::parse(
            Some("memory.available<10%,nodefs.available<1Gi"),
            Some("memory.available<50%"),
            Some("memory.available=1m"),
            None,
        );
        let given = given.unwrap();
        assert_eq!(given.kept_free(Signal::MemoryAvailable, 1000), 100);
        assert_eq!(given.kept_free(Signal::NodefsAvailable, 1000), 1 << 30);
        assert_eq!(given.kept_free(Signal::PidAvailable, 1000), 0);
    }

    #[test]
    fn an_error_names_flag_value_and_rule() {
        type Flags<'a> = [Option<&'a str>; 4];
        let cases: [(Flags<'_>, &str); 10] = [
            (
                [Some("memory.available=1Gi"), None, None, None],
                "--eviction-hard \"memory.available=1Gi\": it must be SIGNAL<VALUE",
            ),
            (
                [Some("ram<1Gi"), None, None, None],
                "--eviction-hard \"ram<1Gi\": its signal must be one of memory.available,",
            ),
            ([Some("memory.available<-1"), None, None, None], "must not be negative"),
            ([Some("memory.available<101%"), None, None, None], "at most 100%"),
            ([Some("memory.available<lots"), None, None, None], "\"lots\" is not a quantity"),
            ([Some("pid.available<1,pid.available<2"), None, None, None], "pid.available is given twice"),
            ([None, Some("memory.available<1Gi"), None, None], "--eviction-soft-grace-period memory.available=1m30s"),
            ([None, None, Some("memory.available=soon"), None], "\"soon\" is not a duration such as 90s or 1m30s"),
            ([None, None, Some("memory.available=-5s"), None], "is not a duration"),
            ([None, None, None, Some("memory.available<1Gi")], "--eviction-minimum-reclaim"),
        ];
        for ([hard, soft, grace, reclaim], message) in cases {
            let error = Thresholds::parse(hard, soft, grace, reclaim).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_percentage_of_the_largest_capacity_does_not_overflow() {
        let share: Amount = Amount::parse("99.9%").unwrap();
        assert!(share.of(u64::MAX) < u64::MAX);
        assert_eq!(Amount::parse("1.5").unwrap().of(0), 2);
        assert_eq!(Amount::parse("10%").unwrap().of(99), 9);
    }
}
