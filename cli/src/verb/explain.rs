//! `muster explain`: why a node, zone or pod is in the state it is in, and what will happen when if nothing changes.

use bytes::Bytes;
use jiff::tz::TimeZone;
use muster_client::Client;
use muster_lifecycle::explain::{ExplainedTime, NodeExplanation, PodExplanation, Summary, ZoneExplanation};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Context, object, report};
use crate::exit::Failure;
use crate::namespace::NamespaceArgs;
use crate::output::{Format, Out};
use crate::render::clock::LocalClock;
use crate::render::explain;
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to explain: `node NAME`, `pod NAME`, `zone REGION/ZONE`, `zone ZONE`, `node/NAME`
    #[arg(required = true, value_name = "node|pod|zone NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// The part that every explanation begins with.
#[derive(Deserialize)]
struct Beginning {
    now: ExplainedTime,
    headline: Summary,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let (resource, names) = explainable(&args.what)?;
    let namespace = if resource.is_namespaced() { args.namespace.name() } else { "" };
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match client.explain_in(namespace, resource.singular(), name).await {
            Ok(read) => {
                if index > 0 && matches!(args.output, Format::Table | Format::Wide) {
                    out.text("\n\n")?;
                }
                print(&mut out, resource, &read.value, args.output)?;
            }
            Err(error) => failures.push(Failure::about(resource, error)),
        }
    }
    out.flush()?;
    report(names.len(), failures)
}

/// A node or pod in one sentence, for pages that say more about it.
pub(super) async fn headline(
    client: &Client,
    resource: Resource,
    namespace: &str,
    name: &str,
) -> Result<String, Failure> {
    let read = client.explain_in(namespace, resource.singular(), name).await?;
    let Beginning { now, headline } = parse(&read.value)?;
    let clock = LocalClock::new(TimeZone::system(), now.wall_ms);
    Ok(headline.phrase(|wall| clock.time(wall.0)))
}

/// Only nodes, zones and pods can be explained.
fn explainable(words: &[String]) -> Result<(Resource, Vec<String>), Failure> {
    let first = words.first().map(String::as_str).unwrap_or_default();
    let kind = first.split_once('/').map_or(first, |(kind, _)| kind);
    let Ok(resource @ (Resource::Nodes | Resource::Zones | Resource::Pods)) = Resource::parse(kind) else {
        let forms = "`node NAME`, `zone NAME` or `pod NAME`";
        return Err(Failure::Usage(format!(
            "only nodes, zones and pods can be explained, not {kind:?}: write {forms}"
        )));
    };
    let names = Selection::parse(words)?.names;
    if names.is_empty() {
        let noun = resource.singular();
        return Err(Failure::Usage(format!("name what to explain, for example `{noun} NAME`")));
    }
    Ok((resource, names))
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
    let clock = |now: ExplainedTime| LocalClock::new(TimeZone::system(), now.wall_ms);
    if resource == Resource::Zones {
        let explanation: ZoneExplanation = parse(explanation)?;
        return Ok(explain::zone(&explanation, &clock(explanation.now)));
    }
    if resource == Resource::Pods {
        let explanation: PodExplanation = parse(explanation)?;
        return Ok(explain::pod(&explanation, &clock(explanation.now)));
    }
    let explanation: NodeExplanation = parse(explanation)?;
    Ok(explain::node(&explanation, &clock(explanation.now)))
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

    fn explainable_of(words: &str) -> Result<(Resource, Vec<String>), Failure> {
        explainable(&words.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_named_nodes_zones_and_pods_are_explained() {
        assert_eq!(explainable_of("node a").unwrap(), (Resource::Nodes, vec!["a".into()]));
        assert_eq!(explainable_of("zone/r1/b").unwrap(), (Resource::Zones, vec!["r1/b".into()]));
        assert_eq!(explainable_of("po a").unwrap(), (Resource::Pods, vec!["a".into()]));
        for words in ["node", "zones", "pods", "node/a zone/b"] {
            assert_eq!(explainable_of(words).unwrap_err().exit() as u8, 2, "{words}");
        }
        for words in ["events x", "rs web", "config cluster", "foo bar", "foo/bar", "node-a-1"] {
            let failure = explainable_of(words).unwrap_err();
            assert!(failure.to_string().starts_with("only nodes, zones and pods can be explained, not "), "{failure}");
            assert_eq!(failure.exit() as u8, 2, "{words}");
        }
    }

    #[test]
    fn an_explanation_of_another_version_says_so() {
        let failure = page(Resource::Nodes, &Bytes::from_static(b"{}")).unwrap_err();
        assert!(failure.to_string().contains("same version"), "{failure}");
    }
}
