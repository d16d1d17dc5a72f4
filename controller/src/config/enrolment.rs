//! Lifetimes of node certificates, among an operator's settings: `[enrolment]` in the file, flags of the same names.

use std::time::Duration;

use muster_lifecycle::credential::LATE_RENEWAL_MAX;
use muster_lifecycle::time::Period;
use serde::{Deserialize, Serialize};

use super::{Error, invalid};

const DAY_SECS: u64 = 24 * 60 * 60;
const LIFETIME_DEFAULT: Period = Period::from_secs(30 * DAY_SECS);
const GRACE_DEFAULT: Period = Period::from_secs(7 * DAY_SECS);
/// A node renews at 70 to 90 % of the life of its certificate and needs time to try again.
const LIFETIME_MIN: Period = Period::from_secs(60);
const LIFETIME_MAX: Period = Period::from_secs(3650 * DAY_SECS);
/// Beyond this a node that is gone may be forgotten. The record that its keys were replaced or revoked is then gone
/// too.
const GRACE_MAX: Period = Period::from_secs(LATE_RENEWAL_MAX.as_secs());

/// Durations are written as `720h` or `30m`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct EnrolmentLayer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_certificate_lifetime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired_certificate_renewal: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrolment {
    pub lifetime: Duration,
    /// How long after expiry a node may still renew its certificate. Zero: it may not.
    pub grace: Duration,
}

// === impl EnrolmentLayer ===

impl EnrolmentLayer {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn over(self, below: Self) -> Self {
        Self {
            node_certificate_lifetime: self.node_certificate_lifetime.or(below.node_certificate_lifetime),
            expired_certificate_renewal: self.expired_certificate_renewal.or(below.expired_certificate_renewal),
        }
    }

    pub(super) fn resolve(&self) -> Result<Enrolment, Error> {
        const LIFETIME: &str = "enrolment.node-certificate-lifetime";
        let lifetime = period(LIFETIME, self.node_certificate_lifetime.as_deref(), LIFETIME_DEFAULT)?;
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&lifetime) {
            let reason = format!("{lifetime} is not between {LIFETIME_MIN} and {LIFETIME_MAX}");
            return invalid(LIFETIME, reason);
        }
        const GRACE: &str = "enrolment.expired-certificate-renewal";
        let grace = period(GRACE, self.expired_certificate_renewal.as_deref(), GRACE_DEFAULT)?;
        if grace > GRACE_MAX {
            return invalid(GRACE, format!("{grace} is longer than {GRACE_MAX}"));
        }
        Ok(Enrolment { lifetime: Duration::from_millis(lifetime.0), grace: Duration::from_millis(grace.0) })
    }
}

fn period(key: &'static str, text: Option<&str>, default: Period) -> Result<Period, Error> {
    let parsed = text.map_or(Ok(default), str::parse);
    parsed.or_else(|error: muster_lifecycle::time::PeriodError| invalid(key, error.to_string()))
}

impl Default for Enrolment {
    fn default() -> Self {
        let (lifetime, grace) = (LIFETIME_DEFAULT, GRACE_DEFAULT);
        Self { lifetime: Duration::from_millis(lifetime.0), grace: Duration::from_millis(grace.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(lifetime: Option<&str>, grace: Option<&str>) -> Result<Enrolment, String> {
        let layer = EnrolmentLayer {
            node_certificate_lifetime: lifetime.map(str::to_owned),
            expired_certificate_renewal: grace.map(str::to_owned),
        };
        layer.resolve().map_err(|error| error.to_string())
    }

    #[test]
    fn certificates_last_thirty_days_by_default() {
        let day = Duration::from_secs(DAY_SECS);
        assert_eq!(resolve(None, None), Ok(Enrolment { lifetime: 30 * day, grace: 7 * day }));
        assert_eq!(resolve(None, None), Ok(Enrolment::default()));
        assert_eq!(resolve(Some("48h"), Some("0s")), Ok(Enrolment { lifetime: 2 * day, grace: Duration::ZERO }));
    }

    #[test]
    fn an_error_names_its_setting() {
        for (lifetime, grace, wanted) in [
            (Some("soon"), None, "`enrolment.node-certificate-lifetime`: \"soon\" is not a duration"),
            (Some("1s"), None, "`enrolment.node-certificate-lifetime`: 1s is not between 1m and"),
            (None, Some("later"), "`enrolment.expired-certificate-renewal`: \"later\" is not a duration"),
            (None, Some("2161h"), "`enrolment.expired-certificate-renewal`: 2161h is longer than"),
        ] {
            let message = resolve(lifetime, grace).unwrap_err();
            assert!(message.starts_with(wanted), "{message}");
        }
    }
}
