//! `explain zone`: the arithmetic behind its state and its rate, and the nodes that wait.

use muster_lifecycle::command::OperatorOperation;
use muster_lifecycle::explain::{self, ExcuseNote, WAITING_SHOWN_MAX, When, ZoneExplanation};
use muster_lifecycle::text::Text;
use muster_lifecycle::time::ClusterTime;

use crate::explain::node::{clock, foreseen, shown};
use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

fn explained(cluster: &Cluster) -> ZoneExplanation {
    explain::zone(&cluster.state, &key("a"), &[], cluster.now()).expect("the zone is there")
}

/// Zone `a` beside a healthy one, under these settings, assessed at four seconds.
fn assessed(ready: usize, lost: usize, settings: &str) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.populate("a", ready, lost);
    cluster.populate("normal", 1, 0);
    let changes = settings.split_whitespace().filter_map(|pair| pair.split_once('='));
    let changes = changes.map(|(name, value)| (Text::from(name), Text::from(value))).collect();
    cluster.done(OperatorOperation::SetPolicy { changes });
    cluster.assess();
    cluster
}

#[test]
fn a_disrupted_zone_with_a_full_explanation() {
    let cluster = assessed(24, 36, "");
    let explanation = explained(&cluster);
    assert_eq!(
        explanation.sentence(clock),
        "PartialDisruption since +4s (36 of 60 not ready = 0.6 >= 0.55); \
         a-00 is next to be tainted for eviction, at 0.01/s about +4s"
    );
    let expected = [
        "zone: zone r1/a is in PartialDisruption: 36 of 60 not ready = 0.6 >= 0.55 [Z-3] @+4s",
        "rate: 0.01/s: secondary rate, because 60 nodes are more than 50 [Z-5]",
        "census: 24 ready, 36 not ready, 0 excluded [Z-4]",
        "queue: 36 wait, a-00 for longest [Q-1] @+1s",
        "token: there is one [Q-2]",
        "evictions: 0 so far",
    ];
    assert_eq!(explanation.facts.iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!((explanation.queue_length, explanation.waiting.len()), (36, WAITING_SHOWN_MAX));
    let turns = explanation.waiting.iter().take(3).map(|waiting| match waiting.turn {
        When::At(at) => format!("{} {} {}", waiting.position, waiting.name, clock(at.wall())),
        When::Never => "never".to_owned(),
    });
    assert_eq!(turns.collect::<Vec<_>>(), ["1 a-00 +4s", "2 a-01 +104s", "3 a-02 +204s"]);
}

#[test]
fn z_3_and_z_5_every_state_shows_its_arithmetic_and_every_rate_its_reason() {
    let cases = [
        ((3, 0), "", "Normal", "0 of 3 not ready: up to 2 are no disruption", "0.1/s: primary rate"),
        ((1, 2), "", "Normal", "2 of 3 not ready: up to 2 are no disruption", "0.1/s: primary rate"),
        ((5, 5), "", "Normal", "5 of 10 not ready = 0.5 < 0.55", "0.1/s: primary rate"),
        (
            (8, 12),
            "",
            "PartialDisruption",
            "12 of 20 not ready = 0.6 >= 0.55",
            "0/s: 20 nodes are not more than 50, so it evicts no node",
        ),
        (
            (8, 12),
            "large-cluster-size-scope=cluster large-cluster-size-threshold=20",
            "PartialDisruption",
            "12 of 20 not ready = 0.6 >= 0.55",
            "0.01/s: secondary rate, because 21 nodes in the cluster are more than 20",
        ),
        (
            (0, 4),
            "",
            "FullDisruption",
            "none of 4 is ready",
            "0.1/s: primary rate: the zone is fully disrupted while others are not, so it is evacuated",
        ),
    ];
    for ((ready, lost), settings, state, arithmetic, rate) in cases {
        let explanation = explained(&assessed(ready, lost, settings));
        assert_eq!(
            (explanation.headline.text.as_str(), explanation.headline.aside.as_deref()),
            (state, Some(arithmetic))
        );
        assert_eq!(shown(&explanation.facts[1]), format!("rate: {rate} [Z-5]"));
    }
}

#[test]
fn a_zone_with_an_empty_queue_evicts_no_node() {
    let explanation = explained(&assessed(3, 0, ""));
    assert_eq!(explanation.forecast.iter().map(foreseen).collect::<Vec<_>>(), ["no node waits to be evicted [Q-1]"]);
    assert!(explanation.facts.iter().map(shown).any(|fact| fact == "queue: empty [Q-1]"));
}

#[test]
fn q_2_the_time_of_the_next_token_is_shown() {
    let mut cluster = assessed(3, 2, "");
    cluster.evict("a-00");
    let explanation = explained(&cluster);
    let facts: Vec<String> = explanation.facts.iter().map(shown).collect();
    assert!(facts.contains(&"token: the next one comes [Q-2] @+15s".to_owned()), "{facts:?}");
    assert!(facts.contains(&"queue: a-01 waits [Q-1] @+1s".to_owned()), "{facts:?}");
    assert!(facts.contains(&"evictions: 1 so far".to_owned()), "{facts:?}");
    let next = "a-01 is next to be tainted for eviction, at 0.1/s about +15s [Q-2]";
    assert_eq!(foreseen(&explanation.forecast[0]), next);
}

#[test]
fn z_5_a_halted_zone_has_no_token_and_no_turn() {
    let explanation = explained(&assessed(13, 20, ""));
    let facts: Vec<String> = explanation.facts.iter().map(shown).collect();
    assert!(facts.contains(&"token: there will be none at this rate [Q-3]".to_owned()), "{facts:?}");
    assert_eq!(
        foreseen(&explanation.forecast[0]),
        "a-00 is next to be tainted for eviction: the rate is 0, because 20 of 33 not ready = 0.60606 >= 0.55, \
         and 33 nodes are not more than 50, so it evicts no node [Z-5]"
    );
    assert!(explanation.waiting.iter().all(|waiting| waiting.turn == When::Never));
}

#[test]
fn z_6_no_node_is_evicted_during_full_disruption_nor_right_after_it() {
    let mut cluster = assessed(1, 2, "");
    for name in ["a-02", "normal-00"] {
        cluster.silence(name);
    }
    cluster.assess();
    let explanation = explained(&cluster);
    assert_eq!(shown(&explanation.facts[1]), "rate: 0/s: all zones are fully disrupted [Z-6]");
    let next = "a-00 is next to be tainted for eviction: all zones are fully disrupted, so no node is evicted [Z-6]";
    assert_eq!(foreseen(&explanation.forecast[0]), next);
    cluster.report("normal-00", "Ready=True");
    cluster.assess();
    let explanation = explained(&cluster);
    let next = "a-00 is next to be tainted for eviction, at 0.1/s, spared because all zones were fully disrupted a moment ago about +49s [Z-6]";
    assert_eq!(foreseen(&explanation.forecast[0]), next);
    assert_eq!(clock(explanation.excuses[0].until.wall()), "+49s");
}

#[test]
fn z_2_the_first_assessment_of_a_zone_is_forecast() {
    let mut cluster = Cluster::default();
    cluster.populate("a", 1, 4);
    let explanation = explained(&cluster);
    assert_eq!((explanation.headline.text.as_str(), explanation.headline.since), ("not assessed yet", None));
    assert_eq!(shown(&explanation.facts[0]), "zone: zone r1/a has not been assessed yet [Z-2]");
    let forecast: Vec<String> = explanation.forecast.iter().map(foreseen).collect();
    let expected = [
        "zone r1/a is assessed: PartialDisruption, 0/s about +6s [Z-6]",
        "a-00 is next to be tainted for eviction, which does not move before the zone is assessed [Z-2]",
    ];
    assert_eq!(forecast, expected);
}

#[test]
fn excuses_that_concern_every_node_are_shown() {
    let cluster = assessed(3, 0, "");
    let note =
        ExcuseNote { text: "took over a moment ago".to_owned(), until: ClusterTime(9000), concerns_this_node: true };
    let explanation = explain::zone(&cluster.state, &key("a"), &[note], cluster.now()).expect("it is there");
    assert_eq!(
        (explanation.excuses[0].text.as_str(), clock(explanation.excuses[0].until.wall()).as_str()),
        ("took over a moment ago", "+9s")
    );
}

#[test]
fn a_zone_of_excluded_nodes_is_explained_and_one_without_nodes_is_not() {
    let mut cluster = assessed(1, 0, "");
    cluster.done(label("a-00", "node.kubernetes.io/exclude-disruption=", false));
    assert_eq!(explained(&cluster).headline.aside.as_deref(), Some("no node counts here"));
    assert_eq!(explain::zone(&cluster.state, &key("none"), &[], cluster.now()), None);
}

#[test]
fn a_zone_explanation_is_encoded_as_camel_case_json() {
    let explanation = explained(&assessed(3, 1, ""));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!((&json["queueLength"], &json["waiting"][0]["turn"]["clusterMs"]), (&1.into(), &4000.into()));
    assert_eq!(serde_json::from_value::<ZoneExplanation>(json).unwrap(), explanation);
}
