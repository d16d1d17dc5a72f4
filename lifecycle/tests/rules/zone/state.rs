//! Z-1 to Z-10: the state and the eviction rate of each zone, from the numbers of its nodes.

use std::collections::BTreeMap;

use muster_lifecycle::census::{Census, Evaluation};
use muster_lifecycle::disruption::{FullDisruptionChange, Transition, Zones};
use muster_lifecycle::meta::Pairs;
use muster_lifecycle::node::ConditionStatus;
use muster_lifecycle::policy::{Policy, Rate, SizeScope};
use muster_lifecycle::zone::{Zone, ZoneKey, ZoneState};
use proptest::prelude::*;

use crate::fixture::conditions::{at, stamp};

const PRIMARY: Rate = Rate(100_000);
const SECONDARY: Rate = Rate(10_000);

fn key(zone: &str) -> ZoneKey {
    format!("r1/{zone}").parse().expect("a zone")
}

fn census(ready: u32, not_ready: u32) -> Census {
    Census { ready, not_ready, excluded: 0 }
}

/// Zones by name, with (ready, not ready).
fn zones_with(counts: &[(&str, u32, u32)]) -> BTreeMap<ZoneKey, Census> {
    counts.iter().map(|(zone, ready, not_ready)| (key(zone), census(*ready, *not_ready))).collect()
}

fn state(ready: u32, not_ready: u32) -> ZoneState {
    census(ready, not_ready).state(Policy::default().unhealthy_zone_threshold)
}

/// Advances one step and remembers it.
fn step(zones: &mut Zones, census: &BTreeMap<ZoneKey, Census>, seconds: u64) -> Transition {
    let step = zones.advance(census, &Policy::default(), stamp(at(seconds)));
    *zones = step.next.clone();
    step
}

fn rates(zones: &Zones) -> Vec<String> {
    zones.zones.iter().map(|(key, zone)| format!("{} {}", key.zone, zone.rate)).collect()
}

fn state_changes(step: &Transition) -> Vec<String> {
    step.states.iter().map(|change| format!("{} {}>{}", change.zone.zone, change.from, change.to)).collect()
}

fn rate_changes(step: &Transition) -> Vec<String> {
    step.rates.iter().map(|change| format!("{} {}>{}", change.zone.zone, change.from, change.to)).collect()
}

#[test]
fn z_1_the_key_comes_from_the_labels_and_the_beta_label_wins_if_it_is_there() {
    const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
    const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
    const REGION: &str = "topology.kubernetes.io/region";
    const ZONE: &str = "topology.kubernetes.io/zone";
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[], "default"),
        (&[(REGION, ""), (ZONE, "")], "default"),
        (&[(REGION, "r1"), (ZONE, "z1")], "r1/z1"),
        (&[(BETA_REGION, "r0"), (BETA_ZONE, "z0"), (REGION, "r1"), (ZONE, "z1")], "r0/z0"),
        (&[(BETA_ZONE, ""), (REGION, "r1"), (ZONE, "z1")], "r1/"),
        (&[(BETA_REGION, "r0"), (ZONE, "z1")], "r0/z1"),
        (&[(ZONE, "z1")], "/z1"),
        (&[(BETA_REGION, ""), (BETA_ZONE, ""), (REGION, "r1"), (ZONE, "z1")], "default"),
    ];
    for (labels, expected) in cases {
        let key = ZoneKey::from_labels(&Pairs::from_iter(labels.iter().copied()));
        assert_eq!(key.to_string(), expected, "{labels:?}");
        assert_eq!(expected.parse(), Ok(key));
    }
}

#[test]
fn z_1_an_invalid_zone_is_refused_with_the_accepted_form() {
    for text in ["", "z1", "/", "a/b/c"] {
        let message = text.parse::<ZoneKey>().unwrap_err().to_string();
        let form = "is not a zone: write region/zone, or default for nodes without topology labels";
        assert_eq!(message, format!("{text:?} {form}"));
    }
}

