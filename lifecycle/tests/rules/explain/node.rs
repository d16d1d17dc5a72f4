//! `explain node`: what the leader decides about the node, in words.

use muster_lifecycle::command::{Command, OperatorOperation};
use muster_lifecycle::explain::{
    self, ExcuseNote, ExplainedTime, Fact, NodeExplanation, NodeObservation, Prospect, When,
};
use muster_lifecycle::health::Excuse;
use muster_lifecycle::node::NodeDraft;
use muster_lifecycle::text::Text;
use muster_lifecycle::time::Period;
use muster_lifecycle::time::{ClusterTime, WallTime};

use crate::fixture::cluster::*;
use crate::fixture::fleet::*;

/// Seconds since the cluster was founded.
pub(crate) fn clock(wall: WallTime) -> String {
    format!("+{}s", (wall.0 - stamp(0).wall.0) / 1000)
}

/// `label: text [rule] @+2s`.
pub(crate) fn shown(fact: &Fact) -> String {
    let rule = fact.rule.as_ref().map(|rule| format!(" [{rule}]")).unwrap_or_default();
    let at = fact.at.map(|at| format!(" @{}", clock(at.wall()))).unwrap_or_default();
    format!("{}: {}{rule}{at}", fact.label, fact.text)
}

pub(crate) fn foreseen(prospect: &Prospect) -> String {
    format!("{} [{}]", prospect.phrase(clock), prospect.rule)
}

/// Node `a` of zone `z`, registered at two seconds, beside a ready node in another zone; assessed.
fn watched(conditions: &str) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.agent(register(in_zone("normal", "normal", "Ready=True")));
    cluster.agent(register(in_zone("a", "z", conditions)));
    cluster.assess();
    cluster
}

fn heard_at(cluster: &Cluster, seconds: u64) -> NodeObservation {
    NodeObservation { heard: sighting(seconds, 2), now: cluster.now(), ..NodeObservation::default() }
}

fn unheard(cluster: &Cluster) -> NodeObservation {
    NodeObservation { now: cluster.now(), ..NodeObservation::default() }
}

fn explained(cluster: &Cluster, hearing: &NodeObservation) -> NodeExplanation {
    explain::node(&cluster.state, "a", hearing).expect("the node is there")
}

fn sentence(cluster: &Cluster, hearing: &NodeObservation) -> String {
    explained(cluster, hearing).sentence(clock)
}

fn facts(cluster: &Cluster, hearing: &NodeObservation) -> Vec<String> {
    explained(cluster, hearing).facts.iter().map(shown).collect()
}

fn forecast(cluster: &Cluster, hearing: &NodeObservation) -> Vec<String> {
    explained(cluster, hearing).forecast.iter().map(foreseen).collect()
}

#[test]
fn an_unknown_node_with_a_full_explanation() {
    let at_night = |wall: WallTime| {
        let second = wall.0 / 1000 % 86_400;
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    };
    let mut cluster = Cluster::default();
    cluster.populate("normal", 1, 0);
    cluster.populate("b", 27, 33);
    let tainted = (0..33).map(|index| taint(&format!("b-{index:02}"), UNREACHABLE, "", false));
    let tainted = tainted.map(|operation| Command { origin: alice(), request: None, operation: operation.into() });
    cluster.submit_all(tainted.collect());
    let until = |cluster: &mut Cluster, second: u64| cluster.wait(second - 1 - cluster.now().cluster.0 / 1000);
    for name in ["b-40", "b-41", "b-42"] {
        cluster.silence(name);
    }
    cluster.assess();
    until(&mut cluster, 56_920);
    assert_eq!(cluster.evict("b-40"), "changed");
    until(&mut cluster, 56_931);
    cluster.silence("b-43");
    cluster.wait(9);
    let hearing = heard_at(&cluster, 56_891);
    let explanation = explain::node(&cluster.state, "b-43", &hearing).expect("it is there");
    assert_eq!(
        explanation.sentence(at_night),
        "unreachable since 14:02:11 (last heard 40 s before, by replica 2); \
         NoExecute taint waits in zone r1/b's queue, position 3, at 0.01/s about 14:07:00"
    );
    cluster.fail_over();
    assert_eq!(explain::node(&cluster.state, "b-43", &hearing), Some(explanation), "every leader says the same");
}

