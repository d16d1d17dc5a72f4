//! Prints nodes, events, zones and aggregators in the format that was asked for, all at once or one by one.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Args;
use crate::exit::Failure;
use crate::output::{Format, Out, say};
use crate::render::table::Table;
use crate::render::{aggregator, event, node, text, zone};
use crate::resource::Resource;

pub(super) struct Printer {
    out: Out,
    resource: Resource,
    format: Format,
    headers: bool,
    with_types: bool,
    table: Table,
}

/// What happened to an object under watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    Added,
    Modified,
    Deleted,
}

const TYPED_NODES: &[&str] = &["EVENT", "NAME", "STATUS", "ROLES", "AGE", "VERSION"];
const TYPED_WIDE_NODES: &[&str] = &[
    "EVENT",
    "NAME",
    "STATUS",
    "ROLES",
    "AGE",
    "VERSION",
    "INTERNAL-IP",
    "EXTERNAL-IP",
    "OS-IMAGE",
    "KERNEL-VERSION",
    "CONTAINER-RUNTIME",
    "ZONE",
    "TAINTS",
];
const TYPED_EVENTS: &[&str] = &["EVENT", "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];

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
        let table = Table::new(headers(resource, format == Format::Wide, with_types));
        Self { out: Out::stdout(), resource, format, headers: !args.no_headers, with_types, table }
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
            say(format_args!("no {} found", self.resource.kind()));
            return Ok(());
        }
        let rows: Vec<_> = objects.iter().map(|object| self.row(Happened::Added, object)).collect();
        self.table.fit(&rows);
        if self.headers {
            self.out.line(self.table.header())?;
        }
        rows.iter().try_for_each(|row| self.out.line(self.table.row(row)))
    }

    fn row(&self, happened: Happened, object: &Value) -> Vec<String> {
        let now = Timestamp::now();
        let wide = self.format == Format::Wide;
        let mut row = match self.resource {
            Resource::Events => event::row(object, now),
            Resource::Zones => zone::row(object, wide, now),
            Resource::Aggregators => aggregator::row(object, wide),
            Resource::Nodes | Resource::Replicas | Resource::Config => node::row(object, wide, now),
        };
        // A deletion must not look like one more change of a living node.
        if self.resource == Resource::Nodes && happened == Happened::Deleted {
            row[1] = "Deleted".into();
        }
        if self.with_types {
            row.insert(0, happened.name().into());
        }
        row
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

/// The settings and replicas have printers of their own. Only nodes and events can be watched and so have a type.
fn headers(resource: Resource, wide: bool, with_types: bool) -> &'static [&'static str] {
    match resource {
        Resource::Events => [event::HEADERS, TYPED_EVENTS][usize::from(with_types)],
        Resource::Zones => [zone::HEADERS, zone::WIDE_HEADERS][usize::from(wide)],
        Resource::Aggregators => aggregator::HEADERS,
        Resource::Nodes | Resource::Replicas | Resource::Config => match (wide, with_types) {
            (false, false) => node::HEADERS,
            (true, false) => node::WIDE_HEADERS,
            (false, true) => TYPED_NODES,
            (true, true) => TYPED_WIDE_NODES,
        },
    }
}

fn list_object(resource: Resource, items: Vec<Value>, revision: u64) -> Value {
    let (api_version, kind) = match resource {
        Resource::Nodes => ("v1", "NodeList"),
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
    use super::*;

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

    #[test]
    fn typed_headers_are_the_plain_ones_with_the_event_in_front() {
        for (typed, plain) in
            [(TYPED_NODES, node::HEADERS), (TYPED_WIDE_NODES, node::WIDE_HEADERS), (TYPED_EVENTS, event::HEADERS)]
        {
            assert_eq!(typed[0], "EVENT");
            assert_eq!(&typed[1..], plain);
        }
    }
}
