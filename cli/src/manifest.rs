//! Manifest files, split into objects: YAML documents, JSON documents, JSON lists, Kubernetes Lists.
//!
//! Documents are numbered as a person would count them in the file, so that an error can name one.

mod flow;

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::yaml;

/// A fleet's worth of manifests is fine; a disk image by mistake is not.
pub const FILE_LIMIT: usize = 64 << 20;
const NESTING_LIMIT: usize = 8;

/// One object and its place in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    pub place: Place,
    pub object: Value,
}

/// `nodes.yaml, document 2, item 3`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub number: usize,
    pub item: Option<usize>,
}

#[derive(Debug, Error)]
pub enum Error {
    #[error("{file}: larger than {} MiB; split it", FILE_LIMIT >> 20)]
    TooLarge { file: String },
    #[error("{file}: not UTF-8 text: is this a manifest?")]
    NotText { file: String },
    #[error("{place}, line {line}: not YAML or JSON: {reason}")]
    Syntax { place: Place, line: usize, reason: String },
    #[error("{place}: {reason}")]
    List { place: Place, reason: &'static str },
    #[error("{file}: no objects in it")]
    Empty { file: String },
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.number)?;
        match self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// Every object in a file, in order.
pub fn split(file: &str, bytes: &[u8]) -> Result<Vec<Document>, Error> {
    if bytes.len() > FILE_LIMIT {
        return Err(Error::TooLarge { file: file.into() });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| Error::NotText { file: file.into() })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let documents = parse(file, text)?;
    let mut flat = Vec::new();
    for document in documents {
        flatten(document, 0, &mut flat)?;
    }
    match flat.is_empty() {
        true => Err(Error::Empty { file: file.into() }),
        false => Ok(flat),
    }
}

/// Every document of a text. JSON is YAML, so one parser reads both.
fn parse(file: &str, text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for Source { first_line, text } in sources(text) {
        let place = Place { file: file.into(), number: documents.len() + 1, item: None };
        let parsed: Result<Vec<Value>, _> = serde_saphyr::from_multiple_with_options(text, options());
        match parsed {
            Ok(values) => documents.extend(values.into_iter().map(|object| Document { place: place.clone(), object })),
            Err(error) => {
                let line =
                    error.without_snippet().location().map_or(first_line, |at| first_line + line_index(at.line()));
                return Err(Error::Syntax { place, line, reason: yaml::reason(&error) });
            }
        }
    }
    Ok(documents)
}

/// The limits admit every file of [`FILE_LIMIT`], but not what an alias can blow up.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_events: FILE_LIMIT, max_nodes: FILE_LIMIT, max_total_scalar_bytes: FILE_LIMIT },
    }
}

fn line_index(line: u64) -> usize {
    usize::try_from(line.saturating_sub(1)).unwrap_or(0)
}

/// The text of one document and the line of the file that it begins in.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    first_line: usize,
    text: &'a str,
}

/// The documents of a text: between `---` lines, and objects one after the other, as `jq` and `kubectl` print them.
fn sources(text: &str) -> Vec<Source<'_>> {
    let mut sources = Vec::new();
    let (mut first_line, mut start, mut offset) = (1, 0, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if is_marker(line) {
            split_values(Source { first_line, text: &text[start..offset] }, &mut sources);
            (first_line, start) = (index + 1, offset + MARKER.len());
        }
        offset += line.len();
    }
    split_values(Source { first_line, text: &text[start..] }, &mut sources);
    sources
}

const MARKER: &str = "---";

/// YAML reserves the marker at the start of a line, even inside block text.
fn is_marker(line: &str) -> bool {
    line.strip_prefix(MARKER).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Adds the source, in pieces if it is nothing but `{...}` and `[...]` in a row, which YAML alone would not take.
fn split_values<'a>(source: Source<'a>, into: &mut Vec<Source<'a>>) {
    let Source { mut first_line, text: mut rest } = source;
    let mut pieces = Vec::new();
    while let Some(end) = flow::end_of_value(rest) {
        let (text, after) = rest.split_at(end);
        pieces.push(Source { first_line, text });
        first_line += text.matches('\n').count();
        rest = after;
    }
    if !pieces.is_empty() && flow::begins_value(rest) {
        // The value does not end: the parser will say so.
        pieces.push(Source { first_line, text: rest });
        rest = "";
    }
    match flow::is_blank(rest) && !pieces.is_empty() {
        true => into.extend(pieces),
        false => into.push(source),
    }
}

/// JSON arrays and Kubernetes Lists stand for their items; nothing (`null`) stands for nothing.
fn flatten(document: Document, depth: usize, into: &mut Vec<Document>) -> Result<(), Error> {
    let Document { place, object } = document;
    if depth > NESTING_LIMIT {
        return Err(Error::List { place, reason: "lists are nested too deeply" });
    }
    let items = match object {
        Value::Null => return Ok(()),
        Value::Array(items) => items,
        Value::Object(mut fields) if is_list(&fields) => match fields.remove("items") {
            Some(Value::Array(items)) => items,
            Some(Value::Null) | None => return Ok(()),
            Some(_) => return Err(Error::List { place, reason: "items: must be a list" }),
        },
        object @ (Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            into.push(Document { place, object });
            return Ok(());
        }
    };
    for (index, object) in items.into_iter().enumerate() {
        let place = Place { item: Some(index + 1), ..place.clone() };
        flatten(Document { place, object }, depth + 1, into)?;
    }
    Ok(())
}

