//! `muster describe node NAME`.

use jiff::Timestamp;
use serde_json::Value;

use super::{Context, explain, object, report};
use crate::exit::Failure;
use crate::output::{Out, say};
use crate::render::{describe, event};
use crate::resource::Selection;
use muster_controller::client::{Client, Query};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The nodes: `node NAME...` or `node/NAME...`
    #[arg(required = true, value_name = "node NAME")]
    pub what: Vec<String>,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let names = Selection::nodes(&args.what)?;
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match page(&client, name).await {
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

async fn page(client: &Client, name: &str) -> Result<String, Failure> {
    let node = object(&client.get("nodes", name, false).await?.value)?;
    let about = format!("involvedObject.kind=Node,involvedObject.name={name}");
    let events = client.list(&Query { field_selector: about, ..Query::of("events") }).await?;
    let mut events = events.value.iter().map(object).collect::<Result<Vec<Value>, _>>()?;
    event::sort(&mut events);
    let standing = standing(client, name).await;
    Ok(describe::describe(&node, standing.as_deref(), &events, Timestamp::now()))
}

/// A page without it is better than none.
async fn standing(client: &Client, name: &str) -> Option<String> {
    match explain::headline(client, name).await {
        Ok(headline) => Some(headline),
        Err(failure) => {
            say(format_args!("node {name} cannot be explained now: {failure}"));
            None
        }
    }
}
