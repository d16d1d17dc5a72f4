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
    folders().flat_map(|folder| rust_files(&folder)).collect()
}

/// Every file of the workspace, of whatever kind: those of its crates, the tests of the whole, and the documentation.
pub(crate) fn all_files() -> Vec<PathBuf> {
    folders().chain([root().join("docs")]).flat_map(|folder| files(&folder)).collect()
}

pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    files(dir).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn folders() -> impl Iterator<Item = PathBuf> {
    let members = members().into_iter().filter(|member| !member.starts_with("tests/"));
    members.chain(["tests".to_owned()]).map(|folder| root().join(folder))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
