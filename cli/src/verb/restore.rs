//! `muster restore FILE`: stopped, empty replicas start from a backup.
//!
//! Offline on purpose: it runs where the data directories are. All replicas of one restore must get the same
//! generation, so the first one's is passed on to the others.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use muster_controller::config::{Layer, ServerConfig};
use muster_controller::restore::{RestoreReport, restore};
use muster_controller::server::Build;
use muster_lifecycle::replica::ReplicaId;

use super::Context;
use crate::dev::lock;
use crate::discover::DEV_DIR;
use crate::exit::Failure;
use crate::output::{Out, say};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What `muster backup` wrote
    pub file: PathBuf,
    /// Restore the one replica with this configuration, instead of every replica-N/ in --dir
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The generation of the new cluster; with --config, give the same on every machine [default: the next one]
    #[arg(long, value_name = "N")]
    pub generation: Option<u64>,
}

pub fn run(build: Build, context: &Context, args: &Args) -> Result<(), Failure> {
    let replicas = replicas(context, args)?;
    for replica in &replicas {
        require_stopped_and_empty(replica)?;
    }
    let mut generation = args.generation;
    let mut out = Out::stdout();
    for replica in &replicas {
        let report = restore(build, replica, &args.file, generation)
            .with_context(|| format!("replica {} was not restored", replica.id))
            .map_err(Failure::Other)?;
        generation = Some(report.generation);
        out.line(line(replica.id, &report))?;
    }
    out.flush()?;
    say("start the replicas to form the new cluster; agents and operators keep their certificates");
    Ok(())
}

fn line(id: ReplicaId, report: &RestoreReport) -> String {
    let RestoreReport { nodes, revision, generation } = report;
    format!("replica/{id} restored: {nodes} nodes, revision {revision}, generation {generation}")
}

fn replicas(context: &Context, args: &Args) -> Result<Vec<ServerConfig>, Failure> {
    if let Some(path) = &args.config {
        if context.dir.is_some() {
            return Err(Failure::Usage("--dir restores every replica in it, --config one: choose".into()));
        }
        return Ok(vec![load(path)?]);
    }
    let dir = context.dir.clone().unwrap_or_else(|| DEV_DIR.into());
    refuse_running_dev(&dir)?;
    let mut initial = Vec::new();
    for path in configs(&dir)? {
        let replica = load(&path)?;
        match replica.join {
            true => say(format_args!(
                "replica {} joined the cluster later and is left out; add it again with `muster member add`",
                replica.id
            )),
            false => initial.push(replica),
        }
    }
    match initial.is_empty() {
        true => Err(Failure::Usage(format!(
            "no replica-N/config.toml in {}: name the folder with --dir, or one replica with --config",
            dir.display()
        ))),
        false => Ok(initial),
    }
}

/// The configurations of `DIR/replica-N`, by number.
fn configs(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()));
    let mut found = Vec::new();
    for entry in entries.map_err(Failure::Other)? {
        let entry = entry?;
        let number =
            entry.file_name().to_str().and_then(|name| name.strip_prefix("replica-")?.parse::<ReplicaId>().ok());
        let config = entry.path().join("config.toml");
        if let Some(number) = number.filter(|_| config.is_file()) {
            found.push((number, config));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn load(path: &Path) -> Result<ServerConfig, Failure> {
    let layer = Layer::load(path).map_err(Failure::other)?;
    ServerConfig::merge(Some(layer), Layer::default())
        .with_context(|| path.display().to_string())
        .map_err(Failure::Other)
}

fn refuse_running_dev(dir: &Path) -> Result<(), Failure> {
    match lock::holder(dir) {
        Some(pid) => Err(Failure::Conflict(format!(
            "`muster dev` (pid {pid}) runs the replicas in {}: stop it first with `muster dev stop`",
            dir.display()
        ))),
        None => Ok(()),
    }
}

fn require_stopped_and_empty(replica: &ServerConfig) -> Result<(), Failure> {
    let (id, data) = (replica.id, replica.data_dir.display());
    for address in [replica.listen.peer, replica.listen.agent, replica.listen.client] {
        if is_listening(address) {
            return Err(Failure::Conflict(format!("replica {id} seems to run ({address} is in use): stop it first")));
        }
    }
    match std::fs::read_dir(&replica.data_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::other(anyhow::Error::from(error).context(format!("cannot read {data}")))),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::Conflict(format!(
                "replica {id} has data in {data}: a restore never overwrites; move that folder away first"
            ))),
        },
    }
}

fn is_listening(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_found_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["replica-10", "replica-2", "replica-x", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("config.toml"), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("replica-3")).unwrap();
        let expected = ["replica-2/config.toml", "replica-10/config.toml"].map(|path| dir.path().join(path));
        assert_eq!(configs(dir.path()).unwrap(), expected);
    }
}
