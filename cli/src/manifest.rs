//! Splitting a file into manifests: several YAML documents, several JSON documents, JSON lists, Kubernetes Lists.
//!
//! Every document is numbered as a person would count them in the file, so that an error can name it.

use std::fmt;

use serde_json::Value;
use thiserror::Error;

use crate::yaml;

/// A fleet's worth of manifests is fine; a disk image by mistake is not.
pub const FILE_LIMIT: usize = 64 << 20;
const NESTING_LIMIT: usize = 8;

/// One object and where it stood.
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
    #[error("{place}: {reason}")]
    Syntax { place: Place, reason: String },
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
    let documents = match text.trim_start().starts_with(['{', '[']) && !has_yaml_marker(text) {
        true => json(file, text)?,
        false => yaml(file, text)?,
    };
    let mut flat = Vec::new();
    for document in documents {
        flatten(document, 0, &mut flat)?;
    }
    match flat.is_empty() {
        true => Err(Error::Empty { file: file.into() }),
        false => Ok(flat),
    }
}

fn json(file: &str, text: &str) -> Result<Vec<Document>, Error> {
    let place = |number| Place { file: file.into(), number, item: None };
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>().enumerate();
    values
        .map(|(index, value)| match value {
            Ok(object) => Ok(Document { place: place(index + 1), object }),
            Err(error) => Err(Error::Syntax { place: place(index + 1), reason: format!("not JSON: {error}") }),
        })
        .collect()
}

fn yaml(file: &str, text: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for (first_line, source) in yaml_documents(text) {
        let place = Place { file: file.into(), number: documents.len() + 1, item: None };
        let parsed: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&source);
        match parsed {
            Ok(values) => documents.extend(values.into_iter().map(|object| Document { place: place.clone(), object })),
            Err(error) => return Err(Error::Syntax { reason: yaml_reason(&error, first_line), place }),
        }
    }
    Ok(documents)
}

/// Says where in the file, not in the document, and keeps to one line.
fn yaml_reason(error: &serde_saphyr::Error, first_line: usize) -> String {
    let text = yaml::reason(error);
    match error.without_snippet().location() {
        Some(at) => format!("not YAML: {text} (the document begins at line {first_line}, at {} in it)", at.line()),
        None => format!("not YAML: {text} (the document begins at line {first_line})"),
    }
}

/// The sources between `---` lines. YAML reserves that marker at the start of a line, even inside block text.
fn yaml_documents(text: &str) -> Vec<(usize, String)> {
    let mut sources = vec![(1, String::new())];
    for (index, line) in text.lines().enumerate() {
        let rest = yaml_marker(line);
        if let Some(rest) = rest {
            sources.push((index + 1, String::from(rest)));
        } else if let Some((_, source)) = sources.last_mut() {
            source.push_str(line);
        }
        if let Some((_, source)) = sources.last_mut() {
            source.push('\n');
        }
    }
    sources
}

fn yaml_marker(line: &str) -> Option<&str> {
    line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
}

fn has_yaml_marker(text: &str) -> bool {
    text.lines().any(|line| yaml_marker(line).is_some())
}

/// JSON arrays and Kubernetes Lists stand for their items; nothing (`null`) stands for nothing.
fn flatten(document: Document, depth: usize, into: &mut Vec<Document>) -> Result<(), Error> {
    let Document { place, object } = document;
    if depth > NESTING_LIMIT {
        return Err(Error::Syntax { place, reason: "lists are nested too deeply".into() });
    }
    let items = match object {
        Value::Null => return Ok(()),
        Value::Array(items) => items,
        Value::Object(mut fields) if is_list(&fields) => match fields.remove("items") {
            Some(Value::Array(items)) => items,
            Some(Value::Null) | None => return Ok(()),
            Some(_) => return Err(Error::Syntax { place, reason: "items: must be a list".into() }),
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
            ("{\"a\":1} {", "f, document 2: not JSON"),
            ("a: 1\n---\nb: [\n", "f, document 2: not YAML"),
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
