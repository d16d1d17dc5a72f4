//! `muster init`: found a fleet, prepare a further replica, issue certificates to people and machines.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use muster_lifecycle::replica::ReplicaId;
use muster_pki::{FleetFolder, Grant, HostPort, OPERATOR_LIFETIME, ReplicaPlan, fleet_folder};

use super::Context;
use crate::exit::Failure;
use crate::output::{Out, say};

#[derive(Debug, Clone, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// A replica of the new cluster: its id and host, and the first of its four ports (peer, agent, client, http)
    /// [default: 7400]
    #[arg(long = "replica", required = true, value_name = "ID=HOST[:PORT]")]
    pub replicas: Vec<Place>,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Prepare the folder of a replica that joins the running cluster
    AddReplica {
        /// Its id and host, and the first of its four ports (peer, agent, client, http) [default: 7400]
        #[arg(value_name = "ID=HOST[:PORT]")]
        replica: Place,
    },
    /// Issue a certificate to a person, with a client.toml to use it
    IssueClient {
        /// Who it is for; appears in events and logs
        name: String,
        /// What it allows: operators may change things, viewers only look
        #[arg(long, value_enum)]
        group: Group,
        /// The folder to write
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// How long it is valid
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
    },
    /// Issue a certificate to a node's agent, or to an aggregator that carries many nodes
    IssueAgent {
        /// The node's or the aggregator's name
        name: String,
        /// For an aggregator; which nodes it may carry is said with `muster set aggregator`
        #[arg(long)]
        aggregator: bool,
        /// The folder to write
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Group {
    Operators,
    Viewers,
}

/// The address of a replica: its four doors are at four ports in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub id: ReplicaId,
    pub host: String,
    pub port_base: u16,
}

pub const DEFAULT_PORT_BASE: u16 = 7400;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let Some(dir) = context.dir.clone() else {
        return Err(Failure::Usage("name the fleet's folder with --dir DIR".into()));
    };
    match args.command {
        None => create(&dir, &args.replicas),
        Some(Command::AddReplica { replica }) => add_replica(&dir, &replica),
        Some(Command::IssueClient { name, group, out, days }) => {
            let lifetime = days.map_or(OPERATOR_LIFETIME, |days| DAY * days);
            issue_client(&dir, &name, group, &out, lifetime)
        }
        Some(Command::IssueAgent { name, aggregator, out }) => issue_agent(&dir, &name, aggregator, &out),
    }
}

fn create(dir: &Path, places: &[Place]) -> Result<(), Failure> {
    let plans = places.iter().map(Place::plan).collect::<Result<Vec<_>, _>>()?;
    let fleet = FleetFolder::create(dir, &plans).map_err(refused)?;
    let mut out = Out::stdout();
    out.line(fleet.id())?;
    out.flush()?;
    say(format_args!("cluster {} created in {}:", fleet.id(), dir.display()));
    for plan in &plans {
        let folder = fleet.replica_dir(plan.id);
        say(format_args!(
            "  {}: move it to {}, then `muster server --config config.toml`",
            folder.display(),
            plan.peer.host()
        ));
    }
    say(format_args!("  {}: an operator's credentials, for ~/.config/muster", fleet.operator_dir().display()));
    say(format_args!("  {}: the CA keys, which sign every certificate: keep them offline", dir.join("pki").display()));
    say(
        "each replica has client-ca.key in its tls folder, to sign for nodes that join; without it that replica cannot",
    );
    Ok(())
}

fn add_replica(dir: &Path, place: &Place) -> Result<(), Failure> {
    let plan = place.plan()?;
    let folder = FleetFolder::load(dir).map_err(refused)?.add_replica(&plan).map_err(refused)?;
    let mut out = Out::stdout();
    out.line(folder.display())?;
    out.flush()?;
    say(format_args!("move it to {} and start it with `muster server --config config.toml`, then:", plan.peer.host()));
    say(format_args!(
        "  muster member add {} --peer {} --agent {} --client {}\n  muster member promote {}",
        plan.id, plan.peer, plan.agent, plan.client, plan.id
    ));
    Ok(())
}

fn issue_client(dir: &Path, name: &str, group: Group, folder: &Path, lifetime: Duration) -> Result<(), Failure> {
    let fleet = FleetFolder::load(dir).map_err(refused)?;
    fleet.issue_client(folder, name, group.grant(), lifetime).map_err(refused)?;
    let mut out = Out::stdout();
    out.line(folder.display())?;
    out.flush()?;
    say(format_args!("use it with `--dir {0}` or `MUSTER_DIR={0}`", folder.display()));
    Ok(())
}

