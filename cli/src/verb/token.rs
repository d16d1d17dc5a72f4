//! `muster token`: one-time tokens with which machines join.
//!
//! The secret is drawn here and shown once; the cluster only ever learns its hash.

use std::time::Duration;

use bytes::Bytes;
use muster_client::{Client, Query};
use muster_lifecycle::join_token::check_ttl;
use muster_lifecycle::name;
use muster_lifecycle::time::Period;
use muster_pki::{authority_print, secret};
use muster_proto::token::Token;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::write_response::Effect;
use muster_proto::v1::{TokenCreation, TokenRevocation};
use serde_json::Value;

use super::Context;
use crate::discover::CredentialFolders;
use crate::exit::Failure;
use crate::output::Out;
use crate::render::{table, text};

const HEADERS: &[&str] = &["ID", "NODE", "EXPIRES", "STATE", "USED-BY"];

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Make a token with which one machine can join, once
    Create {
        /// The only node that may join with it; it may also take the place of one that is there
        #[arg(long, value_name = "NAME", value_parser = node_name)]
        node: Option<String>,
        /// How long it can be used, from 1m to 720h
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = ttl)]
        ttl: Duration,
    },
    /// Show which tokens there are, without their secrets
    List,
    /// Make a token useless that was not used yet
    Revoke {
        /// The part before the first dot
        id: String,
    },
}

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    match action {
        Action::Create { node, ttl } => create(context, node, ttl).await,
        Action::List => list(&context.client()?).await,
        Action::Revoke { id } => revoke(&context.client()?, id).await,
    }
}

/// A token for a name that no certificate can carry would only be found out when it is used.
fn node_name(text: &str) -> Result<String, String> {
    name::host_name(text).map(|()| text.to_owned()).map_err(|rule| rule.to_string())
}

/// `10m`, `24h`: a time that the cluster would refuse is refused here.
fn ttl(text: &str) -> Result<Duration, String> {
    let period: Period = text.parse().map_err(|error: muster_lifecycle::time::PeriodError| error.to_string())?;
    let ttl = Duration::from_millis(period.0);
    check_ttl(ttl).map(|()| ttl).map_err(|invalid| invalid.rule.to_string())
}

async fn create(context: &Context, node: Option<String>, ttl: Duration) -> Result<(), Failure> {
    let config = CredentialFolders::of_process(context.dir.clone()).load()?;
    let ca = secret::read(&config.tls.ca).map_err(Failure::other)?;
    let token = Token::draw(authority_print(&ca).map_err(Failure::other)?, rand::random);
    let client = context.client()?;
    let creation = TokenCreation {
        id: token.id.clone(),
        hash: Bytes::copy_from_slice(&token.hash().0),
        node: node.clone().unwrap_or_default(),
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
    };
    // The steps that may fail come first, or there would be a token that was never shown.
    let servers = agent_doors(&client).await?;
    client.write(Operation::CreateToken(creation)).await?;
    let mut out = Out::stdout();
    explain(node.as_deref(), ttl, &servers).iter().try_for_each(|line| out.line(line))?;
    out.line(&token)?;
    out.flush()
}

async fn agent_doors(client: &Client) -> Result<String, Failure> {
    let status = client.status().await?;
    Ok(status.replicas.iter().map(|replica| replica.agent.as_str()).collect::<Vec<_>>().join(","))
}

/// Hints for the operator, printed before the token itself, which stands alone on the last line.
fn explain(node: Option<&str>, ttl: Duration, servers: &str) -> [String; 5] {
    let who = match node {
        Some(node) => format!("the machine that shall be node {node:?}"),
        None => "one machine under a name that no node has".to_owned(),
    };
    let period = Period(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    let flag = node.map(|node| format!(" --hostname-override {node}")).unwrap_or_default();
    [
        format!("This token lets {who} join, once, within {period}. It is shown only now."),
        "On that machine, with the token in FILE (mode 600), or - in its place to paste it:".to_owned(),
        format!("  muster-agent --join @FILE --server {servers}{flag}"),
        "It also names this cluster's CA, so nothing else has to be copied. The token:".to_owned(),
        String::new(),
    ]
}

async fn list(client: &Client) -> Result<(), Failure> {
    let tokens = client.list(&Query::of("tokens")).await?.value;
    let rows = tokens.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let mut out = Out::stdout();
    table::render(HEADERS, &rows, true).iter().try_for_each(|line| out.line(line))?;
    out.flush()
}

fn row(token: &Bytes) -> Result<Vec<String>, Failure> {
    let token: Value = serde_json::from_slice(token).map_err(Failure::other)?;
    let cell = |path: &[&str]| Some(text(&token, path)).filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned();
    let any = |cell: String| if cell == "<none>" { "<any>".to_owned() } else { cell };
    Ok(vec![
        cell(&["metadata", "name"]),
        any(cell(&["spec", "node"])),
        cell(&["spec", "expires"]),
        cell(&["status", "state"]),
        cell(&["status", "used", "node"]),
    ])
}

async fn revoke(client: &Client, id: String) -> Result<(), Failure> {
    // The whole token is taken too, not only its id.
    let id = id.split('.').next().unwrap_or_default().to_owned();
    let response = client.write(Operation::RevokeToken(TokenRevocation { id: id.clone() })).await?;
    let mut out = Out::stdout();
    let done = if response.effect() == Effect::Unchanged { "was revoked before" } else { "revoked" };
    out.line(format_args!("token/{id} {done}"))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Option<Action> {
        let Command::Token(action) = Cli::try_parse_from(line.split(' ')).ok()?.command else {
            panic!("not about tokens: {line}")
        };
        Some(action)
    }

    #[test]
    fn a_token_lasts_ten_minutes_by_default() {
        for (line, wanted) in [
            ("muster token create", Some(600)),
            ("muster token create --ttl 24h", Some(86_400)),
            ("muster token create --node a --ttl 1m", Some(60)),
            ("muster token create --node Not_A_Name", None),
            ("muster token create --ttl 59s", None),
            ("muster token create --ttl 721h", None),
            ("muster token create --ttl soon", None),
        ] {
            let got = match parse(line) {
                Some(Action::Create { ttl, .. }) => Some(ttl.as_secs()),
                Some(_) | None => None,
            };
            assert_eq!(got, wanted, "{line}");
        }
    }

    #[test]
    fn a_name_that_no_certificate_can_carry_is_refused_here() {
        let longest = [63, 63, 63, 61].map(|length| "x".repeat(length)).join(".");
        assert!(node_name(&longest).is_ok());
        assert!(node_name(&format!("{longest}x")).unwrap_err().contains("has 254 characters: at most 253"));
        assert!(node_name(&"x".repeat(64)).unwrap_err().contains("has a label of 64 characters"));
    }

    #[test]
    fn the_instructions_do_not_contain_the_token() {
        let told = explain(Some("rack-1"), Duration::from_secs(600), "a:7401,b:7401").join("\n");
        assert!(told.contains("muster-agent --join @FILE --server a:7401,b:7401 --hostname-override rack-1"), "{told}");
        assert!(told.contains("within 10m"), "{told}");
    }

    #[test]
    fn a_row_shows_node_and_expiry() {
        let token = json!({
            "metadata": {"name": "0123456789"},
            "spec": {"node": null, "expires": "2026-03-01T12:00:00Z"},
            "status": {"state": "Used", "used": {"node": "rack-1"}},
        });
        let row = row(&Bytes::from(token.to_string())).unwrap();
        assert_eq!(row, ["0123456789", "<any>", "2026-03-01T12:00:00Z", "Used", "rack-1"]);
    }
}
