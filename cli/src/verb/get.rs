//! `muster get`: nodes, pods, workloads, events, zones, settings, aggregators and replicas; objects also as they
//! change.

mod follow;
mod print;

use std::collections::BTreeSet;

use muster_client::{Client, Query};
use serde_json::Value;

use self::print::Printer;
use super::{Context, object, report};
use crate::exit::Failure;
use crate::namespace::NamespaceArgs;
use crate::output::{Format, Out, say};
use crate::render::{self, event, replica, table, text};
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to show: nodes, pods, rs, sts, ds, events, zones, config, aggregators or replicas, with names if not all:
    /// `nodes a b`, `node/a`
    #[arg(required = true, value_name = "KIND [NAME]")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// Pods and workloads of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels, as in zone=a,gpu!=x
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_name = "SELECTOR")]
    pub selector: String,
    /// Only objects with these fields, as in metadata.name=a or spec.nodeName=n
    #[arg(long, default_value = "", hide_default_value = true, value_name = "SELECTOR")]
    pub field_selector: String,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Go on showing changes as they come
    #[arg(short, long)]
    pub watch: bool,
    /// With --watch: also say what happened (ADDED, MODIFIED, DELETED)
    #[arg(long, requires = "watch")]
    pub output_watch_events: bool,
    /// Read what one replica has, even if it is out of touch with the others
    #[arg(long)]
    pub stale: bool,
    #[arg(long)]
    pub no_headers: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let selection = Selection::parse(&args.what)?;
    args.check_names(&selection)?;
    let client = context.client()?;
    match selection.resource {
        Resource::Replicas => replicas(&client, &selection.names, &args).await,
        Resource::Nodes
        | Resource::Pods
        | Resource::ReplicaSets
        | Resource::StatefulSets
        | Resource::DaemonSets
        | Resource::Events
            if args.watch =>
        {
            follow::run(&client, &selection, &args).await
        }
        Resource::Zones | Resource::Config | Resource::Aggregators if args.watch || args.has_selector() => {
            let what = selection.resource.kind();
            Err(Failure::Usage(format!("{what} can be neither watched nor selected; name them, or watch events")))
        }
        Resource::Config => config(&client, &selection.names, &args).await,
        Resource::Nodes
        | Resource::Pods
        | Resource::ReplicaSets
        | Resource::StatefulSets
        | Resource::DaemonSets
        | Resource::Events
        | Resource::Zones
        | Resource::Aggregators => match selection.names.as_slice() {
            [] => all(&client, &selection, &args).await,
            [_, ..] => named(&client, &selection, &args).await,
        },
    }
}

// === impl Args ===

impl Args {
    fn query(&self, resource: Resource) -> Query {
        Query {
            kind: resource.kind().into(),
            label_selector: self.selector.clone(),
            field_selector: self.field_selector.clone(),
            limit: 0,
            stale: self.stale,
            namespace: self.scope(resource).into(),
        }
    }

    /// The namespace to look into; empty for all, and for kinds that have none. Events are about all kinds, so they
    /// are limited to one namespace only on request.
    fn scope(&self, resource: Resource) -> &str {
        if resource == Resource::Events {
            return self.namespace.given().unwrap_or_default();
        }
        match resource.is_namespaced() && !self.all_namespaces {
            true => self.namespace.name(),
            false => "",
        }
    }

    fn shows_namespaces(&self, resource: Resource) -> bool {
        self.all_namespaces && resource.is_namespaced()
    }

    /// A name alone is ambiguous where several namespaces may have it.
    fn check_names(&self, selection: &Selection) -> Result<(), Failure> {
        match self.shows_namespaces(selection.resource) && !selection.names.is_empty() {
            true => Err(Failure::Usage("names are looked up in one namespace: use -n NAMESPACE instead of -A".into())),
            false => Ok(()),
        }
    }

    fn has_selector(&self) -> bool {
        !(self.selector.is_empty() && self.field_selector.is_empty())
    }
}

async fn all(client: &Client, selection: &Selection, args: &Args) -> Result<(), Failure> {
    let list = client.list(&args.query(selection.resource)).await?;
    if args.stale {
        confess(client, &list.answered_by).await;
    }
    let mut objects = list.value.iter().map(object).collect::<Result<Vec<_>, _>>()?;
    if selection.resource == Resource::Events {
        event::sort(&mut objects);
    }
    let mut printer = Printer::new(selection.resource, args);
    printer.list(objects, list.revision)?;
    printer.flush()
}

async fn named(client: &Client, selection: &Selection, args: &Args) -> Result<(), Failure> {
    if args.has_selector() {
        return Err(Failure::Usage("names and selectors exclude each other".into()));
    }
    let (mut objects, mut failures, mut revision) = (Vec::new(), Vec::new(), 0);
    let mut answered_by = BTreeSet::new();
    for name in &selection.names {
        match client.get_in(args.scope(selection.resource), selection.resource.kind(), name, args.stale).await {
            Ok(read) => {
                objects.push(object(&read.value)?);
                revision = revision.max(read.revision);
                answered_by.insert(read.answered_by);
            }
            Err(error) => failures.push(Failure::about(selection.resource, error)),
        }
    }
    if args.stale {
        for address in &answered_by {
            confess(client, address).await;
        }
    }
    let mut printer = Printer::new(selection.resource, args);
    match <[Value; 1]>::try_from(objects) {
        Ok([only]) if selection.names.len() == 1 => printer.single(&only)?,
        Ok(only) => printer.list(only.into(), revision)?,
        Err(objects) if objects.is_empty() => {}
        Err(objects) => printer.list(objects, revision)?,
    }
    printer.flush()?;
    report(selection.names.len(), failures)
}