#[test]
fn z_2_a_new_zone_starts_as_initial_at_the_primary_rate() {
    let step = step(&mut Zones::default(), &zones_with(&[("a", 3, 0)]), 5);
    assert_eq!(state_changes(&step), ["a Initial>Normal"]);
    assert!(step.rates.is_empty() && step.full_disruption.is_none());
    let zone = step.next.zones[&key("a")];
    assert_eq!((zone.rate, zone.since), (PRIMARY, stamp(at(5))));
    assert_eq!(ZoneState::Initial.eviction_rate(1, 1, &Policy::default()), PRIMARY);
}

#[test]
fn z_3_the_state_follows_the_number_of_ready_nodes() {
    let cases = [
        (0, 0, ZoneState::Normal),
        (1, 0, ZoneState::Normal),
        (0, 1, ZoneState::FullDisruption),
        (0, 60, ZoneState::FullDisruption),
        (1, 2, ZoneState::Normal),
        (2, 3, ZoneState::PartialDisruption),
        (5, 5, ZoneState::Normal),
        (9, 11, ZoneState::PartialDisruption),
        (46, 54, ZoneState::Normal),
        (45, 55, ZoneState::PartialDisruption),
        (450_000, 549_999, ZoneState::Normal),
        (450_000, 550_000, ZoneState::PartialDisruption),
        (u32::MAX, u32::MAX, ZoneState::Normal),
    ];
    for (ready, not_ready, expected) in cases {
        assert_eq!(state(ready, not_ready), expected, "{ready} ready, {not_ready} not");
    }
}

#[test]
fn z_3_a_loss_larger_than_the_ready_nodes_is_capped() {
    let cases = [(0, census(4, 3)), (1, census(3, 4)), (4, census(0, 7)), (9, census(0, 7))];
    for (lost, expected) in cases {
        assert_eq!(census(4, 3).after_losing(lost), expected, "{lost} lost");
    }
}

#[test]
fn z_3_only_ready_true_counts_as_ready() {
    let statuses = [None, Some(ConditionStatus::True), Some(ConditionStatus::False), Some(ConditionStatus::Unknown)];
    let mut zone = Census::default();
    statuses.into_iter().for_each(|status| zone.count(&Pairs::default(), Evaluation::Known(status)));
    assert_eq!(zone, census(1, 3));
}

#[test]
fn z_4_excluded_nodes_do_not_count_whatever_the_labels_value() {
    let mut zone = census(0, 3);
    for value in ["", "false"] {
        let labels = Pairs::from_iter([("node.kubernetes.io/exclude-disruption", value)]);
        zone.count(&labels, Evaluation::Known(Some(ConditionStatus::True)));
    }
    assert_eq!((zone.size(), zone.excluded), (3, 2));
    assert_eq!(zone.state(Policy::default().unhealthy_zone_threshold), ZoneState::FullDisruption);
}

#[test]
fn better_than_upstream_a_node_whose_evaluation_failed_keeps_its_last_known_state() {
    let mut zone = Census::default();
    for last_known in [Some(ConditionStatus::True), Some(ConditionStatus::True), Some(ConditionStatus::Unknown), None] {
        zone.count(&Pairs::default(), Evaluation::Failed { last_known });
    }
    assert_eq!(zone, census(2, 2));
}

#[test]
fn z_5_rate_is_zero_at_33_nodes_and_a_hundredth_at_60() {
    for (ready, not_ready, rate) in
        [(13, 20, Rate::NEVER), (24, 36, SECONDARY), (20, 30, Rate::NEVER), (20, 31, SECONDARY)]
    {
        let step = step(&mut Zones::default(), &zones_with(&[("a", ready, not_ready), ("b", 1, 0)]), 0);
        let zone = step.next.zones[&key("a")];
        assert_eq!((zone.state, zone.rate), (ZoneState::PartialDisruption, rate), "{ready} ready, {not_ready} not");
    }
}

