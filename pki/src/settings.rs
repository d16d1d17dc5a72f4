//! Settings files: TOML, read so that a mistake is named with its file, line and key.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::secret;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] secret::Error),
    #[error("{}:{line}: {}{message}", path.display(), key_prefix(key))]
    Syntax { path: PathBuf, line: usize, key: String, message: String },
    #[error("`{key}`: {reason}")]
    Invalid { key: &'static str, reason: String },
    #[error("{}: `{key}`: {reason}", path.display())]
    InvalidIn { path: PathBuf, key: &'static str, reason: String },
}

/// Reads `text`, the content of the file at `path`.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    let syntax = |key: String, error: &toml::de::Error| Error::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        key,
        message: error.message().to_owned(),
    };
    let source = toml::Deserializer::parse(text).map_err(|error| syntax(String::new(), &error))?;
    serde_path_to_error::deserialize(source).map_err(|error| syntax(error.path().to_string(), error.inner()))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// An error at the root has a lone dot as its path, which would tell the reader nothing.
fn key_prefix(key: &str) -> String {
    if key.is_empty() || key == "." { String::new() } else { format!("`{key}`: ") }
}
