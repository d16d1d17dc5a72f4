//! State directory of an agent: what must outlive its process. It is private to the agent's user and used by one
//! process at a time.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::exit::AgentError;
use crate::durable::{self, Durability};

const LOCK: &str = "lock";
const INSTANCE: &str = "instance";
const SOCKET: &str = "agent.sock";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OTHERS: u32 = 0o077;

/// Locked for as long as the agent runs.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

// === impl StateDir ===

impl StateDir {
    /// Creates the directory if necessary and locks it: two agents in one directory would fight over every pod.
    pub fn open(path: &Path) -> Result<Self, AgentError> {
        let shown = path.display();
        let failed =
            |what: &str, error: io::Error| AgentError::other(format!("--state-dir {shown}: cannot {what}: {error}"));
        durable::private_dir(path).map_err(|error| failed("create it", error))?;
        let metadata = fs::metadata(path).map_err(|error| failed("look at it", error))?;
        if metadata.uid() == geteuid().as_raw() && metadata.mode() & OTHERS != 0 {
            let private = Permissions::from_mode(0o700);
            fs::set_permissions(path, private).map_err(|error| failed("make it private", error))?;
        }
        let lock = durable::lock(&path.join(LOCK)).map_err(|error| failed("lock it", error))?;
        let Some(lock) = lock else {
            return Err(AgentError::other(format!(
                "--state-dir {shown}: another agent uses it; stop that agent, or give this one its own directory"
            )));
        };
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The instance of this agent, by which the cluster tells machines apart. It stays the same until the machine
    /// reboots, so that a restarted agent takes over its own session at once. No other machine has it.
    pub fn instance(&self) -> Result<u64, AgentError> {
        let boot_id = fs::read_to_string(BOOT_ID).unwrap_or_default();
        let path = self.path.join(INSTANCE);
        let failed = |error: io::Error| AgentError::other(format!("cannot write {}: {error}", path.display()));
        let known = fs::read_to_string(&path).ok().and_then(|text| recalled(&text, boot_id.trim()));
        if let Some(instance) = known {
            return Ok(instance);
        }
        let instance = rand::random();
        let note = noted(instance, boot_id.trim());
        durable::write(&path, note.as_bytes(), Durability::Synced).map_err(failed)?;
        Ok(instance)
    }
}

pub(super) fn socket_of(state_dir: &Path) -> PathBuf {
    state_dir.join(SOCKET)
}

/// Socket addresses are short and the directory may be deep, so the path names it by a file descriptor.
pub(super) fn socket_in(state_dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", state_dir.as_raw_fd()))
}

fn noted(instance: u64, boot_id: &str) -> String {
    format!("{instance:016x} {boot_id}\n")
}

/// None without a boot id: the instance may be of an earlier boot.
fn recalled(text: &str, boot_id: &str) -> Option<u64> {
    let (instance, noted_at) = text.trim_end().split_once(' ')?;
    let instance = u64::from_str_radix(instance, 16).ok()?;
    (!boot_id.is_empty() && noted_at == boot_id).then_some(instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_kept_for_as_long_as_the_machine_runs() {
        let note = noted(0xab, "boot-1");
        assert_eq!(recalled(&note, "boot-1"), Some(0xab));
        assert_eq!(recalled(&note, "boot-2"), None, "rebooted, or another machine with a copy of the disk");
        for damaged in ["", "\n", "xyz boot-1", "00000000000000ab", "ab boot-1 more"] {
            assert_eq!(recalled(damaged, "boot-1"), None, "{damaged:?}");
        }
        assert_eq!(recalled(&noted(0xab, ""), ""), None, "a machine without a boot id");
    }

    #[test]
    fn a_directory_is_private_and_has_one_agent() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = StateDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let second = StateDir::open(&path).unwrap_err();
        assert!(
            second.message.ends_with("another agent uses it; stop that agent, or give this one its own directory"),
            "{second}"
        );
        let instance = first.instance().unwrap();
        assert_eq!(fs::metadata(path.join(INSTANCE)).unwrap().mode() & 0o777, 0o600);
        drop(first);
        assert_eq!(StateDir::open(&path).unwrap().instance().unwrap(), instance, "the same after a restart");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        StateDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }
}
