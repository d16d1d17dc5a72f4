//! `muster status`: the leader, the replicas, and how far each has come.

use muster_client::has_leader;
use muster_proto::v1::StatusResponse;

use super::Context;
use crate::exit::Failure;
use crate::output::{Format, Out};
use crate::render::{replica, table};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let status = context.client()?.status().await?;
    let mut out = Out::stdout();
    match args.output {
        Format::Json => out.json(&replica::status_to_json(&status))?,
        Format::Yaml => out.yaml(&replica::status_to_json(&status))?,
        Format::Table | Format::Wide => table(&mut out, &status)?,
        Format::Name => {
            for replica in &status.replicas {
                out.line(format_args!("replica/{}", replica.id))?;
            }
        }
    }
    out.flush()?;
    match has_leader(&status) {
        true => Ok(()),
        false => Err(Failure::NoLeader(no_leader(&status))),
    }
}

fn table(out: &mut Out, status: &StatusResponse) -> Result<(), Failure> {
    for line in replica::summary(status) {
        out.line(line)?;
    }
    let foremost = status.replicas.iter().map(|replica| replica.applied).max().unwrap_or(0);
    let rows: Vec<_> = status.replicas.iter().map(|each| replica::lag_row(each, foremost)).collect();
    out.line("")?;
    table::render(replica::LAG_HEADERS, &rows, true).iter().try_for_each(|line| out.line(line))?;
    status.replicas.iter().filter_map(replica::trouble).try_for_each(|line| out.line(line))
}

fn no_leader(status: &StatusResponse) -> String {
    let lost: Vec<String> =
        status.replicas.iter().filter(|replica| !replica.reachable).map(|replica| replica.id.to_string()).collect();
    match lost.is_empty() {
        true => format!("no leader known to replica {}; an election may be under way", status.answered_by),
        false => format!("no leader: replicas {} unreachable from replica {}", lost.join(", "), status.answered_by),
    }
}
