//! Comparison of our replicas with etcd: the same job, the same number of clients and the same machine, in one run.

use serde_json::{Map, Value, json};

use super::{CLIENTS, CONNECTIONS};
use crate::harness::options::BenchScale;
use crate::measure::latency::LatencySummary;
use crate::measure::usage::{GENERATOR, ProcessUsage, ResourceUsage};
use crate::report::figure::{Figure, Goal};
use crate::report::number::{grouped, mebibytes};
use crate::report::table::ReportTable;

pub(crate) const SCENARIO: &str = "peers";
/// P1's second half.
const KEEP_ALIVES_RATIO: f64 = 60.0;

/// One way of one system to keep nodes alive.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeerResult {
    pub(crate) name: String,
    pub(crate) operation: &'static str,
    pub(crate) operations: u64,
    /// Operations per second.
    pub(crate) rate: f64,
    /// Absent where nothing is answered.
    pub(crate) latency: Option<LatencySummary>,
    pub(crate) usage: ResourceUsage,
}

/// Our own figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MusterResults {
    /// Beats as agents send them by default: no reply.
    pub(crate) unanswered: PeerResult,
    /// Beats with an acknowledgement each, as etcd gives one.
    pub(crate) answered: PeerResult,
}

/// etcd's figures.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EtcdResults {
    /// Keep-alives by clients that are spread over the members.
    pub(crate) keep_alives: PeerResult,
    /// Keep-alives by clients that know the leader.
    pub(crate) at_leader: PeerResult,
    /// Compare-and-put, as an API server renews a lease.
    pub(crate) renewals: PeerResult,
}

/// All results, in the order of the tables.
pub(super) fn all<'a>(ours: &'a MusterResults, theirs: &'a EtcdResults) -> [&'a PeerResult; 5] {
    [&theirs.keep_alives, &theirs.at_leader, &theirs.renewals, &ours.answered, &ours.unanswered]
}

/// The ratios, then the usage of each process.
pub(crate) fn tables(ours: &MusterResults, theirs: &EtcdResults) -> Vec<ReportTable> {
    let peers = all(ours, theirs);
    vec![ratios(&peers, ours), processes(&peers)]
}

/// The goal is for full runs only: a small one is about whether it works.
pub(crate) fn figures(ours: &MusterResults, theirs: &EtcdResults, scale: BenchScale) -> Vec<Figure> {
    let goal = scale.pick(Goal::reported("P1"), Goal::at_least("P1", KEEP_ALIVES_RATIO));
    let reported = Goal::reported("P1");
    let ratio = |goal, what, ours: &PeerResult, theirs: &PeerResult| {
        let figure = Figure::new(SCENARIO, goal, what, ours.rate / theirs.rate, "x");
        let figure = figure.with("clients", CLIENTS).with("their_connections", CONNECTIONS);
        figure.with("ours", ours.details()).with("theirs", theirs.details())
    };
    vec![
        ratio(goal, "beats to keep-alives", &ours.unanswered, &theirs.keep_alives),
        ratio(reported, "acknowledged beats to keep-alives", &ours.answered, &theirs.keep_alives),
        ratio(reported, "beats to keep-alives at the leader", &ours.unanswered, &theirs.at_leader),
        ratio(reported, "acknowledged beats to keep-alives at the leader", &ours.answered, &theirs.at_leader),
        ratio(reported, "beats to renewals", &ours.unanswered, &theirs.renewals),
        ratio(reported, "acknowledged beats to renewals", &ours.answered, &theirs.renewals),
    ]
}

fn ratios(peers: &[&PeerResult], ours: &MusterResults) -> ReportTable {
    let header =
        ["system", "operation", "per second", "p50 ms", "p99 ms", "max ms", "beats to it", "acknowledged beats to it"];
    let mut table = ReportTable::new(title(), &header);
    for peer in peers {
        let latency =
            |pick: fn(&LatencySummary) -> f64| peer.latency.as_ref().map_or("-".to_owned(), |all| grouped(pick(all)));
        let times = |ours: &PeerResult| format!("{}x", grouped(ours.rate / peer.rate));
        table.row([
            peer.name.clone(),
            peer.operation.to_owned(),
            grouped(peer.rate),
            latency(|all| all.p50_ms),
            latency(|all| all.p99_ms),
            latency(|all| all.max_ms),
            times(&ours.unanswered),
            times(&ours.answered),
        ]);
    }
    table
}

/// The title names what differs between the two.
fn title() -> String {
    format!(
        "ours beside theirs, {CLIENTS} clients each; etcd's are multiplexed on {CONNECTIONS} TLS connections, and its members \
         speak plain TCP to each other, where our replicas use TLS"
    )
}

fn processes(peers: &[&PeerResult]) -> ReportTable {
    let header = ["system", "operation", "process", "CPU s", "CPU s per million", "RSS MiB", "peak MiB"];
    let mut table = ReportTable::new("what it took, by process", &header);
    for peer in peers {
        for process in &peer.usage.processes {
            table.row([
                peer.name.clone(),
                peer.operation.to_owned(),
                process.label.clone(),
                grouped(process.cpu_seconds),
                grouped(peer.per_million(process.cpu_seconds)),
                grouped(mebibytes(process.rss_bytes)),
                grouped(mebibytes(process.rss_peak_bytes)),
            ]);
        }
    }
    table
}

