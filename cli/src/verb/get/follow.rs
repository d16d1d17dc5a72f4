//! `get --watch`: the list, then every change; and the list again when the changes in between are lost.

use std::collections::BTreeMap;

use muster_client::{Client, Query, Read, WatchError};
use muster_proto::v1::watch_event::Type;
use serde_json::Value;

use super::print::{Happened, Printer};
use super::{Args, confess};
use crate::exit::Failure;
use crate::output::say;
use crate::render::{event, text};
use crate::resource::{Resource, Selection};
use crate::verb::object;

/// The printed objects: the last state of every object still there, by namespace and name.
#[derive(Default)]
struct Seen {
    objects: BTreeMap<Key, Value>,
}

type Key = (String, String);

pub(super) async fn run(client: &Client, selection: &Selection, args: &Args) -> Result<(), Failure> {
    let query = query(selection, args)?;
    let mut printer = Printer::new(selection.resource, args);
    let mut seen = Seen::default();
    let first = list(client, &query, selection.resource).await?;
    if args.stale {
        confess(client, &first.answered_by).await;
    }
    printer.first(&first.value)?;
    printer.flush()?;
    seen.replace(first.value);
    let mut revision = first.revision;
    loop {
        let gone = follow(client, &query, revision, &mut seen, &mut printer).await?;
        say(format_args!("{gone}"));
        let again = list(client, &query, selection.resource).await?;
        revision = again.revision;
        for (happened, object) in seen.replace(again.value) {
            printer.change(happened, &object)?;
        }
        printer.flush()?;
    }
}

/// Prints changes until the cluster has forgotten the next ones; returns that error.
async fn follow(
    client: &Client,
    query: &Query,
    revision: u64,
    seen: &mut Seen,
    printer: &mut Printer,
) -> Result<WatchError, Failure> {
    let mut watch = client.watch(query.clone(), Some(revision)).await?;
    loop {
        let change = match watch.next().await {
            Ok(change) => change,
            Err(gone @ WatchError::Gone { .. }) => return Ok(gone),
            Err(error) => return Err(error.into()),
        };
        let happened = match change.r#type() {
            Type::Added => Happened::Added,
            Type::Modified => Happened::Modified,
            Type::Deleted => Happened::Deleted,
            Type::Bookmark | Type::Unspecified => continue,
        };
        let object = object(&change.object)?;
        printer.change(happened, &object)?;
        printer.flush()?;
        seen.note(happened, object);
    }
}

fn query(selection: &Selection, args: &Args) -> Result<Query, Failure> {
    let mut query = args.query(selection.resource);
    match selection.names.as_slice() {
        [] => {}
        [name] if !args.has_selector() => query.field_selector = format!("metadata.name={name}"),
        [_] => return Err(Failure::Usage("names and selectors exclude each other".into())),
        [_, _, ..] => return Err(Failure::Usage("watch one object by name, or all of them, or use -l".into())),
    }
    Ok(query)
}

async fn list(client: &Client, query: &Query, resource: Resource) -> Result<Read<Vec<Value>>, Failure> {
    let read = client.list(query).await?;
    let mut value = read.value.iter().map(object).collect::<Result<Vec<_>, _>>()?;
    if resource == Resource::Events {
        event::sort(&mut value);
    }
    Ok(Read { value, revision: read.revision, answered_by: read.answered_by })
}

// === impl Seen ===

impl Seen {
    fn note(&mut self, happened: Happened, object: Value) {
        let key = key(&object);
        match happened {
            Happened::Added | Happened::Modified => self.objects.insert(key, object),
            Happened::Deleted => self.objects.remove(&key),
        };
    }

    /// Takes over a new list; returns what is different from before.
    fn replace(&mut self, objects: Vec<Value>) -> Vec<(Happened, Value)> {
        let mut before = std::mem::take(&mut self.objects);
        let mut changes = Vec::new();
        for object in objects {
            let key = key(&object);
            match before.remove(&key) {
                Some(old) if version(&old) == version(&object) => {}
                Some(_) => changes.push((Happened::Modified, object.clone())),
                None => changes.push((Happened::Added, object.clone())),
            }
            self.objects.insert(key, object);
        }
        changes.extend(before.into_values().map(|object| (Happened::Deleted, object)));
        changes
    }
}

fn key(object: &Value) -> Key {
    let [namespace, name] = ["namespace", "name"].map(|field| text(object, &["metadata", field]).to_owned());
    (namespace, name)
}

fn version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "resourceVersion": version}})
    }

    #[test]
    fn after_a_gap_only_differences_are_printed() {
        let mut seen = Seen::default();
        seen.replace(vec![node("kept", "1"), node("changed", "2"), node("deleted", "3")]);
        seen.note(Happened::Added, node("new-and-gone", "4"));
        let changes = seen.replace(vec![node("kept", "1"), node("changed", "9"), node("added", "8")]);
        let summary: Vec<_> =
            changes.iter().map(|(happened, object)| (*happened, text(object, &["metadata", "name"]))).collect();
        assert_eq!(
            summary,
            [
                (Happened::Modified, "changed"),
                (Happened::Added, "added"),
                (Happened::Deleted, "deleted"),
                (Happened::Deleted, "new-and-gone"),
            ]
        );
    }
    #[test]
    fn objects_of_one_name_in_two_namespaces_are_kept_apart() {
        let pod = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "a", "resourceVersion": "1"}});
        let mut seen = Seen::default();
        assert_eq!(seen.replace(vec![pod("x"), pod("y")]).len(), 2);
        seen.note(Happened::Deleted, pod("x"));
        assert_eq!(seen.replace(vec![pod("y")]), []);
    }
}
