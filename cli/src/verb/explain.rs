//! `muster explain`: why a node or zone is in the state it is in, and what will happen when if nothing changes.

use bytes::Bytes;
use jiff::tz::TimeZone;
use muster_lifecycle::explain::{NodeExplanation, ZoneExplanation};
use serde::de::DeserializeOwned;

use super::{Context, object, report};
use crate::exit::Failure;
use crate::output::{Format, Out};
use crate::render::clock::LocalClock;
use crate::render::explain;
use crate::resource::{Resource, Selection};
use muster_controller::client::Client;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to explain: `node NAME`, `zone REGION/ZONE`, `zone ZONE`, `node/NAME`
    #[arg(required = true, value_name = "node|zone NAME")]
    pub what: Vec<String>,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let selection = Selection::parse(&args.what)?;
    let resource = explainable(&selection)?;
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    for (index, name) in selection.names.iter().enumerate() {
        match client.explain(resource.singular(), name).await {
            Ok(read) => {
                if index > 0 && matches!(args.output, Format::Table | Format::Wide) {
                    out.text("\n\n")?;
                }
                print(&mut out, resource, &read.value, args.output)?;
            }
            Err(error) => failures.push(Failure::from(error)),
        }
    }
    out.flush()?;
    report(selection.names.len(), failures)
}

/// The node in one breath, for pages that say more about it.
pub(super) async fn headline(client: &Client, name: &str) -> Result<String, Failure> {
    let explanation: NodeExplanation = parse(&client.explain("node", name).await?.value)?;
    let clock = LocalClock::new(TimeZone::system(), explanation.now.wall_ms);
    Ok(explanation.headline.phrase(|wall| clock.time(wall.0)))
}

fn explainable(selection: &Selection) -> Result<Resource, Failure> {
    match selection.resource {
        resource @ (Resource::Nodes | Resource::Zones) if !selection.names.is_empty() => Ok(resource),
        resource @ (Resource::Nodes | Resource::Zones) => {
            let noun = resource.singular();
            Err(Failure::Usage(format!("name what to explain, for example `{noun} NAME`")))
        }
        Resource::Events | Resource::Replicas | Resource::Config | Resource::Aggregators => {
            Err(Failure::Usage(format!("only nodes and zones can be explained, not {}", selection.resource.kind())))
        }
    }
}

fn print(out: &mut Out, resource: Resource, explanation: &Bytes, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => out.json(&object(explanation)?),
        Format::Yaml => out.yaml(&object(explanation)?),
        Format::Name => Err(Failure::Usage("an explanation has no name; use -o json, yaml or table".into())),
        Format::Table | Format::Wide => out.text(&page(resource, explanation)?),
    }
}

fn page(resource: Resource, explanation: &Bytes) -> Result<String, Failure> {
    if resource == Resource::Zones {
        let explanation: ZoneExplanation = parse(explanation)?;
        return Ok(explain::zone(&explanation, &LocalClock::new(TimeZone::system(), explanation.now.wall_ms)));
    }
    let explanation: NodeExplanation = parse(explanation)?;
    Ok(explain::node(&explanation, &LocalClock::new(TimeZone::system(), explanation.now.wall_ms)))
}

fn parse<T: DeserializeOwned>(explanation: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(explanation).map_err(|error| {
        Failure::other(anyhow::anyhow!(
            "the leader's explanation cannot be read: {error}; is it of the same version as this command?"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explainable_of(words: &str) -> Result<Resource, Failure> {
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        Selection::parse(&words).and_then(|selection| explainable(&selection))
    }

    #[test]
    fn only_named_nodes_and_zones_are_explained() {
        assert_eq!(explainable_of("node a").unwrap(), Resource::Nodes);
        assert_eq!(explainable_of("zone r1/b").unwrap(), Resource::Zones);
        for words in ["node", "zones", "events x", "config cluster"] {
            assert_eq!(explainable_of(words).unwrap_err().exit() as u8, 2, "{words}");
        }
    }

    #[test]
    fn an_explanation_of_another_version_says_so() {
        let failure = page(Resource::Nodes, &Bytes::from_static(b"{}")).unwrap_err();
        assert!(failure.to_string().contains("same version"), "{failure}");
    }
}
