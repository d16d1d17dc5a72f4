//! The promises of consensus (I-16), checked against what the replicas of a test report of themselves.
//!
//! Each of them holds for facts in whatever order they are learned, so that a report which arrives late accuses no
//! replica unjustly. Fixtures own a [`ConsensusWatch`] and show it every replica they start; it fails the test when it
//! is dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use muster_lifecycle::replica::ReplicaId;
use muster_lifecycle::table::Digest;
use muster_raft::replica::Replica;
use muster_raft::report::{ConsensusReport, ConsensusReporter, LogPlace};

/// Violations that are remembered; the first few say enough.
const VIOLATIONS_MAX: usize = 20;

/// All facts that were reported, boiled down to what the promises need.
#[derive(Debug, Default)]
pub struct ConsensusRecord {
    /// Election safety: the one leader of each term.
    leaders: BTreeMap<u64, ReplicaId>,
    /// Log matching and state machine safety: the term of each committed entry and the state after it.
    entries: BTreeMap<u64, CommittedEntry>,
    /// Leader completeness: the shortest log that the leader of each term reported.
    shortest_logs: BTreeMap<u64, u64>,
    /// The last entry of each term that was reported as committed.
    committed: BTreeMap<u64, u64>,
    reports: usize,
    violations: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct CommittedEntry {
    term: u64,
    digest: Option<Digest>,
    by: ReplicaId,
}

/// Watches every replica that it is shown, all through a test.
#[derive(Debug, Default)]
pub struct ConsensusWatch {
    record: Arc<Mutex<ConsensusRecord>>,
    /// For a test that makes replicas differ on purpose.
    is_off: bool,
}

// === impl ConsensusRecord ===

impl ConsensusRecord {
    /// Takes in a report. `before` is the last one of the same run of the replica.
    pub fn note(&mut self, before: Option<&ConsensusReport>, report: &ConsensusReport) {
        self.reports += 1;
        let id = report.replica;
        if let Some(before) = before {
            self.expect_no_step_back(before, report);
        }
        if let Some(leader) = report.leader {
            self.note_leader(report.term, leader, id);
        }
        if report.leads {
            self.note_leader(report.term, id, id);
            let shortest = self.shortest_logs.entry(report.term).or_insert(u64::MAX);
            *shortest = (*shortest).min(report.last_log_index);
        }
        if let Some(place) = report.committed {
            self.note_committed(place, None, id);
        }
        if let Some((place, digest)) = report.applied {
            self.note_committed(place, Some(digest), id);
        }
    }

    /// What was promised and did not hold.
    pub fn violations(&self) -> Vec<String> {
        let incomplete = self.shortest_logs.iter().filter_map(|(term, last)| {
            let (of, index) = self.committed.range(..term).max_by_key(|(_, index)| **index)?;
            let why = format!(
                "leader completeness: the leader of term {term} had a log that ended at {last}, but entry {index} of \
                 term {of} was committed"
            );
            (index > last).then_some(why)
        });
        self.violations.iter().cloned().chain(incomplete).collect()
    }

    /// How many terms had a leader, and how many reports were taken in.
    pub fn extent(&self) -> (usize, usize) {
        (self.leaders.len(), self.reports)
    }

    fn note_leader(&mut self, term: u64, leader: ReplicaId, by: ReplicaId) {
        let known = *self.leaders.entry(term).or_insert(leader);
        if known != leader {
            self.accuse(format!(
                "election safety: term {term} has leader {known}, and {leader} as replica {by} reports"
            ));
        }
    }

    fn note_committed(&mut self, place: LogPlace, digest: Option<Digest>, by: ReplicaId) {
        let last = self.committed.entry(place.term).or_default();
        *last = (*last).max(place.index);
        let entry = CommittedEntry { term: place.term, digest, by };
        let known = match self.entries.entry(place.index) {
            Entry::Vacant(vacant) => {
                vacant.insert(entry);
                return;
            }
            Entry::Occupied(mut occupied) => {
                let known = *occupied.get();
                if known.digest.is_none() {
                    occupied.insert(CommittedEntry { term: known.term, ..entry });
                }
                known
            }
        };
        let index = place.index;
        if known.term != place.term {
            self.accuse(format!(
                "log matching: entry {index} is of term {} for replica {} and of term {} for replica {by}",
                known.term, known.by, place.term
            ));
        }
        if let (Some(here), Some(there)) = (digest, known.digest)
            && here != there
        {
            self.accuse(format!(
                "state machine safety: at entry {index} replica {} has digest {there} and replica {by} has {here}",
                known.by
            ));
        }
    }

    fn expect_no_step_back(&mut self, before: &ConsensusReport, report: &ConsensusReport) {
        let index = |place: Option<LogPlace>| place.map(|place| place.index);
        let applied = |report: &ConsensusReport| index(report.applied.map(|(place, _)| place));
        let went_back = report.term < before.term
            || index(report.committed) < index(before.committed)
            || applied(report) < applied(before);
        if went_back {
            self.accuse(format!("replica {} went back from {before:?} to {report:?}", report.replica));
        }
    }

    fn accuse(&mut self, violation: String) {
        if self.violations.len() < VIOLATIONS_MAX && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}

// === impl ConsensusWatch ===

impl ConsensusWatch {
    /// Watches a replica until its consensus ends. Must be called within a runtime.
    pub fn observe(&self, replica: &Replica) {
        self.observer()(replica);
    }

