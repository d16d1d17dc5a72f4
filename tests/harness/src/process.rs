//! Processes of a test: the binary under test, signals, free ports. Only processes that a test started are ended.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::waiting::eventually;

/// The `muster` binary of this build, which cargo puts beside the folder of test binaries.
pub static MUSTER: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().expect("a test has a binary");
    let muster = test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("muster");
    assert!(muster.is_file(), "{} is not built: `cargo build -p muster`", muster.display());
    muster
});

/// The next build, which speaks one level more. `cargo test` builds it as an example of the same package.
pub static MUSTER_NEXT: LazyLock<PathBuf> = LazyLock::new(|| {
    let next = MUSTER.with_file_name("examples").join("muster-next");
    assert!(next.is_file(), "{} is not built: `cargo build -p muster --example muster-next`", next.display());
    next
});

/// The first of forty ports in a row that are free, and that no other test here was given.
pub fn free_ports() -> u16 {
    const BLOCKS: u32 = 450;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(37);
    loop {
        let block = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
        // Below the ephemeral range, whose ports come and go.
        let base = 12_000 + u16::try_from(block * 40).unwrap();
        if (base..base + 40).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

pub fn signal(signal: &str, pid: u32) {
    let _ = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
}

pub fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; its parent has not reaped it yet.
    !state.is_empty() && !state.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

pub fn wait_gone(pid: u32) {
    eventually("a process ends", || (!is_running(pid)).then_some(()));
}

/// The shims of the agent with this state folder. Pods outlive their agent: a shim that is asked to end ends its pod.
pub fn shims_in(state_dir: &Path) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_shim = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        matches!(&words[..], [_, flag, dir, ..] if flag == "--muster-pod-shim" && Path::new(&**dir).starts_with(state_dir))
    };
    pids.filter(is_shim).collect()
}

/// Reports the skip past the capture of output, which would hide it from the check for skipped tests.
pub fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
