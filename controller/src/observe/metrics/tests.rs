//! Tests of a scrape, line by line, and against the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_lifecycle::time::ClusterTime;
use muster_pulse::node_watch::Judgement;

use super::pulse::{Blind, PullOutcome};
use super::raft::ProposalResult;
use super::work::PoolFigures;
use super::zones::ZONES_LIMIT;
use super::*;
use crate::session::figures::RefusalReason;

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

#[test]
fn exposed_names_types_and_labels_are_the_documented_ones() {
    let exposed = Exposition::of(&busy(), &figures(vec![zone("eu/a", 3, 2)]));
    assert_eq!(documented(), exposed.summary());
}

#[test]
fn every_sample_belongs_to_the_metric_declared_above_it_and_the_end_is_marked() {
    let text = busy().render(&figures(vec![zone("eu/a", 3, 2)])).unwrap();
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    let (mut current, mut samples) = (String::new(), 0);
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            current = declared.split(' ').next().unwrap().to_owned();
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(series.starts_with(&current), "{line} under {current}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            samples += 1;
        }
    }
    assert!(samples > 60, "{samples}");
}

#[test]
fn zone_metrics_have_the_names_of_kubernetes() {
    let exposed = Exposition::of(&Metrics::default(), &figures(vec![zone("eu/a", 4, 3), zone("default", 0, 0)]));
    for (series, value) in [
        (r#"node_collector_zone_health{zone="eu/a"}"#, 75.0),
        (r#"node_collector_zone_size{zone="eu/a"}"#, 4.0),
        (r#"node_collector_unhealthy_nodes_in_zone{zone="eu/a"}"#, 1.0),
        (r#"node_collector_evictions_total{zone="eu/a"}"#, 7.0),
        (r#"node_collector_zone_health{zone="default"}"#, 100.0),
        (r#"muster_eviction_queue_length{zone="eu/a"}"#, 5.0),
        (r#"muster_zone_eviction_rate{zone="eu/a"}"#, 0.1),
        (r#"muster_zone_state{zone="eu/a",state="Normal"}"#, 1.0),
        (r#"muster_zone_state{zone="eu/a",state="Initial"}"#, 0.0),
        (r#"muster_zone_state{zone="eu/a",state="PartialDisruption"}"#, 0.0),
        (r#"muster_zone_state{zone="eu/a",state="FullDisruption"}"#, 0.0),
    ] {
        assert_eq!(exposed.value(series), value, "{series}");
    }
}

#[test]
fn zones_beyond_the_limit_are_summed_under_other() {
    let full: Vec<_> = (0..ZONES_LIMIT).map(|number| zone(&format!("eu/{number:05}"), 4, 3)).collect();
    let exposed = Exposition::of(&Metrics::default(), &figures(full.clone()));
    assert!(!exposed.samples.keys().any(|series| series.contains("other")));

    // The order in which zones are given does not matter; their names do.
    let mut more = vec![zone("us/x", 10, 0), zone("us/y", 10, 10)];
    more.extend(full);
    let exposed = Exposition::of(&Metrics::default(), &figures(more));
    let sizes = exposed.samples.keys().filter(|series| series.starts_with("node_collector_zone_size{"));
    assert_eq!(sizes.count(), ZONES_LIMIT + 1);
    assert!(!exposed.samples.keys().any(|series| series.contains("us/")));
    for (name, value) in [
        ("node_collector_zone_size", 20.0),
        ("node_collector_zone_health", 50.0),
        ("node_collector_unhealthy_nodes_in_zone", 10.0),
        ("node_collector_evictions_total", 14.0),
        ("muster_eviction_queue_length", 10.0),
        ("muster_zone_eviction_rate", 0.2),
    ] {
        assert_eq!(exposed.value(&format!(r#"{name}{{zone="other"}}"#)), value, "{name}");
    }
    assert!(!exposed.samples.keys().any(|series| series.starts_with(r#"muster_zone_state{zone="other""#)));
}

#[test]
fn the_name_of_a_zone_is_escaped() {
    let exposed = Exposition::of(&Metrics::default(), &figures(vec![zone("a\"b\\c\nd/e", 1, 1)]));
    assert_eq!(exposed.value(r#"node_collector_zone_size{zone="a\"b\\c\nd/e"}"#), 1.0);
}

#[test]
fn durations_have_the_buckets_of_kubernetes() {
    let exposed = Exposition::of(&busy(), &figures(vec![]));
    for (name, first) in [
        ("node_collector_update_node_health_duration_seconds", 0.001),
        ("node_collector_update_all_nodes_health_duration_seconds", 0.01),
    ] {
        let prefix = format!("{name}_bucket{{le=\"");
        let bounds = exposed.samples.keys().filter_map(|series| series.strip_prefix(&prefix)?.strip_suffix("\"}"));
        let mut bounds: Vec<f64> = bounds.map(|bound| bound.parse().unwrap()).collect();
        bounds.sort_by(f64::total_cmp);
        let expected: Vec<f64> = (0..8).map(|n| first * 4f64.powi(n)).chain([f64::INFINITY]).collect();
        assert_eq!(bounds, expected, "{name}");
        assert_eq!(exposed.value(&format!("{name}_count")), 1.0);
    }
}

#[test]
fn counters_and_figures_are_exposed() {
    let exposed = Exposition::of(&busy(), &figures(vec![]));
    let refused = format!(r#"muster_sessions_refused_total{{reason="{}"}}"#, RefusalReason::Held.label());
    for (series, value) in [
        (r#"muster_beats_total{door="session"}"#, 2.0),
        (r#"muster_beats_total{door="aggregator"}"#, 500.0),
        ("muster_sessions", 1.0),
        (&refused, 1.0),
        (r#"muster_digest_pulls_total{origin="2",outcome="merged"}"#, 1.0),
        (r#"muster_digest_pulls_total{origin="3",outcome="failed"}"#, 1.0),
        ("muster_digest_bytes_total", 4096.0),
        // A pull that failed says nothing about how long peers take.
        ("muster_digest_round_trip_seconds_count", 1.0),
        (r#"muster_digest_age_seconds{origin="2"}"#, 0.25),
        (r#"muster_blind{excuse="canary"}"#, 1.0),
        (r#"muster_blind{excuse="stall"}"#, 0.0),
        ("muster_blind_seconds_total", 1.5),
        (r#"muster_verdicts_total{verdict="wait"}"#, 1.0),
        (r#"muster_verdicts_total{verdict="silent"}"#, 0.0),
        (r#"muster_actors{kind="shard"}"#, 3.0),
        (r#"muster_actor_restarts_total{kind="node"}"#, 1.0),
        (r#"muster_proposals_total{operation="label_node",outcome="rejected"}"#, 1.0),
        ("muster_raft_is_leader", 1.0),
        ("muster_raft_quorum_age_seconds", 0.1),
        ("muster_disk_in_trouble", 1.0),
        ("muster_disk_free_bytes", 4_096.0),
        ("muster_nodes", 12.0),
        ("muster_cluster_time_seconds", 90.0),
    ] {
        assert_eq!(exposed.value(series), value, "{series}");
    }
}

#[test]
fn a_follower_exposes_no_quorum_age() {
    let mut figures = figures(vec![]);
    figures.raft = Arc::new(RaftFigures::default);
    let exposed = Exposition::of(&Metrics::default(), &figures);
    assert_eq!(exposed.value("muster_raft_is_leader"), 0.0);
    assert!(!exposed.samples.contains_key("muster_raft_quorum_age_seconds"));
}

/// One sample of every metric that has to be touched to exist.
fn busy() -> Metrics {
    let metrics = Metrics::default();
    let Metrics { pulse, lifecycle, actors, raft, .. } = &metrics;
    pulse.pulled(2, PullOutcome::Merged, Duration::from_millis(3), 4096);
    pulse.pulled(3, PullOutcome::Failed, Duration::from_secs(1), 0);
    pulse.excused(Blind::Canary, true);
    pulse.was_blind(Duration::from_millis(1500));
    lifecycle.node_health_duration.observe(0.002);
    lifecycle.all_nodes_health_duration.observe(0.02);
    lifecycle.judged(&Judgement::LookAgain(ClusterTime(9)));
    actors.running("shard").set(3);
    actors.restarted("node");
    raft.proposed("label_node", ProposalResult::Rejected);
    metrics
}

fn figures(zones: Vec<ZoneFigures>) -> Figures {
    let raft = RaftFigures {
        term: 3,
        is_leader: true,
        applied_index: 40,
        last_log_index: 41,
        quorum_age: Some(Duration::from_millis(100)),
        disk_in_trouble: true,
        disk_free_bytes: Some(4_096),
    };
    let state = StateFigures { nodes: 12, nodes_ready: 11, revision: 99, cluster_time: Duration::from_secs(90) };
    Figures {
        zones: Arc::new(move || zones.clone()),
        digests: Arc::new(|| vec![DigestFigures { origin: 2, age: Duration::from_millis(250) }]),
        raft: Arc::new(move || raft),
        state: Arc::new(move || state),
        work: Arc::new(work),
        sessions: sessions(),
    }
}

fn work() -> WorkFigures {
    let pools = vec![PoolFigures { range: "10.0.0.0/16".into(), blocks: 256, free: 64 }];
    WorkFigures { pods: vec![("Running", 3)], pools, ..WorkFigures::default() }
}

fn sessions() -> Arc<SessionFigures> {
    let figures = SessionFigures::default();
    figures.opened();
    figures.beat();
    figures.beat();
    figures.carried(500);
    figures.refuse(RefusalReason::Held);
    Arc::new(figures)
}

fn zone(name: &str, size: u64, ready: u64) -> ZoneFigures {
    ZoneFigures { zone: name.into(), size, ready, state: "Normal", rate_per_second: 0.1, queue: 5, evictions: 7 }
}

/// The name of each metric, with its type and labels.
type Summary = BTreeMap<String, (String, BTreeSet<String>)>;

/// A parsed scrape.
struct Exposition {
    types: Vec<(String, String)>,
    samples: BTreeMap<String, f64>,
}

impl Exposition {
    fn of(metrics: &Metrics, figures: &Figures) -> Self {
        let text = metrics.render(figures).unwrap();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let types = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        });
        Self { types, samples: samples.collect() }
    }

    fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("{series} is not exposed"))
    }

    fn summary(&self) -> Summary {
        let summarised = self.types.iter().map(|(name, kind)| {
            let suffix = match kind.as_str() {
                "counter" => "_total",
                "histogram" => "_count",
                _ => "",
            };
            let sampled = format!("{name}{suffix}");
            let shown = if kind == "counter" { sampled.clone() } else { name.clone() };
            (shown, (kind.clone(), self.labels(&sampled)))
        });
        summarised.collect()
    }

    /// Label names of a metric. No label value here contains a comma.
    fn labels(&self, name: &str) -> BTreeSet<String> {
        let mut owned = self.samples.keys().filter(|series| series.split('{').next() == Some(name));
        let series = owned.next_back().unwrap_or_else(|| panic!("{name} has no sample"));
        let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect()
    }
}

/// The table in the documentation's section on metrics.
fn documented() -> Summary {
    let section = OPERATIONS.split("\n## ").find(|section| section.starts_with("Metrics\n")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let metrics = rows.filter(|(name, _)| !name.starts_with('/'));
    let table = metrics.map(|(name, rest)| {
        let mut columns = rest.split('|').map(str::trim);
        let kind = columns.next().unwrap().to_owned();
        let labels = columns.next().unwrap().split(',').map(|label| label.trim().to_owned());
        (name.to_owned(), (kind, labels.filter(|label| !label.is_empty()).collect()))
    });
    table.collect()
}
