//! The guide of `muster dev`, printed once everything is up: what runs where, and commands that work when pasted.

use std::path::{Path, PathBuf};

use muster_lifecycle::addressing::Addressing;
use muster_lifecycle::replica::ReplicaId;
use serde_json::Value;

use super::replica::Replica;
use crate::discover;
use crate::render::table;

const HEADERS: &[&str] = &["REPLICA", "PID", "PEER", "AGENT", "CLIENT", "HTTP", "LOG"];
const SETTINGS_PER_LINE: usize = 3;

pub(super) fn lines<'a>(dir: &Path, leader: ReplicaId, replicas: impl Iterator<Item = &'a Replica>) -> Vec<String> {
    let rows: Vec<Vec<String>> = replicas.map(row).collect();
    let mut lines = table::render(HEADERS, &rows, true);
    let command = command(dir);
    lines.extend([
        String::new(),
        format!("replica {leader} is the leader. Try:"),
        format!("  {command} get nodes --watch"),
        format!("  {command} get zones"),
        format!("  {command} get pods -o wide         # which pod runs on which node"),
        format!("  {command} fleet kill --zone b      # a zone fails and its pods move"),
        format!("  {command} explain zone b"),
        format!("  {command} explain $({command} get pods -o name | head -n 1)"),
        format!("  {command} fleet resume --all       # the zone comes back"),
        String::new(),
        "Ctrl-C stops everything; the next `muster dev` resumes it.".into(),
    ]);
    lines
}

/// The settings in force, several to a line.
pub(super) fn policy(config: &Value) -> Vec<String> {
    let settings = config["settings"].as_object().into_iter().flatten();
    let shown: Vec<String> =
        settings.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    let lines = shown.chunks(SETTINGS_PER_LINE).map(|line| format!("  {}", line.join("  ")));
    std::iter::once("policy (`muster set config NAME=VALUE` changes it):".to_owned()).chain(lines).collect()
}

/// The ranges from which nodes get addresses, if any, and whether those are the ranges that the flags ask for.
pub(super) fn addressing(config: &Value, wanted: Option<&Addressing>) -> Vec<String> {
    let settings = config["addressing"].as_object().into_iter().flatten();
    let shown: Vec<String> = settings
        .map(|(name, value)| (name, value.as_str().unwrap_or_default()))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut lines = Vec::new();
    if !shown.is_empty() {
        lines.push("node CIDRs:".to_owned());
        lines.extend(shown.chunks(SETTINGS_PER_LINE).map(|line| format!("  {}", line.join("  "))));
    }
    let is_in_force =
        |plan: &Addressing| plan.settings().iter().all(|(name, value)| config["addressing"][*name] == value.as_str());
    if wanted.is_some_and(|plan| !is_in_force(plan)) {
        lines.push("the flags for node CIDRs have no effect: a cluster keeps the ranges it was created with".into());
    }
    lines
}

fn row(replica: &Replica) -> Vec<String> {
    let doors = &replica.config().advertise;
    vec![
        replica.id().to_string(),
        replica.last_pid().to_string(),
        doors.peer.to_string(),
        doors.agent.to_string(),
        doors.client.to_string(),
        replica.config().listen.http.to_string(),
        replica.log().display().to_string(),
    ]
}

/// The command line that calls this very binary for the cluster in `dir`, from the current folder.
pub(super) fn command(dir: &Path) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "muster".into());
    let program = match is_on_path(&program) {
        true => "muster".into(),
        false => quoted(&program.display().to_string()),
    };
    match discover::is_default(dir) {
        true => program,
        false => format!("{program} --dir {}", quoted(&dir.display().to_string())),
    }
}

/// Whether the first `muster` on the PATH is this file.
fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found: Option<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join("muster")).find(|file| file.is_file());
    match (found.map(|file| file.canonicalize()), program.canonicalize()) {
        (Some(Ok(found)), Ok(program)) => found == program,
        _ => false,
    }
}

/// The text as one word for a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::addressing::AddressArgs;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted("/usr/bin/muster"), "/usr/bin/muster");
        assert_eq!(quoted("/a b/muster"), "'/a b/muster'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn cidr_flags_that_differ_from_the_cluster_are_reported() {
        let args = AddressArgs {
            allocate_node_cidrs: Some(true),
            cluster_cidr: Some("10.0.0.0/16".into()),
            ..AddressArgs::default()
        };
        let plan = args.layer().resolve().unwrap().unwrap();
        let settings: Value =
            plan.settings().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
        let mut config = json!({ "addressing": settings });
        let lines = addressing(&config, Some(&plan));
        assert_eq!(lines[0], "node CIDRs:");
        assert!(lines[1].starts_with("  cluster-cidr=10.0.0.0/16  "), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("no effect")), "{lines:?}");
        config["addressing"]["cluster-cidr"] = "10.9.0.0/16".into();
        assert!(addressing(&config, Some(&plan)).iter().any(|line| line.contains("no effect")));
        assert!(addressing(&json!({}), None).is_empty());
    }

    #[test]
    fn a_folder_that_is_not_the_default_is_spelled_out() {
        let dir = tempfile::tempdir().unwrap();
        let command = command(dir.path());
        assert!(command.contains(&format!("--dir {}", dir.path().display())), "{command}");
    }
}