    /// The same for a fixture that is shown its replicas later, or elsewhere.
    pub fn observer(&self) -> impl Fn(&Replica) + Send + Sync + use<> {
        let record = Arc::clone(&self.record);
        move |replica| {
            tokio::spawn(watch(replica.reporter(), Arc::clone(&record)));
        }
    }

    /// For a test that damages a replica on purpose and makes the promises impossible.
    pub fn turn_off(&mut self) {
        self.is_off = true;
    }

    /// How many terms had a leader, and how many reports were taken in.
    pub fn extent(&self) -> (usize, usize) {
        self.record.lock().unwrap().extent()
    }
}

impl Drop for ConsensusWatch {
    /// Not while the test fails for a reason of its own, which it must be able to tell.
    fn drop(&mut self) {
        if self.is_off || std::thread::panicking() {
            return;
        }
        let violations = self.record.lock().unwrap_or_else(PoisonError::into_inner).violations();
        assert!(violations.is_empty(), "consensus broke its promises (I-16):\n{}", violations.join("\n"));
    }
}

async fn watch(mut reporter: ConsensusReporter, record: Arc<Mutex<ConsensusRecord>>) {
    let mut before = None;
    loop {
        let report = reporter.report();
        if before.as_ref() != Some(&report) {
            record.lock().unwrap().note(before.as_ref(), &report);
            before = Some(report);
        }
        if !reporter.changed().await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(replica: u64, term: u64) -> ConsensusReport {
        let replica = ReplicaId(replica);
        let (leader, leads, last_log_index) = (None, false, 0);
        ConsensusReport { replica, term, leader, leads, last_log_index, committed: None, applied: None }
    }

    fn place(term: u64, index: u64) -> LogPlace {
        LogPlace { term, index }
    }

    fn violations(reports: &[ConsensusReport]) -> Vec<String> {
        let mut record = ConsensusRecord::default();
        reports.iter().for_each(|report| record.note(None, report));
        record.violations()
    }

    #[test]
    fn i_16_a_course_of_two_terms_breaks_no_promise() {
        let first = ConsensusReport { leads: true, last_log_index: 5, ..report(1, 1) };
        let follower = ConsensusReport {
            leader: Some(ReplicaId(1)),
            committed: Some(place(1, 5)),
            applied: Some((place(1, 4), Digest(4))),
            ..report(2, 1)
        };
        let second = ConsensusReport { leads: true, last_log_index: 5, ..report(2, 2) };
        let later = ConsensusReport { applied: Some((place(1, 4), Digest(4))), ..report(3, 2) };
        assert_eq!(violations(&[first, follower, second, later]), [] as [String; 0]);
    }

    #[test]
    fn i_16_two_leaders_in_one_term_are_found() {
        let found = violations(&[
            ConsensusReport { leads: true, ..report(1, 7) },
            ConsensusReport { leader: Some(ReplicaId(2)), ..report(3, 7) },
        ]);
        assert!(found.len() == 1 && found[0].starts_with("election safety: term 7"), "{found:?}");
    }

    #[test]
    fn i_16_different_entries_and_different_states_at_one_index_are_found() {
        let applied = |replica, term, digest| ConsensusReport {
            applied: Some((place(term, 9), Digest(digest))),
            ..report(replica, 3)
        };
        let found = violations(&[applied(1, 2, 1), applied(2, 3, 1)]);
        assert!(found.len() == 1 && found[0].starts_with("log matching: entry 9"), "{found:?}");
        let known = ConsensusReport { committed: Some(place(2, 9)), ..report(3, 3) };
        let found = violations(&[known, applied(1, 2, 1), applied(2, 2, 5)]);
        assert!(found.len() == 1 && found[0].starts_with("state machine safety: at entry 9"), "{found:?}");
    }

    #[test]
    fn i_16_a_leader_without_a_committed_entry_of_an_earlier_term_is_found_whenever_it_is_reported() {
        let committed = ConsensusReport { committed: Some(place(3, 20)), ..report(1, 3) };
        let leader = ConsensusReport { leads: true, last_log_index: 19, ..report(2, 4) };
        for reports in [[committed.clone(), leader.clone()], [leader.clone(), committed.clone()]] {
            let found = violations(&reports);
            assert!(found.len() == 1 && found[0].starts_with("leader completeness: the leader of term 4"), "{found:?}");
        }
        // The leader of the same term has not heard of it yet, or has proposed it itself.
        assert_eq!(violations(&[committed, ConsensusReport { term: 3, ..leader }]), [] as [String; 0]);
    }

    #[test]
    fn i_16_a_replica_that_goes_back_while_it_runs_is_found() {
        let before = ConsensusReport { committed: Some(place(1, 8)), ..report(1, 4) };
        for after in [report(1, 3), ConsensusReport { committed: Some(place(1, 7)), ..report(1, 4) }] {
            let mut record = ConsensusRecord::default();
            record.note(None, &before);
            record.note(Some(&before), &after);
            assert_eq!(record.violations().len(), 1, "{after:?}");
        }
    }

    #[test]
    #[should_panic(expected = "election safety")]
    fn a_violation_fails_the_test_that_owns_the_watch() {
        let watch = ConsensusWatch::default();
        watch.record.lock().unwrap().note(None, &ConsensusReport { leads: true, ..report(1, 1) });
        watch.record.lock().unwrap().note(None, &ConsensusReport { leads: true, ..report(2, 1) });
        drop(watch);
    }
}
