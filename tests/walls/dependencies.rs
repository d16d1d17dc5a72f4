//! The dependency walls of ARCHITECTURE.md: which crates each crate may use, checked against the manifests.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::{members, root, rust_files};

fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let section = manifest.get("dependencies").and_then(toml::Value::as_table);
    section.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn lifecycle_is_pure() {
    let allowed = ["serde", "thiserror", "strum", "imbl", "arcstr", "postcard", "xxhash-rust", "ipnet"];
    for dependency in dependencies(&root().join("lifecycle/Cargo.toml")) {
        assert!(allowed.contains(&dependency.as_str()), "lifecycle must stay pure, but depends on {dependency}");
    }
}

#[test]
fn lifecycle_uses_no_clock_and_no_randomness() {
    let forbidden =
        ["std::time::Instant", "SystemTime", "std::thread", "std::fs", "std::net::Tcp", "HashMap", "async fn"];
    for file in rust_files(&root().join("lifecycle/src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for word in forbidden {
            assert!(!text.contains(word), "{} uses {word}", file.display());
        }
    }
}

#[test]
fn each_framework_lives_in_one_crate() {
    let homes =
        [("openraft", "raft"), ("redb", "raft"), ("sled", "raft"), ("ractor", "actors"), ("axum", "controller")];
    for member in members() {
        let dependencies = dependencies(&root().join(&member).join("Cargo.toml"));
        for (framework, home) in homes {
            assert!(
                member == home || !dependencies.contains(framework),
                "{member} depends on {framework}, which belongs to {home}"
            );
        }
    }
}

/// Only the two binaries have a command line.
#[test]
fn only_binaries_have_a_command_line() {
    for member in members().into_iter().filter(|member| !["cli", "node-agent"].contains(&member.as_str())) {
        let dependencies = dependencies(&root().join(&member).join("Cargo.toml"));
        assert!(!dependencies.contains("clap"), "{member} depends on clap, but has no binary");
    }
}

#[test]
fn dependencies_point_down_the_diamond() {
    let below = |member: &str| -> &[&str] {
        match member {
            "lifecycle" => &[],
            "proto" => &["muster-lifecycle"],
            "pulse" => &["muster-lifecycle"],
            "actors" => &["muster-lifecycle", "muster-pulse"],
            "raft" => &["muster-lifecycle", "muster-proto"],
            "pki" => &["muster-lifecycle", "muster-proto"],
            "client" => &["muster-lifecycle", "muster-proto", "muster-pki"],
            "controller" => {
                &["muster-lifecycle", "muster-proto", "muster-pulse", "muster-raft", "muster-actors", "muster-pki"]
            }
            "node-agent" => &["muster-lifecycle", "muster-proto"],
            "bench" => {
                &["muster-lifecycle", "muster-proto", "muster-raft", "muster-pki", "muster-client", "muster-node-agent"]
            }
            "cli" => &[
                "muster-lifecycle",
                "muster-proto",
                "muster-pulse",
                "muster-raft",
                "muster-actors",
                "muster-pki",
                "muster-client",
                "muster-controller",
                "muster-node-agent",
                "muster-bench",
            ],
            "tests/checker" => &["muster-lifecycle", "muster-raft"],
            "tests/golden" => &[],
            "tests/harness" => &[
                "muster-checker",
                "muster-pki",
                "muster-client",
                "muster-lifecycle",
                "muster-proto",
                "muster-raft",
                "muster-actors",
                "muster-controller",
                "muster-node-agent",
            ],
            other => panic!("say in this test what {other} may depend on"),
        }
    };
    for member in members() {
        let ours = dependencies(&root().join(&member).join("Cargo.toml"));
        for dependency in ours.iter().filter(|name| name.starts_with("muster")) {
            assert!(below(&member).contains(&dependency.as_str()), "{member} must not depend on {dependency}");
        }
    }
}
