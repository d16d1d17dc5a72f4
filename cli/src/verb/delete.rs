//! `muster delete node`.

use muster_proto::v1::Delete;
use muster_proto::v1::write_request::Operation;

use super::{Context, PreconditionArgs, change_each};
use crate::exit::Failure;
use crate::resource::Selection;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The nodes: `node NAME...` or `node/NAME...`
    #[arg(required = true, value_name = "node NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub precondition: PreconditionArgs,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let names = Selection::nodes(&args.what)?;
    let operation = |name: &str| {
        let precondition = args.precondition.precondition();
        Operation::Delete(Delete { kind: "nodes".into(), name: name.into(), precondition })
    };
    change_each(&context.client()?, &names, operation, |_| "deleted").await
}
