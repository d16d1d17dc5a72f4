//! Small files in which kernel and distribution describe a machine, below a root that tests can replace.
//!
//! Crate `procfs` would add `procfs-core`, `bitflags` and `hex`. It reads lines without a bound on their length, and
//! its `Meminfo` fails if one of a dozen fields is missing that the agent does not need.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest of them is a routing table.
const LENGTH_MAX: u64 = 1 << 20;
/// The longest one-line value that is reported.
const LINE_MAX: usize = 256;

#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

/// A fact that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingFact {
    /// The fact that is left out.
    pub what: &'static str,
    pub path: PathBuf,
    pub reason: String,
}

// === impl Root ===

impl Root {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The location of a path of a real machine below this root.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(crate) fn text(&self, path: &str) -> io::Result<String> {
        text(&self.path(path))
    }

    /// The only line of a file; an empty one is an error.
    pub(crate) fn line(&self, path: &str) -> io::Result<String> {
        let text = self.text(path)?;
        let line = text.trim_end_matches('\0').trim().lines().next().unwrap_or_default().trim();
        match line.len() {
            0 => Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty")),
            1..=LINE_MAX if !line.contains(char::is_control) => Ok(line.to_owned()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its first line is not a short text")),
        }
    }

    pub(crate) fn number(&self, path: &str) -> io::Result<u64> {
        let line = self.line(path)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} is not a number"));
        line.parse().map_err(|_| wrong())
    }
}

fn text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_not_empty() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::new(tree.path());
        let cases: [(&str, Option<&str>); 6] = [
            ("6.1.0\n", Some("6.1.0")),
            ("  padded \nsecond\n", Some("padded")),
            ("uuid\0", Some("uuid")),
            ("", None),
            ("\n\n", None),
            ("bell\u{7}", None),
        ];
        for (content, line) in cases {
            std::fs::write(tree.path().join("file"), content).unwrap();
            assert_eq!(root.line("/file").ok().as_deref(), line, "{content:?}");
        }
        std::fs::write(tree.path().join("file"), "x".repeat(300)).unwrap();
        assert!(root.line("/file").is_err());
        assert!(root.line("/absent").is_err());
    }

    #[test]
    fn reads_are_bounded() {
        let endless = Root::new("/dev");
        assert_eq!(endless.text("/zero").unwrap().len() as u64, LENGTH_MAX);
    }
}
