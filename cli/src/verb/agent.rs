//! `muster agent`: the node agent, as `muster-agent` runs it.

use muster_node_agent::agent::{self, AgentArgs};

use crate::exit::Failure;

pub async fn run(args: AgentArgs) -> Result<(), Failure> {
    agent::run(args).await.map_err(Failure::Agent)
}

#[cfg(test)]
mod tests {
    use muster_node_agent::agent::AgentError;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn exit_codes_equal_those_of_muster_agent() {
        for exit in [Exit::Error, Exit::Usage, Exit::Unreachable, Exit::Denied] {
            let failure = Failure::from(AgentError { exit, message: "why".into() });
            assert_eq!((failure.exit() as u8, failure.to_string().as_str()), (exit as u8, "why"));
        }
    }
}
