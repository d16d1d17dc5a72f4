//! Failures of commands: a message, a next step, and an exit code that means something.

use std::fmt;
use std::io;

use muster_client as client;
use thiserror::Error;
use tonic::Code;

use crate::discover;
use crate::resource::Resource;
use muster_node_agent::agent::AgentError;

pub use muster_node_agent::agent::Exit;

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{message}")]
    NotFound { what: Resource, message: String },
    #[error("{0}")]
    NoFleet(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    NoLeader(String),
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Timeout(String),
    #[error(transparent)]
    Discovery(#[from] discover::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Call(#[from] client::Error),
    #[error(transparent)]
    Watch(#[from] client::WatchError),
    /// Several operations were asked for; each failure has been printed.
    #[error("{failed} of {total} failed")]
    Several { failed: usize, total: usize, exit: Exit },
    #[error("interrupted")]
    Interrupted,
    /// The reader of our output closed it.
    #[error("output closed")]
    OutputClosed,
    #[error("{}", chain(.0))]
    Other(anyhow::Error),
}

// === impl Failure ===

impl Failure {
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Discovery(discover::Error::NotFound { .. }) => Exit::Usage,
            Self::NotFound { .. } | Self::NoFleet(_) => Exit::NotFound,
            Self::Conflict(_) => Exit::Conflict,
            Self::Unreachable(_) | Self::NoLeader(_) => Exit::Unreachable,
            Self::Timeout(_) => Exit::Timeout,
            Self::Denied(_) => Exit::Denied,
            Self::Call(error) | Self::Watch(client::WatchError::Failed(error)) => of_call(error),
            Self::Discovery(discover::Error::Config(_))
            | Self::Watch(client::WatchError::Gone { .. })
            | Self::Other(_) => Exit::Error,
            Self::Agent(failed) => failed.exit,
            Self::Several { exit, .. } => *exit,
            Self::Interrupted => Exit::Interrupted,
            Self::OutputClosed => Exit::Ok,
        }
    }

    /// The next command to try, where there is one.
    pub fn next_step(&self) -> Option<&'static str> {
        match self {
            Self::Call(error) | Self::Watch(client::WatchError::Failed(error)) => after_call(error),
            Self::NotFound { what, .. } => Some(list_of(*what)),
            Self::NoFleet(_) => Some("name the folder it was created in: `--dir DIR`; `muster init` creates a cluster"),
            Self::NoLeader(_) => {
                Some("a majority of replicas must run; `muster get nodes --stale` reads without one meanwhile")
            }
            Self::Usage(_) | Self::Agent(AgentError { exit: Exit::Usage, .. }) => {
                Some("`muster help` lists the commands, `muster COMMAND --help` explains one")
            }
            Self::Conflict(_)
            | Self::Unreachable(_)
            | Self::Timeout(_)
            | Self::Denied(_)
            | Self::Discovery(_)
            | Self::Agent(_)
            | Self::Watch(client::WatchError::Gone { .. })
            | Self::Several { .. }
            | Self::Interrupted
            | Self::OutputClosed
            | Self::Other(_) => None,
        }
    }

    /// A call about a thing of this kind failed.
    pub fn about(what: Resource, error: client::Error) -> Self {
        match error {
            client::Error::Refused { code: Code::NotFound, message, .. } => Self::NotFound { what, message },
            error @ (client::Error::Refused { .. } | client::Error::Exhausted(_)) => Self::Call(error),
        }
    }

    /// No reader is left to print the failure for.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::OutputClosed)
    }

    pub fn other(error: impl Into<anyhow::Error>) -> Self {
        Self::Other(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() == io::ErrorKind::BrokenPipe {
            true => Self::OutputClosed,
            false => Self::Other(error.into()),
        }
    }
}

fn of_call(error: &client::Error) -> Exit {
    match error {
        client::Error::Refused { code, .. } => of_code(*code),
        client::Error::Exhausted(exhausted) if exhausted.only_silence() => Exit::Timeout,
        client::Error::Exhausted(exhausted) if exhausted.only_distrust() => Exit::Denied,
        client::Error::Exhausted(_) => Exit::Unreachable,
    }
}

fn of_code(code: Code) -> Exit {
    match code {
        Code::Ok => Exit::Ok,
        Code::NotFound => Exit::NotFound,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => Exit::Conflict,
        Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
        Code::DeadlineExceeded => Exit::Timeout,
        Code::Unavailable => Exit::Unreachable,
        Code::InvalidArgument
        | Code::ResourceExhausted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unknown
        | Code::DataLoss
        | Code::Cancelled => Exit::Error,
    }
}

fn after_call(error: &client::Error) -> Option<&'static str> {
    match of_call(error) {
        Exit::Unreachable => Some(
            "`muster status` shows which replicas are up; `--stale` reads what one replica has; `muster dev` starts a local cluster",
        ),
        Exit::Timeout => Some("`muster status` shows which replicas are up; `--timeout 30s` waits longer"),
        Exit::Denied => Some(
            "the holder of the cluster's CA keys issues a certificate: `muster init issue-client NAME --group operators --out DIR`",
        ),
        Exit::NotFound => Some("list what there is: `muster get nodes`"),
        Exit::Conflict => Some("read the object again (`muster get node NAME -o yaml`) and repeat the change"),
        Exit::Ok | Exit::Error | Exit::Usage | Exit::Partial | Exit::Interrupted => None,
    }
}