/// Says which replica answered: a stale read is never passed off as a fresh one.
async fn confess(client: &Client, address: &str) {
    match client.replica_at(address).await {
        Some(id) => say(format_args!("stale read from replica {id}")),
        None => say(format_args!("stale read from the replica at {address}")),
    }
}

/// The one configuration there is, or the settings that were named.
async fn config(client: &Client, names: &[String], args: &Args) -> Result<(), Failure> {
    let read = client.get(Resource::Config.kind(), "", args.stale).await;
    let read = read.map_err(|error| Failure::about(Resource::Config, error))?;
    if args.stale {
        confess(client, &read.answered_by).await;
    }
    let mut object = object(&read.value)?;
    let whole = text(&object, &["metadata", "name"]);
    if names != [whole] {
        let unknown = render::config::keep_only(&mut object, names);
        report(names.len(), unknown.iter().map(|name| absent(Resource::Config, name)).collect())?;
    }
    let mut out = Out::stdout();
    match args.output {
        Format::Table | Format::Wide => settings(&mut out, &object, args)?,
        Format::Json => out.json(&object)?,
        Format::Yaml => out.yaml(&object)?,
        Format::Name => out.line(format_args!("config/{}", text(&object, &["metadata", "name"])))?,
    }
    out.flush()
}

fn settings(out: &mut Out, object: &Value, args: &Args) -> Result<(), Failure> {
    let wide = args.output == Format::Wide;
    let headers = if wide { render::config::WIDE_HEADERS } else { render::config::HEADERS };
    let lines = table::render(headers, &render::config::rows(object, wide), !args.no_headers);
    lines.iter().try_for_each(|line| out.line(line))?;
    if let Some(warning) = render::config::warning(object) {
        say(warning);
    }
    Ok(())
}

async fn replicas(client: &Client, names: &[String], args: &Args) -> Result<(), Failure> {
    if args.watch || args.has_selector() {
        return Err(Failure::Usage("replicas can be neither watched nor selected; name them by id".into()));
    }
    let status = client.status().await?;
    let wanted = |id: u64| names.is_empty() || names.contains(&id.to_string());
    let found: Vec<_> = status.replicas.iter().filter(|replica| wanted(replica.id)).collect();
    let missing = names.iter().filter(|name| !found.iter().any(|replica| replica.id.to_string() == **name));
    let failures: Vec<_> = missing.map(|name| absent(Resource::Replicas, name)).collect();
    let mut out = Out::stdout();
    match args.output {
        Format::Table | Format::Wide if found.is_empty() => {}
        Format::Table | Format::Wide => {
            let rows: Vec<_> = found.iter().map(|found| replica::row(found)).collect();
            for line in table::render(replica::HEADERS, &rows, !args.no_headers) {
                out.line(line)?;
            }
            found.iter().filter_map(|found| replica::trouble(found)).try_for_each(|line| out.line(line))?;
        }
        Format::Json => out.json(&replica_list(&found))?,
        Format::Yaml => out.yaml(&replica_list(&found))?,
        Format::Name => {
            for replica in &found {
                out.line(format_args!("replica/{}", replica.id))?;
            }
        }
    }
    out.flush()?;
    report(names.len(), failures)
}

fn absent(what: Resource, name: &str) -> Failure {
    Failure::NotFound { what, message: format!("{} {name:?} not found", what.singular()) }
}

fn replica_list(replicas: &[&muster_proto::v1::ReplicaStatus]) -> Value {
    let items: Vec<Value> = replicas.iter().map(|found| replica::to_json(found)).collect();
    serde_json::json!({"apiVersion": "muster/v1", "kind": "ReplicaList", "items": items})
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> (Args, Selection) {
        let Command::Get(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not a get: {line}")
        };
        let selection = Selection::parse(&args.what).unwrap();
        (args, selection)
    }

    #[test]
    fn pods_are_looked_for_in_one_namespace_unless_all_are_meant() {
        for (line, scope) in [
            ("muster get pods", "default"),
            ("muster get rs -n web", "web"),
            ("muster get pods -A", ""),
            ("muster get nodes -n web", ""),
            ("muster get events", ""),
            ("muster get events -n web", "web"),
        ] {
            let (args, selection) = parse(line);
            assert_eq!(args.query(selection.resource).namespace, scope, "{line}");
            assert!(args.check_names(&selection).is_ok());
        }
        assert!(Cli::try_parse_from("muster get pods -A -n web".split(' ')).is_err());
    }

    #[test]
    fn a_name_needs_a_namespace() {
        let (args, selection) = parse("muster get pod a -A");
        assert_eq!(args.check_names(&selection).unwrap_err().exit() as u8, 2);
        let (args, selection) = parse("muster get node a -A");
        assert!(args.check_names(&selection).is_ok());
    }
}
