//! `muster node`: commands about a node's credentials.

use muster_proto::v1::NodeRevocation;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::write_response::Effect;

use super::Context;
use crate::exit::Failure;
use crate::output::{Out, say};

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Believe no certificate of a node any more; its session ends at once
    Revoke {
        /// The node's name, whether or not there is such a Node
        name: String,
    },
}

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    let Action::Revoke { name } = action;
    let revocation = NodeRevocation { name: name.clone() };
    let response = context.client()?.write(Operation::RevokeNode(revocation)).await?;
    let mut out = Out::stdout();
    let done = if response.effect() == Effect::Unchanged { "was revoked before" } else { "revoked" };
    out.line(format_args!("node/{name} {done}"))?;
    out.flush()?;
    match response.effect() == Effect::Created {
        true => say(format_args!("no node has this name; from now on no machine can join under it")),
        false => say(format_args!("a Node of that name stays; `muster delete node {name}` removes it")),
    }
    say(format_args!("a machine may take its place with a token of `muster token create --node {name}`"));
    Ok(())
}
