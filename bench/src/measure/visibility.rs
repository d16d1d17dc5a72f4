//! Visibility of beats at the leader: its pulse of every node, compared with the replicas that accepted the beats.
//!
//! Each replica is asked which beats it heard first-hand. [`LIMIT`] later the leader is asked for its pulses, and
//! none may be older. Ages travel, not moments, so the time that the question took is allowed for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_client::Client;
use muster_proto::v1;
use tokio::time::sleep;

use crate::harness::cluster::BenchCluster;

/// How far the leader may be behind.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// Ages are told between replicas in steps of 10 ms, rounded up, and to clients in milliseconds.
const ROUNDING: Duration = Duration::from_millis(12);

/// When each node was last heard, by our own clock.
struct Heard {
    at: BTreeMap<String, Instant>,
    /// The moments may be off by so much.
    uncertainty: Duration,
    leads: bool,
    replica: u64,
}

/// Result of the comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Visibility {
    /// Nodes that any replica had heard.
    pub(crate) nodes: usize,
    /// Of those, nodes whose last accepted beat the leader did not know of within the limit.
    pub(crate) late: usize,
    /// The time by which the leader is behind for the worst of them.
    pub(crate) worst: Duration,
}

/// Asks all replicas, and then the leader.
pub(crate) async fn check(cluster: &BenchCluster) -> Result<Visibility> {
    let clients = cluster.clients_by_replica()?;
    let mut accepted: BTreeMap<String, Instant> = BTreeMap::new();
    let mut uncertainty = Duration::ZERO;
    for client in clients.values() {
        let heard = Heard::ask(client, true).await?;
        uncertainty = uncertainty.max(heard.uncertainty);
        for (node, at) in heard.at {
            let newest = accepted.entry(node).or_insert(at);
            *newest = (*newest).max(at);
        }
    }
    sleep(LIMIT).await;
    let leader = cluster.leader().await?;
    let known = Heard::ask(clients.get(&leader).context("the leader is no member")?, false).await?;
    ensure!(known.leads && known.replica == leader, "the leader changed meanwhile");
    Ok(compare(&accepted, &known.at, uncertainty + known.uncertainty + ROUNDING))
}

fn compare(accepted: &BTreeMap<String, Instant>, known: &BTreeMap<String, Instant>, tolerance: Duration) -> Visibility {
    let mut visibility = Visibility { nodes: accepted.len(), ..Visibility::default() };
    for (node, accepted) in accepted {
        let lack = match known.get(node) {
            Some(known) => accepted.saturating_duration_since(*known),
            None => Duration::MAX,
        };
        if lack > tolerance {
            visibility.late += 1;
            visibility.worst = visibility.worst.max(lack);
        }
    }
    visibility
}

// === impl Visibility ===

impl Visibility {
    /// The fault, if any node was late.
    pub(crate) fn fault(&self) -> Option<String> {
        let Self { nodes, late, worst } = self;
        let text = || {
            format!("the leader lacked the last beat of {late} of {nodes} nodes a second later, by {worst:?} at worst")
        };
        (*late > 0).then(text)
    }
}

// === impl Heard ===

impl Heard {
    async fn ask(client: &Client, first_hand: bool) -> Result<Self> {
        let asked = Instant::now();
        let parts = client.pulses(first_hand).await?;
        let took = asked.elapsed();
        let first = parts.first().context("an answer without parts")?;
        let (leads, replica) = (first.leads, first.replica);
        // The moment of the answer lies somewhere between the question and its end.
        let moment = asked + took / 2;
        let heard = |pulse: v1::LastHeard| {
            let at = moment.checked_sub(Duration::from_millis(pulse.age_ms?))?;
            Some((pulse.node, at))
        };
        let at = parts.into_iter().flat_map(|part| part.pulses).filter_map(heard).collect();
        Ok(Self { at, uncertainty: took / 2, leads, replica })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_the_leader_does_not_know_within_the_tolerance_is_late() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let heard = |beats: &[(&str, u64)]| -> BTreeMap<String, Instant> {
            beats.iter().map(|(node, at)| ((*node).to_owned(), now + ms(*at))).collect()
        };
        let accepted = heard(&[("a", 100), ("b", 100), ("c", 100), ("d", 100)]);
        let known = heard(&[("a", 900), ("b", 95), ("c", 50)]);
        let seen = compare(&accepted, &known, ms(10));
        assert_eq!((seen.nodes, seen.late, seen.worst), (4, 2, Duration::MAX), "c is behind and d unknown");
        assert_eq!(compare(&accepted, &accepted, ms(0)).late, 0);
    }
}
