//! `DIR/cluster.json`, which says what runs where, for scripts, and `DIR/replica-N/pid`. They exist exactly while the
//! cluster is up.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::replica::Replica;
use super::replica_dir;

const FILE: &str = "cluster.json";
const PID_FILE: &str = "pid";

/// Readers see the old file or the new one, never half of one.
pub(super) fn write<'a>(dir: &Path, replicas: impl Iterator<Item = &'a Replica>) -> anyhow::Result<()> {
    let replicas: Vec<&Replica> = replicas.collect();
    for replica in &replicas {
        let path = replica_dir(dir, replica.id()).join(PID_FILE);
        fs::write(&path, format!("{}\n", replica.last_pid()))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let replicas: Vec<Value> = replicas.into_iter().map(entry).collect();
    let cluster = json!({"replicas": replicas, "pid": std::process::id()});
    let (path, unfinished) = (dir.join(FILE), dir.join(format!("{FILE}.new")));
    fs::write(&unfinished, format!("{cluster:#}\n"))
        .and_then(|()| fs::rename(&unfinished, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

pub(super) fn remove(dir: &Path) {
    // Absent is what we want; any other error shows at the next write.
    let _ = fs::remove_file(dir.join(FILE));
    for folder in fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = fs::remove_file(folder.path().join(PID_FILE));
    }
}

/// A dead replica keeps its last process id until it is restarted.
fn entry(replica: &Replica) -> Value {
    let doors = &replica.config().advertise;
    json!({
        "id": replica.id(),
        "pid": replica.last_pid(),
        "peer": doors.peer.to_string(),
        "agent": doors.agent.to_string(),
        "client": doors.client.to_string(),
        "http": replica.config().listen.http.to_string(),
        "data_dir": replica.config().data_dir,
    })
}
