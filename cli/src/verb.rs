//! The verbs. A verb parses its words, calls the cluster, prints data on stdout and messages on stderr.

pub mod agent;
pub mod apply;
pub mod backup;
pub mod bench;
pub mod completions;
pub mod cordon;
pub mod delete;
pub mod describe;
pub mod edit;
pub mod explain;
pub mod fleet;
pub mod get;
pub mod init;
pub mod member;
pub mod node;
pub mod restore;
pub mod server;
pub mod set;
pub mod simulate;
pub mod status;
pub mod token;
pub mod upgrade;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use muster_client::{Client, DEFAULT_TIMEOUT};
use muster_controller::server::Build;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{Precondition, WriteResponse, write_response};
use serde_json::Value;

use crate::args::{Cli, Command};
use crate::dev;
use crate::discover::CredentialFolders;
use crate::exit::{self, Failure};
use crate::output::{Out, say};
use crate::resource::Resource;

/// How the command was called, as far as verbs need to know.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub dir: Option<PathBuf>,
    pub timeout: Option<Duration>,
}

/// Flags of verbs that change an object which may have changed meanwhile.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PreconditionArgs {
    /// Only if the object is still at this resource version
    #[arg(long, value_name = "N")]
    pub resource_version: Option<u64>,
}

pub async fn run(build: Build, cli: Cli) -> Result<(), Failure> {
    let context = Context { dir: cli.dir, timeout: cli.timeout };
    match cli.command {
        Command::Get(args) => get::run(&context, args).await,
        Command::Describe(args) => describe::run(&context, args).await,
        Command::Explain(args) => explain::run(&context, args).await,
        Command::Set(action) => set::run(&context, action).await,
        Command::Apply(args) => apply::run(&context, args).await,
        Command::Label(args) => edit::label(&context, args).await,
        Command::Annotate(args) => edit::annotate(&context, args).await,
        Command::Taint(args) => edit::taint(&context, args).await,
        Command::Cordon(args) => cordon::run(&context, args, true).await,
        Command::Uncordon(args) => cordon::run(&context, args, false).await,
        Command::Delete(args) => delete::run(&context, args).await,
        Command::Status(args) => status::run(&context, args).await,
        Command::Upgrade(action) => upgrade::run(&context, action).await,
        Command::Member(action) => member::run(&context, action).await,
        Command::Token(action) => token::run(&context, action).await,
        Command::Node(action) => node::run(&context, action).await,
        Command::Backup(args) => backup::run(&context, args).await,
        Command::Restore(args) => restore::run(build, &context, &args),
        Command::Init(args) => init::run(&context, args),
        Command::Server(args) => server::run(build, *args).await,
        Command::Agent(args) => agent::run(*args).await,
        Command::Dev(args) => dev::run(&context, *args).await,
        Command::Fleet(action) => fleet::run(&context, action).await,
        Command::Simulate(args) => simulate::run(args).await,
        Command::Bench(args) => bench::run(&context, args).await,
        Command::Completions(args) => completions::run(&args),
        Command::Version => version(build),
    }
}

// === impl Context ===

impl Context {
    pub fn client(&self) -> Result<Client, Failure> {
        self.client_within(DEFAULT_TIMEOUT)
    }

    /// A client whose calls may take `default` unless the caller said otherwise.
    pub fn client_within(&self, default: Duration) -> Result<Client, Failure> {
        let config = CredentialFolders::of_process(self.dir.clone()).load()?;
        let client = Client::new(config).map_err(Failure::other)?;
        Ok(client.with_timeout(self.timeout.unwrap_or(default)))
    }
}

// === impl PreconditionArgs ===

impl PreconditionArgs {
    fn precondition(&self) -> Option<Precondition> {
        self.resource_version.map(|revision| Precondition { revision: Some(revision), uid: String::new() })
    }
}

fn version(build: Build) -> Result<(), Failure> {
    let mut out = Out::stdout();
    out.line(format_args!("muster {}", build.version))?;
    out.flush()
}

/// Does the same to several objects, one after the other, and reports each. The others are still done after a
/// failure.
async fn change_each(
    client: &Client,
    resource: Resource,
    names: &[String],
    operation: impl Fn(&str) -> Operation,
    done: impl Fn(&WriteResponse) -> &'static str,
) -> Result<(), Failure> {
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    for name in names {
        match client.write(operation(name)).await {
            Ok(response) => {
                out.line(format_args!("{}/{name} {}", resource.singular(), done(&response)))?;
                out.flush()?;
            }
            Err(error) => failures.push(Failure::about(resource, error)),
        }
    }
    report(names.len(), failures)
}

/// A single failure of a single operation is the command's own; several are listed first and then counted.
fn report(total: usize, mut failures: Vec<Failure>) -> Result<(), Failure> {
    if total == 1
        && let Some(only) = failures.pop()
    {
        return Err(only);
    }
    for failure in &failures {
        say(format_args!("error: {failure}"));
    }
    exit::combine(total, failures)
}

fn is_unchanged(response: &WriteResponse) -> bool {
    response.effect() == write_response::Effect::Unchanged
}

/// What a replica sent as an object.
pub(crate) fn object(bytes: &Bytes) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::other(anyhow::anyhow!(
            "a replica sent an object that is not JSON: {error}; are all replicas of one version?"
        ))
    })
}
