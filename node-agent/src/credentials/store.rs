//! Store of a node's credentials: files written as a whole or not at all, readable by their owner only.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use thiserror::Error;

use super::PemTexts;
use crate::durable::{self, Durability};

pub(super) const NODE: &str = "node.pem";
pub(super) const CA: &str = "ca.crt";
const JOINING: &str = "joining.key";
/// Larger than any key or certificate.
const SIZE_MAX: u64 = 256 * 1024;
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// The state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialStore {
    dir: PathBuf,
}

#[derive(Debug, Error)]
pub enum CredentialStoreError {
    #[error(
        "cannot {action} {path}: {source}; let the agent's user own it and run `chmod 600 {path}`, or correct --state-dir",
        path = path.display()
    )]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path} is open to others (mode {mode:04o}): a private key must be readable by its owner only; run `chmod 600 \
         {path}`, and revoke the node if others may have read it",
        path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{} is too large to be a key or a certificate", .0.display())]
    TooLarge(PathBuf),
    #[error(
        "{} does not hold a key and a certificate: remove node.pem from the state directory and join again with a new token",
        .0.display()
    )]
    Damaged(PathBuf),
    #[error("cannot make a key: {0}")]
    Key(#[from] rcgen::Error),
}

// === impl CredentialStore ===

impl CredentialStore {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this machine has joined.
    pub fn has_credentials(&self) -> bool {
        self.node().symlink_metadata().is_ok()
    }

    pub(crate) fn load(&self) -> Result<PemTexts, CredentialStoreError> {
        let bundle = read_private(&self.node())?;
        let start = bundle.find(CERTIFICATE).ok_or_else(|| CredentialStoreError::Damaged(self.node()))?;
        let (key, certificate) = bundle.split_at(start);
        Ok(PemTexts { ca: read(&self.dir.join(CA))?, certificate: certificate.to_owned(), key: key.to_owned() })
    }

    /// Writes the CA first: a key without its CA is of no use, and a CA without a key does no harm.
    pub(crate) fn save(&self, texts: &PemTexts) -> Result<(), CredentialStoreError> {
        self.make_dir()?;
        replace(&self.dir.join(CA), &texts.ca, 0o644)?;
        replace(&self.node(), &format!("{}{}", texts.key, texts.certificate), 0o600)
    }

    /// The key to join with. It is kept until the join is answered, so that a repeated request comes from the same
    /// key.
    pub(crate) fn joining_key(&self) -> Result<KeyPair, CredentialStoreError> {
        let path = self.dir.join(JOINING);
        if path.symlink_metadata().is_ok() {
            return KeyPair::from_pem(&read_private(&path)?).map_err(|_| CredentialStoreError::Damaged(path));
        }
        self.make_dir()?;
        let key = new_key()?;
        replace(&path, &key.serialize_pem(), 0o600)?;
        Ok(key)
    }

    pub(crate) fn joined(&self) -> Result<(), CredentialStoreError> {
        discard(&self.dir.join(JOINING))
    }

    /// Removes the join key if it is in use already: a process that ended between the answer and [`Self::joined`] left
    /// it, and would join with it a second time.
    pub(crate) fn forget_key_in_use(&self) -> Result<(), CredentialStoreError> {
        let path = self.dir.join(JOINING);
        match path.symlink_metadata().is_ok() && read_private(&path)? == self.load()?.key {
            true => discard(&path),
            false => Ok(()),
        }
    }

    fn node(&self) -> PathBuf {
        self.dir.join(NODE)
    }

    fn make_dir(&self) -> Result<(), CredentialStoreError> {
        durable::private_dir(&self.dir).map_err(failed("create folder", &self.dir))
    }
}

pub(crate) fn new_key() -> Result<KeyPair, CredentialStoreError> {
    Ok(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)
}

pub(super) fn read(path: &Path) -> Result<String, CredentialStoreError> {
    contents(File::open(path).map_err(failed("open", path))?, path)
}

/// Refuses files that group or others can access.
pub(super) fn read_private(path: &Path) -> Result<String, CredentialStoreError> {
    let file = File::open(path).map_err(failed("open", path))?;
    // Checks the open file and not the path, which could be replaced in between.
    let mode = file.metadata().map_err(failed("inspect", path))?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CredentialStoreError::Exposed { path: path.to_owned(), mode });
    }
    contents(file, path)
}

fn contents(file: File, path: &Path) -> Result<String, CredentialStoreError> {
    let mut text = String::new();
    let size = file.take(SIZE_MAX + 1).read_to_string(&mut text).map_err(failed("read", path))?;
    if size as u64 > SIZE_MAX {
        return Err(CredentialStoreError::TooLarge(path.to_owned()));
    }
    Ok(text)
}

/// The new text is on disk before it is visible.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), CredentialStoreError> {
    durable::write_with_mode(path, text.as_bytes(), mode, Durability::Synced).map_err(failed("replace", path))
}

fn discard(path: &Path) -> Result<(), CredentialStoreError> {
    durable::remove(path).map_err(failed("remove", path))
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CredentialStoreError {
    move |source| CredentialStoreError::Io { action, path: path.to_owned(), source }
}
