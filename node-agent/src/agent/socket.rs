//! Status socket in the state directory: every client that connects receives the agent's status.

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

/// One client at a time, and none for long.
const TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Removed when it is dropped.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

// === impl Socket ===

impl Socket {
    /// The caller holds the state directory, so an existing socket belongs to a former process.
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
                Ok((client, _)) => drop(timeout(TIMEOUT, answer(client, &source)).await),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the status socket; trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The file may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(mut client: UnixStream, source: &StatusSource) -> io::Result<()> {
    let view = serde_json::to_vec(&source.view().await)?;
    client.write_all(&view).await?;
    client.shutdown().await
}

/// Asks the agent of this state directory for its status.
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
