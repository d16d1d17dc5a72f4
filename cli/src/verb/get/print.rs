//! Prints objects, zones and aggregators in the format that was asked for, all at once or one by one.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Args;
use crate::exit::Failure;
use crate::output::{Format, Out, say};
use crate::render::table::Table;
use crate::render::{aggregator, event, node, pod, text, workload, zone};
use crate::resource::Resource;

pub(super) struct Printer {
    out: Out,
    resource: Resource,
    format: Format,
    headers: bool,
    with_types: bool,
    with_namespaces: bool,
    /// The namespace that was listed; empty if it was not exactly one.
    scope: String,
    /// The request was for a part of all objects, so an object that is gone may just have left that part.
    is_partial: bool,
    table: Table,
}

/// The change of an object under watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    Added,
    Modified,
    Deleted,
}

/// The column of a node's status.
const NODE_STATUS_COLUMN: usize = 1;

// === impl Happened ===

impl Happened {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

// === impl Printer ===

impl Printer {
    pub(super) fn new(resource: Resource, args: &Args) -> Self {
        let (format, with_types) = (args.output, args.output_watch_events);
        let with_namespaces = args.shows_namespaces(resource);
        let first = [("EVENT", with_types), ("NAMESPACE", with_namespaces)];
        let first = first.into_iter().filter_map(|(header, is_shown)| is_shown.then_some(header));
        let headers: Vec<_> = first.chain(headers(resource, format == Format::Wide).iter().copied()).collect();
        Self {
            out: Out::stdout(),
            resource,
            format,
            headers: !args.no_headers,
            with_types,
            with_namespaces,
            scope: args.scope(resource).into(),
            is_partial: args.has_selector(),
            table: Table::new(&headers),
        }
    }

    /// Everything at once.
    pub(super) fn list(&mut self, objects: Vec<Value>, revision: u64) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide => self.rows(&objects),
            Format::Json => self.out.json(&list_object(self.resource, objects, revision)),
            Format::Yaml => self.out.yaml(&list_object(self.resource, objects, revision)),
            Format::Name => objects.iter().try_for_each(|object| self.name(object)),
        }
    }

    /// The one object that was asked for.
    pub(super) fn single(&mut self, object: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide => self.rows(std::slice::from_ref(object)),
            Format::Json => self.out.json(object),
            Format::Yaml => self.out.yaml(object),
            Format::Name => self.name(object),
        }
    }

    /// The first objects of a watch; they set the columns.
    pub(super) fn first(&mut self, objects: &[Value]) -> Result<(), Failure> {
        if matches!(self.format, Format::Table | Format::Wide) {
            let rows: Vec<_> = objects.iter().map(|object| self.row(Happened::Added, object)).collect();
            self.table.fit(&rows);
            if self.headers {
                self.out.line(self.table.header())?;
            }
        }
        objects.iter().try_for_each(|object| self.change(Happened::Added, object))
    }

    /// One object of a watch.
    pub(super) fn change(&mut self, happened: Happened, object: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide => {
                let line = self.table.row(&self.row(happened, object));
                self.out.line(line)
            }
            Format::Name if self.with_types => {
                let name = text(object, &["metadata", "name"]);
                self.out.line(format_args!("{} {}/{name}", happened.name(), self.resource.singular()))
            }
            Format::Name => self.name(object),
            Format::Json => self.out.json(&self.wrapped(happened, object)),
            Format::Yaml => {
                self.out.line("---")?;
                self.out.yaml(&self.wrapped(happened, object))
            }
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()
    }

    fn rows(&mut self, objects: &[Value]) -> Result<(), Failure> {
        if objects.is_empty() {
            say(self.nothing());
            return Ok(());
        }
        let rows: Vec<_> = objects.iter().map(|object| self.row(Happened::Added, object)).collect();
        self.table.fit(&rows);
        if self.headers {
            self.out.line(self.table.header())?;
        }
        rows.iter().try_for_each(|row| self.out.line(self.table.row(row)))
    }

    fn nothing(&self) -> String {
        let kind = self.resource.kind();
        match self.scope.as_str() {
            "" => format!("no {kind} found"),
            namespace => format!("no {kind} found in namespace {namespace:?}; -A looks into all of them"),
        }
    }

    fn row(&self, happened: Happened, object: &Value) -> Vec<String> {
        let now = Timestamp::now();
        let wide = self.format == Format::Wide;
        let mut row = match self.resource {
            Resource::Events => event::row(object, now),
            Resource::Zones => zone::row(object, wide, now),
            Resource::Aggregators => aggregator::row(object, wide),
            Resource::Pods => pod::row(object, wide, now),
            Resource::ReplicaSets | Resource::StatefulSets | Resource::DaemonSets => workload::row(object, wide, now),
            Resource::Nodes | Resource::Replicas | Resource::Config => node::row(object, wide, now),
        };
        // A deletion must not look like one more change of something alive.
        if let Some(cell) = self.status_column().and_then(|column| row.get_mut(column))
            && happened == Happened::Deleted
        {
            *cell = if self.is_partial { "Gone" } else { "Deleted" }.into();
        }
        if self.with_namespaces {
            row.insert(0, text(object, &["metadata", "namespace"]).to_owned());
        }
        if self.with_types {
            row.insert(0, happened.name().into());
        }
        row
    }

    fn status_column(&self) -> Option<usize> {
        match self.resource {
            Resource::Nodes => Some(NODE_STATUS_COLUMN),
            Resource::Pods => Some(pod::STATUS_COLUMN),
            Resource::ReplicaSets
            | Resource::StatefulSets
            | Resource::DaemonSets
            | Resource::Events
            | Resource::Replicas
            | Resource::Zones
            | Resource::Config
            | Resource::Aggregators => None,
        }
    }

    fn name(&mut self, object: &Value) -> Result<(), Failure> {
        self.out.line(format_args!("{}/{}", self.resource.singular(), text(object, &["metadata", "name"])))
    }

    fn wrapped(&self, happened: Happened, object: &Value) -> Value {
        match self.with_types {
            true => json!({"type": happened.name(), "object": object}),
            false => object.clone(),
        }
    }
}

