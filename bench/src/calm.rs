//! That nothing came of it: nobody who lives was held for lost, and the leader went on leading.

use anyhow::{Context, Result};
use muster_client::Client;
use muster_proto::v1;

use crate::outcome::{Finding, Goal};
use crate::verdicts::{Seen, Verdicts};

/// Of all guard rails: nobody is held for lost who beats.
pub const FALSE_VERDICTS: Goal = Goal::zero("guard");

/// How things stood when it began, and a watch of verdicts since. All nodes were ready then.
pub struct Calm {
    lead: Lead,
    verdicts: Verdicts,
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Nodes that were held for lost.
    pub condemned: usize,
    pub faults: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lead {
    leader: Option<u64>,
    term: u64,
}

// === impl Calm ===

impl Calm {
    pub async fn watch(client: &Client) -> Result<Self> {
        let lead = Lead::of(&client.status().await?);
        lead.leader.context("the cluster has no leader to begin with")?;
        Ok(Self { lead, verdicts: Verdicts::watch(client).await? })
    }

    /// Who led at the beginning.
    pub fn leader(&self) -> Option<u64> {
        self.lead.leader
    }

    /// How many were held for lost so far.
    pub fn condemned(&self) -> usize {
        self.verdicts.count()
    }

    /// All of `nodes` are alive, and there are no others.
    pub async fn end(self, client: &Client, nodes: usize) -> Result<Disturbance> {
        let status = client.status().await?;
        let faults = faults(self.lead, Lead::of(&status), &self.verdicts.seen(), (status.nodes_ready, nodes as u64));
        Ok(Disturbance { condemned: self.verdicts.count(), faults })
    }
}

// === impl Disturbance ===

impl Disturbance {
    pub fn finding(&self, scenario: &'static str) -> Finding {
        Finding::new(scenario, FALSE_VERDICTS, "false verdicts", self.condemned as f64, "nodes")
    }
}

// === impl Lead ===

impl Lead {
    fn of(status: &v1::StatusResponse) -> Self {
        Self { leader: status.leader, term: status.term }
    }
}

fn faults(before: Lead, after: Lead, seen: &Seen, (ready, nodes): (u64, u64)) -> Vec<String> {
    let mut faults = Vec::new();
    if before != after {
        faults.push(format!("the leader changed: {before:?} became {after:?}"));
    }
    if let Some(first) = seen.unknown.keys().next() {
        let count = seen.unknown.len();
        faults.push(format!("{count} nodes were held for lost while they beat, node {first} among them"));
    }
    if ready != nodes {
        faults.push(format!("{ready} of {nodes} nodes are ready, and all of them beat"));
    }
    faults.extend(seen.broken.iter().map(|why| format!("the watch of verdicts was broken off: {why}")));
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::*;

    #[test]
    fn whatever_disturbed_is_said() {
        let lead = Lead { leader: Some(1), term: 3 };
        let condemned = Seen { unknown: BTreeMap::from([(7, Instant::now())]), ..Seen::default() };
        let broken = Seen { broken: Some("gone".to_owned()), ..Seen::default() };
        let quiet = Seen::default();
        for (after, seen, ready, expected) in [
            (lead, &quiet, 10, None),
            (Lead { leader: Some(2), term: 4 }, &quiet, 10, Some("the leader changed")),
            (Lead { leader: Some(1), term: 5 }, &quiet, 10, Some("the leader changed")),
            (Lead { leader: None, term: 3 }, &quiet, 10, Some("the leader changed")),
            (lead, &condemned, 10, Some("1 nodes were held for lost while they beat, node 7 among them")),
            (lead, &quiet, 9, Some("9 of 10 nodes are ready, and all of them beat")),
            (lead, &broken, 10, Some("the watch of verdicts was broken off: gone")),
        ] {
            let found = faults(lead, after, seen, (ready, 10));
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(found.iter().all(|fault| fault.starts_with(expected.unwrap_or_default())), "{found:?}");
        }
    }
}
