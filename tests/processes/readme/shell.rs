//! One shell for all of README's commands, in a folder where `target/release/muster` is the binary under test.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use muster_testing::process::{MUSTER, free_ports, shims_in, signal};
use muster_testing::waiting::eventually;
use tempfile::TempDir;

/// The command with which README starts the cluster, in a terminal of its own.
const DEV: &str = "cargo run --release -- dev";
/// Ports in README are those of `muster dev`; a test uses free ones.
const README_PORTS: u16 = 7400;
const PORT_COUNT: u16 = 30;
/// The last line that `muster dev` prints once all is up.
const DEV_IS_UP: &str = "Ctrl-C stops everything";
const END: &str = "end-of-command";

pub(crate) struct Shell {
    dir: TempDir,
    bash: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    port_base: u16,
    dev: Option<Child>,
}

/// The result of a command.
pub(crate) struct Ran {
    pub(crate) exit: i32,
    pub(crate) printed: Vec<String>,
}

// === impl Shell ===

impl Shell {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("target/release")).unwrap();
        symlink(&*MUSTER, dir.path().join("target/release/muster")).unwrap();
        let mut bash = Command::new("bash");
        bash.current_dir(dir.path()).env_remove("MUSTER_DIR").env("HOME", dir.path());
        let mut bash = bash.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash runs");
        let (sender, lines) = channel();
        let output = BufReader::new(bash.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut input = bash.stdin.take().unwrap();
        input.write_all(b"exec 2>&1\n").unwrap();
        Self { dir, bash, input: Some(input), lines, port_base: free_ports(), dev: None }
    }

    /// Runs one command to its end; `muster dev` until it is up.
    pub(crate) fn run(&mut self, command: &str, patience: Duration) -> Ran {
        if command == DEV {
            return self.start_dev();
        }
        let command = with_ports(command, README_PORTS, self.port_base);
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{command}\nprintf '\\n%s %s\\n' {END} $?").unwrap();
        let deadline = Instant::now() + patience;
        let mut printed = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| {
                panic!("no end within {patience:?}: $ {command}\n{}", printed.join("\n"));
            });
            if let Some(exit) = line.strip_prefix(END) {
                // The end mark is on a line of its own.
                printed.pop_if(|last: &mut String| last.is_empty());
                return Ran { exit: exit.trim().parse().unwrap(), printed };
            }
            printed.push(with_ports(&line, self.port_base, README_PORTS));
        }
    }

    fn start_dev(&mut self) -> Ran {
        assert!(self.dev.is_none(), "README starts `muster dev` twice");
        let log = self.dir.path().join("dev.log");
        let output = std::fs::File::create(&log).unwrap();
        let mut dev = Command::new(&*MUSTER);
        dev.current_dir(self.dir.path()).env_remove("MUSTER_DIR");
        dev.args(["dev", "--port-base", &self.port_base.to_string()]).stdin(Stdio::null());
        self.dev = Some(dev.stdout(output.try_clone().unwrap()).stderr(output).spawn().expect("muster dev starts"));
        eventually("muster dev is up", || read(&log).contains(DEV_IS_UP).then_some(()));
        let local = |line: &str| with_ports(line, self.port_base, README_PORTS);
        Ran { exit: 0, printed: read(&log).lines().map(local).collect() }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The jobs that README's commands left in the background end with their shell.
        if let Some(mut input) = self.input.take() {
            let _ = writeln!(input, "kill $(jobs -p) && wait");
        }
        let _ = self.bash.wait();
        shims_in(self.dir.path()).into_iter().for_each(|shim| signal("-TERM", shim));
        if let Some(mut dev) = self.dev.take() {
            signal("-TERM", dev.id());
            let _ = dev.wait();
        }
        if std::thread::panicking() {
            self.dir.disable_cleanup(true);
            eprintln!("the folder is kept for a look: {}", self.dir.path().display());
        }
    }
}

/// Loopback addresses with the ports of another base.
fn with_ports(text: &str, from: u16, to: u16) -> String {
    (0..PORT_COUNT).fold(text.to_owned(), |text, offset| {
        let address = |base: u16| format!("127.0.0.1:{}", base + offset);
        text.replace(&address(from), &address(to))
    })
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
