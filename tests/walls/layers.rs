//! Layers inside `lifecycle`: each room knows only the rooms below it, and no two modules depend on each other in a
//! circle. Read from the `crate::` paths of every file; unit tests may look anywhere.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{root, rust_files};

/// From the lowest to the highest. Rules are about single objects and lie below the store, whose indexes apply them.
/// Judging code reads the whole state and lies below `apply`, so it cannot write.
const LAYERS: [&str; 12] = [
    "value",
    "rehearsal",
    "object",
    "rejection",
    "command",
    "rule",
    "store",
    "state",
    "judge",
    "apply",
    "explain",
    "invariant",
];

/// The dependencies of each module, by path: `object/node` depends on `value/meta`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Every module with its code, without comments and unit tests. `lib.rs` only lists and re-exports.
fn modules() -> BTreeMap<String, String> {
    let root = root().join("lifecycle/src");
    let mut modules = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for file in rust_files(&root) {
        let name = file.strip_prefix(&root).unwrap().with_extension("").to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        for (_, rest) in text.match_indices("#[cfg(test)]\nmod ").map(|(at, found)| text.split_at(at + found.len())) {
            tests.insert(format!("{name}/{}", rest.split([';', ' ']).next().unwrap()));
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines();
        let code: Vec<&str> = code.map(|line| line.split("//").next().unwrap()).collect();
        modules.insert(name, code.join("\n"));
    }
    modules.retain(|name, _| name != "lib" && !tests.contains(name));
    modules
}

/// The paths behind every `crate::` in the code, as long as they can name modules.
fn paths(code: &str) -> Vec<Vec<&str>> {
    let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut paths = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let end = rest.find(|char: char| !is_word(char) && char != ':').unwrap_or(rest.len());
        paths.push(rest[..end].split("::").filter(|word| !word.is_empty()).collect());
    }
    paths
}

fn graph(modules: &BTreeMap<String, String>) -> Graph {
    let target = |path: &[&str]| {
        (1..=path.len()).rev().map(|length| path[..length].join("/")).find(|name| modules.contains_key(name))
    };
    let dependencies = |(name, code): (&String, &String)| {
        let targets = paths(code).into_iter().filter_map(|path| target(&path));
        (name.clone(), targets.filter(|other| other != name).collect())
    };
    modules.iter().map(dependencies).collect()
}

fn layer(module: &str) -> usize {
    let room = module.split('/').next().unwrap();
    LAYERS.iter().position(|layer| *layer == room).unwrap_or_else(|| panic!("say in LAYERS where {room} belongs"))
}

fn upward(graph: &Graph) -> Vec<String> {
    let edges = graph.iter().flat_map(|(from, tos)| tos.iter().map(move |to| (from, to)));
    edges.filter(|(from, to)| layer(from) < layer(to)).map(|(from, to)| format!("{from} -> {to}")).collect()
}

/// The modules of a circle, if there is one. Modules that depend on nothing, or that nothing depends on, are taken
/// away until only circles, and what lies between two of them, are left.
fn circle(graph: &Graph) -> Vec<String> {
    let mut left = graph.clone();
    loop {
        let needed: BTreeSet<String> = left.values().flatten().cloned().collect();
        let is_end = |(name, tos): (&String, &BTreeSet<String>)| tos.is_empty() || !needed.contains(name);
        let ends: BTreeSet<String> = left.iter().filter(|entry| is_end(*entry)).map(|(name, _)| name.clone()).collect();
        if ends.is_empty() {
            return left.into_keys().collect();
        }
        left.retain(|name, _| !ends.contains(name));
        left.values_mut().for_each(|tos| tos.retain(|to| !ends.contains(to)));
    }
}

#[test]
fn no_room_depends_on_a_higher_one() {
    let graph = graph(&modules());
    assert!(graph.len() > 60, "only {} modules were found", graph.len());
    assert_eq!(upward(&graph), Vec::<String>::new());
}

#[test]
fn no_modules_depend_on_each_other_in_a_circle() {
    assert_eq!(circle(&graph(&modules())), Vec::<String>::new());
}

/// The checks can fail.
#[test]
fn the_checks_find_an_upward_path_and_a_circle() {
    let module = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let modules = BTreeMap::from([
        module("value/text", "use crate::object::node::{Node, Slot};"),
        module("object/node", "use crate::object::pod::Pod;"),
        module("object/pod", "fn a(node: crate::object::node::Node) {}"),
        module("object/taint", "use crate::value::text::Text;"),
    ]);
    let graph = graph(&modules);
    assert_eq!(upward(&graph), ["value/text -> object/node"]);
    assert_eq!(circle(&graph), ["object/node", "object/pod"]);
}
