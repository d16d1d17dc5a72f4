//! Helper program for these tests: a pod's shim, or an agent that starts a pod and waits to be killed.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use muster_node_agent::pods::{PodInbox, PodToStart, PodUid, Runtime};
use muster_node_agent::process::{ProcessConfig, ProcessRuntime, shim_main};

/// `muster-process-helper STATE-DIR UID < MANIFEST`
fn main() -> ExitCode {
    if let Some(code) = shim_main() {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, uid] = &args[..] else { return ExitCode::from(2) };
    let Ok(uid) = uid.parse() else { return ExitCode::from(2) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let started = runtime.and_then(|runtime| runtime.block_on(agent(Path::new(dir), PodUid(uid))));
    eprintln!("{started:?}");
    ExitCode::FAILURE
}

async fn agent(dir: &Path, uid: PodUid) -> std::io::Result<()> {
    let mut manifest = Vec::new();
    std::io::stdin().read_to_end(&mut manifest)?;
    let runtime = ProcessRuntime::open(dir, ProcessConfig::of_this_machine()?).map_err(std::io::Error::other)?;
    runtime.report_to(Arc::new(PodInbox::default()).sender(0));
    let (namespace, name) = ("default".to_owned(), "web".to_owned());
    runtime.start(PodToStart { namespace, name, uid, manifest: manifest.into() });
    std::future::pending().await
}