fn issue_agent(dir: &Path, name: &str, aggregator: bool, folder: &Path) -> Result<(), Failure> {
    let fleet = FleetFolder::load(dir).map_err(refused)?;
    let issued = if aggregator { fleet.issue_aggregator(name) } else { fleet.issue_node(name) };
    fleet.write_agent(folder, &issued.map_err(refused)?).map_err(refused)?;
    let mut out = Out::stdout();
    out.line(folder.display())?;
    out.flush()?;
    if aggregator {
        say(format_args!("say which nodes it may carry: `muster set aggregator {name} --nodes NAME,PREFIX-*`"));
    }
    Ok(())
}

fn refused(error: fleet_folder::Error) -> Failure {
    match error {
        fleet_folder::Error::Exists { .. }
        | fleet_folder::Error::InTheWay { .. }
        | fleet_folder::Error::ReplicaExists(_) => Failure::Conflict(error.to_string()),
        fleet_folder::Error::Absent { .. } => Failure::NoFleet(error.to_string()),
        fleet_folder::Error::NoReplicas
        | fleet_folder::Error::Name(_)
        | fleet_folder::Error::MachineName(_)
        | fleet_folder::Error::Plan(_) => Failure::Usage(error.to_string()),
        fleet_folder::Error::Authority(_) | fleet_folder::Error::File(_) | fleet_folder::Error::Toml(_) => {
            Failure::other(error)
        }
    }
}

// === impl Group ===

impl Group {
    fn grant(self) -> Grant {
        match self {
            Self::Operators => Grant::Operator,
            Self::Viewers => Grant::Viewer,
        }
    }
}

// === impl Place ===

impl Place {
    pub fn plan(&self) -> Result<ReplicaPlan, Failure> {
        let [peer, agent, client, http] = [0, 1, 2, 3].map(|offset| self.door(offset));
        // The plan puts the HTTP door beside the client door; all that matters here is that there is room for it.
        http?;
        Ok(ReplicaPlan { id: self.id, hosts: Vec::new(), peer: peer?, agent: agent?, client: client? })
    }

    fn door(&self, offset: u16) -> Result<HostPort, Failure> {
        let wrong = |reason: String| Failure::Usage(format!("replica {}: {reason}", self.id));
        let port = self.port_base.checked_add(offset).ok_or_else(|| wrong("its ports go beyond 65535".into()))?;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{port}").parse().map_err(|error: muster_pki::address::Error| wrong(error.to_string()))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a replica: write ID=HOST or ID=HOST:PORT, as in 1=10.0.0.1:7400");
        let (id, place) = text.split_once('=').ok_or_else(wrong)?;
        let id = id.parse().ok().filter(|id| *id > ReplicaId(0)).ok_or_else(wrong)?;
        let (host, port) = match (place.strip_prefix('[').and_then(|rest| rest.split_once(']')), place.rsplit_once(':'))
        {
            (Some((host, "")), _) => (host, None),
            (Some((host, port)), _) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
            (None, Some((host, port))) => (host, Some(port)),
            (None, None) => (place, None),
        };
        let port_base = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
            None => DEFAULT_PORT_BASE,
        };
        match host.is_empty() {
            true => Err(wrong()),
            false => Ok(Self { id, host: host.into(), port_base }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_written_as_id_host_and_port() {
        for (text, host, port) in [
            ("1=10.0.0.1", "10.0.0.1", 7400),
            ("1=db.example.org:9000", "db.example.org", 9000),
            ("1=[::1]:9000", "::1", 9000),
            ("1=[::1]", "::1", 7400),
        ] {
            let expected = Place { id: ReplicaId(1), host: host.into(), port_base: port };
            assert_eq!(text.parse::<Place>(), Ok(expected), "{text}");
        }
        for text in ["", "1", "=host", "0=host", "x=host", "1=", "1=host:0", "1=host:port", "1=[::1]9000"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_replica_has_four_consecutive_ports() {
        let plan = "2=10.0.0.2:7500".parse::<Place>().unwrap().plan().unwrap();
        let ports = [&plan.peer, &plan.agent, &plan.client].map(HostPort::port);
        assert_eq!(ports, [7500, 7501, 7502]);
        assert_eq!(plan.http().unwrap().to_string(), "10.0.0.2:7503");
        assert!("2=10.0.0.2:65532".parse::<Place>().unwrap().plan().is_ok());
        assert!("2=10.0.0.2:65533".parse::<Place>().unwrap().plan().is_err());
    }
}
