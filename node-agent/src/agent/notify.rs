//! Notifications to systemd (sd_notify): ready, status, stopping, and the watchdog.
//!
//! Crate `sd-notify` finds the socket in the environment at every call and sends on a blocking socket, so a stuck
//! systemd could block the agent, and tests would have to change the environment, which is unsafe code.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_INTERVAL: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// Does nothing if systemd did not ask for notifications.
#[derive(Debug, Default)]
pub struct SystemdNotify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

// === impl SystemdNotify ===

impl SystemdNotify {
    /// Configured by the environment of the service.
    pub fn from_environment() -> Self {
        let socket = std::env::var_os(SOCKET).and_then(|name| match open(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(socket = ?name, %error, "cannot notify systemd");
                None
            }
        });
        let interval = std::env::var(WATCHDOG_INTERVAL).ok();
        let pid = std::env::var(WATCHDOG_PID).ok();
        Self { socket, watchdog: watchdog(interval.as_deref(), pid.as_deref(), std::process::id()) }
    }

    pub fn to(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        Ok(Self { socket: Some(open(name)?), watchdog })
    }

    /// How often to notify the watchdog: twice as often as it demands.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", Self::in_one_line(status)));
    }

    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", Self::in_one_line(status)));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Removes line breaks: a status can quote other parties, and must not become a message of its own.
    fn in_one_line(status: &str) -> String {
        status.replace(char::is_control, " ")
    }

    fn send(&self, words: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(words.as_bytes(), address) {
            tracing::debug!(%error, "notification to systemd failed");
        }
    }
}

/// A name that begins with `@` is an abstract address, not a path.
fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Half the interval, if it is meant for this process.
fn watchdog(interval: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let is_meant = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let interval: u64 = interval?.parse().ok()?;
    (is_meant && interval > 0).then(|| Duration::from_micros(interval) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_notified_twice_as_often_as_it_demands() {
        let table = [
            (Some("30000000"), None, Some(Duration::from_secs(15))),
            (Some("30000000"), Some("7"), Some(Duration::from_secs(15))),
            (Some("30000000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, Some("7"), None),
        ];
        for (interval, pid, expected) in table {
            assert_eq!(watchdog(interval, pid, 7), expected, "{interval:?} {pid:?}");
        }
    }

    #[test]
    fn notifications_reach_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let notify = SystemdNotify::to(path.as_os_str(), None).unwrap();
        notify.ready("attached");
        notify.alive();
        let mut heard = [0; 64];
        let length = listener.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\nSTATUS=attached");
        let length = listener.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"WATCHDOG=1");
        drop(listener);
        notify.stopping();
        SystemdNotify::default().alive();
    }
}