fn list_of(what: Resource) -> &'static str {
    match what {
        Resource::Nodes => "list what there is: `muster get nodes`",
        Resource::Pods => "list what there is: `muster get pods -A`",
        Resource::ReplicaSets => "list what there is: `muster get rs -A`",
        Resource::StatefulSets => "list what there is: `muster get sts -A`",
        Resource::DaemonSets => "list what there is: `muster get ds -A`",
        Resource::Events => "list what there is: `muster get events`",
        Resource::Replicas => "list what there is: `muster get replicas`",
        Resource::Zones => "list what there is: `muster get zones`",
        Resource::Config => "list the settings: `muster get config`",
        Resource::Aggregators => "list what there is: `muster get aggregators`",
    }
}

/// The outcome of several operations, each reported when it happened. A single operation keeps its own code. If all
/// of several failed alike, the result is that code; otherwise it is "partial".
pub fn combine(total: usize, failures: Vec<Failure>) -> Result<(), Failure> {
    let failed = failures.len();
    let mut exits: Vec<Exit> = failures.iter().map(Failure::exit).collect();
    exits.sort_unstable();
    exits.dedup();
    match (failed, exits.as_slice()) {
        (0, _) => Ok(()),
        (_, [exit]) if failed == total => Err(Failure::Several { failed, total, exit: *exit }),
        _ => Err(Failure::Several { failed, total, exit: Exit::Partial }),
    }
}

/// The whole chain of causes on one line.
fn chain(error: &anyhow::Error) -> impl fmt::Display + '_ {
    struct Chain<'a>(&'a anyhow::Error);
    impl fmt::Display for Chain<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{:#}", self.0)
        }
    }
    Chain(error)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_client::{Exhausted, Tried, Why};

    use super::*;

    fn refused(code: Code) -> Failure {
        Failure::Call(client::Error::Refused { code, message: String::new(), address: String::new() })
    }

    fn exhausted(whys: &[Why]) -> Failure {
        let tried = whys.iter().map(|why| Tried { address: "a:1".into(), why: why.clone() }).collect();
        let deadline = Duration::from_secs(1);
        Failure::Call(client::Error::Exhausted(Exhausted { deadline, tried, outcome_unknown: false }))
    }

    #[test]
    fn exit_codes_follow_the_table() {
        let refusals = [
            (Code::InvalidArgument, 1),
            (Code::ResourceExhausted, 1),
            (Code::NotFound, 4),
            (Code::Aborted, 5),
            (Code::AlreadyExists, 5),
            (Code::FailedPrecondition, 5),
            (Code::PermissionDenied, 6),
            (Code::Unauthenticated, 6),
        ];
        for (code, expected) in refusals {
            assert_eq!(refused(code).exit() as u8, expected, "{code:?}");
        }
        assert_eq!(Failure::Usage(String::new()).exit() as u8, 2);
        assert_eq!(Failure::Interrupted.exit() as u8, 130);
        assert_eq!(Failure::NoLeader(String::new()).exit() as u8, 3);
    }

    #[test]
    fn a_missing_object_is_answered_with_the_command_that_lists_its_kind() {
        let error = |code| client::Error::Refused { code, message: "not found".into(), address: String::new() };
        for (what, list) in [
            (Resource::Nodes, "`muster get nodes`"),
            (Resource::Pods, "`muster get pods -A`"),
            (Resource::ReplicaSets, "`muster get rs -A`"),
            (Resource::Zones, "`muster get zones`"),
            (Resource::Config, "`muster get config`"),
            (Resource::Aggregators, "`muster get aggregators`"),
        ] {
            let failure = Failure::about(what, error(Code::NotFound));
            assert_eq!((failure.exit(), failure.to_string().as_str()), (Exit::NotFound, "not found"));
            assert!(failure.next_step().is_some_and(|next| next.ends_with(list)), "{what:?}");
        }
        assert_eq!(Failure::about(Resource::Zones, error(Code::PermissionDenied)).exit(), Exit::Denied);
    }

    #[test]
    fn unreachable_timeout_and_denied_have_different_exit_codes() {
        let refused = Why::NoConnection("connection refused".into());
        let silent = Why::Silent(Duration::from_secs(3));
        let distrusted = Why::Distrusted("unknown CA".into());
        assert_eq!(exhausted(&[refused.clone(), silent.clone()]).exit(), Exit::Unreachable);
        assert_eq!(exhausted(&[Why::Unavailable("no quorum".into())]).exit(), Exit::Unreachable);
        assert_eq!(exhausted(&[silent.clone(), silent]).exit(), Exit::Timeout);
        assert_eq!(exhausted(&[distrusted.clone(), distrusted]).exit(), Exit::Denied);
    }

    #[test]
    fn exit_codes_of_several_operations_combine() {
        assert!(combine(2, vec![]).is_ok());
        let code = |total, failures| combine(total, failures).unwrap_err().exit() as u8;
        assert_eq!(code(1, vec![refused(Code::NotFound)]), 4);
        assert_eq!(code(2, vec![refused(Code::NotFound)]), 8);
        assert_eq!(code(2, vec![refused(Code::NotFound), refused(Code::NotFound)]), 4);
        assert_eq!(code(2, vec![refused(Code::NotFound), refused(Code::Aborted)]), 8);
    }

    #[test]
    fn a_closed_pipe_is_not_a_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit(), Exit::Ok);
        assert!(failure.is_silent());
    }
}
