//! Guard rail for every load scenario: no living node was marked Unknown, and the leader kept its leadership.

use std::time::Duration;

use anyhow::{Context, Result};
use muster_client::Client;
use muster_proto::v1;
use tokio::time::sleep;

use crate::measure::verdicts::{SeenVerdicts, VerdictWatch};
use crate::report::figure::{Figure, GUARD, Goal};

/// How long to watch after the grace period.
const WATCH_ON: Duration = Duration::from_secs(3);
/// The goal of all guard rails: no node that beats is marked Unknown.
pub(crate) const FALSE_VERDICTS: Goal = Goal::zero(GUARD);

/// The leader when the guard began, and a watch of verdicts since. All nodes were ready then.
pub(crate) struct FalseVerdictGuard {
    lead: Leadership,
    verdicts: VerdictWatch,
}

/// The result of the guard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GuardResult {
    /// Nodes that were marked Unknown.
    pub(crate) false_verdicts: usize,
    pub(crate) faults: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leadership {
    leader: Option<u64>,
    term: u64,
}

// === impl FalseVerdictGuard ===

impl FalseVerdictGuard {
    pub(crate) async fn watch(client: &Client) -> Result<Self> {
        let lead = Leadership::of(&client.status().await?);
        lead.leader.context("the cluster has no leader to begin with")?;
        Ok(Self { lead, verdicts: VerdictWatch::watch(client).await? })
    }

    /// The leader at the beginning.
    pub(crate) fn leader(&self) -> Option<u64> {
        self.lead.leader
    }

    /// How many nodes were marked Unknown so far.
    pub(crate) fn false_verdicts(&self) -> usize {
        self.verdicts.count()
    }

    /// Watches for another grace period and a little more: by then any false verdict that is to come has come.
    pub(crate) async fn watch_on(&self, grace: Duration) {
        sleep(grace + WATCH_ON).await;
    }

    /// Ends the guard. All of `nodes` are alive, and there are no others.
    pub(crate) async fn end(self, client: &Client, nodes: usize) -> Result<GuardResult> {
        let status = client.status().await?;
        let faults =
            faults(self.lead, Leadership::of(&status), &self.verdicts.seen(), (status.nodes_ready, nodes as u64));
        Ok(GuardResult { false_verdicts: self.verdicts.count(), faults })
    }
}

// === impl GuardResult ===

impl GuardResult {
    pub(crate) fn figure(&self, scenario: &'static str) -> Figure {
        Figure::new(scenario, FALSE_VERDICTS, "false verdicts", self.false_verdicts as f64, "nodes")
    }
}

// === impl Leadership ===

impl Leadership {
    fn of(status: &v1::StatusResponse) -> Self {
        Self { leader: status.leader, term: status.term }
    }
}

fn faults(before: Leadership, after: Leadership, seen: &SeenVerdicts, (ready, nodes): (u64, u64)) -> Vec<String> {
    let mut faults = Vec::new();
    if before != after {
        faults.push(format!("the leader changed: {before:?} became {after:?}"));
    }
    if let Some(first) = seen.unknown.keys().next() {
        let count = seen.unknown.len();
        faults.push(format!("{count} nodes were marked Unknown while they beat, node {first} among them"));
    }
    if ready != nodes {
        faults.push(format!("{ready} of {nodes} nodes are ready, and all of them beat"));
    }
    faults.extend(seen.broken.iter().map(|why| format!("the watch of verdicts ended: {why}")));
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;

    #[test]
    fn false_verdicts_and_leader_changes_are_faults() {
        let lead = Leadership { leader: Some(1), term: 3 };
        let false_verdicts = SeenVerdicts { unknown: BTreeMap::from([(7, Instant::now())]), ..SeenVerdicts::default() };
        let broken = SeenVerdicts { broken: Some("gone".to_owned()), ..SeenVerdicts::default() };
        let quiet = SeenVerdicts::default();
        for (after, seen, ready, expected) in [
            (lead, &quiet, 10, None),
            (Leadership { leader: Some(2), term: 4 }, &quiet, 10, Some("the leader changed")),
            (Leadership { leader: Some(1), term: 5 }, &quiet, 10, Some("the leader changed")),
            (Leadership { leader: None, term: 3 }, &quiet, 10, Some("the leader changed")),
            (lead, &false_verdicts, 10, Some("1 nodes were marked Unknown while they beat, node 7 among them")),
            (lead, &quiet, 9, Some("9 of 10 nodes are ready, and all of them beat")),
            (lead, &broken, 10, Some("the watch of verdicts ended: gone")),
        ] {
            let found = faults(lead, after, seen, (ready, 10));
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(found.iter().all(|fault| fault.starts_with(expected.unwrap_or_default())), "{found:?}");
        }
    }
}
