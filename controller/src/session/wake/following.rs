//! Rings for whom the state has news: nodes removed, created anew or no longer believed, scopes and terms changed.
//!
//! Most changes concern no session, and only a look at the change itself is spent on them.

use std::sync::Arc;
use std::time::Duration;

use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::credential;
use muster_lifecycle::event::Event;
use muster_lifecycle::node::Node;
use muster_lifecycle::pod::Pod;
use muster_lifecycle::table::Digest;
use muster_raft::feed::{Gone, Watcher};
use tokio::time::{sleep, timeout};

use crate::session::Sessions;
use crate::session::stream::terms::{Pace, status_wanted};
use crate::session::wake::entry::Signal;
use crate::session::wake::registry::SHARDS;

/// What is no object (policy, scopes) is looked at so often.
const LOOK_PERIOD: Duration = Duration::from_millis(250);

/// Streams that are told something at once, and the pause before the next: together some 5,000 a second, so that what
/// agents do about it comes spread out as well.
const AT_ONCE: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);

/// Rings for changed nodes and scopes, for ever.
pub(crate) async fn nodes(sessions: &Sessions) {
    let mut scopes = scopes(sessions);
    loop {
        let mut watcher = watch(sessions);
        // Whatever happened before the watch began.
        touch_all(sessions);
        while follow(sessions, &mut watcher, &mut scopes).await.is_ok() {}
        tracing::info!("fell behind the changes: every session is looked at");
    }
}

/// Rings for changed terms, for ever.
pub(crate) async fn terms(sessions: &Sessions) {
    let mut told = pace(sessions);
    loop {
        sleep(LOOK_PERIOD).await;
        let now = pace(sessions);
        if now != told {
            told = now;
            ring_all(sessions, Signal::Terms).await;
        }
    }
}

/// Rings for every stream, a few at a time.
pub(crate) async fn ring_all(sessions: &Sessions, signal: Signal) {
    let mut rung = 0;
    for shard in 0..SHARDS {
        for bell in sessions.registry().streams_of_shard(shard) {
            bell.ring(signal);
            rung += 1;
            if rung % AT_ONCE == 0 {
                sleep(PAUSE).await;
            }
        }
    }
}

async fn follow(sessions: &Sessions, watcher: &mut Watcher, scopes_known: &mut Digest) -> Result<(), Gone> {
    if let Ok(changes) = timeout(LOOK_PERIOD, watcher.next()).await {
        for change in changes? {
            take(sessions, &change);
        }
    }
    sessions.0.lagging.caught_up(sessions.replica().current().state.revision());
    let scopes_now = scopes(sessions);
    if scopes_now != *scopes_known {
        *scopes_known = scopes_now;
        // The streams of nodes take no notice.
        sessions.ring_at_once(Signal::Scope);
    }
    Ok(())
}

/// A pod that came, goes or went concerns the agent of its node.
fn take_pod(sessions: &Sessions, before: Option<&Pod>, after: Option<&Pod>) {
    let orders = |pod: Option<&Pod>| pod.map(|pod| (pod.spec.binding.clone(), pod.ending, pod.status.phase.is_final()));
    if orders(before) == orders(after) {
        return;
    }
    let node = after.or(before).and_then(Pod::node);
    let current = sessions.replica().current();
    let slot = node.and_then(|name| current.state.node(name)).map(|node| node.slot);
    if let Some(entry) = slot.and_then(|slot| sessions.registry().get(slot)) {
        entry.touch();
    }
}

fn pod(object: &Object) -> Option<&Pod> {
    match object {
        Object::Pod(pod) => Some(pod),
        Object::Node(_) | Object::Event(_) | Object::Workload(_) => None,
    }
}

fn take(sessions: &Sessions, change: &Change) {
    if let Some(Object::Event(event)) = &change.after {
        return take_event(sessions, event);
    }
    if let Some(Object::Pod(_)) = change.object() {
        return take_pod(sessions, change.before.as_ref().and_then(pod), change.after.as_ref().and_then(pod));
    }
    let before = change.before.as_ref().and_then(node);
    let after = change.after.as_ref().and_then(node);
    let news = match (before, after) {
        (Some(before), None) => Some(before),
        (Some(before), Some(after)) if lost_faith(before, after) => Some(after),
        (Some(_), Some(_)) | (None, _) => None,
    };
    if let Some(entry) = news.and_then(|node| sessions.registry().get(node.slot)) {
        entry.touch();
    }
}

/// Credentials are no objects; that they were taken away or replaced is told by an event.
fn take_event(sessions: &Sessions, event: &Event) {
    let Some(name) = credential::concerned_by(event) else { return };
    let slot = sessions.replica().current().state.node(name).map(|node| node.slot);
    if let Some(entry) = slot.and_then(|slot| sessions.registry().get(slot)) {
        entry.touch();
    }
}

fn node(object: &Object) -> Option<&Arc<Node>> {
    match object {
        Object::Node(node) => Some(node),
        Object::Event(_) | Object::Pod(_) | Object::Workload(_) => None,
    }
}

/// Its Ready condition turned to something that is not the node's own word.
fn lost_faith(before: &Node, after: &Node) -> bool {
    let ready = |node: &Node| node.status.ready().map(|ready| ready.status);
    ready(before) != ready(after) && status_wanted(after)
}

fn watch(sessions: &Sessions) -> Watcher {
    let feed = sessions.replica().feed();
    loop {
        // A revision that is gone by now is followed by one that is not.
        if let Ok(watcher) = feed.watch(feed.current().state.revision()) {
            return watcher;
        }
    }
}

fn touch_all(sessions: &Sessions) {
    for shard in 0..SHARDS {
        sessions.registry().nodes_of_shard(shard).iter().for_each(|entry| entry.touch());
    }
}

fn scopes(sessions: &Sessions) -> Digest {
    sessions.replica().current().state.aggregators().digest()
}

fn pace(sessions: &Sessions) -> Pace {
    Pace::of(sessions.replica().current().state.policy())
}
