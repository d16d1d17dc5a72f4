//! Pods that ended on this node. A replica that lags behind may order one of them again, and it must not start twice.

use std::collections::{BTreeMap, VecDeque};

use super::{LocalPodStatus, PodUid};

/// No replica lags behind by more ended pods than this.
pub(crate) const ENDED_PODS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct EndedPods {
    /// Their last status.
    pods: BTreeMap<PodUid, LocalPodStatus>,
    oldest_first: VecDeque<PodUid>,
}

impl EndedPods {
    pub(super) fn remember(&mut self, uid: PodUid, status: LocalPodStatus) {
        if self.pods.insert(uid, status).is_some() {
            return;
        }
        self.oldest_first.push_back(uid);
        if self.oldest_first.len() > ENDED_PODS_MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.pods.remove(&oldest);
        }
    }

    pub(super) fn get(&self, uid: PodUid) -> Option<&LocalPodStatus> {
        self.pods.get(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PodPhase;
    use super::*;

    #[test]
    fn the_newest_ended_pods_are_remembered() {
        let mut ended = EndedPods::default();
        for uid in 0..=ENDED_PODS_MAX as u128 {
            ended.remember(PodUid(uid), LocalPodStatus::new(PodPhase::Succeeded, "", ""));
            ended.remember(PodUid(uid), LocalPodStatus::new(PodPhase::Failed, "", ""));
        }
        assert!(ended.get(PodUid(0)).is_none() && ended.get(PodUid(ENDED_PODS_MAX as u128)).is_some());
        assert_eq!((ended.pods.len(), ended.oldest_first.len()), (ENDED_PODS_MAX, ENDED_PODS_MAX));
        assert_eq!(ended.get(PodUid(1)).map(|status| status.phase), Some(PodPhase::Failed));
    }
}
