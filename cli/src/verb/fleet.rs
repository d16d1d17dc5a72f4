//! `muster fleet`: makes the simulated nodes of a running `muster dev` misbehave.

use clap::Subcommand;
use muster_node_agent::simulated::{Behaviour, NodeTarget};
use serde_json::Value;

use super::Context;
use crate::dev::control::{self, FleetRequest};
use crate::dev::{self, CONTROL_TIMEOUT};
use crate::exit::Failure;
use crate::output::Out;
use crate::render::{items, table};

#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Hung machines: they stop beating and posting, but their connections stay open
    Silence(TargetArgs),
    /// Back to health, whatever they did before
    Resume(TargetArgs),
    /// Dead machines: their connections are cut, and they do not come back by themselves
    Kill(TargetArgs),
    /// Silent and back in turns
    Flap(TargetArgs),
    /// They post that their disks are full
    Pressure(TargetArgs),
    /// Their pods take three seconds to start, and to stop
    Slow(TargetArgs),
    /// Their pods never stop, whatever they are told
    Stuck(TargetArgs),
    /// Show the simulated nodes, what they do and run, and which replica each is attached to
    Status {
        /// text or json
        #[arg(short, long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text")]
        output: String,
    },
}

/// Which simulated nodes.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetArgs {
    #[command(flatten)]
    choice: Choice,
    /// Only this share of them, the first by name, rounded down
    #[arg(long, value_name = "P", conflicts_with = "node", value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: Option<u8>,
}

#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
struct Choice {
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// A zone's name, or region/zone
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    #[arg(long)]
    all: bool,
}

const HEADERS: &[&str] = &["NODE", "ZONE", "BEHAVIOUR", "REPLICA", "PODS"];

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    let dir = dev::folder(context);
    let patience = context.timeout.unwrap_or(CONTROL_TIMEOUT);
    let request = match &action {
        Action::Silence(target) => target.request(Behaviour::Silence),
        Action::Resume(target) => target.request(Behaviour::Resume),
        Action::Kill(target) => target.request(Behaviour::Kill),
        Action::Flap(target) => target.request(Behaviour::Flap),
        Action::Pressure(target) => target.request(Behaviour::Pressure),
        Action::Slow(target) => target.request(Behaviour::Slow),
        Action::Stuck(target) => target.request(Behaviour::Stuck),
        Action::Status { .. } => FleetRequest::Status,
    };
    let answer = control::ask(&dir, control::Request::Fleet(request), patience).await?;
    let mut out = Out::stdout();
    match action {
        Action::Status { output } if output == "text" => show(&mut out, &answer)?,
        Action::Status { .. }
        | Action::Silence(_)
        | Action::Resume(_)
        | Action::Kill(_)
        | Action::Flap(_)
        | Action::Pressure(_)
        | Action::Slow(_)
        | Action::Stuck(_) => out.line(answer)?,
    }
    out.flush()
}

fn show(out: &mut Out, answer: &str) -> Result<(), Failure> {
    let nodes: Vec<Value> = serde_json::from_str(answer)
        .map_err(|error| Failure::other(anyhow::anyhow!("`muster dev` answered what is not a list: {error}")))?;
    let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
    table::render(HEADERS, &rows, true).into_iter().try_for_each(|line| out.line(line))
}

fn row(node: &Value) -> Vec<String> {
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    let replica = node["attachedTo"].as_u64().map_or_else(|| "-".to_owned(), |id| id.to_string());
    vec![text("name"), text("zone"), text("behaviour"), replica, pods(items(node, &["pods"]))]
}

/// The pods on the machine itself, with how many of them were told to stop.
fn pods(pods: &[Value]) -> String {
    match pods.iter().filter(|pod| pod["stopping"] == true).count() {
        0 => pods.len().to_string(),
        stopping => format!("{} ({stopping} stopping)", pods.len()),
    }
}

// === impl TargetArgs ===

impl TargetArgs {
    fn request(&self, behaviour: Behaviour) -> FleetRequest {
        let percent = self.percent;
        let target = match (&self.choice.node, &self.choice.zone) {
            (Some(node), _) => NodeTarget::Node(node.clone()),
            (None, Some(zone)) => NodeTarget::Zone { zone: zone.clone(), percent },
            (None, None) => NodeTarget::All { percent },
        };
        FleetRequest::Apply { behaviour, target }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_what_a_machine_does_and_runs() {
        let mut node =
            json!({"name": "node-a-1", "zone": "dev/a", "behaviour": "healthy", "attachedTo": 2, "pods": []});
        assert_eq!(row(&node), ["node-a-1", "dev/a", "healthy", "2", "0"]);
        node["attachedTo"] = Value::Null;
        node["pods"] = json!([{"name": "a", "stopping": false}, {"name": "b", "stopping": true}]);
        assert_eq!(row(&node)[3..], ["-", "2 (1 stopping)"]);
        assert_eq!(row(&node).len(), HEADERS.len());
    }
}
