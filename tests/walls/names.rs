//! One name, one meaning: no two public types of the library crates share a name.

use std::collections::BTreeMap;

use crate::source::{members, root, rust_files};

/// Names that several types may have, and why.
const EXCEPTIONS: [(&str, &str); 1] =
    [("Error", "the error of its module, always named with it: `address::Error`, as in `std::io::Error`")];

/// The places of every public type, by name. No other crate can use the types of `cli`: it is the top.
fn public_types() -> BTreeMap<String, Vec<String>> {
    let mut types = BTreeMap::<String, Vec<String>>::new();
    for member in members().into_iter().filter(|member| member != "cli") {
        for file in rust_files(&root().join(&member).join("src")) {
            let text = std::fs::read_to_string(&file).unwrap();
            let place = file.strip_prefix(root()).unwrap().display().to_string();
            for name in text.lines().filter_map(public_type) {
                types.entry(name.to_owned()).or_default().push(place.clone());
            }
        }
    }
    types
}

/// The name of the public type that a line defines, if it defines one.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|char: char| !char.is_alphanumeric() && char != '_').next()
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let types = public_types();
    assert!(types.len() > 300, "only {} public types were found", types.len());
    let twice = types.iter().filter(|(_, places)| places.len() > 1);
    let unexplained: Vec<_> = twice.filter(|(name, _)| EXCEPTIONS.iter().all(|(known, _)| known != name)).collect();
    assert!(unexplained.is_empty(), "rename, or list with a reason in EXCEPTIONS: {unexplained:#?}");
}

#[test]
fn every_exception_is_still_needed() {
    let types = public_types();
    for (name, _) in EXCEPTIONS {
        assert!(types.get(name).is_some_and(|places| places.len() > 1), "{name} is no longer there twice");
    }
}

/// The check can fail.
#[test]
fn a_definition_is_told_from_a_mention() {
    assert_eq!(public_type("pub struct Digest(u128);"), Some("Digest"));
    assert_eq!(public_type("    pub enum Beat {"), Some("Beat"));
    assert_eq!(public_type("pub type Running = Option<Vec<Uid>>;"), Some("Running"));
    assert_eq!(public_type("pub(crate) struct Digest;"), None);
    assert_eq!(public_type("/// pub struct Digest"), None);
    assert_eq!(public_type("pub fn digest() {}"), None);
}
