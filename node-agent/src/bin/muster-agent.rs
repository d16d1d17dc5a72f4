//! The `muster-agent` binary: the agent or the shim of a pod, on one thread, with an exit code that scripts can rely
//! on.

use std::process::ExitCode;

use clap::Parser;
use muster_node_agent::agent::{self, AgentCli, AgentError};
use muster_node_agent::process::shim_main;

fn main() -> ExitCode {
    if let Some(ended) = shim_main() {
        return ended;
    }
    let cli = AgentCli::parse();
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(agent::run(cli.agent)),
        Err(error) => Err(AgentError::other(error)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("error: {failed}");
            failed.exit.into()
        }
    }
}
