//! Ours beside theirs: the same job, the same number of clients, the same machine, one after the other in one run.

use serde_json::{Map, Value, json};

use super::histogram::Summary;
use super::{CLIENTS, CONNECTIONS};
use crate::figure::{grouped, mebibytes};
use crate::outcome::{Finding, Goal};
use crate::setting::Scale;
use crate::table::Table;
use crate::usage::{GENERATOR, ProcessUse, Usage};

pub const SCENARIO: &str = "peers";
/// P1's second half.
const KEEP_ALIVES_RATIO: f64 = 60.0;

/// Somebody who keeps nodes alive, doing that in one way.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    pub name: String,
    pub operation: &'static str,
    pub operations: u64,
    /// Operations per second.
    pub rate: f64,
    /// Absent where nothing is answered.
    pub latency: Option<Summary>,
    pub usage: Usage,
}

/// Our own figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Ours {
    /// As agents beat by default: no reply.
    pub unanswered: Peer,
    /// With an acknowledgement for every beat, as etcd gives one.
    pub answered: Peer,
}

/// etcd's figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Theirs {
    /// By clients that are spread over the members.
    pub keep_alives: Peer,
    /// By clients that know the leader.
    pub at_leader: Peer,
    /// Compare-and-put, as an API server renews a lease.
    pub renewals: Peer,
}

/// In the order of the tables.
pub(super) fn all<'a>(ours: &'a Ours, theirs: &'a Theirs) -> [&'a Peer; 5] {
    [&theirs.keep_alives, &theirs.at_leader, &theirs.renewals, &ours.answered, &ours.unanswered]
}

/// The ratios, then what each process used.
pub fn tables(ours: &Ours, theirs: &Theirs) -> Vec<Table> {
    let peers = all(ours, theirs);
    vec![ratios(&peers, ours), processes(&peers)]
}

/// What is required is required of full runs only: a small one is about whether it works.
pub fn findings(ours: &Ours, theirs: &Theirs, scale: Scale) -> Vec<Finding> {
    let goal = scale.pick(Goal::told("P1"), Goal::at_least("P1", KEEP_ALIVES_RATIO));
    let told = Goal::told("P1");
    let ratio = |goal, what, ours: &Peer, theirs: &Peer| {
        let finding = Finding::new(SCENARIO, goal, what, ours.rate / theirs.rate, "x");
        let finding = finding.with("clients", CLIENTS).with("their_connections", CONNECTIONS);
        finding.with("ours", ours.details()).with("theirs", theirs.details())
    };
    vec![
        ratio(goal, "beats to keep-alives", &ours.unanswered, &theirs.keep_alives),
        ratio(told, "acknowledged beats to keep-alives", &ours.answered, &theirs.keep_alives),
        ratio(told, "beats to keep-alives at the leader", &ours.unanswered, &theirs.at_leader),
        ratio(told, "acknowledged beats to keep-alives at the leader", &ours.answered, &theirs.at_leader),
        ratio(told, "beats to renewals", &ours.unanswered, &theirs.renewals),
        ratio(told, "acknowledged beats to renewals", &ours.answered, &theirs.renewals),
    ]
}

