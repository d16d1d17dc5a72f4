//! `muster label`, `annotate` and `taint`: small edits of one node, in kubectl's notation.

use std::collections::HashMap;

use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{PairsEdit, TaintEdit};

use super::{Context, PreconditionArgs, change_each, is_unchanged};
use crate::exit::Failure;
use crate::resource::{Resource, Selection};

#[derive(Debug, Clone, clap::Args)]
pub struct PairsArgs {
    /// The node (`node NAME` or `node/NAME`), then `key=value` to set and `key-` to remove
    #[arg(required = true, value_name = "node NAME KEY=VALUE|KEY-")]
    pub words: Vec<String>,
    /// Change values that are already set
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub precondition: PreconditionArgs,
}

#[derive(Debug, Clone, clap::Args)]
pub struct TaintArgs {
    /// The node (`node NAME` or `node/NAME`), then `key[=value]:Effect` to add, `key:Effect-` or `key-` to remove
    #[arg(required = true, value_name = "node NAME KEY=VALUE:EFFECT|KEY[:EFFECT]-")]
    pub words: Vec<String>,
    /// Change the value of taints that are already there
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub precondition: PreconditionArgs,
}

const PAIR_EDITS: &str = "KEY=VALUE sets, KEY- removes";
const TAINT_EDITS: &str = "KEY=VALUE:EFFECT or KEY:EFFECT adds, KEY:EFFECT- or KEY- removes";

pub async fn label(context: &Context, args: PairsArgs) -> Result<(), Failure> {
    pairs(context, args, "labeled", Operation::Label).await
}

pub async fn annotate(context: &Context, args: PairsArgs) -> Result<(), Failure> {
    pairs(context, args, "annotated", Operation::Annotate).await
}

pub async fn taint(context: &Context, args: TaintArgs) -> Result<(), Failure> {
    let (names, edits) = split(&args.words, is_taint_edit, TAINT_EDITS)?;
    let (remove, add): (Vec<String>, Vec<String>) = edits.into_iter().partition(|edit| edit.ends_with('-'));
    let remove: Vec<String> = remove.iter().map(|edit| without_dash(edit)).collect();
    let operation = |name: &str| {
        Operation::Taint(TaintEdit {
            name: name.into(),
            add: add.clone(),
            remove: remove.clone(),
            overwrite: args.overwrite,
            precondition: args.precondition.precondition(),
        })
    };
    let word = if add.is_empty() { "untainted" } else { "tainted" };
    let done = |response: &_| if is_unchanged(response) { "not changed" } else { word };
    change_each(&context.client()?, Resource::Nodes, &names, operation, done).await
}

async fn pairs(
    context: &Context,
    args: PairsArgs,
    word: &'static str,
    operation: fn(PairsEdit) -> Operation,
) -> Result<(), Failure> {
    let (names, edits) = split(&args.words, is_pair_edit, PAIR_EDITS)?;
    let edit = pairs_edit(&edits, &args)?;
    let operation = |name: &str| operation(PairsEdit { name: name.into(), ..edit.clone() });
    let done = |response: &_| if is_unchanged(response) { "not changed" } else { word };
    change_each(&context.client()?, Resource::Nodes, &names, operation, done).await
}

fn pairs_edit(edits: &[String], args: &PairsArgs) -> Result<PairsEdit, Failure> {
    let (mut set, mut remove) = (HashMap::new(), Vec::new());
    for edit in edits {
        let key = match edit.split_once('=') {
            Some((key, value)) => {
                let twice = set.insert(key.to_owned(), value.to_owned()).is_some() || remove.iter().any(|k| k == key);
                (key, twice)
            }
            None => {
                let key = edit.trim_end_matches('-');
                let twice = set.contains_key(key) || remove.iter().any(|k| k == key);
                remove.push(key.to_owned());
                (key, twice)
            }
        };
        if let (key, true) = key {
            return Err(Failure::Usage(format!("{key:?} is given twice")));
        }
    }
    let (overwrite, precondition) = (args.overwrite, args.precondition.precondition());
    Ok(PairsEdit { name: String::new(), set, remove, overwrite, precondition })
}

/// Separates the nodes from the edits: edits come last and contain what no node name can.
fn split(words: &[String], is_edit: fn(&str) -> bool, how: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
    let named_by_pair = words.first().is_some_and(|first| first.split_once('/').is_some_and(|(kind, _)| is_kind(kind)));
    // `node` and its first name are never edits, whatever they look like.
    let fixed = if named_by_pair { 1 } else { 2 };
    let edits_from =
        words.iter().skip(fixed).position(|word| is_edit(word)).map_or(words.len(), |position| position + fixed);
    let (nodes, edits) = words.split_at(edits_from.min(words.len()));
    let names = Selection::nodes(nodes)?;
    if edits.is_empty() {
        return Err(Failure::Usage(format!("say what to change: {how}")));
    }
    match edits.iter().find(|edit| !is_edit(edit)) {
        Some(wrong) => Err(Failure::Usage(format!("{wrong:?} is not an edit: {how}"))),
        None => Ok((names, edits.to_vec())),
    }
}

fn is_kind(word: &str) -> bool {
    Resource::parse(word).is_ok()
}

fn is_pair_edit(word: &str) -> bool {
    word.contains('=') || word.ends_with('-')
}

fn is_taint_edit(word: &str) -> bool {
    word.contains(':') || word.ends_with('-')
}

/// `key=value:Effect-` removes `key:Effect`: a taint is known by key and effect.
fn without_dash(edit: &str) -> String {
    let edit = edit.strip_suffix('-').unwrap_or(edit);
    match (edit.split_once('='), edit.rsplit_once(':')) {
        (Some((key, _)), Some((_, effect))) => format!("{key}:{effect}"),
        (Some((key, _)), None) => key.into(),
        (None, _) => edit.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn node_names_come_before_edits() {
        let cases = [
            ("node a k=v", "a", "k=v"),
            ("nodes a b k=v j-", "a b", "k=v j-"),
            ("node/a example.com/k=v", "a", "example.com/k=v"),
            ("node/a no/b k-", "a b", "k-"),
        ];
        for (text, names, edits) in cases {
            assert_eq!(split(&words(text), is_pair_edit, PAIR_EDITS).unwrap(), (words(names), words(edits)), "{text}");
        }
        for text in ["node a", "node", "node a k=v b", "pods a k=v"] {
            assert_eq!(split(&words(text), is_pair_edit, PAIR_EDITS).unwrap_err().exit() as u8, 2, "{text}");
        }
    }

    #[test]
    fn a_key_may_be_edited_once() {
        let args = PairsArgs { words: vec![], overwrite: false, precondition: PreconditionArgs::default() };
        let edit = pairs_edit(&words("a=1 b= c-"), &args).unwrap();
        assert_eq!(edit.set.get("a").map(String::as_str), Some("1"));
        assert_eq!(edit.set.get("b").map(String::as_str), Some(""));
        assert_eq!(edit.remove, ["c"]);
        for text in ["a=1 a=2", "a=1 a-", "a- a=1", "a- a-"] {
            assert!(pairs_edit(&words(text), &args).is_err(), "{text}");
        }
    }

    #[test]
    fn removed_taints_are_named_by_key_and_effect() {
        for (edit, expected) in [("k-", "k"), ("k:NoExecute-", "k:NoExecute"), ("k=v:NoExecute-", "k:NoExecute")] {
            assert_eq!(without_dash(edit), expected);
        }
    }
}
