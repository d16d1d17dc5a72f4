//! The follower of the state's changes: it wakes the streams that a change concerns.
//!
//! A stream is woken when its node is removed, created anew or no longer believed, when its pods change, and when
//! credentials, scopes or the pace of beats change. Most changes concern no session, and cost a look at the change
//! alone.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::change::{Change, Object};

use muster_lifecycle::event::Event;
use muster_lifecycle::node::{Node, Slot};
use muster_lifecycle::pod::Pod;
use muster_lifecycle::session::needs_status_report;
use muster_lifecycle::table::Digest;
use muster_raft::feed::{Feed, Gone, Watcher};
use tokio::time::{sleep, timeout};

use crate::session::stream::pace::BeatPace;
use crate::session::wake::entry::Signal;
use crate::session::wake::lagging::LaggingSessions;
use crate::session::wake::registry::Registry;

/// How often state without objects (policy, scopes) is compared.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Follows the state on behalf of all sessions of this replica.
pub(crate) struct StateFollower<'a> {
    pub(crate) feed: &'a Arc<Feed>,
    pub(crate) registry: &'a Registry,
    pub(crate) lagging: &'a LaggingSessions,
}

// === impl StateFollower ===

impl StateFollower<'_> {
    /// Wakes streams for changed nodes, pods, credentials and scopes, for ever.
    pub(crate) async fn follow_objects(&self) {
        let mut scopes = self.scopes();
        loop {
            let mut watcher = self.watch();
            // Covers the changes before the watch began.
            self.registry.touch_all();
            while self.follow(&mut watcher, &mut scopes).await.is_ok() {}
            tracing::info!("fell behind the changes: every session is examined");
        }
    }

    /// Wakes streams for a changed pace of beats, for ever.
    pub(crate) async fn follow_pace(&self) {
        let mut known = self.pace();
        loop {
            sleep(LOOK_PERIOD).await;
            let now = self.pace();
            if now != known {
                known = now;
                self.registry.signal_gradually(Signal::Pace).await;
            }
        }
    }

    async fn follow(&self, watcher: &mut Watcher, scopes_known: &mut Digest) -> Result<(), Gone> {
        if let Ok(changes) = timeout(LOOK_PERIOD, watcher.next()).await {
            for change in changes? {
                self.take(&change);
            }
        }
        self.lagging.caught_up(self.feed.current().state.revision());
        let scopes_now = self.scopes();
        if scopes_now != *scopes_known {
            *scopes_known = scopes_now;
            // The streams of single nodes ignore it.
            self.registry.signal_all(Signal::Scope);
        }
        Ok(())
    }

    fn take(&self, change: &Change) {
        if let Some(Object::Event(event)) = &change.after {
            return self.take_event(event);
        }
        if let Some(Object::Pod(_)) = change.object() {
            return self.take_pod(change.before.as_ref().and_then(pod), change.after.as_ref().and_then(pod));
        }
        let before = change.before.as_ref().and_then(node);
        let after = change.after.as_ref().and_then(node);
        let concerned = match (before, after) {
            (Some(before), None) => Some(before),
            (Some(before), Some(after)) if needs_status_report(before, after) => Some(after),
            (Some(_), Some(_)) | (None, _) => None,
        };
        if let Some(node) = concerned {
            self.touch(node.slot);
        }
    }

    /// A pod that was bound, is ending or is gone concerns the agent of its node.
    fn take_pod(&self, before: Option<&Pod>, after: Option<&Pod>) {
        let orders =
            |pod: Option<&Pod>| pod.map(|pod| (pod.spec.binding.clone(), pod.ending, pod.status.phase.is_final()));
        if orders(before) == orders(after) {
            return;
        }
        if let Some(node) = after.or(before).and_then(Pod::node) {
            self.touch_node(node);
        }
    }

    /// Credentials are no objects: an event says that one was revoked or replaced.
    fn take_event(&self, event: &Event) {
        if let Some(node) = event.rekeyed_node() {
            self.touch_node(node);
        }
    }

    fn touch_node(&self, name: &str) {
        if let Some(node) = self.feed.current().state.node(name) {
            self.touch(node.slot);
        }
    }

    fn touch(&self, slot: Slot) {
        if let Some(entry) = self.registry.get(slot) {
            entry.touch();
        }
    }

    fn watch(&self) -> Watcher {
        loop {
            // A revision that is gone by now is followed by one that is not.
            if let Ok(watcher) = self.feed.watch(self.feed.current().state.revision()) {
                return watcher;
            }
        }
    }

    fn scopes(&self) -> Digest {
        self.feed.current().state.aggregators().digest()
    }

    fn pace(&self) -> BeatPace {
        BeatPace::of(self.feed.current().state.policy())
    }
}

fn pod(object: &Object) -> Option<&Pod> {
    match object {
        Object::Pod(pod) => Some(pod),
        Object::Node(_) | Object::Event(_) | Object::Workload(_) => None,
    }
}

fn node(object: &Object) -> Option<&Arc<Node>> {
    match object {
        Object::Node(node) => Some(node),
        Object::Event(_) | Object::Pod(_) | Object::Workload(_) => None,
    }
}
