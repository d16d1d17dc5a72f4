//! Settings of the policy: defaults, accepted forms, and combinations that are refused.

use muster_lifecycle::policy::{Fraction, Policy, Rate, SizeScope};
use muster_lifecycle::time::{Period, PeriodError};
use muster_lifecycle::violation::SettingViolation;
use proptest::prelude::*;

fn with(settings: &[(&str, &str)]) -> Policy {
    let mut policy = Policy::default();
    for (name, value) in settings {
        policy.set(name, value).expect("a setting and its form");
    }
    policy
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let shown = Policy::default().settings().map(|(name, value)| format!("{name}={value}"));
    assert_eq!(
        shown,
        [
            "node-monitor-period=5s",
            "node-monitor-grace-period=40s",
            "node-startup-grace-period=1m",
            "pod-eviction-timeout=5m",
            "node-eviction-rate=0.1",
            "secondary-node-eviction-rate=0.01",
            "unhealthy-zone-threshold=0.55",
            "large-cluster-size-threshold=50",
            "large-cluster-size-scope=zone",
            "upgrade-finalize-after=10m",
        ]
    );
    assert_eq!(Policy::default().validate(), Ok(()));
}

#[test]
fn every_setting_can_be_set_from_what_it_shows() {
    let odd = with(&[
        ("node-monitor-period", "1500ms"),
        ("node-monitor-grace-period", "8s"),
        ("node-startup-grace-period", "1h1m1s1ms"),
        ("pod-eviction-timeout", "0"),
        ("node-eviction-rate", "1"),
        ("secondary-node-eviction-rate", "0.000001"),
        ("unhealthy-zone-threshold", "1"),
        ("large-cluster-size-threshold", "0"),
        ("large-cluster-size-scope", "cluster"),
        ("upgrade-finalize-after", "manual"),
    ]);
    let mut copy = Policy::default();
    for (name, value) in odd.settings() {
        copy.set(name, &value).unwrap();
    }
    assert_eq!(copy, odd);
    assert_eq!(odd.validate(), Ok(()));
    assert_eq!(odd.large_cluster_size_scope, SizeScope::Cluster);
}

#[test]
fn durations_are_read_in_every_accepted_form() {
    let cases =
        [("40s", 40_000), ("5m", 300_000), ("1m30s", 90_000), ("1.5s", 1500), ("250ms", 250), ("2h", 7_200_000)];
    for (text, millis) in cases.into_iter().chain([("0", 0), ("0s", 0), ("300s", 300_000)]) {
        assert_eq!(text.parse(), Ok(Period(millis)), "{text}");
    }
    for text in
        ["", "40", "s", "-1s", "1d", "1 s", "1s ", "1.0001s2", "0.0001s", "1e3s", "5mm", "99999999999999999h", "é"]
    {
        assert!(matches!(text.parse::<Period>(), Err(PeriodError { .. })), "{text}");
    }
}

#[test]
fn rates_are_finite_exact_and_not_negative() {
    for (text, micros) in [("0.1", 100_000), ("0.01", 10_000), ("0", 0), ("1.0", 1_000_000), ("12.345678", 12_345_678)]
    {
        assert_eq!(text.parse(), Ok(Rate(micros)), "{text}");
    }
    for text in
        ["", "-0.1", "+1", "NaN", "inf", "1e-3", ".5", "1.", "0.0000001", "1.2.3", "0,1", "99999999999999999999"]
    {
        assert!(matches!(text.parse::<Rate>(), Err(SettingViolation::NotRate { .. })), "{text}");
    }
}

#[test]
fn fractions_are_between_0_and_1() {
    for (text, parts) in [("0", 0), ("0.55", 550_000), ("1", 1_000_000)] {
        assert_eq!(text.parse(), Ok(Fraction(parts)), "{text}");
    }
    for text in ["1.000001", "55", "-1", "55%"] {
        assert!(matches!(text.parse::<Fraction>(), Err(SettingViolation::NotFraction { .. })), "{text}");
    }
}

#[test]
fn an_error_names_setting_value_and_accepted_form() {
    let cases = [
        (
            ("node-monitor-period", "5"),
            "node-monitor-period: \"5\" is not a duration: write numbers with a unit (h, m, s or ms), such as 40s or \
             1m30s",
        ),
        (
            ("node-eviction-rate", "-1"),
            "node-eviction-rate: \"-1\" is not a rate: write events per second, 0 or more, with at most 6 decimals, \
             such as 0.1",
        ),
        (
            ("large-cluster-size-threshold", "many"),
            "large-cluster-size-threshold: \"many\" is not a number of nodes: write a whole number, such as 50",
        ),
        (("large-cluster-size-scope", "world"), "large-cluster-size-scope: \"world\" is not one of zone, cluster"),
    ];
    for ((name, value), message) in cases {
        assert_eq!(Policy::default().set(name, value).unwrap_err().to_string(), message);
    }
    let unknown = Policy::default().set("node-monitor-perod", "5s").unwrap_err().to_string();
    assert!(unknown.starts_with("node-monitor-perod: no such setting: use one of node-monitor-period, "), "{unknown}");
}

#[test]
fn contradicting_settings_are_refused_by_name() {
    let cases = [
        (
            with(&[("node-monitor-period", "41s")]),
            "node-monitor-period: 41s is above node-monitor-grace-period (40s): shorten the period or lengthen the \
             grace period",
        ),
        (
            with(&[("node-startup-grace-period", "4s")]),
            "node-monitor-period: 5s is above node-startup-grace-period (4s): shorten the period or lengthen the grace \
             period",
        ),
        (with(&[("node-monitor-period", "0s")]), "node-monitor-period: 0s is too short: at least 100ms"),
        (
            with(&[("node-startup-grace-period", "9000h")]),
            "node-startup-grace-period: 9000h is too long: at most 8784h",
        ),
        (
            with(&[("pod-eviction-timeout", "1500ms")]),
            "pod-eviction-timeout: 1s500ms is not a whole number of seconds, as the tolerationSeconds it sets must be",
        ),
        (
            with(&[("secondary-node-eviction-rate", "1000.1")]),
            "secondary-node-eviction-rate: 1000.1 per second is too fast: at most 1000",
        ),
        (
            Policy { unhealthy_zone_threshold: Fraction(1_000_001), ..Policy::default() },
            "unhealthy-zone-threshold: 1.000001 is not between 0 and 1",
        ),
    ];
    for (policy, message) in cases {
        assert_eq!(policy.validate().unwrap_err().to_string(), message);
    }
    assert_eq!(with(&[("node-monitor-period", "40s")]).validate(), Ok(()), "equal is not above");
}

#[test]
fn agents_beat_four_times_per_grace_and_at_least_every_ten_seconds() {
    for (grace, interval) in [("40s", "10s"), ("8s", "2s"), ("5m", "10s"), ("1s", "250ms")] {
        let policy = with(&[("node-monitor-grace-period", grace)]);
        assert_eq!(policy.beat_interval().to_string(), interval, "{grace}");
    }
}

proptest! {
    #[test]
    fn what_is_shown_reads_back(number in any::<u64>(), parts in 0..=1_000_000_u64) {
        let period = Period(number >> 24);
        prop_assert_eq!(period.to_string().parse(), Ok(period));
        prop_assert_eq!(Rate(number).to_string().parse(), Ok(Rate(number)));
        prop_assert_eq!(Fraction(parts).to_string().parse(), Ok(Fraction(parts)));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "[0-9.hms é-]{0,24}") {
        let _ = (text.parse::<Period>(), text.parse::<Rate>(), text.parse::<Fraction>());
    }
}