#[test]
fn z_5_a_fully_disrupted_zone_beside_a_normal_one_is_evicted_at_the_primary_rate() {
    let mut zones = Zones::default();
    let step = step(&mut zones, &zones_with(&[("a", 0, 60), ("b", 1, 0)]), 0);
    assert_eq!(state_changes(&step), ["a Initial>FullDisruption", "b Initial>Normal"]);
    assert_eq!(rates(&zones), ["a 0.1", "b 0.1"]);
}

#[test]
fn z_5_cluster_scope_compares_the_whole_clusters_size() {
    let policy = Policy { large_cluster_size_scope: SizeScope::Cluster, ..Policy::default() };
    for (others, rate) in [(17, Rate::NEVER), (18, SECONDARY)] {
        let census = zones_with(&[("a", 13, 20), ("b", others, 0)]);
        let zone = Zones::default().advance(&census, &policy, stamp(at(0))).next.zones[&key("a")];
        assert_eq!(zone.rate, rate, "33 and {others} nodes");
    }
}

#[test]
fn z_5_better_than_upstream_growth_and_new_settings_take_effect_without_a_change_of_state() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 13, 20), ("b", 1, 0)]), 0);
    let grown = step(&mut zones, &zones_with(&[("a", 24, 36), ("b", 1, 0)]), 5);
    assert!(grown.states.is_empty());
    assert_eq!(rate_changes(&grown), ["a 0>0.01"]);
    let faster = Policy { node_eviction_rate: Rate(1_000_000), ..Policy::default() };
    let changed = zones.advance(&zones_with(&[("a", 24, 36), ("b", 1, 0)]), &faster, stamp(at(10)));
    assert_eq!(rate_changes(&changed), ["b 0.1>1"]);
}

#[test]
fn z_6_full_disruption_stops_all_evictions_once() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 5, 0), ("b", 5, 0)]), 0);
    let disrupted = zones_with(&[("a", 0, 5), ("b", 0, 5)]);
    let entered = step(&mut zones, &disrupted, 5);
    assert_eq!(entered.full_disruption, Some(FullDisruptionChange::Enter));
    assert_eq!(state_changes(&entered), ["a Normal>FullDisruption", "b Normal>FullDisruption"]);
    assert_eq!(rate_changes(&entered), ["a 0.1>0", "b 0.1>0"]);
    assert!(step(&mut zones, &disrupted, 10).is_quiet(), "nothing more while all zones stay disrupted");
    assert_eq!(zones.zones[&key("a")].since, stamp(at(5)));
}

#[test]
fn z_6_the_end_of_full_disruption_restarts_every_grace_and_sets_rates_by_state() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 0, 5), ("b", 0, 5), ("c", 0, 60)]), 0);
    let left = step(&mut zones, &zones_with(&[("a", 2, 3), ("b", 0, 5), ("c", 20, 40)]), 65);
    assert_eq!(left.full_disruption, Some(FullDisruptionChange::Leave { grace_from: at(65) }));
    assert_eq!(rate_changes(&left), ["b 0>0.1", "c 0>0.01"]);
    assert_eq!(rates(&zones), ["a 0", "b 0.1", "c 0.01"]);
}

#[test]
fn z_6_without_full_disruption_zones_change_independently() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 5, 0), ("b", 5, 0)]), 0);
    let moved = step(&mut zones, &zones_with(&[("a", 2, 3), ("b", 5, 0)]), 5);
    assert_eq!(
        (state_changes(&moved), rate_changes(&moved)),
        (vec!["a Normal>PartialDisruption".into()], vec!["a 0.1>0".into()])
    );
    assert_eq!(moved.full_disruption, None);
}

