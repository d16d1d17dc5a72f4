//! Updates about pods, from a runtime to the session. The newest per pod is kept until it is read, so neither side
//! waits for the other and nothing piles up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{LocalPodStatus, PodUid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUpdate {
    pub uid: PodUid,
    pub status: LocalPodStatus,
    /// Nothing of it runs any more. This is the last update about a pod.
    pub stopped: bool,
}

/// The runtime's end. It holds at most one update per pod.
#[derive(Debug, Clone)]
pub struct PodUpdateSender {
    inbox: Arc<PodInbox>,
    node: u32,
}

/// The receiver of a runtime's updates: none until a session listens.
#[derive(Debug, Default)]
pub(crate) struct PodListener(Option<PodUpdateSender>);

/// The session's end, for one node or many.
#[derive(Debug, Default)]
pub struct PodInbox {
    nodes: Mutex<BTreeMap<u32, PodUpdates>>,
    notify: Notify,
}

/// Updates about the pods of one node since the last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodUpdates {
    /// All pods were lost before these updates.
    pub lost: bool,
    pub pods: BTreeMap<PodUid, PodUpdate>,
}

// === impl PodUpdateSender ===

impl PodUpdateSender {
    pub fn send(&self, update: PodUpdate) {
        self.change(|updates| {
            let known = updates.pods.entry(update.uid).or_insert_with(|| update.clone());
            if !known.stopped {
                *known = update;
            }
        });
    }

    /// Reports that the machine lost all its pods without seeing them end, for example with its power. The session then
    /// attaches anew to learn what should run.
    pub fn lost(&self) {
        self.change(|updates| *updates = PodUpdates { lost: true, ..PodUpdates::default() });
    }

    fn change(&self, change: impl FnOnce(&mut PodUpdates)) {
        change(self.inbox.lock().entry(self.node).or_default());
        self.inbox.notify.notify_one();
    }
}

// === impl PodListener ===

impl PodListener {
    /// True if no session listened before.
    pub(crate) fn listen(&mut self, sender: PodUpdateSender) -> bool {
        self.0.replace(sender).is_none()
    }

    pub(crate) fn tell(&self, uid: PodUid, status: LocalPodStatus, stopped: bool) {
        if let Some(sender) = &self.0 {
            sender.send(PodUpdate { uid, status, stopped });
        }
    }

    pub(crate) fn lose_all(&self) {
        if let Some(sender) = &self.0 {
            sender.lost();
        }
    }
}

// === impl PodInbox ===

impl PodInbox {
    /// The sender for the runtime of the node with this number.
    pub fn sender(self: &Arc<Self>, node: u32) -> PodUpdateSender {
        PodUpdateSender { inbox: Arc::clone(self), node }
    }

    /// Returns when there may be updates to take.
    pub async fn arrived(&self) {
        self.notify.notified().await;
    }

    pub fn take(&self) -> BTreeMap<u32, PodUpdates> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, PodUpdates>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PodPhase;
    use super::*;

    fn update(uid: u128, phase: PodPhase, stopped: bool) -> PodUpdate {
        PodUpdate { uid: PodUid(uid), status: LocalPodStatus::new(phase, "", ""), stopped }
    }

    #[tokio::test]
    async fn the_newest_of_each_pod_is_kept_and_an_end_is_final() {
        let inbox = Arc::new(PodInbox::default());
        let (one, other) = (inbox.sender(1), inbox.sender(2));
        one.send(update(7, PodPhase::Pending, false));
        one.send(update(7, PodPhase::Running, false));
        other.send(update(7, PodPhase::Succeeded, true));
        other.send(update(7, PodPhase::Running, false));
        inbox.arrived().await;
        let phases: Vec<_> = inbox.take().into_values().map(|node| node.pods[&PodUid(7)].status.phase).collect();
        assert_eq!(phases, [PodPhase::Running, PodPhase::Succeeded]);
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn updates_before_a_loss_of_all_pods_are_discarded() {
        let inbox = Arc::new(PodInbox::default());
        let sender = inbox.sender(0);
        sender.send(update(7, PodPhase::Succeeded, true));
        sender.lost();
        sender.send(update(8, PodPhase::Running, false));
        let updates = inbox.take().remove(&0).unwrap();
        assert!(updates.lost);
        assert_eq!(updates.pods.into_keys().collect::<Vec<_>>(), [PodUid(8)]);
    }
}
