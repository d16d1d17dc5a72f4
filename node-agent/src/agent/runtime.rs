//! Pod runtime of this machine, as `--runtime` selects it.

use std::path::Path;
use std::sync::Arc;

use super::exit::AgentError;
use super::flag::BadFlag;
use super::runtime_health::RuntimeHealth;
use super::settings::RuntimeKind;
use super::state_dir::StateDir;
use crate::conditions::Readiness;
use crate::pods::Runtime;
use crate::process::{ProcessConfig, ProcessRuntime, RecordRuntime, running_in};

/// Below the state directory.
const DIRECTORY: &str = "runtime";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A runtime and its readiness.
pub(super) struct Chosen {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) readiness: Arc<dyn Readiness>,
    /// As `status.nodeInfo` names it.
    pub(super) version: String,
}

pub(super) fn choose(kind: RuntimeKind, state_dir: &StateDir) -> Result<Chosen, AgentError> {
    let dir = state_dir.path().join(DIRECTORY);
    match kind {
        RuntimeKind::Process => {
            let config = ProcessConfig::of_this_machine().map_err(|error| {
                AgentError::other(format!("cannot read this program's path or the machine's boot id: {error}"))
            })?;
            let runtime = ProcessRuntime::open(&dir, config).map_err(AgentError::other)?;
            let own = Arc::clone(&runtime);
            let readiness = RuntimeHealth::begin(move || own.health().map_err(|error| error.to_string()));
            let readiness = readiness.map_err(AgentError::other)?;
            Ok(Chosen { runtime, readiness, version: format!("process://{VERSION}") })
        }
        RuntimeKind::None => {
            require_no_running_pods(&dir)?;
            let runtime = RecordRuntime::open(&dir).map_err(AgentError::other)?;
            Ok(Chosen { runtime, readiness: Arc::new(|| Ok(())), version: format!("none://{VERSION}") })
        }
    }
}

/// Refuses to abandon running processes: they would go on unseen, and other pods would get their names.
fn require_no_running_pods(dir: &Path) -> Result<(), BadFlag> {
    match running_in(dir) {
        0 => Ok(()),
        count => {
            let rule = format!(
                "{count} of the pods that --runtime process started in {} still run: start with --runtime process, \
                 delete the node's pods, then change the runtime",
                dir.display()
            );
            Err(BadFlag::new("runtime", "none", rule))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::pods::PodUid;

    #[test]
    fn runtime_none_is_refused_while_pods_run() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(dir.path()).unwrap();
        assert!(choose(RuntimeKind::None, &state_dir).is_ok());
        let pod = dir.path().join("runtime/pods").join(PodUid(7).to_string());
        std::fs::create_dir_all(&pod).unwrap();
        let shim = File::create(pod.join("lock")).unwrap();
        assert!(choose(RuntimeKind::None, &state_dir).is_ok(), "it has ended");
        flock(&shim, FlockOperation::LockExclusive).unwrap();
        let refused = choose(RuntimeKind::None, &state_dir).err().unwrap();
        assert!(refused.message.starts_with("--runtime \"none\": 1 of the pods"), "{refused}");
    }
}
