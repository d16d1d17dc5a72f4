//! Field paths and errors: where in a message something is wrong, such as `spec.taints[1].effect`.
//!
//! Errors quote values from outside, so everything quoted here is cut to a readable length first.

use std::fmt;

use thiserror::Error;

/// The most characters of an offending value that an error shows.
const SHOWN_CHARS: usize = 80;

/// One field that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub struct FieldError {
    /// A path such as `spec.taints[1].effect`.
    pub field: String,
    /// The value found there, and what is wanted instead.
    pub rule: String,
}

/// A place in a message, built on the stack while descending and written out only when something is wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    Root(&'a str),
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

/// A quoted value, cut to a length that fits in a message.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

// === impl FieldError ===

impl FieldError {
    pub(crate) fn new(field: impl fmt::Display, rule: impl fmt::Display) -> Self {
        Self { field: field.to_string(), rule: rule.to_string() }
    }
}

// === impl Path ===

impl<'a> Path<'a> {
    /// The whole message; its name shows only when the message itself, not a field of it, is wrong.
    pub(crate) const MANIFEST: Path<'static> = Path::Root("manifest");

    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(crate) fn error(&self, rule: impl fmt::Display) -> FieldError {
        FieldError::new(self, rule)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(name) => f.write_str(name),
            Path::Field(Path::Root("manifest"), name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{}]", Shown(key)),
        }
    }
}

// === impl Shown ===

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN_CHARS) {
            None => write!(f, "{:?}", self.0),
            Some((cut, _)) => write!(f, "{:?}... ({} bytes)", &self.0[..cut], self.0.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_are_written_as_in_kubernetes() {
        let spec = Path::MANIFEST.field("spec");
        let taints = spec.field("taints");
        let second = taints.index(1);
        assert_eq!(second.field("effect").to_string(), "spec.taints[1].effect");

        let set = Path::Root("label").field("set").to_string();
        assert_eq!(set, "label.set");
        assert_eq!(Path::Root("label").field("set").key("a b").to_string(), "label.set[\"a b\"]");
        assert_eq!(Path::MANIFEST.to_string(), "manifest");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = "ä".repeat(1_000);
        let shown = Shown(&long).to_string();
        assert!(shown.ends_with("... (2000 bytes)"), "{shown}");
        assert!(shown.len() < 200, "{shown}");
        assert_eq!(Shown("short").to_string(), "\"short\"");
    }
}