#[test]
fn z_6_better_than_upstream_full_disruption_begins_when_the_last_normal_zone_is_deleted() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 0, 5), ("b", 1, 0)]), 0);
    let alone = step(&mut zones, &zones_with(&[("a", 0, 5)]), 5);
    assert_eq!(alone.full_disruption, Some(FullDisruptionChange::Enter));
    assert_eq!(rate_changes(&alone), ["a 0.1>0"]);
}

#[test]
fn z_7_a_single_disrupted_zone_is_full_disruption_and_one_ready_node_ends_it() {
    let mut zones = Zones::default();
    assert_eq!(step(&mut zones, &zones_with(&[("a", 0, 2)]), 0).full_disruption, Some(FullDisruptionChange::Enter));
    assert_eq!(
        step(&mut zones, &zones_with(&[("a", 1, 2)]), 5).full_disruption,
        Some(FullDisruptionChange::Leave { grace_from: at(5) })
    );
    assert_eq!(rates(&zones), ["a 0.1"]);
}

#[test]
fn z_7_an_empty_cluster_is_not_disrupted() {
    let mut zones = Zones::default();
    assert!(step(&mut zones, &BTreeMap::new(), 0).is_quiet() && !zones.all_disrupted);
}

#[test]
fn z_8_better_than_upstream_all_zones_without_nodes_are_removed_at_once() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 1, 0), ("b", 1, 0), ("c", 0, 1), ("d", 1, 0)]), 0);
    let left = step(&mut zones, &zones_with(&[("c", 0, 0), ("d", 1, 0)]), 5);
    assert_eq!(left.vanished, [key("a"), key("b"), key("c")]);
    assert_eq!(rates(&zones), ["d 0.1"]);
}

#[test]
fn z_9_better_than_upstream_a_zone_of_excluded_nodes_is_kept() {
    let mut zones = Zones::default();
    let mut census = zones_with(&[("a", 5, 0), ("b", 1, 0)]);
    step(&mut zones, &census, 0);
    census.insert(key("a"), Census { ready: 0, not_ready: 0, excluded: 5 });
    assert!(step(&mut zones, &census, 5).is_quiet(), "neither vanished nor new, so its bucket is not a new one");
    assert_eq!(zones.zones[&key("a")].since, stamp(at(0)));
}

#[test]
fn z_9_a_zone_of_excluded_nodes_does_not_count_and_has_no_rate_in_full_disruption() {
    let mut zones = Zones::default();
    let mut census = zones_with(&[("a", 0, 5)]);
    census.insert(key("x"), Census { ready: 0, not_ready: 0, excluded: 5 });
    assert_eq!(step(&mut zones, &census, 0).full_disruption, Some(FullDisruptionChange::Enter));
    assert_eq!(rates(&zones), ["a 0", "x 0"]);
    census.remove(&key("a"));
    assert_eq!(step(&mut zones, &census, 5).full_disruption, None, "no node counts, so nothing changes");
    assert!(zones.all_disrupted);
}

#[test]
fn z_10_better_than_upstream_a_new_zone_with_a_ready_node_ends_full_disruption() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 0, 5), ("b", 0, 5)]), 0);
    let left = step(&mut zones, &zones_with(&[("a", 0, 5), ("b", 0, 5), ("new", 1, 0)]), 5);
    assert_eq!(left.full_disruption, Some(FullDisruptionChange::Leave { grace_from: at(5) }));
    assert_eq!(rates(&zones), ["a 0.1", "b 0.1", "new 0.1"]);
}

#[test]
fn z_10_a_new_disrupted_zone_has_no_rate_in_full_disruption() {
    let mut zones = Zones::default();
    step(&mut zones, &zones_with(&[("a", 0, 5)]), 0);
    let joined = step(&mut zones, &zones_with(&[("a", 0, 5), ("new", 0, 1)]), 5);
    assert_eq!((joined.full_disruption, rate_changes(&joined)), (None, vec!["new 0.1>0".to_string()]));
}

