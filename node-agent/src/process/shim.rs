//! Shim of a pod: the parent of its processes, for as long as any of them lives.
//!
//! It is the agent's executable, started with [`SHIM_ARGUMENT`] in a session of its own, and survives the agent. It
//! restarts containers, keeps their output and records how they end, whether or not an agent is connected. Processes
//! that containers leave behind become its children and end with the pod. It has one thread and uses little memory.
//!
//! ```text
//!   agent --stop, kill--> shim.sock --> Pod (drives a PodCore) --spawn, signal--> PodProcesses (processes)
//!     ^------- ShimState, newest wins <-------|                                          | output
//!              state.json <---------------+                           logs/NAME.log <+
//! ```

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::fs::Mode;
use rustix::process::{geteuid, getpid, set_child_subreaper, setsid, umask};

use super::dir::PodDir;
use super::manifest::PodPlan;
use super::pod_files::PodRecord;
use crate::durable;

pub(super) use link::Command;
use pod::Pod;

mod link;
mod logs;
mod pod;
mod processes;

/// The first argument of a shim process. The second is the directory of its pod.
pub const SHIM_ARGUMENT: &str = "--muster-pod-shim";
const USAGE: u8 = 2;

/// The usual umask, for files that the pod's programs create.
const USUAL_MASK: Mode = Mode::from_raw_mode(0o022);

/// Runs the shim if this process is one. Must be called first in `main` of an executable that can be a shim, before
/// threads start. None: this process is not a shim.
pub fn shim_main() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    (args.next()? == SHIM_ARGUMENT).then(|| serve(args.next()))
}

/// Logs to the pod's `shim.log`. A full disk must not end the shim, as the usual macro would.
fn log(words: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{words}");
}

fn serve(dir: Option<OsString>) -> ExitCode {
    let Some(dir) = dir.map(PathBuf::from) else {
        log(format_args!("{SHIM_ARGUMENT} is for the agent's own use and needs the directory of a pod"));
        return ExitCode::from(USAGE);
    };
    match run(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(format_args!("the shim of {} gives up: {error}", dir.display()));
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &Path) -> io::Result<()> {
    // Refused to the leader of a process group, which is separate from the agent's already.
    let _ = setsid();
    umask(USUAL_MASK);
    set_child_subreaper(Some(getpid()))?;
    let dir = PodDir::at(dir);
    std::env::set_current_dir("/")?;
    let Some(_held) = durable::lock(&dir.lock())? else {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "the pod has another shim"));
    };
    let record = PodRecord::read(&dir.record())?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no record"))?;
    let plan = PodPlan::read(record.manifest.as_bytes(), geteuid().is_root())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let listener = listen(&dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pod = Pod::new(dir, record, plan, listener)?;
        pod.connect(starter());
        pod.run().await
    })
}

fn listen(dir: &PodDir) -> io::Result<UnixListener> {
    let listener = dir.with_socket(|path| {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        UnixListener::bind(path)
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The agent that started this process is at the other end of its standard input.
fn starter() -> Option<UnixStream> {
    let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
    let stream = UnixStream::from(input);
    stream.set_nonblocking(true).ok()?;
    stream.peer_addr().ok()?;
    Some(stream)
}
