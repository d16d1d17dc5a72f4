//! `muster apply -f`: create or change nodes from manifests.
//!
//! Every document is checked before the first one is sent, so that a typo in the last of a hundred does not leave
//! ninety-nine applied.

use std::io::Read;

use anyhow::Context as _;
use bytes::Bytes;
use muster_proto::manifest::node_from_json;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{ManifestWrite, WriteResponse, write_response};

use super::{Context, report};
use crate::exit::Failure;
use crate::manifest::{self, Document, FILE_LIMIT, Place};
use crate::output::Out;
use muster_controller::client;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Files with manifests, JSON or YAML; `-` reads stdin
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filename: Vec<String>,
}

/// A document that passed every check that can be made here.
struct Checked {
    place: Place,
    name: String,
    object: Bytes,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut checked = Vec::new();
    for file in &args.filename {
        for document in read(file)? {
            checked.push(check(document)?);
        }
    }
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    let total = checked.len();
    for Checked { place, name, object } in checked {
        match client.write(Operation::Apply(ManifestWrite { object })).await {
            Ok(response) => {
                out.line(format_args!("node/{name} {}", word(&response)))?;
                out.flush()?;
            }
            Err(error) => failures.push(Failure::from(at(&place, error))),
        }
    }
    report(total, failures)
}

fn read(file: &str) -> Result<Vec<Document>, Failure> {
    let (name, source): (&str, Box<dyn Read>) = match file {
        "-" => ("- (stdin)", Box::new(std::io::stdin())),
        path => {
            let opened = std::fs::File::open(path).with_context(|| format!("cannot read {path}"));
            (path, Box::new(opened.map_err(Failure::Other)?))
        }
    };
    let mut bytes = Vec::new();
    // One byte more than allowed tells "too large" from "just fits".
    let limit = FILE_LIMIT as u64 + 1;
    source
        .take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))
        .map_err(Failure::Other)?;
    manifest::split(name, &bytes).map_err(Failure::other)
}

fn check(document: Document) -> Result<Checked, Failure> {
    let Document { place, object } = document;
    let wrong = |reason: String| Failure::other(anyhow::anyhow!("{place}: {reason}; nothing was sent"));
    let bytes = serde_json::to_vec(&object).map_err(|error| wrong(error.to_string()))?;
    let manifest = node_from_json(&bytes).map_err(|error| wrong(error.to_string()))?;
    let name = manifest.draft.name.to_string();
    Ok(Checked { place, name, object: bytes.into() })
}

/// A replica's complaint, with the document it is about.
fn at(place: &Place, error: client::Error) -> client::Error {
    match error {
        client::Error::Refused { code, message, address } => {
            client::Error::Refused { code, message: format!("{place}: {message}"), address }
        }
        client::Error::Exhausted(exhausted) => client::Error::Exhausted(exhausted),
    }
}

fn word(response: &WriteResponse) -> &'static str {
    use write_response::Effect;
    match response.effect() {
        Effect::Created => "created",
        Effect::Changed => "configured",
        Effect::Unchanged => "unchanged",
        Effect::Deleted | Effect::Unspecified => "applied",
    }
}
