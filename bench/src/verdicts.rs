//! Which nodes were held for lost, and when a watcher saw it: committed, applied and told.
//!
//! Every verdict against a node that was ready is committed together with an event that says so. Those are watched and not
//! the nodes: an event is shorter, and a replica that has to write a quarter of a million whole nodes for the bench is slower
//! at what is measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_client::{Client, Query};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::latency::Latencies;
use crate::load::fleet::Silenced;
use crate::node;
use crate::timeline::Timeline;

const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// What events about verdicts are selected by, and where they have the name of their node. An agent that says it is not ready
/// makes such an event, too: those of the bench never do.
const SELECTED: &str = "reason=NodeNotReady,involvedObject.kind=Node";
const SUBJECT: &[u8] = br#""involvedObject":"#;
const NAME: &[u8] = br#""name":""#;

/// Watches until it is dropped.
pub struct Verdicts {
    seen: Arc<Mutex<Seen>>,
    _task: AbortOnDropHandle<()>,
}

/// By number of the node, the first time each.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub unknown: BTreeMap<usize, Instant>,
    /// Why the watch ended, if it did: from then on nothing is known.
    pub broken: Option<String>,
    /// Everything up to this revision was seen.
    pub revision: u64,
}

// === impl Verdicts ===

impl Verdicts {
    /// From now on.
    pub async fn watch(client: &Client) -> Result<Self> {
        let from = client.status().await?.revision;
        let query = Query { field_selector: SELECTED.to_owned(), ..Query::of("events") };
        let mut watch = client.watch(query, Some(from)).await?;
        let seen = Arc::<Mutex<Seen>>::default();
        let noted = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let event = watch.next().await;
                let at = Instant::now();
                let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Ok(event) => {
                        seen.revision = watch.revision();
                        seen.note(&event.object, at);
                    }
                    Err(error) => {
                        seen.broken = Some(error.to_string());
                        return;
                    }
                }
            }
        });
        Ok(Self { seen, _task: AbortOnDropHandle::new(task) })
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many were held for lost so far.
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).unknown.len()
    }

    /// Until so many nodes were held for lost.
    pub async fn wait(&self, wanted: usize, patience: Duration) -> Result<Seen> {
        let since = Instant::now();
        loop {
            let (found, revision) = match self.found(wanted)? {
                Ok(seen) => return Ok(seen),
                Err(so_far) => so_far,
            };
            if since.elapsed() > patience {
                let seconds = patience.as_secs();
                bail!("{found} of {wanted} silent nodes were found within {seconds} s; seen up to revision {revision}");
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// How many there are and up to which revision, if they are not enough.
    fn found(&self, wanted: usize) -> Result<Result<Seen, (usize, u64)>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = &seen.broken {
            bail!("the watch was broken off: {broken}");
        }
        Ok(if seen.unknown.len() >= wanted { Ok(seen.clone()) } else { Err((seen.unknown.len(), seen.revision)) })
    }
}

// === impl Seen ===

impl Seen {
    /// How long after its deadline each verdict was seen; nothing for one that was seen before it.
    pub fn beyond_grace(&self, silenced: &Silenced, grace: Duration) -> Latencies {
        let late = |(number, last): (&usize, &Instant)| {
            Some(self.unknown.get(number)?.saturating_duration_since(*last + grace))
        };
        silenced.iter().filter_map(late).collect()
    }

    /// Second by second since `began`: how many were held for lost, and how long after their deadlines.
    pub fn timeline(&self, silenced: &Silenced, grace: Duration, began: Instant) -> Timeline {
        let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
        for (number, last) in silenced {
            if let Some(seen) = self.unknown.get(number) {
                let late = seen.saturating_duration_since(*last + grace);
                seconds.entry(seen.saturating_duration_since(began).as_secs()).or_default().push(late);
            }
        }
        let mut timeline = Timeline::default();
        for (second, late) in seconds {
            let (at, late) = (second as f64 + 0.5, late.into_iter().collect::<Latencies>());
            let [p50, _, max] = late.spread_ms().map(|millis| millis / 1_000.0);
            timeline.push("found", "verdicts/s", at, late.len() as f64);
            timeline.push("beyond grace, p50", "s", at, p50);
            timeline.push("beyond grace, latest", "s", at, max);
        }
        timeline
    }

    /// How many were held for lost while they beat.
    pub fn innocent(&self, silenced: &Silenced) -> usize {
        self.unknown.keys().filter(|number| !silenced.contains_key(number)).count()
    }

    /// What must not happen, whatever the figures.
    pub fn faults(&self, silenced: &Silenced) -> Vec<String> {
        let innocent = Some(self.innocent(silenced)).filter(|count| *count > 0);
        let held = innocent.map(|count| format!("{count} nodes were held for lost while they beat"));
        let broken = self.broken.as_ref().map(|why| format!("the watch of verdicts was broken off: {why}"));
        held.into_iter().chain(broken).collect()
    }

    fn note(&mut self, event: &[u8], at: Instant) {
        if let Ok(Some(number)) = number(event) {
            self.unknown.entry(number).or_insert(at);
        }
    }
}

/// Of the node that the event is about. Parsing a quarter of a million of them would load the machine that is measured.
fn number(event: &[u8]) -> Result<Option<usize>> {
    let Some(rest) = after(event, SUBJECT).and_then(|subject| after(subject, NAME)) else { return Ok(None) };
    let end = find(rest, b"\"").context("a name without an end")?;
    Ok(node::number(std::str::from_utf8(&rest[..end])?))
}

fn after<'a>(text: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    find(text, wanted).map(|at| &text[at + wanted.len()..])
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_counts() {
        let (mut seen, first) = (Seen::default(), Instant::now());
        let another = br#"{"involvedObject":{"kind":"Node","name":"elsewhere"},"metadata":{"name":"node-0000003.2"}}"#;
        let lost = br#"{"metadata":{"name":"node-0000009.1"},"involvedObject":{"kind":"Node","name":"node-0000007"}}"#;
        seen.note(another, first);
        assert!(seen.unknown.is_empty());
        seen.note(lost, first);
        seen.note(lost, first + Duration::from_secs(1));
        assert_eq!(seen.unknown, BTreeMap::from([(7, first)]));
    }

    #[test]
    fn verdicts_are_counted_by_the_second() {
        let (began, grace) = (Instant::now(), Duration::from_secs(4));
        let after = |millis| began + Duration::from_millis(millis);
        let unknown = BTreeMap::from([(1, after(4_200)), (2, after(4_900)), (3, after(6_100)), (4, after(6_200))]);
        let silenced = Silenced::from([(1, began), (2, began), (3, after(2_000))]);
        let timeline = Seen { unknown, ..Seen::default() }.timeline(&silenced, grace, began);
        let points: Vec<&[(f64, f64)]> = timeline.series.iter().map(|series| &*series.points).collect();
        let expected = [[(4.5, 2.0), (6.5, 1.0)], [(4.5, 0.2), (6.5, 0.1)], [(4.5, 0.9), (6.5, 0.1)]];
        assert_eq!(points, expected, "and whoever is alive is not");
    }

    #[test]
    fn a_verdict_against_the_living_is_a_fault() {
        let (first, grace) = (Instant::now(), Duration::from_secs(40));
        let found = first + grace + Duration::from_millis(300);
        let mut seen = Seen { unknown: BTreeMap::from([(7, found)]), ..Seen::default() };
        let silenced = Silenced::from([(7, first)]);
        assert_eq!(seen.beyond_grace(&silenced, grace).spread_ms(), [300.0; 3]);
        assert!(seen.faults(&silenced).is_empty());
        assert_eq!(seen.faults(&Silenced::new()), ["1 nodes were held for lost while they beat"]);
        seen.broken = Some("gone".to_owned());
        assert_eq!(seen.faults(&silenced), ["the watch of verdicts was broken off: gone"]);
    }
}
