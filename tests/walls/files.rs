//! Files and folders that a reader can take in: a header, comments that fit the page, folders that fit the eye.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::{all_files, all_rust_files, root};

const FILES_PER_FOLDER_MAX: usize = 25;
const COMMENT_COLUMNS_MAX: usize = 120;

fn place(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

#[test]
fn every_file_begins_with_a_header() {
    for file in all_rust_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with what it is", place(&file));
    }
}

#[test]
fn no_folder_has_more_files_than_a_reader_takes_in() {
    let mut folders = BTreeMap::<String, usize>::new();
    for file in all_files() {
        *folders.entry(place(file.parent().unwrap())).or_default() += 1;
    }
    folders.retain(|_, files| *files > FILES_PER_FOLDER_MAX);
    assert!(folders.is_empty(), "more than {FILES_PER_FOLDER_MAX} files in one folder: {folders:?}");
}

#[test]
fn no_comment_is_wider_than_the_page() {
    let mut wide = Vec::new();
    for file in all_rust_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| is_wide_comment(line));
        wide.extend(lines.map(|(number, _)| format!("{}:{}", place(&file), number + 1)));
    }
    assert!(wide.is_empty(), "comments of more than {COMMENT_COLUMNS_MAX} columns: {wide:#?}");
}

fn is_wide_comment(line: &str) -> bool {
    line.trim_start().starts_with("//") && line.chars().count() > COMMENT_COLUMNS_MAX
}

/// The check can fail.
#[test]
fn a_wide_comment_is_told_from_wide_code() {
    let words = "word ".repeat(30);
    assert!(is_wide_comment(&format!("    /// {words}")));
    assert!(!is_wide_comment(&format!("    let text = \"{words}\";")));
    assert!(!is_wide_comment("// short"));
}
