//! What runs the pods of this machine, as `--runtime` chooses it.

use std::sync::Arc;

use super::checkup::Checkup;
use super::exit::Failed;
use super::settings::RuntimeKind;
use super::state_dir::StateDir;
use crate::conditions::Readiness;
use crate::pods::Runtime;
use crate::process::{ProcessConfig, ProcessRuntime, RecordRuntime};

/// Below the state directory.
const DIRECTORY: &str = "runtime";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A runtime, and whether it can do its work.
pub(super) struct Chosen {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) readiness: Arc<dyn Readiness>,
    /// As `status.nodeInfo` names it.
    pub(super) version: String,
}

pub(super) fn choose(kind: RuntimeKind, state_dir: &StateDir) -> Result<Chosen, Failed> {
    let dir = state_dir.path().join(DIRECTORY);
    match kind {
        RuntimeKind::Process => {
            let config = ProcessConfig::of_this_machine()
                .map_err(|error| Failed::error(format!("cannot tell which program this is, or since when: {error}")))?;
            let runtime = ProcessRuntime::open(&dir, config).map_err(Failed::error)?;
            let own = Arc::clone(&runtime);
            let readiness = Checkup::begin(move || own.health().map_err(|error| error.to_string()));
            let readiness = readiness.map_err(Failed::error)?;
            Ok(Chosen { runtime, readiness, version: format!("process://{VERSION}") })
        }
        RuntimeKind::None => {
            let runtime = RecordRuntime::open(&dir).map_err(Failed::error)?;
            Ok(Chosen { runtime, readiness: Arc::new(|| Ok(())), version: format!("none://{VERSION}") })
        }
    }
}
