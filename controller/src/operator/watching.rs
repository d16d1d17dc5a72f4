//! The watch of an operator: the selected changes, in order, with bookmarks in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use muster_lifecycle::change::{Change, Object};
use muster_lifecycle::meta::Revision;
use muster_lifecycle::state::State;
use muster_proto::v1;
use muster_proto::v1::watch_event::Type;
use muster_raft::feed::{Feed, Gone, Watcher};
use serde_json::Value;
use tonic::Status;

use crate::operator::collection::{LastHeard, Seen, Selection, render};

/// How long a watcher waits for changes before it gets a bookmark.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(5);

type Events = BoxStream<'static, Result<v1::WatchEvent, Status>>;

/// Follows `selection` after the revision `from`, or from the present objects on.
pub(super) fn watch(
    feed: &Arc<Feed>,
    selection: Selection,
    from: Option<Revision>,
    last_heard: Option<Arc<LastHeard>>,
) -> Result<Events, Status> {
    let (initial, from, pending) = match from {
        Some(from) => (Vec::new(), from, VecDeque::new()),
        None => {
            let current = feed.current();
            let revision = current.state.revision();
            (selection.objects(&current.state), revision, VecDeque::from([bookmark(revision)]))
        }
    };
    let watcher = feed.watch(from).map_err(gone)?;
    let initial = initial.into_iter();
    let feed = Arc::clone(feed);
    let follower = Follower { feed, watcher, selection, last_heard, initial, pending, bookmarked: from, ended: false };
    Ok(stream::unfold(follower, Follower::step).boxed())
}

struct Follower {
    feed: Arc<Feed>,
    watcher: Watcher,
    selection: Selection,
    last_heard: Option<Arc<LastHeard>>,
    /// The objects at the beginning; rendered one at a time, because there may be a whole fleet.
    initial: std::vec::IntoIter<Object>,
    pending: VecDeque<v1::WatchEvent>,
    bookmarked: Revision,
    ended: bool,
}

// === impl Follower ===

impl Follower {
    async fn step(mut self) -> Option<(Result<v1::WatchEvent, Status>, Self)> {
        if let Some(object) = self.initial.next() {
            let state = &self.feed.current().state;
            let event = event(Type::Added, render(&object, state, self.last_heard.as_deref()), None);
            return Some((Ok(event), self));
        }
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some((Ok(event), self));
            }
            if self.ended {
                return None;
            }
            if let Err(gone_by) = self.refill().await {
                self.ended = true;
                return Some((Err(gone(gone_by)), self));
            }
        }
    }

    async fn refill(&mut self) -> Result<(), Gone> {
        match tokio::time::timeout(BOOKMARK_INTERVAL, self.watcher.next()).await {
            Ok(changes) => {
                let current = self.feed.current();
                let (selection, last_heard) = (&self.selection, self.last_heard.as_deref());
                let seen = |change: &Arc<Change>| seen_event(selection, change, &current.state, last_heard);
                self.pending.extend(changes?.iter().filter_map(seen));
            }
            Err(_) if self.watcher.seen() > self.bookmarked => {
                self.bookmarked = self.watcher.seen();
                self.pending.push_back(bookmark(self.bookmarked));
            }
            Err(_) => {}
        }
        Ok(())
    }
}

fn seen_event(
    selection: &Selection,
    change: &Change,
    state: &State,
    last_heard: Option<&LastHeard>,
) -> Option<v1::WatchEvent> {
    let (seen, object) = selection.see(change)?;
    let event_type = match seen {
        Seen::Added => Type::Added,
        Seen::Modified => Type::Modified,
        Seen::Deleted => Type::Deleted,
    };
    Some(event(event_type, render(object, state, last_heard), Some(change.revision)))
}

/// `at` is the revision of the change; a deleted object carries it too, so that a reader can resume after it.
fn event(event_type: Type, mut json: Value, at: Option<Revision>) -> v1::WatchEvent {
    let own = json["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let revision = at.map_or(own, |at| at.0);
    json["metadata"]["resourceVersion"] = Value::String(revision.to_string());
    // Straight into bytes, not through a formatter: a watcher of a large fleet gets thousands a second. It cannot fail.
    let object = serde_json::to_vec(&json).unwrap_or_default().into();
    v1::WatchEvent { r#type: event_type.into(), revision, object }
}

fn bookmark(revision: Revision) -> v1::WatchEvent {
    v1::WatchEvent { r#type: Type::Bookmark.into(), revision: revision.0, object: bytes::Bytes::new() }
}

fn gone(gone: Gone) -> Status {
    Status::out_of_range(gone.to_string())
}
