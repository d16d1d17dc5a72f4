//! Conformance page: `docs/conformance.md` speaks of every rule, and of no test that does not exist.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// How many rules there are of each family.
const FAMILIES: [(&str, usize); 19] = [
    ("RG", 8),
    ("CS", 7),
    ("AZ", 3),
    ("NR", 5),
    ("L", 7),
    ("S", 9),
    ("P", 7),
    ("NH", 11),
    ("PD", 5),
    ("T", 6),
    ("TC", 4),
    ("NE", 8),
    ("LB", 1),
    ("Q", 3),
    ("Z", 11),
    ("TE", 13),
    ("GC", 5),
    ("OOS", 1),
    ("IP", 11),
];

/// The folders by the names that the page uses.
const FOLDERS: [(&str, &str); 8] = [
    ("cores/", "lifecycle/tests/cores/"),
    ("law/", "lifecycle/tests/law/"),
    ("tree/", "actors/tests/tree/"),
    ("pulse/", "pulse/tests/"),
    ("agent/", "node-agent/tests/agent/"),
    ("agent-src/", "node-agent/src/"),
    ("sessions/", "controller/tests/sessions/"),
    ("hearing/", "controller/tests/hearing/"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/conformance.md")).unwrap()
}

/// The file that a reference such as `cores/zone.rs` means.
fn located(file: &str) -> PathBuf {
    let folder = FOLDERS.into_iter().find_map(|(short, folder)| Some((folder, file.strip_prefix(short)?)));
    folder.map_or_else(|| root().join(file), |(folder, rest)| root().join(folder).join(rest))
}

#[test]
fn every_rule_has_one_row() {
    let page = page();
    for (family, count) in FAMILIES {
        for number in 1..=count {
            let row = format!("| {family}-{number} | ");
            assert_eq!(page.lines().filter(|line| line.starts_with(&row)).count(), 1, "{family}-{number}");
        }
    }
}

#[test]
fn every_test_it_names_exists() {
    let page = page();
    let references = page.split('`').filter_map(|word| word.split_once(".rs::"));
    let mut seen = 0;
    for (file, test) in references {
        let path = located(&format!("{file}.rs"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(&format!("fn {test}(")), "{file}.rs has no test {test}");
        seen += 1;
    }
    assert!(seen > 100, "only {seen} references");
}
