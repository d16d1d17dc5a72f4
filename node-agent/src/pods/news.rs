//! How a runtime tells what happens to its pods: the newest per pod is kept until it is read, so that a runtime never
//! waits for the session, nor the session for it, and nothing piles up between them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{PodStatus, PodUid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodNews {
    pub uid: PodUid,
    pub status: PodStatus,
    /// Nothing of it runs any more. These are the last news of a pod.
    pub stopped: bool,
}

/// A runtime's end. Bounded by the number of its pods.
#[derive(Debug, Clone)]
pub struct News {
    inbox: Arc<Inbox>,
    node: u32,
}

/// Whom a runtime tells: nobody, until a session listens.
#[derive(Debug, Default)]
pub(crate) struct Listener(Option<News>);

/// The session's end, for one node or many.
#[derive(Debug, Default)]
pub struct Inbox {
    nodes: Mutex<BTreeMap<u32, Gathered>>,
    notify: Notify,
}

/// What happened on one node since its news were last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// First of all, everything vanished.
    pub lost: bool,
    pub pods: BTreeMap<PodUid, PodNews>,
}

// === impl News ===

impl News {
    pub fn tell(&self, news: PodNews) {
        self.gather(|gathered| {
            let known = gathered.pods.entry(news.uid).or_insert_with(|| news.clone());
            if !known.stopped {
                *known = news;
            }
        });
    }

    /// The machine lost power, or all its pods in some other way: nothing runs, and nobody saw it end. The session
    /// attaches anew, to be told what should run.
    pub fn lost(&self) {
        self.gather(|gathered| *gathered = Gathered { lost: true, ..Gathered::default() });
    }

    fn gather(&self, change: impl FnOnce(&mut Gathered)) {
        change(self.inbox.lock().entry(self.node).or_default());
        self.inbox.notify.notify_one();
    }
}

// === impl Listener ===

impl Listener {
    /// Whether nobody did before.
    pub(crate) fn listen(&mut self, news: News) -> bool {
        self.0.replace(news).is_none()
    }

    pub(crate) fn tell(&self, uid: PodUid, status: PodStatus, stopped: bool) {
        if let Some(news) = &self.0 {
            news.tell(PodNews { uid, status, stopped });
        }
    }

    pub(crate) fn lose_all(&self) {
        if let Some(news) = &self.0 {
            news.lost();
        }
    }
}

// === impl Inbox ===

impl Inbox {
    /// For the runtime of the node of this number.
    pub fn news(self: &Arc<Self>, node: u32) -> News {
        News { inbox: Arc::clone(self), node }
    }

    /// Returns when there may be something to take.
    pub async fn arrived(&self) {
        self.notify.notified().await;
    }

    pub fn take(&self) -> BTreeMap<u32, Gathered> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Gathered>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::*;

    fn news(uid: u128, phase: Phase, stopped: bool) -> PodNews {
        PodNews { uid: PodUid(uid), status: PodStatus::new(phase, "", ""), stopped }
    }

    #[tokio::test]
    async fn the_newest_of_each_pod_is_kept_and_an_end_is_final() {
        let inbox = Arc::new(Inbox::default());
        let (one, other) = (inbox.news(1), inbox.news(2));
        one.tell(news(7, Phase::Pending, false));
        one.tell(news(7, Phase::Running, false));
        other.tell(news(7, Phase::Succeeded, true));
        other.tell(news(7, Phase::Running, false));
        inbox.arrived().await;
        let phases: Vec<_> = inbox.take().into_values().map(|node| node.pods[&PodUid(7)].status.phase).collect();
        assert_eq!(phases, [Phase::Running, Phase::Succeeded]);
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn what_was_told_before_everything_was_lost_is_void() {
        let inbox = Arc::new(Inbox::default());
        let told = inbox.news(0);
        told.tell(news(7, Phase::Succeeded, true));
        told.lost();
        told.tell(news(8, Phase::Running, false));
        let gathered = inbox.take().remove(&0).unwrap();
        assert!(gathered.lost);
        assert_eq!(gathered.pods.into_keys().collect::<Vec<_>>(), [PodUid(8)]);
    }
}
