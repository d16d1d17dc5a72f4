//! Conformance page: `docs/conformance.md` speaks of every rule, and of no test that does not exist. Likewise the fault
//! matrix, `docs/faults.md`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
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
const FOLDERS: [(&str, &str); 7] = [
    ("rules/", "lifecycle/tests/rules/"),
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

/// The file that a reference such as `rules/zone/state.rs` means.
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
fn every_test_named_on_the_page_exists() {
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

/// The rows of `docs/faults.md`: the fault's id, and the command that makes the fault.
fn fault_rows(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter(|line| line.starts_with("| F-"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        (cells[0], cells[4])
    })
    .collect()
}

#[test]
fn every_fault_has_one_row_in_the_matrix() {
    let page = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let mut rows: Vec<String> = fault_rows(&page).into_iter().map(|(id, _)| id.to_owned()).collect();
    rows.sort();
    let faults: Vec<String> = (1..=31).chain(40..=47).chain([50]).map(|number| format!("F-{number:02}")).collect();
    assert_eq!(rows, faults);
}

#[test]
fn every_command_of_the_fault_matrix_runs_a_test() {
    let page = std::fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let folders =
        [("P", "tests/processes"), ("I", "tests/inprocess"), ("R", "raft/tests"), ("D", "raft/tests/storage")];
    let mut seen = 0;
    for (id, commands) in fault_rows(&page) {
        for (short, filter) in commands.split(", ").filter_map(|command| command.split_once(' ')) {
            let Some((_, folder)) = folders.iter().find(|(name, _)| *name == short) else { continue };
            let filter = filter.trim_matches('`');
            let runs = |file: &PathBuf| {
                let text = std::fs::read_to_string(file).unwrap();
                let mut tests = text.lines().filter_map(|line| line.split_once("fn ")?.1.split_once('('));
                file.file_stem().is_some_and(|stem| stem == filter) || tests.any(|(name, _)| name.contains(filter))
            };
            assert!(rust_files(&root().join(folder)).iter().any(runs), "{id}: {short} `{filter}` runs nothing");
            seen += 1;
        }
    }
    assert!(seen > 30, "only {seen} commands");
}

#[test]
fn every_rule_that_the_source_mentions_is_defined() {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    let defined: BTreeSet<&str> = rows.filter(|id| rule_ids(id).any(|found| found == *id)).collect();
    let families: BTreeSet<&str> = defined.iter().filter_map(|id| Some(id.split_once('-')?.0)).collect();
    let mut mentions = 0;
    for file in rust_files(&root()) {
        let text = std::fs::read_to_string(&file).unwrap();
        for id in rule_ids(&text).filter(|id| families.contains(id.split('-').next().unwrap())) {
            assert!(defined.contains(id), "{} mentions {id}, which has no row in docs/conformance.md", file.display());
            mentions += 1;
        }
    }
    assert!(mentions > 300, "only {mentions} mentions");
}

/// The words of the form `NH-8`: capitals, a dash, one or two digits.
fn rule_ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '-').filter(|word| {
        word.split_once('-').is_some_and(|(family, number)| {
            !family.is_empty()
                && family.bytes().all(|byte| byte.is_ascii_uppercase())
                && matches!(number.len(), 1 | 2)
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_source = |path: &PathBuf| !path.ends_with("target") && !path.ends_with(".git");
    let found = entries.filter(is_source).flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}
