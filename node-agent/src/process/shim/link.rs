//! Link between shim and agent. The shim sends the state of the pod, one line per change; the agent sends commands.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, watch};

/// An agent needs one connection; the next agent may connect before the former is gone.
const LISTENERS_MAX: usize = 8;
const COMMAND_MAX: u64 = 64;

/// A command of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::process) enum Command {
    /// Ask the pod to end, and kill it when the grace is over.
    Stop(Duration),
}

#[derive(Debug, Clone)]
pub(super) struct Links {
    states: watch::Receiver<String>,
    commands: mpsc::Sender<Command>,
}

// === impl Command ===

impl Command {
    pub(in crate::process) fn to_line(self) -> String {
        let Self::Stop(grace) = self;
        format!("stop {}\n", grace.as_millis())
    }

    fn parse(line: &str) -> Option<Self> {
        let millis = line.strip_prefix("stop ")?.strip_suffix('\n')?;
        millis.parse().ok().map(Duration::from_millis).map(Self::Stop)
    }
}

// === impl Links ===

impl Links {
    pub(super) fn new(states: watch::Receiver<String>, commands: mpsc::Sender<Command>) -> Self {
        Self { states, commands }
    }

    /// Accepts agents. Must be called on a tokio runtime.
    pub(super) fn accept_from(self, listener: UnixListener) -> std::io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let room = Arc::new(Semaphore::new(LISTENERS_MAX));
        tokio::spawn(async move {
            while let Ok(place) = Arc::clone(&room).acquire_owned().await {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let links = self.clone();
                tokio::spawn(async move {
                    links.serve(stream).await;
                    drop(place);
                });
            }
        });
        Ok(())
    }

    pub(super) fn connect(self, stream: UnixStream) {
        if let Ok(stream) = tokio::net::UnixStream::from_std(stream) {
            tokio::spawn(self.serve(stream));
        }
    }

    async fn serve(self, stream: tokio::net::UnixStream) {
        let (heard, said) = stream.into_split();
        let sending = tokio::spawn(send_states(said, self.states));
        receive_commands(heard, self.commands).await;
        sending.abort();
    }
}

async fn send_states(mut said: OwnedWriteHalf, mut states: watch::Receiver<String>) {
    loop {
        let line = states.borrow_and_update().clone();
        if said.write_all(line.as_bytes()).await.is_err() || states.changed().await.is_err() {
            return;
        }
    }
}

async fn receive_commands(heard: OwnedReadHalf, commands: mpsc::Sender<Command>) {
    let (mut heard, mut line) = (BufReader::new(heard), String::new());
    loop {
        line.clear();
        match (&mut heard).take(COMMAND_MAX).read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Some(command) = Command::parse(&line) else { return };
        if commands.send(command).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        let command = Command::Stop(Duration::from_millis(1500));
        assert_eq!(Command::parse(&command.to_line()), Some(command));
        for wrong in ["", "stop", "stop \n", "stop -1\n", "stop 1", "kill\n"] {
            assert_eq!(Command::parse(wrong), None, "{wrong:?}");
        }
    }
}
