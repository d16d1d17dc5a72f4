//! The commit that the benchmarks measure: `MUSTER_COMMIT` if the build sets it, else what git says.

use std::path::Path;
use std::process::Command;

/// Paths whose change is a change of what is measured.
const WATCHED: [&str; 13] = [
    "../.git/HEAD",
    "../.git/logs/HEAD",
    "../Cargo.lock",
    "../actors/src",
    "../bench/src",
    "../client/src",
    "../controller/src",
    "../lifecycle/src",
    "../node-agent/src",
    "../pki/src",
    "../proto/src",
    "../pulse/src",
    "../raft/src",
];

fn main() {
    println!("cargo::rerun-if-env-changed=MUSTER_COMMIT");
    // A path that is not there would count as changed at every build.
    for path in WATCHED.into_iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = std::env::var("MUSTER_COMMIT").ok().or_else(described).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=MUSTER_COMMIT={}", commit.trim());
}

/// Nothing without git, or outside a repository.
fn described() -> Option<String> {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
