//! Golden bytes: files that pin how everything stored, and everything sent between replicas, is encoded.
//!
//! A file has one line per encoded value: a name and its bytes in hexadecimal digits. A test encodes one value of each
//! variant and compares. Bytes that change without a new level would let two builds disagree about the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Set this variable to write the files anew.
pub const RECORD_VARIABLE: &str = "MUSTER_RECORD_GOLDEN";

const HEAD: &str =
    "# Golden bytes. What may change here, and how: CONTRIBUTING.md, \"Change what is stored or sent\".\n";

/// Encoded values by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoldenBytes(BTreeMap<String, String>);

// === impl GoldenBytes ===

impl GoldenBytes {
    /// # Panics
    /// If the name is taken or has a blank in it.
    pub fn pin(&mut self, name: impl Into<String>, bytes: impl AsRef<[u8]>) {
        let name = name.into();
        assert!(!name.contains(char::is_whitespace), "{name:?} has a blank");
        let before = self.0.insert(name.clone(), hex(bytes.as_ref()));
        assert!(before.is_none(), "{name} is pinned twice");
    }

    /// Compares with the file, or writes it if [`RECORD_VARIABLE`] is set.
    ///
    /// # Panics
    /// If the bytes differ from those in the file.
    pub fn check(&self, file: &Path) {
        if std::env::var_os(RECORD_VARIABLE).is_some() {
            return std::fs::write(file, self.to_text()).expect("a golden file can be written");
        }
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let differences = self.differences(&Self::from_text(&text));
        assert!(differences.is_empty(), "{}", complaint(file, &differences));
    }

    fn to_text(&self) -> String {
        let lines = self.0.iter().map(|(name, bytes)| format!("{name} {bytes}\n"));
        std::iter::once(HEAD.to_owned()).chain(lines).collect()
    }

    fn from_text(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entry = |line: &str| line.split_once(' ').map(|(name, bytes)| (name.to_owned(), bytes.to_owned()));
        Self(lines.filter_map(entry).collect())
    }

    fn differences(&self, pinned: &Self) -> Vec<String> {
        let missing = |bytes: Option<&String>| bytes.map_or("-".to_owned(), |bytes| format!("`{bytes}`"));
        let names: BTreeSet<&String> = self.0.keys().chain(pinned.0.keys()).collect();
        let pairs = names.into_iter().map(|name| (name, pinned.0.get(name), self.0.get(name)));
        let changed = pairs.filter(|(_, before, now)| before != now);
        changed.map(|(name, before, now)| format!("{name}: {} is now {}", missing(before), missing(now))).collect()
    }
}

fn complaint(file: &Path, differences: &[String]) -> String {
    format!(
        "the bytes of {} values changed:\n  {}\nA changed byte needs a new level, and a new variant goes last: see \
         CONTRIBUTING.md, \"Change what is stored or sent\". Then {RECORD_VARIABLE}=1 writes {} anew.",
        differences.len(),
        differences.join("\n  "),
        file.display()
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden(pinned: &[(&str, &[u8])]) -> GoldenBytes {
        let mut golden = GoldenBytes::default();
        pinned.iter().for_each(|(name, bytes)| golden.pin(*name, bytes));
        golden
    }

    #[test]
    fn a_file_is_read_back() {
        let golden = golden(&[("a", &[0, 255]), ("nothing", &[])]);
        assert_eq!(GoldenBytes::from_text(&golden.to_text()), golden);
    }

    #[test]
    fn a_changed_a_new_and_a_missing_value_are_told() {
        let (before, now) =
            (golden(&[("a", &[1]), ("b", &[2]), ("c", &[3])]), golden(&[("a", &[1]), ("b", &[9]), ("d", &[4])]));
        assert_eq!(now.differences(&before), ["b: `02` is now `09`", "c: `03` is now -", "d: - is now `04`"]);
        assert_eq!(now.differences(&now), [""; 0]);
    }
}
