//! `muster agent`: the node agent, as `muster-agent` runs it.

use muster_node_agent::agent::{self, AgentArgs, Exit as AgentExit, Failed};

use crate::exit::Failure;

pub async fn run(args: AgentArgs) -> Result<(), Failure> {
    agent::run(args).await.map_err(failure)
}

/// Its exit codes are a part of ours.
fn failure(failed: Failed) -> Failure {
    match failed.exit {
        AgentExit::Usage => Failure::Usage(failed.message),
        AgentExit::Unreachable => Failure::Unreachable(failed.message),
        AgentExit::Denied => Failure::Denied(failed.message),
        AgentExit::Error => Failure::other(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_exit_codes_are_those_of_the_agents_own_binary() {
        for exit in [AgentExit::Error, AgentExit::Usage, AgentExit::Unreachable, AgentExit::Denied] {
            let failure = failure(Failed { exit, message: "why".into() });
            assert_eq!((failure.exit() as u8, failure.to_string().as_str()), (exit as u8, "why"));
        }
    }
}