fn random_census() -> impl Strategy<Value = BTreeMap<ZoneKey, Census>> {
    let count = || prop_oneof![2 => Just(0_u32), 2 => 1..6_u32, 1 => 30..80_u32];
    let zone = (count(), count(), 0..2_u32);
    let census = |(ready, not_ready, excluded)| Census { ready, not_ready, excluded };
    let name = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(key);
    proptest::collection::btree_map(name, zone.prop_map(census), 0..4)
}

fn random_policy() -> impl Strategy<Value = Policy> {
    (0..200_000_u64, 20..60_u32, any::<bool>()).prop_map(|(rate, large, cluster)| Policy {
        node_eviction_rate: Rate(rate),
        large_cluster_size_threshold: large,
        large_cluster_size_scope: if cluster { SizeScope::Cluster } else { SizeScope::Zone },
        ..Policy::default()
    })
}

proptest! {
    #[test]
    fn zones_depend_on_the_census_and_not_on_history(
        history in proptest::collection::vec((random_census(), random_policy()), 1..20),
    ) {
        let mut zones = Zones::default();
        for (second, (census, policy)) in (0..).zip(history) {
            let step = zones.advance(&census, &policy, stamp(at(second)));
            let cluster = census.values().map(Census::size).sum();
            let counted: Vec<&Census> = census.values().filter(|zone| zone.size() > 0).collect();
            let none_ready = counted.iter().all(|zone| zone.ready == 0);
            let all_disrupted = if counted.is_empty() { zones.all_disrupted } else { none_ready };
            prop_assert_eq!(step.next.all_disrupted, all_disrupted);

            let inhabited = |zone: &Census| zone.size() > 0 || zone.excluded > 0;
            let expected = census.iter().filter(|(_, zone)| inhabited(zone)).map(|(key, _)| key);
            prop_assert!(step.next.zones.keys().eq(expected));
            for (key, zone) in &step.next.zones {
                let state = census[key].state(policy.unhealthy_zone_threshold);
                let by_state = state.eviction_rate(census[key].size(), cluster, &policy);
                let rate = if all_disrupted { Rate::NEVER } else { by_state };
                prop_assert_eq!((zone.state, zone.rate), (state, rate));
            }
            let second_look = step.next.advance(&census, &policy, stamp(at(second + 1)));
            prop_assert!(second_look.is_quiet() && second_look.next == step.next);
            zones = step.next;
        }
    }

    #[test]
    fn reported_changes_are_the_complete_difference(
        history in proptest::collection::vec(random_census(), 1..20),
    ) {
        let policy = Policy::default();
        let mut zones = Zones::default();
        let mut told: BTreeMap<ZoneKey, (ZoneState, Rate)> = BTreeMap::new();
        let mut told_dark = false;
        for (second, census) in (0..).zip(history) {
            let step = zones.advance(&census, &policy, stamp(at(second)));
            for key in &step.vanished {
                prop_assert!(told.remove(key).is_some());
            }
            for change in &step.states {
                let own = told.entry(change.zone.clone()).or_insert((ZoneState::Initial, policy.node_eviction_rate));
                prop_assert_eq!(own.0, change.from);
                own.0 = change.to;
            }
            for change in &step.rates {
                let own = told.get_mut(&change.zone).expect("a state change is reported before the rate");
                prop_assert_eq!(own.1, change.from);
                own.1 = change.to;
            }
            match step.full_disruption {
                Some(FullDisruptionChange::Enter) => prop_assert!(!std::mem::replace(&mut told_dark, true)),
                Some(FullDisruptionChange::Leave { .. }) => prop_assert!(std::mem::replace(&mut told_dark, false)),
                None => {}
            }
            let shown = |(key, zone): (&ZoneKey, &Zone)| (key.clone(), (zone.state, zone.rate));
            let is: BTreeMap<_, _> = step.next.zones.iter().map(shown).collect();
            prop_assert_eq!((&told, told_dark), (&is, step.next.all_disrupted));
            zones = step.next;
        }
    }
}
