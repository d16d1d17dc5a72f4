//! `muster upgrade`: the level in force, which replicas hold the next one back, and putting it into force.

use std::time::Duration;

use muster_lifecycle::time::Period;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::write_response::Effect;
use muster_proto::v1::{ReplicaStatus, StatusResponse, UpgradeFinalization, UpgradeStatus};
use serde_json::{Value, json};

use super::Context;
use crate::exit::Failure;
use crate::output::{Format, Out};
use crate::render::{or, table};

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Show the level in force, what each replica runs and speaks, and when the next level is put into force
    Status {
        #[arg(short, long, value_enum, default_value_t = Format::Table)]
        output: Format,
    },
    /// Put the next level into force now: from then on no older version can take part
    Finalize,
}

const HEADERS: &[&str] = &["ID", "ROLE", "REACHABLE", "VERSION", "LEVELS", "HOLDS BACK"];

/// The members are asked first what they speak.
const TIMEOUT: Duration = Duration::from_secs(15);

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    let client = context.client_within(TIMEOUT)?;
    let mut out = Out::stdout();
    match action {
        Action::Status { output } => {
            let status = client.status().await?;
            show(&mut out, &status, output)?;
        }
        Action::Finalize => {
            let done = client.write(Operation::FinalizeUpgrade(UpgradeFinalization {})).await?;
            let status = client.status().await?;
            let level = status.upgrade.unwrap_or_default().level;
            match done.effect() {
                Effect::Unchanged => out.line(format_args!("nothing to finalize: level {level} is in force"))?,
                Effect::Changed | Effect::Created | Effect::Deleted | Effect::Unspecified => {
                    out.line("upgrade finalized: no older version can take part from now on")?;
                }
            }
        }
    }
    out.flush()
}

fn show(out: &mut Out, status: &StatusResponse, output: Format) -> Result<(), Failure> {
    let upgrade = status.upgrade.clone().unwrap_or_default();
    match output {
        Format::Json => out.json(&to_json(status, &upgrade)),
        Format::Yaml => out.yaml(&to_json(status, &upgrade)),
        Format::Name => out.line(format_args!("level/{}", upgrade.level)),
        Format::Table | Format::Wide => {
            summary(&upgrade).iter().try_for_each(|line| out.line(line))?;
            out.line("")?;
            let rows: Vec<_> = status.replicas.iter().map(|replica| row(replica, &upgrade)).collect();
            table::render(HEADERS, &rows, true).iter().try_for_each(|line| out.line(line))
        }
    }
}

fn summary(upgrade: &UpgradeStatus) -> Vec<String> {
    let by = match upgrade.raised_by.as_str() {
        "" => String::new(),
        version => format!(" (raised by version {version})"),
    };
    vec![format!("level:  {}{by}", upgrade.level), format!("next:   {}", outlook(upgrade))]
}

fn outlook(upgrade: &UpgradeStatus) -> String {
    let to = upgrade.to;
    match (to, upgrade.held_back_by.as_slice(), upgrade.raised_in_ms) {
        (0, _, _) => "none: no replica speaks a higher level".into(),
        (_, [], Some(0)) => format!("level {to}, about to be raised: every replica speaks it"),
        (_, [], Some(wait)) => {
            let wait = Period::from_secs(wait.div_ceil(1000));
            format!("level {to} in {wait}: every replica speaks it; `muster upgrade finalize` does not wait")
        }
        (_, [], None) => format!("level {to}: every replica speaks it; run `muster upgrade finalize`"),
        (_, [one], _) => format!("level {to}, held back by replica {one}: upgrade or remove it"),
        (_, several, _) => {
            let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("level {to}, held back by replicas {}: upgrade or remove them", ids.join(", "))
        }
    }
}

fn row(replica: &ReplicaStatus, upgrade: &UpgradeStatus) -> Vec<String> {
    let levels = match replica.level_max {
        0 => "<unknown>".into(),
        max => format!("{} to {max}", replica.level_min),
    };
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        replica.id.to_string(),
        replica.role.clone(),
        yes(replica.reachable),
        or(&replica.version, "<unknown>"),
        levels,
        yes(upgrade.held_back_by.contains(&replica.id)),
    ]
}

fn to_json(status: &StatusResponse, upgrade: &UpgradeStatus) -> Value {
    let replica = |replica: &ReplicaStatus| {
        json!({
            "id": replica.id,
            "role": replica.role,
            "reachable": replica.reachable,
            "version": replica.version,
            "levels": {"min": replica.level_min, "max": replica.level_max},
            "holdsBack": upgrade.held_back_by.contains(&replica.id),
        })
    };
    json!({
        "level": upgrade.level,
        "raisedBy": upgrade.raised_by,
        "next": (upgrade.to > 0).then_some(upgrade.to),
        "raisedInMs": upgrade.raised_in_ms,
        "replicas": status.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outlook_says_what_is_next_and_what_to_do() {
        let upgrade = |held_back_by: &[u64], raised_in_ms| UpgradeStatus {
            level: 1,
            to: 2,
            held_back_by: held_back_by.to_vec(),
            raised_in_ms,
            ..UpgradeStatus::default()
        };
        for (status, wanted) in [
            (UpgradeStatus { level: 1, ..UpgradeStatus::default() }, "none: no replica speaks a higher level"),
            (upgrade(&[2], None), "level 2, held back by replica 2: upgrade or remove it"),
            (upgrade(&[2, 3], None), "level 2, held back by replicas 2, 3: upgrade or remove them"),
            (upgrade(&[], None), "level 2: every replica speaks it; run `muster upgrade finalize`"),
            (
                upgrade(&[], Some(89_500)),
                "level 2 in 1m30s: every replica speaks it; `muster upgrade finalize` does not wait",
            ),
            (upgrade(&[], Some(0)), "level 2, about to be raised: every replica speaks it"),
        ] {
            assert_eq!(outlook(&status), wanted);
        }
        let raised = UpgradeStatus { level: 2, raised_by: "0.2.0".into(), ..UpgradeStatus::default() };
        assert_eq!(summary(&raised)[0], "level:  2 (raised by version 0.2.0)");
    }
}
