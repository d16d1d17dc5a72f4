//! `muster cordon` and `uncordon`.

use muster_proto::v1::Cordon;
use muster_proto::v1::write_request::Operation;

use super::{Context, PreconditionArgs, change_each, is_unchanged};
use crate::exit::Failure;
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The nodes: `NAME` or `node/NAME`
    #[arg(required = true, value_name = "NAME")]
    pub nodes: Vec<String>,
    #[command(flatten)]
    pub precondition: PreconditionArgs,
}

pub async fn run(context: &Context, args: Args, unschedulable: bool) -> Result<(), Failure> {
    let names = Selection::node_names(&args.nodes)?;
    let operation = |name: &str| {
        let precondition = args.precondition.precondition();
        Operation::Cordon(Cordon { name: name.into(), unschedulable, precondition })
    };
    let done = |response: &_| match (unschedulable, is_unchanged(response)) {
        (true, false) => "cordoned",
        (true, true) => "already cordoned",
        (false, false) => "uncordoned",
        (false, true) => "already uncordoned",
    };
    change_each(&context.client()?, Resource::Nodes, &names, operation, done).await
}
