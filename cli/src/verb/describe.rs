//! `muster describe`: nodes, pods and workloads at length, with their events.

use jiff::Timestamp;
use muster_client::{Client, Query};
use serde_json::Value;

use super::{Context, explain, object, report};
use crate::exit::Failure;
use crate::namespace::NamespaceArgs;
use crate::output::{Out, say};
use crate::render::{describe, event, text};
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to describe: `node NAME...`, `pod NAME...`, `rs NAME...`, `node/NAME...`
    #[arg(required = true, value_name = "KIND NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
}

const DESCRIBABLE: [Resource; 5] =
    [Resource::Nodes, Resource::Pods, Resource::ReplicaSets, Resource::StatefulSets, Resource::DaemonSets];

/// One object, in whichever namespace.
#[derive(Debug, Clone, Copy)]
struct Subject<'a> {
    resource: Resource,
    /// Empty for kinds that have none.
    namespace: &'a str,
    name: &'a str,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let Selection { resource, names } = Selection::named(&args.what, &DESCRIBABLE)?;
    let namespace = if resource.is_namespaced() { args.namespace.name() } else { "" };
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match page(&client, Subject { resource, namespace, name }).await {
            Ok(page) => {
                if index > 0 {
                    out.text("\n\n")?;
                }
                out.text(&page)?;
            }
            Err(failure) => failures.push(failure),
        }
    }
    out.flush()?;
    report(names.len(), failures)
}

async fn page(client: &Client, subject: Subject<'_>) -> Result<String, Failure> {
    let Subject { resource, namespace, name } = subject;
    let read = client.get_in(namespace, resource.kind(), name, false).await;
    let found = object(&read.map_err(|error| Failure::about(resource, error))?.value)?;
    let events = client.list(&Query { field_selector: about(subject, &found), ..Query::of("events") }).await?;
    let mut events = events.value.iter().map(object).collect::<Result<Vec<Value>, _>>()?;
    event::sort(&mut events);
    let now = Timestamp::now();
    Ok(match resource {
        Resource::Pods => describe::pod(&found, summary(client, subject).await.as_deref(), &events, now),
        Resource::ReplicaSets | Resource::StatefulSets | Resource::DaemonSets => {
            describe::workload(&found, &events, now)
        }
        Resource::Nodes
        | Resource::Events
        | Resource::Replicas
        | Resource::Zones
        | Resource::Config
        | Resource::Aggregators => describe::describe(&found, summary(client, subject).await.as_deref(), &events, now),
    })
}

/// The field selector for its events. A node is known by its name for ever; where pods come and go under one name,
/// only this one counts.
fn about(Subject { resource, namespace, name }: Subject<'_>, found: &Value) -> String {
    let about = format!("involvedObject.kind={},involvedObject.name={name}", text(found, &["kind"]));
    match resource.is_namespaced() {
        true => {
            let uid = text(found, &["metadata", "uid"]);
            format!("{about},involvedObject.namespace={namespace},involvedObject.uid={uid}")
        }
        false => about,
    }
}

/// Errors are ignored: a page without this line is better than none.
async fn summary(client: &Client, Subject { resource, namespace, name }: Subject<'_>) -> Option<String> {
    match explain::headline(client, resource, namespace, name).await {
        Ok(headline) => Some(headline),
        Err(failure) => {
            say(format_args!("{} {name} cannot be explained now: {failure}", resource.singular()));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_selected_by_the_pods_uid() {
        let found = json!({"kind": "Pod", "metadata": {"uid": "u-1"}});
        let pod = Subject { resource: Resource::Pods, namespace: "web", name: "db-0" };
        let wanted =
            "involvedObject.kind=Pod,involvedObject.name=db-0,involvedObject.namespace=web,involvedObject.uid=u-1";
        assert_eq!(about(pod, &found), wanted);
        let node = Subject { resource: Resource::Nodes, namespace: "", name: "n" };
        assert_eq!(about(node, &json!({"kind": "Node"})), "involvedObject.kind=Node,involvedObject.name=n");
    }
}