/// The settings and replicas have printers of their own.
fn headers(resource: Resource, wide: bool) -> &'static [&'static str] {
    let both = match resource {
        Resource::Events => [event::HEADERS; 2],
        Resource::Zones => [zone::HEADERS, zone::WIDE_HEADERS],
        Resource::Aggregators => [aggregator::HEADERS; 2],
        Resource::Pods => [pod::HEADERS, pod::WIDE_HEADERS],
        Resource::ReplicaSets | Resource::DaemonSets => [workload::HEADERS, workload::WIDE_HEADERS],
        Resource::StatefulSets => [workload::STATEFUL_HEADERS, workload::STATEFUL_WIDE_HEADERS],
        Resource::Nodes | Resource::Replicas | Resource::Config => [node::HEADERS, node::WIDE_HEADERS],
    };
    both[usize::from(wide)]
}

fn list_object(resource: Resource, items: Vec<Value>, revision: u64) -> Value {
    let (api_version, kind) = match resource {
        Resource::Nodes => ("v1", "NodeList"),
        Resource::Pods => ("v1", "PodList"),
        Resource::ReplicaSets => ("apps/v1", "ReplicaSetList"),
        Resource::StatefulSets => ("apps/v1", "StatefulSetList"),
        Resource::DaemonSets => ("apps/v1", "DaemonSetList"),
        Resource::Events => ("v1", "EventList"),
        Resource::Replicas => ("muster/v1", "ReplicaList"),
        Resource::Zones => ("muster/v1", "ZoneList"),
        Resource::Config => ("muster/v1", "ConfigList"),
        Resource::Aggregators => ("muster/v1", "AggregatorList"),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": revision.to_string()}, "items": items})
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn lists_are_kubernetes_lists() {
        let list = list_object(Resource::Nodes, vec![json!({"kind": "Node"})], 7);
        assert_eq!(list["apiVersion"], "v1");
        assert_eq!(list["kind"], "NodeList");
        assert_eq!(list["metadata"]["resourceVersion"], "7");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        let zones = list_object(Resource::Zones, vec![], 7);
        assert_eq!((&zones["apiVersion"], &zones["kind"]), (&json!("muster/v1"), &json!("ZoneList")));
    }

    fn printer(line: &str, resource: Resource) -> Printer {
        let Command::Get(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not a get: {line}")
        };
        Printer::new(resource, &args)
    }

    #[test]
    fn event_and_namespace_are_the_first_columns() {
        let printer = printer("muster get pods -A --watch --output-watch-events", Resource::Pods);
        assert_eq!(printer.table.header(), "EVENT   NAMESPACE   NAME   READY   STATUS   RESTARTS   AGE");
        let pod = json!({"metadata": {"name": "a", "namespace": "web"}, "status": {"phase": "Running"}});
        assert_eq!(printer.row(Happened::Modified, &pod)[..5], ["MODIFIED", "web", "a", "0/0", "Running"]);
        assert_eq!(printer.row(Happened::Deleted, &pod)[..5], ["DELETED", "web", "a", "0/0", "Deleted"]);
    }

    #[test]
    fn an_empty_result_names_the_namespace_that_was_searched() {
        assert_eq!(printer("muster get nodes", Resource::Nodes).nothing(), "no nodes found");
        assert_eq!(printer("muster get rs -A", Resource::ReplicaSets).nothing(), "no replicasets found");
        let shop = printer("muster get pods -n shop", Resource::Pods).nothing();
        assert_eq!(shop, "no pods found in namespace \"shop\"; -A looks into all of them");
    }

    #[test]
    fn an_object_that_left_the_selection_is_not_shown_as_deleted() {
        let printer = printer("muster get pods --watch --field-selector status.phase=Pending", Resource::Pods);
        assert_eq!(printer.row(Happened::Deleted, &json!({}))[pod::STATUS_COLUMN], "Gone");
    }

    #[test]
    fn every_row_has_a_cell_for_every_header() {
        for resource in Resource::ALL.into_iter().filter(|resource| resource.is_namespaced()) {
            let kind = list_object(resource, vec![], 0)["kind"].as_str().unwrap().trim_end_matches("List").to_owned();
            for wide in ["table", "wide"] {
                let printer = printer(&format!("muster get {} -A -o {wide}", resource.kind()), resource);
                let row = printer.row(Happened::Added, &json!({ "kind": kind }));
                assert_eq!(row.len(), 1 + headers(resource, wide == "wide").len(), "{kind} {wide}");
            }
        }
    }
}