#[test]
fn nh_8_a_healthy_node_and_its_next_deadline() {
    let cluster = watched("Ready=True");
    let hearing = heard_at(&cluster, 2);
    let next = "unless it is heard before, it is marked Unknown at +42s";
    assert_eq!(sentence(&cluster, &hearing), format!("ready since +2s (last heard 1 s ago, by replica 2); {next}"));
    assert_eq!(forecast(&cluster, &hearing), [format!("{next} [NH-8]")]);
    let expected = [
        "ready: True, Reported [NH-11] @+2s",
        "heard: by replica 2 [NH-5] @+2s",
        "grace: 40 s without a sign of life [NH-3]",
        "zone: zone r1/z is in Normal: 0 of 1 not ready: up to 2 are no disruption [Z-3] @+3s",
        "rate: 0.1/s: primary rate [Z-5]",
    ];
    assert_eq!(facts(&cluster, &hearing), expected);
}

#[test]
fn nh_2_a_node_without_ready_has_the_startup_grace() {
    let cluster = watched("");
    let hearing = unheard(&cluster);
    assert_eq!(
        sentence(&cluster, &hearing),
        "never ready since +2s (no replica remembers having heard it); \
         unless it is heard before, it is marked Unknown at +62s"
    );
    assert_eq!(forecast(&cluster, &hearing)[0], "unless it is heard before, it is marked Unknown at +62s [NH-2]");
    assert_eq!(
        facts(&cluster, &hearing)[..4],
        [
            "ready: it has no Ready condition yet [NH-2]",
            "heard: no replica remembers having heard it [NH-5]",
            "grace: 1 min to start, because it has never been ready [NH-2]",
            "no-schedule taint: node.kubernetes.io/not-ready, because it has never been ready [TC-1]",
        ]
    );
}

#[test]
fn a_silent_node_that_is_excused_has_the_end_of_the_excuse_as_deadline() {
    let mut cluster = watched("Ready=True");
    cluster.wait(60);
    let excuse = Excuse { blind_until: ClusterTime(60_000), reattach_window: Period(30_000) };
    let note = |text: &str, until, concerns_this_node| ExcuseNote {
        text: text.to_owned(),
        until: ClusterTime(until),
        concerns_this_node,
    };
    let excuses = vec![note("no digest from replica 2", 90_000, true), note("no digest from replica 3", 70_000, false)];
    let hearing = NodeObservation { excuse: Some(excuse), excuses, ..heard_at(&cluster, 2) };
    assert_eq!(
        sentence(&cluster, &hearing),
        "silent, but ready by its own word since +2s (last heard 1 min 1 s ago, by replica 2); \
         unless it is heard before, it is marked Unknown at +90s"
    );
    let then = "its NoExecute taint then waits in zone r1/z's queue, position 1, at 0.1/s about +90s [Q-2]";
    assert_eq!(forecast(&cluster, &hearing)[1], then);
    let excuses = explained(&cluster, &hearing).excuses;
    let shown: Vec<_> = excuses
        .iter()
        .map(|excuse| (excuse.text.as_str(), clock(excuse.until.wall()), excuse.concerns_this_node))
        .collect();
    let expected =
        [("no digest from replica 2", "+90s".to_owned(), true), ("no digest from replica 3", "+70s".to_owned(), false)];
    assert_eq!(shown, expected);
}

#[test]
fn a_node_past_its_deadline_is_marked_now() {
    let mut cluster = watched("Ready=True");
    cluster.wait(60);
    assert_eq!(
        sentence(&cluster, &heard_at(&cluster, 2)),
        "silent for too long, but ready by its own word since +2s (last heard 1 min 1 s ago, by replica 2); \
         it is marked Unknown at +63s"
    );
}

#[test]
fn ne_2_an_unreachable_node_with_its_taint() {
    let mut cluster = watched("Ready=True");
    cluster.wait(40);
    cluster.silence("a");
    cluster.assess();
    cluster.evict("a");
    let hearing = heard_at(&cluster, 3);
    assert_eq!(
        sentence(&cluster, &hearing),
        "unreachable since +44s (last heard 41 s before, by replica 2); \
         it keeps its NoExecute taint until it says that it is ready"
    );
    let facts = facts(&cluster, &hearing);
    assert_eq!(facts[0], "ready: Unknown, NodeStatusUnknown, Kubelet stopped posting node status. [NH-8] @+44s");
    let taints = [
        "no-schedule taint: node.kubernetes.io/unreachable, because Ready is Unknown [TC-1] @+44s",
        "no-execute taint: node.kubernetes.io/unreachable: its pods' tolerations count from here [NE-7] @+46s",
    ];
    assert_eq!(facts[3..5], taints);
    let never = "it keeps its NoExecute taint until it says that it is ready [NE-3]";
    assert_eq!(forecast(&cluster, &hearing), [never]);
    assert_eq!(explained(&cluster, &hearing).forecast[0].at, When::Never);
}

