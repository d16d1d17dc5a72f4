//! The pods that ended here: a replica that lags behind may order one of them again, and it must not be started twice.

use std::collections::{BTreeMap, VecDeque};

use super::{PodStatus, PodUid};

/// By the time so many more have ended, no replica lags behind that far.
pub(crate) const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Ended {
    /// As they were in the end.
    pods: BTreeMap<PodUid, PodStatus>,
    oldest_first: VecDeque<PodUid>,
}

impl Ended {
    pub(super) fn remember(&mut self, uid: PodUid, status: PodStatus) {
        if self.pods.insert(uid, status).is_some() {
            return;
        }
        self.oldest_first.push_back(uid);
        if self.oldest_first.len() > REMEMBERED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.pods.remove(&oldest);
        }
    }

    pub(super) fn get(&self, uid: PodUid) -> Option<&PodStatus> {
        self.pods.get(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;

    #[test]
    fn the_newest_are_remembered() {
        let mut ended = Ended::default();
        for uid in 0..=REMEMBERED as u128 {
            ended.remember(PodUid(uid), PodStatus::new(Phase::Succeeded, "", ""));
            ended.remember(PodUid(uid), PodStatus::new(Phase::Failed, "", ""));
        }
        assert!(ended.get(PodUid(0)).is_none() && ended.get(PodUid(REMEMBERED as u128)).is_some());
        assert_eq!((ended.pods.len(), ended.oldest_first.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(ended.get(PodUid(1)).map(|status| status.phase), Some(Phase::Failed));
    }
}
