//! Errors of the YAML parser, in words for the author of the file.
//!
//! The parser's own words advise programmers: which option to set, which function to call instead.

use serde_saphyr::Error;

/// How much of an offending name a message quotes.
const QUOTED_MAX: usize = 64;

/// One line, without the place.
pub fn reason(error: &Error) -> String {
    let bare = error.without_snippet();
    if let Error::DuplicateMappingKey { key, .. } = bare {
        return twice(key.as_deref());
    }
    if let Error::MultipleDocuments { .. } = bare {
        return "a second document begins here: only one is read, so leave out the `---` and what follows".into();
    }
    if let Error::UnknownAnchor { .. } = bare {
        return "refers by * to an anchor that was not set by & before".into();
    }
    if let Error::NonFiniteFloat { .. } = bare {
        return "a number must be finite; write text in quotes".into();
    }
    if let Error::Budget { .. } = bare {
        return "too much of it: fewer values, or less deeply nested".into();
    }
    without_place(bare.to_string().lines().next().unwrap_or_default()).to_owned()
}

/// The parser ends some messages with the line and column in the text it was given, which may be a part of the file.
fn without_place(message: &str) -> &str {
    message.rfind(" at line ").map_or(message, |end| &message[..end])
}

fn twice(key: Option<&str>) -> String {
    match key {
        Some(key) => format!("{:?} is there twice: keep one", muster_lifecycle::text::Text::clipped(key, QUOTED_MAX)),
        None => "a field is there twice: keep one".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn reason_of(text: &str) -> String {
        let parsed: Result<Value, Error> = serde_saphyr::from_str(text);
        reason(&parsed.unwrap_err())
    }

    #[test]
    fn yaml_errors_are_written_for_operators() {
        for (text, expected) in [
            ("a: 1\na: 2\n", "\"a\" is there twice: keep one"),
            ("a: 1\n---\nb: 2\n", "a second document begins here"),
            ("a: *b\n", "refers by * to an anchor"),
            ("a: .inf\n", "a number must be finite"),
            ("a: [\n", "unclosed bracket '['"),
        ] {
            let reason = reason_of(text);
            assert!(reason.starts_with(expected), "{text:?}: {reason}");
        }
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        for text in ["a: [\n", "a: b: c\n", "a: \"x\n", "- a\nb: 1\n", "%\n", deep.as_str()] {
            let reason = reason_of(text);
            let advice = ["Options", "Policy", "from_str", "from_multiple", "DeserializeOwned"];
            assert!(!reason.contains(" at line "), "{text:?}: {reason}");
            assert!(!reason.is_empty() && !advice.iter().any(|word| reason.contains(word)), "{text:?}: {reason}");
        }
    }
}
