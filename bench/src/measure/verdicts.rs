//! Verdicts: which nodes were marked Unknown, and when a watcher saw it, committed and applied.
//!
//! Every verdict on a node that was ready is committed together with a NodeNotReady event. The bench watches these
//! events and not the nodes. An event is shorter, and a replica that has to write a quarter of a million whole nodes
//! for the bench is slower at the work that is measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muster_client::{Client, Query};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::load::fleet::Silenced;
use crate::load::node;
use crate::measure::latency::Latencies;
use crate::report::timeline::MeasuredTimeline;

const POLL_EVERY: Duration = Duration::from_millis(50);
/// Selects the events of verdicts. An agent that reports its node as not ready causes such an event too; the
/// simulated ones never do.
const SELECTED: &str = "reason=NodeNotReady,involvedObject.kind=Node";
/// The field of an event that has the name of its node.
const SUBJECT: &[u8] = br#""involvedObject":"#;
const NAME: &[u8] = br#""name":""#;

/// Watches until it is dropped.
pub(crate) struct VerdictWatch {
    seen: Arc<Mutex<SeenVerdicts>>,
    _task: AbortOnDropHandle<()>,
}

/// Verdicts seen so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenVerdicts {
    /// When each node was first seen to be Unknown, by number.
    pub(crate) unknown: BTreeMap<usize, Instant>,
    /// Why the watch ended, if it did: later verdicts are missing.
    pub(crate) broken: Option<String>,
    /// Everything up to this revision was seen.
    pub(crate) revision: u64,
}

// === impl VerdictWatch ===

impl VerdictWatch {
    /// Watches from now on.
    pub(crate) async fn watch(client: &Client) -> Result<Self> {
        let from = client.status().await?.revision;
        let query = Query { field_selector: SELECTED.to_owned(), ..Query::of("events") };
        let mut watch = client.watch(query, Some(from)).await?;
        let seen = Arc::<Mutex<SeenVerdicts>>::default();
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

    pub(crate) fn seen(&self) -> SeenVerdicts {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many nodes were marked Unknown so far.
    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).unknown.len()
    }

    /// Waits until so many nodes were marked Unknown.
    pub(crate) async fn wait(&self, wanted: usize, timeout: Duration) -> Result<SeenVerdicts> {
        let since = Instant::now();
        loop {
            let (found, revision) = match self.found(wanted)? {
                Ok(seen) => return Ok(seen),
                Err(so_far) => so_far,
            };
            if since.elapsed() > timeout {
                let seconds = timeout.as_secs();
                bail!(
                    "{found} of {wanted} silent nodes were marked Unknown within {seconds} s; seen up to revision {revision}"
                );
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// The verdicts, or their number and the revision seen so far if they are not enough.
    fn found(&self, wanted: usize) -> Result<Result<SeenVerdicts, (usize, u64)>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = &seen.broken {
            bail!("the watch of verdicts ended: {broken}");
        }
        Ok(if seen.unknown.len() >= wanted { Ok(seen.clone()) } else { Err((seen.unknown.len(), seen.revision)) })
    }
}

// === impl SeenVerdicts ===

impl SeenVerdicts {
    /// How long after its deadline each verdict was seen; zero for one before its deadline.
    pub(crate) fn beyond_grace(&self, silenced: &Silenced, grace: Duration) -> Latencies {
        let late = |(number, last): (&usize, &Instant)| {
            Some(self.unknown.get(number)?.saturating_duration_since(*last + grace))
        };
        silenced.iter().filter_map(late).collect()
    }

    /// Verdicts by the second since `began`: how many, and how long after their deadlines.
    pub(crate) fn timeline(&self, silenced: &Silenced, grace: Duration, began: Instant) -> MeasuredTimeline {
        let mut seconds: BTreeMap<u64, Vec<Duration>> = BTreeMap::new();
        for (number, last) in silenced {
            if let Some(seen) = self.unknown.get(number) {
                let late = seen.saturating_duration_since(*last + grace);
                seconds.entry(seen.saturating_duration_since(began).as_secs()).or_default().push(late);
            }
        }
        let mut timeline = MeasuredTimeline::default();
        for (second, late) in seconds {
            let (at, late) = (second as f64 + 0.5, late.into_iter().collect::<Latencies>());
            let [p50, _, max] = late.spread_ms().map(|millis| millis / 1_000.0);
            timeline.push("found", "verdicts/s", at, late.len() as f64);
            timeline.push("beyond grace, p50", "s", at, p50);
            timeline.push("beyond grace, latest", "s", at, max);
        }
        timeline
    }

    /// How many nodes were marked Unknown while they beat.
    pub(crate) fn false_verdicts(&self, silenced: &Silenced) -> usize {
        self.unknown.keys().filter(|number| !silenced.contains_key(number)).count()
    }

    /// Faults, whatever the figures.
    pub(crate) fn faults(&self, silenced: &Silenced) -> Vec<String> {
        let false_verdicts = Some(self.false_verdicts(silenced)).filter(|count| *count > 0);
        let held = false_verdicts.map(|count| format!("{count} nodes were marked Unknown while they beat"));
        let broken = self.broken.as_ref().map(|why| format!("the watch of verdicts ended: {why}"));
        held.into_iter().chain(broken).collect()
    }

    fn note(&mut self, event: &[u8], at: Instant) {
        if let Ok(Some(number)) = number(event) {
            self.unknown.entry(number).or_insert(at);
        }
    }
}

/// The number of the event's node. Parsing a quarter of a million whole events would load the machine that is measured.
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
    fn the_first_verdict_on_a_node_counts() {
        let (mut seen, first) = (SeenVerdicts::default(), Instant::now());
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
        let timeline = SeenVerdicts { unknown, ..SeenVerdicts::default() }.timeline(&silenced, grace, began);
        let points: Vec<&[(f64, f64)]> = timeline.series.iter().map(|series| &*series.points).collect();
        let expected = [[(4.5, 2.0), (6.5, 1.0)], [(4.5, 0.2), (6.5, 0.1)], [(4.5, 0.9), (6.5, 0.1)]];
        assert_eq!(points, expected, "living nodes do not count");
    }

    #[test]
    fn a_verdict_on_a_living_node_is_a_fault() {
        let (first, grace) = (Instant::now(), Duration::from_secs(40));
        let found = first + grace + Duration::from_millis(300);
        let mut seen = SeenVerdicts { unknown: BTreeMap::from([(7, found)]), ..SeenVerdicts::default() };
        let silenced = Silenced::from([(7, first)]);
        assert_eq!(seen.beyond_grace(&silenced, grace).spread_ms(), [300.0; 3]);
        assert!(seen.faults(&silenced).is_empty());
        assert_eq!(seen.faults(&Silenced::new()), ["1 nodes were marked Unknown while they beat"]);
        seen.broken = Some("gone".to_owned());
        assert_eq!(seen.faults(&silenced), ["the watch of verdicts ended: gone"]);
    }
}