// === impl PeerResult ===

impl PeerResult {
    fn per_million(&self, cpu_seconds: f64) -> f64 {
        cpu_seconds * 1e6 / self.operations.max(1) as f64
    }

    /// The same figures for machines.
    fn details(&self) -> Value {
        let processes: Map<String, Value> =
            self.usage.processes.iter().map(|process| (process.label.clone(), self.process(process))).collect();
        json!({
            "name": self.name,
            "operation": self.operation,
            "operations": self.operations,
            "rate": self.rate,
            "latency_p50_ms": self.latency.map(|all| all.p50_ms),
            "latency_p99_ms": self.latency.map(|all| all.p99_ms),
            "latency_max_ms": self.latency.map(|all| all.max_ms),
            "server_cpu_seconds_per_million": self.per_million(self.usage.server_cpu_seconds()),
            "generator_cpu_seconds_per_million": self.usage.of(GENERATOR).map(|own| self.per_million(own.cpu_seconds)),
            "processes": processes,
        })
    }

    fn process(&self, process: &ProcessUsage) -> Value {
        json!({
            "cpu_seconds": process.cpu_seconds,
            "cpu_seconds_per_million": self.per_million(process.cpu_seconds),
            "rss_bytes": process.rss_bytes,
            "rss_peak_bytes": process.rss_peak_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, operation: &'static str, rate: f64, latency: Option<LatencySummary>) -> PeerResult {
        let process = |label: &str, cpu_seconds| ProcessUsage {
            label: label.to_owned(),
            cpu_seconds,
            rss_bytes: 64 << 20,
            rss_peak_bytes: 80 << 20,
        };
        let usage =
            ResourceUsage { processes: vec![process("server", 6.0), process(GENERATOR, 3.0)], series: Vec::new() };
        PeerResult { name: name.to_owned(), operation, operations: 150_000, rate, latency, usage }
    }

    fn both() -> (MusterResults, EtcdResults) {
        let latency = Some(LatencySummary { p50_ms: 1.5, p99_ms: 12.25, max_ms: 1_234.5 });
        let ours = MusterResults {
            unanswered: peer("muster", "beat", 1_200_000.0, None),
            answered: peer("muster", "acknowledged beat", 600_000.0, latency),
        };
        let theirs = EtcdResults {
            keep_alives: peer("etcd", "keep-alive", 15_000.0, latency),
            at_leader: peer("etcd", "keep-alive, leader only", 20_000.0, latency),
            renewals: peer("etcd", "renewal", 4_000.0, latency),
        };
        (ours, theirs)
    }

    #[test]
    fn the_table_shows_muster_as_a_multiple_of_etcd() {
        let (ours, theirs) = both();
        let table = &tables(&ours, &theirs)[0];
        let rows: Vec<Vec<&str>> = table.rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
        assert_eq!(rows[0], ["etcd", "keep-alive", "15,000", "1.50", "12.25", "1,234", "80x", "40x"]);
        assert_eq!(rows[2][6..], ["300x", "150x"]);
        assert_eq!(rows[4], ["muster", "beat", "1,200,000", "-", "-", "-", "1x", "0.50x"]);
    }

    #[test]
    fn usage_is_listed_by_process_and_operation() {
        let (ours, theirs) = both();
        let table = &tables(&ours, &theirs)[1];
        assert_eq!(table.rows.len(), 10);
        assert_eq!(table.rows[0], ["etcd", "keep-alive", "server", "6", "40", "64", "80"]);
        assert_eq!(table.rows[1][2..5], ["generator", "3", "20"]);
    }

    #[test]
    fn p1_wants_sixty_times_the_keep_alives_of_a_full_run() {
        let (mut ours, theirs) = both();
        let first = |ours: &MusterResults, scale| figures(ours, &theirs, scale).swap_remove(0);
        let figure = first(&ours, BenchScale::Full);
        assert_eq!((figure.goal.id, figure.value, figure.met()), ("P1", 80.0, Some(true)));
        assert_eq!(figure.details["theirs"]["server_cpu_seconds_per_million"], 40.0);
        assert_eq!(figure.details["ours"]["latency_p99_ms"], Value::Null);
        ours.unanswered.rate = 59.0 * theirs.keep_alives.rate;
        assert_eq!(first(&ours, BenchScale::Full).met(), Some(false));
        assert_eq!(first(&ours, BenchScale::Small).met(), None);
    }

    #[test]
    fn only_the_first_ratio_is_required() {
        let (ours, theirs) = both();
        let found = figures(&ours, &theirs, BenchScale::Full);
        assert_eq!(found.iter().map(|figure| figure.value).collect::<Vec<_>>(), [80.0, 40.0, 60.0, 30.0, 300.0, 150.0]);
        assert!(found[1..].iter().all(|figure| figure.met().is_none()));
    }
}
