//! The `muster` binary: parses the command line, runs the verb, and turns its outcome into words and an exit code.

use std::process::ExitCode;

use clap::Parser;
use muster_cli::args::{Cli, Command};
use muster_cli::exit::{Exit, Failure};
use muster_cli::output::say;
use muster_cli::verb;
use muster_node_agent::process::shim_main;

/// Measured: a million small actors start several times faster than with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // An agent runs its pods under processes of its own executable.
    if let Some(ended) = shim_main() {
        return ended;
    }
    let cli = Cli::parse();
    let outcome = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Failure::other(error)),
    };
    match outcome {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => complain(&failure).into(),
    }
}

/// Servers, agents and `dev` stop in an orderly way of their own; every other verb is simply dropped, which removes its
/// temporary files.
async fn run(cli: Cli) -> Result<(), Failure> {
    if matches!(cli.command, Command::Server(_) | Command::Dev(_) | Command::Agent(_)) {
        return verb::run(cli).await;
    }
    tokio::select! {
        outcome = verb::run(cli) => outcome,
        interrupted = tokio::signal::ctrl_c() => Err(interrupted.map_or_else(Failure::other, |()| Failure::Interrupted)),
    }
}

fn complain(failure: &Failure) -> Exit {
    if !failure.is_silent() {
        say(format_args!("error: {failure}"));
        if let Some(next) = failure.next_step() {
            say(format_args!("  next: {next}"));
        }
    }
    failure.exit()
}
