//! `muster set`: changes what is not an object: the settings of the cluster, and aggregators' scopes.

use std::collections::HashMap;

use muster_proto::v1::write_request::Operation;
use muster_proto::v1::write_response::Effect;
use muster_proto::v1::{AggregatorScope, PolicyChange};

use super::Context;
use crate::exit::Failure;
use crate::output::Out;

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Change settings of the cluster, for all replicas and at once; `muster get config` lists them
    Config {
        /// As in node-monitor-grace-period=1m node-eviction-rate=0.5
        #[arg(required = true, value_name = "SETTING=VALUE")]
        settings: Vec<String>,
    },
    /// Say which nodes an aggregator may carry
    #[command(group = clap::ArgGroup::new("scope").required(true).args(["nodes", "forget"]))]
    Aggregator {
        /// As in the aggregator's certificate
        name: String,
        /// Node names, or prefixes that end in *; they replace those given before
        #[arg(long, value_delimiter = ',', value_name = "NAME|PREFIX*")]
        nodes: Vec<String>,
        /// Allow it no nodes at all
        #[arg(long)]
        forget: bool,
    },
}

pub async fn run(context: &Context, action: Action) -> Result<(), Failure> {
    let (subject, operation) = match action {
        Action::Config { settings } => {
            let settings = pairs(&settings)?;
            ("config/cluster".to_owned(), Operation::Policy(PolicyChange { settings }))
        }
        Action::Aggregator { name, nodes, .. } => {
            (format!("aggregator/{name}"), Operation::Aggregator(AggregatorScope { name, nodes }))
        }
    };
    let response = context.client()?.write(operation).await?;
    let mut out = Out::stdout();
    out.line(format_args!("{subject} {}", done(response.effect())))?;
    out.flush()
}

fn done(effect: Effect) -> &'static str {
    match effect {
        Effect::Created => "created",
        Effect::Changed | Effect::Unspecified => "changed",
        Effect::Unchanged => "not changed",
        Effect::Deleted => "forgotten",
    }
}

fn pairs(words: &[String]) -> Result<HashMap<String, String>, Failure> {
    let mut pairs = HashMap::new();
    for word in words {
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(Failure::Usage(format!(
                "{word:?} is not a setting: write NAME=VALUE, as in node-monitor-period=5s"
            )));
        };
        if pairs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::Usage(format!("{name:?} is given twice")));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Option<Action> {
        let Command::Set(action) = Cli::try_parse_from(line.split(' ')).ok()?.command else {
            panic!("not a set: {line}")
        };
        Some(action)
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn settings_are_pairs_each_given_once() {
        let given = pairs(&words("node-monitor-period=2s node-eviction-rate=0.5")).unwrap();
        assert_eq!(given["node-monitor-period"], "2s");
        assert_eq!(given.len(), 2);
        for wrong in ["node-monitor-period", "=5s", "a=1 a=2"] {
            assert_eq!(pairs(&words(wrong)).unwrap_err().exit() as u8, 2, "{wrong}");
        }
    }

    #[test]
    fn set_aggregator_takes_either_nodes_or_forget() {
        let Some(Action::Aggregator { name, nodes, forget: false }) = parse("muster set aggregator r1 --nodes a,b-*")
        else {
            panic!("not parsed")
        };
        assert_eq!((name.as_str(), nodes), ("r1", words("a b-*")));
        assert!(matches!(parse("muster set aggregator r1 --forget"), Some(Action::Aggregator { forget: true, .. })));
        for wrong in ["muster set aggregator r1", "muster set aggregator r1 --forget --nodes a", "muster set config"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
