//! Objects on a terminal: kubectl's tables and descriptions, from Kubernetes JSON.

pub mod age;
pub mod aggregator;
pub mod clock;
pub mod config;
pub mod describe;
pub mod event;
pub mod explain;
pub mod node;
pub mod pod;
pub mod replica;
pub mod table;
pub mod workload;
pub mod zone;

use serde_json::Value;

/// The text at a path of keys, or nothing.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The value at a path of keys; `null` if there is none.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

/// The items of a list at a path; none if there is no list.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// A placeholder for an empty text, so that scripts can count columns.
pub(crate) fn or(text: &str, placeholder: &str) -> String {
    let shown = if text.is_empty() { placeholder } else { text };
    shown.to_owned()
}
