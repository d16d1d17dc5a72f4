//! The program: parses the command line, runs the verb, and turns its outcome into words and an exit code.
//!
//! The build that runs is the caller's to say, so that tests can run a later one.

use std::process::ExitCode;

use clap::Parser;
use muster_controller::server::Build;
use muster_node_agent::process::shim_main;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::verb;

pub fn run(build: Build) -> ExitCode {
    // An agent runs its pods under processes of its own executable.
    if let Some(ended) = shim_main() {
        return ended;
    }
    let cli = Cli::parse();
    let outcome = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(run_verb(build, cli)),
        Err(error) => Err(Failure::other(error)),
    };
    match outcome {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => complain(&failure).into(),
    }
}

/// Servers, agents and `dev` stop in an orderly way of their own; every other verb is simply dropped, which removes its
/// temporary files.
async fn run_verb(build: Build, cli: Cli) -> Result<(), Failure> {
    if matches!(cli.command, Command::Server(_) | Command::Dev(_) | Command::Agent(_)) {
        return verb::run(build, cli).await;
    }
    tokio::select! {
        outcome = verb::run(build, cli) => outcome,
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
