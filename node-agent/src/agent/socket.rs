//! The socket in the state directory at which an agent says what it is doing: whoever connects is told, and that is all.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::exit::AgentError;
use super::state_dir::{socket_in, socket_of};
use super::view::{AgentView, StatusSource};

/// One asker at a time, and none for long.
const TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Gone when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

// === impl Socket ===

impl Socket {
    /// The caller holds the state directory, so whatever is there is a former process's.
    pub(super) fn open(state_dir: &Path) -> Result<Self, AgentError> {
        let path = socket_of(state_dir);
        let failed =
            |error: io::Error| AgentError::other(format!("cannot open the socket {}: {error}", path.display()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let bind = |dir: File| UnixListener::bind(socket_in(&dir));
        let listener = File::open(state_dir).and_then(bind).map_err(failed)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { listener, path })
    }

    pub(super) async fn serve(self, source: StatusSource) {
        loop {
            match self.listener.accept().await {
                Ok((asker, _)) => drop(timeout(TIMEOUT, tell(asker, &source)).await),
                Err(error) => {
                    tracing::warn!(%error, "nobody can be told what this agent is doing; trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Nobody minds if it is gone already.
        let _ = fs::remove_file(&self.path);
    }
}

async fn tell(mut asker: UnixStream, source: &StatusSource) -> io::Result<()> {
    let view = serde_json::to_vec(&source.view().await)?;
    asker.write_all(&view).await?;
    asker.shutdown().await
}

/// Asks the agent whose state directory this is.
pub async fn ask(state_dir: &Path) -> Result<AgentView, AgentError> {
    let path = socket_of(state_dir);
    let failed = |error: &dyn std::fmt::Display| {
        AgentError::unreachable(format!(
            "no agent answers at {}: {error}; `systemctl status muster-agent` shows whether one runs, --state-dir names another",
            path.display()
        ))
    };
    let reading = async {
        let dir = File::open(state_dir)?;
        let asked = UnixStream::connect(socket_in(&dir)).await?;
        let mut answer = Vec::new();
        asked.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = timeout(TIMEOUT, reading).await.map_err(|late| failed(&late))?.map_err(|error| failed(&error))?;
    serde_json::from_slice(&answer).map_err(|error| failed(&error))
}
