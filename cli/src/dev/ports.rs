//! Checks that the ports are free, before anything is started or even written.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use muster_pki::ReplicaPlan;
use tokio::time::Instant;

use crate::exit::Failure;
use crate::output::say;

/// How long replicas of a `dev` that was killed may take to stop.
pub(super) const LEAVING_TIMEOUT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn require_free(plans: &[ReplicaPlan], remedy: &str, patience: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    let mut said = false;
    while let Some((address, error)) = first_taken(plans) {
        if error.kind() != io::ErrorKind::AddrInUse || Instant::now() >= deadline {
            return Err(Failure::Conflict(format!(
                "cannot listen on {address}: {error}; free it, or choose other ports with {remedy}"
            )));
        }
        if !said {
            say(format_args!("waiting for {address} to become free"));
            said = true;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

fn first_taken(plans: &[ReplicaPlan]) -> Option<(SocketAddr, io::Error)> {
    let doors = |plan: &ReplicaPlan| [&plan.peer, &plan.agent, &plan.client].map(|door| door.listen());
    let mut listened = plans.iter().flat_map(|plan| doors(plan).into_iter().chain(plan.http()));
    listened.find_map(|address| TcpListener::bind(address).err().map(|error| (address, error)))
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::replica::ReplicaId;

    use super::*;
    use crate::verb::init::Place;

    #[tokio::test]
    async fn a_taken_port_is_named_with_the_flag_that_changes_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port_base = taken.local_addr().unwrap().port();
        if port_base > u16::MAX - 3 {
            return;
        }
        let plan = Place { id: ReplicaId(1), host: "127.0.0.1".into(), port_base }.plan().unwrap();
        let refusal = require_free(&[plan], "--port-base PORT", Duration::ZERO).await.unwrap_err().to_string();
        assert!(refusal.contains(&format!("127.0.0.1:{port_base}")) && refusal.contains("--port-base"), "{refusal}");
    }
}