fn is_list(fields: &serde_json::Map<String, Value>) -> bool {
    fields.get("kind").and_then(Value::as_str).is_some_and(|kind| kind == "List" || kind == "NodeList")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, String)> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("?").to_owned();
        let documents = split("f", text.as_bytes()).unwrap();
        documents.iter().map(|document| (document.place.to_string(), name(&document.object))).collect()
    }

    fn pair(place: &str, name: &str) -> (String, String) {
        (place.into(), name.into())
    }

    #[test]
    fn yaml_documents_are_split_and_numbered() {
        let text = "# head\n---\nmetadata: {name: a}\n---\n\n--- # two\nmetadata:\n  name: b\n...\n";
        assert_eq!(names(text), [pair("f, document 1", "a"), pair("f, document 2", "b")]);
    }

    #[test]
    fn json_documents_arrays_and_lists_are_split() {
        let text = r#"{"metadata":{"name":"a"}} [{"metadata":{"name":"b"}}]
            {"kind":"NodeList","items":[{"metadata":{"name":"c"}},{"kind":"List","items":[{"metadata":{"name":"d"}}]}]}"#;
        assert_eq!(
            names(text),
            [
                pair("f, document 1", "a"),
                pair("f, document 2, item 1", "b"),
                pair("f, document 3, item 1", "c"),
                pair("f, document 3, item 1", "d"),
            ]
        );
    }

    #[test]
    fn json_with_yaml_markers_between_is_yaml() {
        let text = "{\"metadata\":{\"name\":\"a\"}}\n---\n{\"metadata\":{\"name\":\"b\"}}\n";
        assert_eq!(names(text), [pair("f, document 1", "a"), pair("f, document 2", "b")]);
    }

    #[test]
    fn flow_style_yaml_may_begin_with_a_brace() {
        let hello = "# a pod\n{apiVersion: v1, kind: Pod, metadata: {name: hello}, spec: {containers: [\n  \
            {name: 'it''s }', command: [sh, -c, \"while :; do date; done # }\"]}]}}\n";
        assert_eq!(names(hello), [pair("f, document 1", "hello")]);
        assert_eq!(names("[{metadata: {name: a}}, {metadata: {name: it's}}]").len(), 2);
        assert_eq!(names("{metadata: {name: a}}\n...\n"), [pair("f, document 1", "a")]);
    }

    #[test]
    fn json_is_read_as_json_would_be() {
        let text = "{\n\t\"a\":\"\\ud83d\\ude00 \\/ \\u00e4\",\"b\":-1.5e3,\"c\":null,\n\t\t\"d\": {\"e:f\":[true]},\"n\":\"no\"}";
        let documents = split("f", text.as_bytes()).unwrap();
        assert_eq!(documents[0].object, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_large_list_is_read() {
        let items = vec![r#"{"metadata":{"name":"a","labels":{"x":"y"}}}"#; 50_000].join(",");
        let text = format!(r#"{{"kind":"List","items":[{items}]}}"#);
        assert_eq!(split("f", text.as_bytes()).unwrap().len(), 50_000);
    }

    #[test]
    fn quoted_scalars_stay_text() {
        let documents = split("f", b"labels: {a: \"true\", b: '1', c: \"null\"}\nflag: true\nn: 1\n").unwrap();
        let object = &documents[0].object;
        for key in ["a", "b", "c"] {
            assert!(object["labels"][key].is_string(), "{object}");
        }
        assert!(object["flag"].is_boolean() && object["n"].is_number(), "{object}");
    }

    #[test]
    fn mistakes_name_file_and_document() {
        for (text, part) in [
            ("{\"a\":1} {", "f, document 2, line 1: not YAML or JSON: "),
            ("{\"a\":1}\n{\"b\": \"x\" \"y\"}\n", "f, document 2, line 2: not YAML or JSON: "),
            ("a: 1\n---\nb: [\n", "f, document 2, line 3: not YAML or JSON: unclosed bracket '['"),
            ("{a: 1, b: {c: 1,\n c: 2}}", "f, document 1, line 2: not YAML or JSON: \"c\" is there twice: keep one"),
            ("{\"kind\":\"List\",\"items\":3}", "items: must be a list"),
            ("", "no objects"),
            ("---\n# nothing\n", "no objects"),
        ] {
            let message = split("f", text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(part), "{text:?}: {message}");
        }
        assert!(split("f", &[0xff, 0xfe]).unwrap_err().to_string().contains("not UTF-8"));
    }
}
