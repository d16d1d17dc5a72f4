//! Flow style, `{...}` and `[...]`: where a value ends, so that values in a row can be told apart.
//!
//! This counts brackets and reads nothing else; whether the text is right is for the parser to say.

use std::mem::replace;

/// Characters that may stand before a quote that opens a quoted text. Elsewhere, as in `it's`, a quote is a letter.
const BEFORE_A_QUOTE: [char; 5] = ['{', '[', ',', ':', '?'];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Value,
    Comment,
    SingleQuotes,
    DoubleQuotes,
    Escape,
}

/// The place after the first value of a text, if that is a map or a list in flow style and comes to an end.
pub(super) fn end_of_value(text: &str) -> Option<usize> {
    let (mut within, mut depth) = (Within::Value, 0_usize);
    // The character before this one, and the one before it that is no space.
    let (mut previous, mut last) = ('\n', ',');
    for (at, char) in text.char_indices() {
        let before = replace(&mut previous, char);
        let opens = BEFORE_A_QUOTE.contains(&last);
        within = match (within, char) {
            (Within::Comment | Within::Value, '\n') => Within::Value,
            (Within::Value, '#') if before.is_whitespace() => Within::Comment,
            (Within::Value, '\'') if opens && depth > 0 => Within::SingleQuotes,
            (Within::Value, '"') if opens && depth > 0 => Within::DoubleQuotes,
            (Within::SingleQuotes, '\'') | (Within::DoubleQuotes, '"') => Within::Value,
            (Within::DoubleQuotes, '\\') => Within::Escape,
            (Within::Escape, _) => Within::DoubleQuotes,
            (Within::Value, _) if !char.is_whitespace() => {
                last = char;
                depth = depth_after(depth, char)?;
                if depth == 0 {
                    return Some(at + char.len_utf8());
                }
                Within::Value
            }
            (within, _) => within,
        };
    }
    None
}

/// How many brackets are open after this character. Outside of all of them only an opening one may come.
fn depth_after(depth: usize, char: char) -> Option<usize> {
    match char {
        '{' | '[' => Some(depth + 1),
        '}' | ']' => depth.checked_sub(1),
        _ if depth > 0 => Some(depth),
        _ => None,
    }
}

/// Whether a text begins with a map or a list in flow style.
pub(super) fn begins_value(text: &str) -> bool {
    content(text).next().is_some_and(|line| line.starts_with(['{', '[']))
}

/// Whether there is nothing but space, comments and the end mark of a document.
pub(super) fn is_blank(text: &str) -> bool {
    content(text).all(|line| line == "...")
}

/// The lines that are not only space and comment.
fn content(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}