fn ratios(peers: &[&Peer], ours: &Ours) -> Table {
    let header =
        ["system", "operation", "per second", "p50 ms", "p99 ms", "max ms", "beats to it", "acknowledged beats to it"];
    let mut table = Table::new(title(), &header);
    for peer in peers {
        let latency =
            |pick: fn(&Summary) -> f64| peer.latency.as_ref().map_or("-".to_owned(), |all| grouped(pick(all)));
        let times = |ours: &Peer| format!("{}x", grouped(ours.rate / peer.rate));
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

/// What is not alike, and whom it favours.
fn title() -> String {
    format!(
        "ours beside theirs, {CLIENTS} clients each; etcd's are multiplexed on {CONNECTIONS} TLS connections, and its members \
         speak plain TCP to each other, where our replicas use TLS"
    )
}

fn processes(peers: &[&Peer]) -> Table {
    let header = ["system", "operation", "process", "CPU s", "CPU s per million", "RSS MiB", "peak MiB"];
    let mut table = Table::new("what it took, by process", &header);
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

// === impl Peer ===

impl Peer {
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

    fn process(&self, process: &ProcessUse) -> Value {
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

    fn peer(name: &str, operation: &'static str, rate: f64, latency: Option<Summary>) -> Peer {
        let process = |label: &str, cpu_seconds| ProcessUse {
            label: label.to_owned(),
            cpu_seconds,
            rss_bytes: 64 << 20,
            rss_peak_bytes: 80 << 20,
        };
        let usage = Usage { processes: vec![process("server", 6.0), process(GENERATOR, 3.0)], series: Vec::new() };
        Peer { name: name.to_owned(), operation, operations: 150_000, rate, latency, usage }
    }

    fn both() -> (Ours, Theirs) {
        let latency = Some(Summary { p50_ms: 1.5, p99_ms: 12.25, max_ms: 1_234.5 });
        let ours = Ours {
            unanswered: peer("muster", "beat", 1_200_000.0, None),
            answered: peer("muster", "acknowledged beat", 600_000.0, latency),
        };
        let theirs = Theirs {
            keep_alives: peer("etcd", "keep-alive", 15_000.0, latency),
            at_leader: peer("etcd", "keep-alive, leader only", 20_000.0, latency),
            renewals: peer("etcd", "renewal", 4_000.0, latency),
        };
        (ours, theirs)
    }

    #[test]
    fn ours_is_told_as_a_multiple_of_theirs() {
        let (ours, theirs) = both();
        let table = &tables(&ours, &theirs)[0];
        let rows: Vec<Vec<&str>> = table.rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
        assert_eq!(rows[0], ["etcd", "keep-alive", "15,000", "1.50", "12.25", "1,234", "80x", "40x"]);
        assert_eq!(rows[2][6..], ["300x", "150x"]);
        assert_eq!(rows[4], ["muster", "beat", "1,200,000", "-", "-", "-", "1x", "0.50x"]);
    }

    #[test]
    fn what_it_took_is_told_by_process_and_operation() {
        let (ours, theirs) = both();
        let table = &tables(&ours, &theirs)[1];
        assert_eq!(table.rows.len(), 10);
        assert_eq!(table.rows[0], ["etcd", "keep-alive", "server", "6", "40", "64", "80"]);
        assert_eq!(table.rows[1][2..5], ["generator", "3", "20"]);
    }

    #[test]
    fn p1_wants_sixty_times_the_keep_alives_of_a_full_run() {
        let (mut ours, theirs) = both();
        let first = |ours: &Ours, scale| findings(ours, &theirs, scale).swap_remove(0);
        let finding = first(&ours, Scale::Full);
        assert_eq!((finding.goal.id, finding.value, finding.met()), ("P1", 80.0, Some(true)));
        assert_eq!(finding.details["theirs"]["server_cpu_seconds_per_million"], 40.0);
        assert_eq!(finding.details["ours"]["latency_p99_ms"], Value::Null);
        ours.unanswered.rate = 59.0 * theirs.keep_alives.rate;
        assert_eq!(first(&ours, Scale::Full).met(), Some(false));
        assert_eq!(first(&ours, Scale::Small).met(), None);
    }

    #[test]
    fn only_the_first_ratio_is_required() {
        let (ours, theirs) = both();
        let found = findings(&ours, &theirs, Scale::Full);
        assert_eq!(
            found.iter().map(|finding| finding.value).collect::<Vec<_>>(),
            [80.0, 40.0, 60.0, 30.0, 300.0, 150.0]
        );
        assert!(found[1..].iter().all(|finding| finding.met().is_none()));
    }
}