#[test]
fn nh_11_a_node_that_is_heard_again_without_a_status_stays_unreachable() {
    let mut cluster = watched("Ready=True");
    cluster.wait(40);
    cluster.silence("a");
    cluster.wait(6);
    let told = sentence(&cluster, &heard_at(&cluster, 48));
    let aside = "(heard again 2 s ago, by replica 2, but it has not said how it is)";
    assert!(told.starts_with(&format!("unreachable since +44s {aside}; ")), "{told}");
}

#[test]
fn ne_1_a_not_ready_node_waits_for_eviction_and_has_a_silence_deadline() {
    let mut cluster = watched("Ready=True");
    cluster.report("a", "Ready=False");
    let hearing = heard_at(&cluster, 4);
    assert_eq!(
        sentence(&cluster, &hearing),
        "not ready since +4s (last heard 0 ms ago, by replica 2); \
         NoExecute taint waits in zone r1/z's queue, position 1, at 0.1/s about +4s"
    );
    cluster.assess();
    let expected = [
        "NoExecute taint waits in zone r1/z's queue, position 1, at 0.1/s about +5s [Q-2]",
        "unless it is heard before, it is marked Unknown at +44s [NH-8]",
    ];
    assert_eq!(forecast(&cluster, &heard_at(&cluster, 4)), expected);
}

#[test]
fn tc_1_each_taint_names_its_condition() {
    let mut cluster = watched("Ready=True DiskPressure=True MemoryPressure=True");
    cluster.done(cordon("a", true));
    let hearing = heard_at(&cluster, 3);
    let told = sentence(&cluster, &hearing);
    assert!(told.starts_with("ready since +2s (cordoned; last heard 1 s ago, by replica 2); "), "{told}");
    let expected = [
        "no-schedule taint: node.kubernetes.io/disk-pressure, because DiskPressure is True [TC-1] @+2s",
        "no-schedule taint: node.kubernetes.io/memory-pressure, because MemoryPressure is True [TC-1] @+2s",
        "no-schedule taint: node.kubernetes.io/unschedulable, because it is cordoned [TC-1] @+4s",
    ];
    assert_eq!(facts(&cluster, &hearing)[3..6], expected);
}

#[test]
fn z_4_an_excluded_node_is_explained_as_excluded() {
    let mut cluster = watched("Ready=True");
    cluster.done(label("a", "node.kubernetes.io/exclude-disruption=", false));
    let expected =
        "disruption: it has the label node.kubernetes.io/exclude-disruption: its zone is judged without it [Z-4]";
    assert!(facts(&cluster, &heard_at(&cluster, 3)).contains(&expected.to_owned()));
}

#[test]
fn a_quarantined_node_is_explained_as_not_watched() {
    let mut cluster = watched("Ready=True");
    cluster.wait(100);
    let hearing = NodeObservation { note: Some("its actor crashed 5 times".to_owned()), ..heard_at(&cluster, 2) };
    assert!(
        facts(&cluster, &hearing).contains(&"quarantine: no actor watches it: its actor crashed 5 times".to_owned())
    );
    assert_eq!(forecast(&cluster, &hearing), ["no actor watches it, so it keeps its last known state [NH-9]"]);
}

#[test]
fn a_node_being_deleted_names_its_finalizers() {
    let mut cluster = watched("Ready=True");
    cluster.apply(NodeDraft { finalizers: Some(Box::new([Text::from("f")])), ..draft("a") });
    cluster.done(delete("a"));
    let expected = "deletion: it is deleted as soon as its finalizers are gone @+5s".to_owned();
    assert!(facts(&cluster, &heard_at(&cluster, 3)).contains(&expected));
}

