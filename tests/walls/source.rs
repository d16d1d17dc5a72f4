//! The workspace's source files, for the tests that read them.

use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The folders of the workspace's crates.
pub(crate) fn members() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// Every Rust file of the workspace: those of its crates, and the tests of the whole.
pub(crate) fn all_rust_files() -> Vec<PathBuf> {
    let folders = members().into_iter().filter(|member| !member.starts_with("tests/")).chain(["tests".to_owned()]);
    folders.flat_map(|folder| rust_files(&root().join(folder))).collect()
}

pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
