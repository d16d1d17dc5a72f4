//! What the fleet has yet to hear about pods. One report is under way at a time; what changes meanwhile is owed again,
//! and what was not taken is said again, here or on the next stream.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use tokio::time::Instant;

use super::PodUid;
use crate::terms::Terms;

/// Pods in one report.
pub(super) const PODS_PER_REPORT: usize = 256;

#[derive(Debug)]
pub(super) struct Reporting {
    owed: BTreeSet<PodUid>,
    sent: Option<Sent>,
    /// The last that was said: the next are said next, so that none waits for ever behind those refused.
    last: PodUid,
    /// Some time in the past: when what is due at once is due.
    started: Instant,
    not_before: Instant,
}

#[derive(Debug)]
struct Sent {
    sequence: u64,
    uids: BTreeSet<PodUid>,
    /// When they are owed again, unless they are taken.
    again_at: Instant,
}

impl Reporting {
    pub(super) fn new(now: Instant) -> Self {
        Self { owed: BTreeSet::new(), sent: None, last: PodUid(0), started: now, not_before: now }
    }

    pub(super) fn owe(&mut self, uid: PodUid) {
        self.owed.insert(uid);
    }

    /// Nothing more is to be said of this pod.
    pub(super) fn forget(&mut self, uid: PodUid) {
        self.owed.remove(&uid);
        if let Some(sent) = &mut self.sent {
            sent.uids.remove(&uid);
        }
    }

    /// Nobody has heard anything yet, and nobody has refused it.
    pub(super) fn begin(&mut self, uids: impl IntoIterator<Item = PodUid>) {
        self.owed = uids.into_iter().collect();
        self.sent = None;
        self.not_before = self.started;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        match &self.sent {
            Some(sent) => Some(sent.again_at),
            None if self.owed.is_empty() => None,
            None => Some(self.not_before),
        }
    }

    /// The pods to report on next, as many as `fit`; they count as said.
    pub(super) fn say(
        &mut self,
        sequence: u64,
        now: Instant,
        terms: &Terms,
        fit: impl FnMut(PodUid) -> bool,
    ) -> Vec<PodUid> {
        if let Some(unanswered) = self.sent.take() {
            self.owed.extend(unanswered.uids);
        }
        let in_turn = self.owed.range((Excluded(self.last), Unbounded)).chain(self.owed.range(..=self.last)).copied();
        let mut fit = fit;
        let uids: Vec<PodUid> = in_turn.take(PODS_PER_REPORT).take_while(|uid| fit(*uid)).collect();
        let Some(last) = uids.last() else { return uids };
        self.last = *last;
        uids.iter().for_each(|uid| {
            self.owed.remove(uid);
        });
        let again_at = now + terms.retry_pause();
        self.sent = Some(Sent { sequence, uids: uids.iter().copied().collect(), again_at });
        uids
    }

    /// The pods of this report that have not changed since: of them the fleet knows all there is. Answers to earlier
    /// reports say nothing about the last one.
    pub(super) fn taken(&mut self, sequence: u64) -> Vec<PodUid> {
        let Some(sent) = self.answered(sequence) else { return Vec::new() };
        sent.uids.into_iter().filter(|uid| !self.owed.contains(uid)).collect()
    }

    /// They are said again, but not at once.
    pub(super) fn refused(&mut self, sequence: u64, now: Instant, terms: &Terms) {
        if let Some(sent) = self.answered(sequence) {
            self.owed.extend(sent.uids);
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

    fn say(reporting: &mut Reporting, sequence: u64, now: Instant) -> Vec<u128> {
        let said = reporting.say(sequence, now, &Terms::default(), |_| true);
        said.into_iter().map(|uid| uid.0).collect()
    }

    #[tokio::test]
    async fn a_report_is_repeated_until_it_is_taken() {
        let (now, pause) = (Instant::now(), Terms::default().retry_pause());
        let mut reporting = Reporting::new(now);
        assert_eq!(reporting.due(), None);
        reporting.owe(PodUid(1));
        assert_eq!((reporting.due(), say(&mut reporting, 1, now)), (Some(now), vec![1]));
        let again = now + pause;
        assert_eq!((reporting.due(), say(&mut reporting, 2, again)), (Some(again), vec![1]));
        assert!(reporting.taken(1).is_empty(), "an answer to the first says nothing about the second");
        reporting.refused(2, again, &Terms::default());
        assert_eq!((reporting.due(), say(&mut reporting, 3, again + pause)), (Some(again + pause), vec![1]));
        assert_eq!((reporting.taken(3), reporting.due()), (vec![PodUid(1)], None));
    }

    #[tokio::test]
    async fn what_changed_while_it_was_reported_is_reported_next() {
        let now = Instant::now();
        let mut reporting = Reporting::new(now);
        reporting.owe(PodUid(1));
        reporting.owe(PodUid(2));
        say(&mut reporting, 1, now);
        reporting.owe(PodUid(2));
        assert!(reporting.due() > Some(now), "one at a time");
        assert_eq!(reporting.taken(1), [PodUid(1)]);
        assert_eq!((reporting.due(), say(&mut reporting, 2, now)), (Some(now), vec![2]));
    }

    #[tokio::test]
    async fn reports_are_bounded_and_take_turns() {
        let now = Instant::now();
        let mut reporting = Reporting::new(now);
        reporting.begin((0..=PODS_PER_REPORT as u128).map(PodUid));
        assert_eq!(say(&mut reporting, 1, now).len(), PODS_PER_REPORT);
        reporting.refused(1, now, &Terms::default());
        let next = say(&mut reporting, 2, now);
        assert_eq!((next.len(), next[0]), (PODS_PER_REPORT, 0), "the one left over comes first");
        reporting.begin([PodUid(1), PodUid(2)]);
        assert_eq!(reporting.say(3, now, &Terms::default(), |uid| uid == PodUid(1)).len(), 1);
    }
}