/// The reasons that keep a waiting node waiting.
#[test]
fn a_node_that_cannot_be_evicted_yet_says_why() {
    let mut disrupted = watched("Ready=True");
    disrupted.silence("a");
    disrupted.silence("normal");
    disrupted.assess();

    let mut halted = watched("Ready=True");
    halted.populate("z", 13, 19);
    halted.silence("a");
    halted.assess();

    let mut unwilling = watched("Ready=False");
    let never = vec![(Text::from("node-eviction-rate"), Text::from("0"))];
    unwilling.done(OperatorOperation::SetPolicy { changes: never });
    let outdated = rebuilt(&unwilling.state);
    unwilling.assess();

    let mut unknown = watched("Ready=False");
    unknown.done(label("a", "topology.kubernetes.io/zone=new", true));

    let place = "NoExecute taint waits in zone r1/z's queue, position";
    let cases = [
        (&disrupted, format!("{place} 1: all zones are fully disrupted, so no node is evicted"), "Z-6"),
        (
            &halted,
            format!(
                "{place} 20: the rate is 0, because 20 of 33 not ready = 0.60606 >= 0.55, \
                 and 33 nodes are not more than 50, so it evicts no node"
            ),
            "Z-5",
        ),
        (&unwilling, format!("{place} 1: the rate is 0, as node-eviction-rate says"), "Z-5"),
        (
            &unknown,
            "NoExecute taint waits in zone r1/new's queue, position 1, which does not move before the zone is assessed"
                .to_owned(),
            "Z-2",
        ),
    ];
    for (cluster, text, rule) in cases {
        let outlook = explained(cluster, &heard_at(cluster, 3)).outlook.expect("it waits");
        assert_eq!((outlook.at, outlook.text, outlook.rule.as_str()), (When::Never, text, rule));
    }

    let hearing = NodeObservation { now: stamp(4), ..heard_at(&unwilling, 3) };
    let explanation = explain::node(&outdated, "a", &hearing).expect("it is there");
    assert!(explanation.facts.iter().map(shown).any(|fact| fact == "rate: 0.1/s: as of the last assessment [Z-5]"));
    let next = "zone r1/z is assessed: FullDisruption, 0/s about +9s [Z-6]".to_owned();
    assert!(explanation.forecast.iter().map(foreseen).any(|prospect| prospect == next));
}

#[test]
fn z_6_after_full_disruption_every_node_is_spared() {
    let mut cluster = watched("Ready=True");
    cluster.silence("a");
    cluster.silence("normal");
    cluster.assess();
    cluster.report("normal", "Ready=True");
    cluster.assess();
    let hearing = heard_at(&cluster, 3);
    let outlook = explained(&cluster, &hearing).outlook.expect("it waits");
    let text = "NoExecute taint waits in zone r1/z's queue, position 1, at 0.1/s, spared because all zones were fully disrupted a moment ago";
    assert_eq!((outlook.text.as_str(), outlook.rule.as_str()), (text, "Z-6"));
    assert_eq!(outlook.at, When::At(ExplainedTime { cluster_ms: 48_000, wall_ms: stamp(48).wall.0 }));
    let excuse = &explained(&cluster, &hearing).excuses[0];
    assert_eq!(excuse.text, "all zones were fully disrupted a moment ago: every node has a whole grace to be heard");
    assert_eq!((clock(excuse.until.wall()).as_str(), excuse.concerns_this_node), ("+48s", true));
    cluster.wait(41);
    assert!(explained(&cluster, &heard_at(&cluster, 3)).excuses.is_empty());
}

#[test]
fn an_absent_node_has_no_explanation() {
    let cluster = watched("Ready=True");
    assert_eq!(explain::node(&cluster.state, "none", &unheard(&cluster)), None);
}

#[test]
fn an_explanation_is_encoded_as_camel_case_json() {
    let mut cluster = watched("Ready=True");
    cluster.silence("a");
    cluster.assess();
    cluster.evict("a");
    let explanation = explained(&cluster, &heard_at(&cluster, 3));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["headline"]["since"]["clusterMs"], 4000);
    assert_eq!(json["headline"]["since"]["wallMs"], stamp(4).wall.0);
    assert_eq!((&json["forecast"][0]["at"], &json["forecast"][0]["rule"]), (&serde_json::Value::Null, &"NE-3".into()));
    assert_eq!(serde_json::from_value::<NodeExplanation>(json).unwrap(), explanation);
}

/// Every wall-clock time is counted from the present one, so a clock that was set in between does not make them
/// inconsistent.
#[test]
fn future_times_are_shown_relative_to_now() {
    let cluster = watched("Ready=True");
    let mut hearing = heard_at(&cluster, 2);
    hearing.now.wall = WallTime(stamp(1000).wall.0);
    assert!(sentence(&cluster, &hearing).ends_with("it is marked Unknown at +1039s"));
    hearing.now.wall = WallTime(i64::MAX);
    assert!(explained(&cluster, &hearing).outlook.is_some(), "the highest time does not overflow");
}
