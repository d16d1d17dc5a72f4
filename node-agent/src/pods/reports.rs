//! Pod reports: which pods must still be reported. One report is under way at a time. A pod that changes meanwhile is
//! reported again, and a report that was not accepted is repeated, here or on the next stream.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tokio::time::Instant;

use super::PodUid;
use crate::connection::SessionTerms;

/// Pods in one report.
pub(super) const PODS_PER_REPORT: usize = 256;

#[derive(Debug)]
pub(super) struct PodReports {
    pending: BTreeSet<PodUid>,
    sent: Option<Sent>,
    /// The last pod reported. The next report starts after it, so that no pod waits for ever behind refused ones.
    last: PodUid,
    /// A time in the past, for reports that are due at once.
    started: Instant,
    not_before: Instant,
}

#[derive(Debug)]
struct Sent {
    sequence: u64,
    uids: BTreeSet<PodUid>,
    /// When they are reported again if no answer comes.
    again_at: Instant,
}

impl PodReports {
    pub(super) fn new(now: Instant) -> Self {
        Self { pending: BTreeSet::new(), sent: None, last: PodUid(0), started: now, not_before: now }
    }

    pub(super) fn add(&mut self, uid: PodUid) {
        self.pending.insert(uid);
    }

    /// Reports nothing more about this pod.
    pub(super) fn forget(&mut self, uid: PodUid) {
        self.pending.remove(&uid);
        if let Some(sent) = &mut self.sent {
            sent.uids.remove(&uid);
        }
    }

    /// Starts over: every one of these pods must be reported, at once.
    pub(super) fn begin(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.pending = uids.into_iter().collect();
        self.sent = None;
        self.not_before = self.started;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match &self.sent {
            Some(sent) => Some(sent.again_at),
            None if self.pending.is_empty() => None,
            None => Some(self.not_before),
        }
    }

    /// The pods of the next report, as many as `fit`; they count as sent.
    pub(super) fn next_report(
        &mut self,
        sequence: u64,
        now: Instant,
        terms: &SessionTerms,
        fit: impl FnMut(PodUid) -> bool,
    ) -> Vec<PodUid> {
        if let Some(unanswered) = self.sent.take() {
            self.pending.extend(unanswered.uids);
        }
        let in_turn =
            self.pending.range((Excluded(self.last), Unbounded)).chain(self.pending.range(..=self.last)).copied();
        let mut fit = fit;
        let uids: Vec<PodUid> = in_turn.take(PODS_PER_REPORT).take_while(|uid| fit(*uid)).collect();
        let Some(last) = uids.last() else { return uids };
        self.last = *last;
        uids.iter().for_each(|uid| {
            self.pending.remove(uid);
        });
        let again_at = now + terms.retry_pause();
        self.sent = Some(Sent { sequence, uids: uids.iter().copied().collect(), again_at });
        uids
    }

    /// The report was accepted: returns its pods that have not changed since. Answers to earlier reports say nothing
    /// about the last one.
    pub(super) fn taken(&mut self, sequence: u64) -> Vec<PodUid> {
        let Some(sent) = self.answered(sequence) else { return Vec::new() };
        sent.uids.into_iter().filter(|uid| !self.pending.contains(uid)).collect()
    }

    /// The report was refused: it is repeated, but not at once.
    pub(super) fn refused(&mut self, sequence: u64, now: Instant, terms: &SessionTerms) {
        if let Some(sent) = self.answered(sequence) {
            self.pending.extend(sent.uids);
            self.not_before = now + terms.retry_pause();
        }
    }

    fn answered(&mut self, sequence: u64) -> Option<Sent> {
        self.sent.take_if(|sent| sent.sequence == sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_report(reports: &mut PodReports, sequence: u64, now: Instant) -> Vec<u128> {
        let sent = reports.next_report(sequence, now, &SessionTerms::default(), |_| true);
        sent.into_iter().map(|uid| uid.0).collect()
    }

    #[tokio::test]
    async fn a_report_is_repeated_until_it_is_accepted() {
        let (now, pause) = (Instant::now(), SessionTerms::default().retry_pause());
        let mut reports = PodReports::new(now);
        assert_eq!(reports.due(), None);
        reports.add(PodUid(1));
        assert_eq!((reports.due(), next_report(&mut reports, 1, now)), (Some(now), vec![1]));
        let again = now + pause;
        assert_eq!((reports.due(), next_report(&mut reports, 2, again)), (Some(again), vec![1]));
        assert!(reports.taken(1).is_empty(), "an answer to the first says nothing about the second");
        reports.refused(2, again, &SessionTerms::default());
        assert_eq!((reports.due(), next_report(&mut reports, 3, again + pause)), (Some(again + pause), vec![1]));
        assert_eq!((reports.taken(3), reports.due()), (vec![PodUid(1)], None));
    }

    #[tokio::test]
    async fn a_pod_that_changed_meanwhile_is_reported_next() {
        let now = Instant::now();
        let mut reports = PodReports::new(now);
        reports.add(PodUid(1));
        reports.add(PodUid(2));
        next_report(&mut reports, 1, now);
        reports.add(PodUid(2));
        assert!(reports.due() > Some(now), "one at a time");
        assert_eq!(reports.taken(1), [PodUid(1)]);
        assert_eq!((reports.due(), next_report(&mut reports, 2, now)), (Some(now), vec![2]));
    }

    #[tokio::test]
    async fn reports_are_bounded_and_take_turns() {
        let now = Instant::now();
        let mut reports = PodReports::new(now);
        reports.begin((0..=PODS_PER_REPORT as u128).map(PodUid));
        assert_eq!(next_report(&mut reports, 1, now).len(), PODS_PER_REPORT);
        reports.refused(1, now, &SessionTerms::default());
        let next = next_report(&mut reports, 2, now);
        assert_eq!((next.len(), next[0]), (PODS_PER_REPORT, 0), "the pod left over comes first");
        reports.begin([PodUid(1), PodUid(2)]);
        assert_eq!(reports.next_report(3, now, &SessionTerms::default(), |uid| uid == PodUid(1)).len(), 1);
    }
}
