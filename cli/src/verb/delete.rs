//! `muster delete`: nodes, pods and workloads.
//!
//! A pod is asked to stop and stays until its node says that it has; only `--force` does not wait for that.

use muster_lifecycle::rule;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{Delete, WriteResponse};

use super::{Context, PreconditionArgs, change_each, is_unchanged};
use crate::exit::Failure;
use crate::namespace::NamespaceArgs;
use crate::output::say;
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to delete: `node NAME...`, `pod NAME...`, `rs NAME...`, `pod/NAME...`
    #[arg(required = true, value_name = "KIND NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    /// How long pods may take to stop, in seconds [default: what each pod says itself]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub grace_period: Option<i64>,
    /// Forget pods at once, whether or not they still run
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub precondition: PreconditionArgs,
}

const DELETABLE: [Resource; 5] =
    [Resource::Nodes, Resource::Pods, Resource::ReplicaSets, Resource::StatefulSets, Resource::DaemonSets];

/// The shortest that still waits for the node to confirm.
const GRACE_MIN: i64 = 1;

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let Selection { resource, names } = Selection::named(&args.what, &DELETABLE)?;
    let grace_seconds = args.grace(resource)?;
    if args.force {
        say(
            "warning: a forced deletion does not wait for the node to confirm that the pod has stopped: the pod may still run there",
        );
    }
    let namespace = if resource.is_namespaced() { args.namespace.name() } else { "" };
    let operation = |name: &str| {
        Operation::Delete(Delete {
            kind: resource.kind().into(),
            name: name.into(),
            precondition: args.precondition.precondition(),
            namespace: namespace.into(),
            grace_seconds,
        })
    };
    let done = |response: &WriteResponse| match (args.force, is_unchanged(response)) {
        (true, _) => "force deleted",
        // The pod already has as little time to stop.
        (false, true) if resource == Resource::Pods => "already terminating",
        (false, _) => "deleted",
    };
    change_each(&context.client()?, resource, &names, operation, done).await
}

// === impl Args ===

impl Args {
    /// As with kubectl: a grace of zero needs --force, because nothing waits for the node then.
    fn grace(&self, resource: Resource) -> Result<Option<i64>, Failure> {
        if resource != Resource::Pods && (self.force || self.grace_period.is_some()) {
            let kind = resource.kind();
            return Err(Failure::Usage(format!(
                "--grace-period and --force are for pods, not for {kind}: leave them out"
            )));
        }
        rule::pod::grace(self.grace_period, "--grace-period").map_err(|invalid| Failure::Usage(invalid.to_string()))?;
        match (self.force, self.grace_period) {
            (true, None | Some(0)) => Ok(Some(0)),
            (true, Some(seconds)) => Err(Failure::Usage(format!(
                "--force gives no time at all, so --grace-period {seconds} contradicts it: leave out one of them"
            ))),
            (false, seconds) => Ok(seconds.map(|seconds| seconds.max(GRACE_MIN))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn grace(line: &str) -> Result<Option<i64>, String> {
        let Command::Delete(args) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not a delete: {line}")
        };
        let resource = Selection::named(&args.what, &DELETABLE).unwrap().resource;
        args.grace(resource).map_err(|failure| failure.to_string())
    }

    #[test]
    fn only_force_deletes_at_once() {
        for (flags, wanted) in [
            ("", None),
            (" --grace-period 30", Some(30)),
            (" --grace-period=0", Some(1)),
            (" --force", Some(0)),
            (" --force --grace-period 0", Some(0)),
        ] {
            assert_eq!(grace(&format!("muster delete pod a{flags}")), Ok(wanted), "{flags}");
        }
    }

    #[test]
    fn invalid_grace_flags_are_refused_with_the_rule() {
        for (line, part) in [
            ("muster delete pod a --grace-period -1", "--grace-period: -1 is negative: write seconds, 0 or more"),
            ("muster delete pod a --grace-period 30 --force", "leave out one of them"),
            ("muster delete node a --force", "are for pods, not for nodes"),
            ("muster delete rs a --grace-period 5", "are for pods, not for replicasets"),
        ] {
            let error = grace(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
