//! Wording of lengths of time, shares and sightings.

use crate::command::Sighting;
use crate::judge::disruption::{LOST_NODES_TOLERATED, Pace};
use crate::object::policy::{Fraction, Policy, Rate, SizeScope};
use crate::object::zone::{ZoneKey, ZoneState};
use crate::store::census::Census;
use crate::value::time::ClusterTime;

/// Largest first; a length is written with at most two of them.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

const MILLION: u64 = 1_000_000;

/// `40 s`, `3 min 20 s`; fractions of a second only where there is no larger unit.
pub(super) fn length(millis: u64) -> String {
    let largest = UNITS.iter().position(|(_, unit)| millis >= *unit).unwrap_or(UNITS.len() - 1);
    let (name, unit) = UNITS[largest];
    let whole = format!("{} {name}", millis / unit);
    match UNITS.get(largest + 1) {
        Some((name, part)) if *part >= 1000 && millis % unit >= *part => {
            format!("{whole} {} {name}", millis % unit / part)
        }
        Some(_) | None => whole,
    }
}

pub(super) fn between(earlier: ClusterTime, later: ClusterTime) -> String {
    length(later.0.saturating_sub(earlier.0))
}

pub(super) fn heard_ago(heard: Option<Sighting>, now: ClusterTime) -> String {
    match heard {
        Some(Sighting { at, through }) => format!("last heard {} ago, by replica {through}", between(at, now)),
        None => "no replica remembers having heard it".to_owned(),
    }
}

/// Counted from the moment at which the node went missing.
pub(super) fn heard_before(heard: Option<Sighting>, missing: ClusterTime, now: ClusterTime) -> String {
    match heard {
        Some(Sighting { at, through }) if at <= missing => {
            format!("last heard {} before, by replica {through}", between(at, missing))
        }
        Some(Sighting { at, through }) => {
            let age = between(at, now);
            format!("heard again {age} ago, by replica {through}, but it has not said how it is")
        }
        None => "no replica remembers having heard it".to_owned(),
    }
}

pub(super) fn per_second(rate: Rate) -> String {
    format!("{rate}/s")
}

/// Z-3: the counts behind the state of a zone.
pub(super) fn disruption(census: &Census, threshold: Fraction) -> String {
    let (lost, size) = (u64::from(census.not_ready), census.size());
    match census.state(threshold) {
        _ if size == 0 => "no node counts here".to_owned(),
        ZoneState::FullDisruption => format!("none of {size} is ready"),
        ZoneState::Initial | ZoneState::Normal | ZoneState::PartialDisruption if lost <= LOST_NODES_TOLERATED => {
            format!("{lost} of {size} not ready: up to {LOST_NODES_TOLERATED} are no disruption")
        }
        ZoneState::PartialDisruption => format!("{} >= {threshold}", share(lost, size)),
        ZoneState::Initial | ZoneState::Normal => format!("{} < {threshold}", share(lost, size)),
    }
}

/// Cut off after as many decimals as a threshold can have, so that the comparison is visible in the text.
fn share(lost: u64, size: u64) -> String {
    format!("{lost} of {size} not ready = {}", Fraction(lost * MILLION / size.max(1)))
}

/// Z-5: the reason for the rate of a zone.
pub(super) fn pace(state: ZoneState, census: &Census, cluster: u64, policy: &Policy) -> String {
    let (limit, scope) = (policy.large_cluster_size_threshold, policy.large_cluster_size_scope);
    let whose = match scope {
        SizeScope::Zone => "nodes",
        SizeScope::Cluster => "nodes in the cluster",
    };
    let pace = state.pace(census.size(), cluster, policy);
    match pace {
        Pace::Halted { size } => format!("{size} {whose} are not more than {limit}, so it evicts no node"),
        Pace::Secondary { size } => format!("secondary rate, because {size} {whose} are more than {limit}"),
        Pace::Primary if state == ZoneState::FullDisruption => {
            "primary rate: the zone is fully disrupted while others are not, so it is evacuated".to_owned()
        }
        Pace::Primary => "primary rate".to_owned(),
    }
}

/// `zone r1/b`, `the default zone`.
pub(super) fn zone_name(zone: &ZoneKey) -> String {
    if zone.is_default() { "the default zone".to_owned() } else { format!("zone {zone}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_in_at_most_two_units() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (40_999, "40 s"),
            (60_000, "1 min"),
            (200_500, "3 min 20 s"),
            (3_600_000, "1 h"),
            (3_659_000, "1 h"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ];
        for (millis, expected) in cases {
            assert_eq!(length(millis), expected);
        }
    }

    #[test]
    fn a_disruption_is_worded_with_its_share_and_the_threshold() {
        let threshold = "0.55".parse().unwrap();
        let cases = [
            (0, 0, "no node counts here"),
            (0, 5, "none of 5 is ready"),
            (1, 2, "2 of 3 not ready: up to 2 are no disruption"),
            (8, 12, "12 of 20 not ready = 0.6 >= 0.55"),
            (5, 5, "5 of 10 not ready = 0.5 < 0.55"),
            (450_000, 549_999, "549999 of 999999 not ready = 0.549999 < 0.55"),
            (2, 1, "1 of 3 not ready: up to 2 are no disruption"),
        ];
        for (ready, not_ready, expected) in cases {
            assert_eq!(disruption(&Census { ready, not_ready, excluded: 0 }, threshold), expected);
        }
    }
}
