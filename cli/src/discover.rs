//! Finding the cluster: which `client.toml` a command uses.
//!
//! A folder that was named (by flag or variable) is the only one looked at: silently talking to another cluster
//! than the one that was meant is worse than an error.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use muster_pki::{ClientConfig, settings};
use thiserror::Error;

pub const DEV_DIR: &str = ".muster-dev";
const FILES: [&str; 2] = ["client.toml", "operator/client.toml"];

#[derive(Debug, Error)]
pub enum Error {
    #[error("no cluster found; looked for{}\nstart a local one with `muster dev`, or name a folder that holds client.toml \
             with `--dir DIR`", listed(.looked))]
    NotFound { looked: Vec<PathBuf> },
    #[error(transparent)]
    Config(#[from] settings::Error),
}

/// Folders that may hold the cluster's credentials; read from the process once, at the edge.
#[derive(Debug, Clone, Default)]
pub struct CredentialFolders {
    /// `--dir`
    pub flag: Option<PathBuf>,
    /// `$MUSTER_DIR`
    pub variable: Option<PathBuf>,
    /// `$HOME`
    pub home: Option<PathBuf>,
    pub working_dir: PathBuf,
}

// === impl CredentialFolders ===

impl CredentialFolders {
    pub fn of_process(flag: Option<PathBuf>) -> Self {
        let path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self { flag, variable: path("MUSTER_DIR"), home: path("HOME"), working_dir: PathBuf::new() }
    }

    /// The `client.toml` to use.
    pub fn locate(&self) -> Result<PathBuf, Error> {
        let looked: Vec<PathBuf> =
            self.folders().iter().flat_map(|folder| FILES.map(|file| folder.join(file))).collect();
        match looked.iter().find(|path| path.is_file()) {
            Some(found) => Ok(found.clone()),
            None => Err(Error::NotFound { looked }),
        }
    }

    pub fn load(&self) -> Result<ClientConfig, Error> {
        Ok(ClientConfig::load(&self.locate()?)?)
    }

    fn folders(&self) -> Vec<PathBuf> {
        if let Some(named) = self.flag.as_ref().or(self.variable.as_ref()) {
            return vec![named.clone()];
        }
        let home = self.home.as_ref().map(|home| home.join(".config/muster"));
        home.into_iter().chain([self.working_dir.join(DEV_DIR)]).collect()
    }
}

/// Whether a command without `--dir` would talk to the cluster in `dir`.
pub fn is_default(dir: &Path) -> bool {
    let same = |located: PathBuf| {
        let wanted = FILES.map(|file| dir.join(file));
        let located = located.canonicalize().ok();
        located.is_some() && wanted.iter().any(|path| path.canonicalize().ok() == located)
    };
    CredentialFolders::of_process(None).locate().is_ok_and(same)
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().fold(String::new(), |mut text, path| {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {}", path.display());
        text
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(root: &Path, file: &str) -> PathBuf {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn the_order_is_flag_variable_home_working_dir() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut folders = CredentialFolders {
            flag: Some(root.join("flag")),
            variable: Some(root.join("variable")),
            home: Some(root.join("home")),
            working_dir: root.join("work"),
        };
        let files = [
            place(root, "flag/operator/client.toml"),
            place(root, "variable/client.toml"),
            place(root, "home/.config/muster/client.toml"),
            place(root, "work/.muster-dev/operator/client.toml"),
        ];
        assert_eq!(folders.locate().unwrap(), files[0]);
        folders.flag = None;
        assert_eq!(folders.locate().unwrap(), files[1]);
        folders.variable = None;
        assert_eq!(folders.locate().unwrap(), files[2]);
        fs::remove_file(&files[2]).unwrap();
        assert_eq!(folders.locate().unwrap(), files[3]);
    }

    #[test]
    fn client_toml_in_the_folder_itself_comes_first() {
        let root = tempfile::tempdir().unwrap();
        place(root.path(), "operator/client.toml");
        let own = place(root.path(), "client.toml");
        let folders = CredentialFolders { flag: Some(root.path().into()), ..CredentialFolders::default() };
        assert_eq!(folders.locate().unwrap(), own);
    }

    #[test]
    fn a_named_folder_is_never_replaced_by_another() {
        let root = tempfile::tempdir().unwrap();
        place(root.path(), "work/.muster-dev/client.toml");
        let folders = CredentialFolders {
            flag: Some(root.path().join("typo")),
            working_dir: root.path().join("work"),
            ..CredentialFolders::default()
        };
        let message = folders.locate().unwrap_err().to_string();
        assert!(message.contains("typo/client.toml"), "{message}");
        assert!(message.contains("muster dev") && message.contains("--dir"), "{message}");
        assert!(!message.contains("work"), "{message}");
    }
}
