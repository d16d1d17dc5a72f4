//! Place in a manifest: a value, and the path by which errors name it.

use std::time::Duration;

use serde_json::Value;

use super::Unsupported;

/// How much of a wrong value an error shows.
const SHOWN_MAX: usize = 64;

#[derive(Clone)]
pub(super) struct Place<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Place<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub(super) fn child(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        let value = self.value.get(name).unwrap_or(&Value::Null);
        Self { path: format!("{}{dot}{name}", self.path), value }
    }

    pub(super) fn error(&self, rule: &str) -> Unsupported {
        Unsupported { field: self.path.clone(), rule: rule.to_owned() }
    }

    pub(super) fn items(&self) -> Result<Vec<Self>, Unsupported> {
        let at = |(index, value)| Self { path: format!("{}[{index}]", self.path), value };
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(values) => Ok(values.iter().enumerate().map(at).collect()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Err(self.must_be("a list")),
        }
    }

    /// Arguments of processes end with a zero byte, so they cannot contain one.
    pub(super) fn text(&self) -> Result<Option<&'a str>, Unsupported> {
        match self.value.as_str() {
            Some(text) if text.contains('\0') => Err(self.error("it must not contain a zero byte")),
            Some(text) => Ok(Some(text)),
            None if self.value.is_null() => Ok(None),
            None => Err(self.must_be("a text")),
        }
    }

    pub(super) fn texts(&self) -> Result<Vec<&'a str>, Unsupported> {
        self.items()?.iter().map(|item| item.text()?.ok_or_else(|| item.must_be("a text"))).collect()
    }

    pub(super) fn flag(&self) -> Result<Option<bool>, Unsupported> {
        self.optional(Value::as_bool, "true or false")
    }

    pub(super) fn id(&self) -> Result<Option<u32>, Unsupported> {
        self.optional(|value| value.as_u64().and_then(|id| u32::try_from(id).ok()), "a number from 0 to 4294967295")
    }

    pub(super) fn seconds(&self) -> Result<Option<Duration>, Unsupported> {
        let seconds = |value: &Value| value.as_u64().map(|seconds| seconds.min(u32::MAX.into()));
        Ok(self.optional(seconds, "a number of seconds")?.map(Duration::from_secs))
    }

    /// A quantity is written as a text or as a number.
    pub(super) fn quantity_text(&self) -> Result<Option<String>, Unsupported> {
        match self.value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text.clone())),
            Value::Number(number) => Ok(Some(number.to_string())),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(self.must_be("a quantity")),
        }
    }

    /// The paths of these fields that are set.
    pub(super) fn present(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| self.child(name)).filter(Self::is_set).map(|place| place.path).collect()
    }

    pub(super) fn refuse(&self, names: &[&str]) -> Result<(), Unsupported> {
        match names.iter().map(|name| self.child(name)).find(Self::is_set) {
            Some(place) => Err(place.error("a runtime of plain processes does not support it")),
            None => Ok(()),
        }
    }

    pub(super) fn refuse_all_but(&self, known: &[&str]) -> Result<(), Unsupported> {
        let names = self.value.as_object().into_iter().flat_map(|fields| fields.keys());
        let others: Vec<_> = names.map(String::as_str).filter(|name| !known.contains(name)).collect();
        self.refuse(&others)
    }

    fn optional<T>(&self, read: impl FnOnce(&'a Value) -> Option<T>, what: &str) -> Result<Option<T>, Unsupported> {
        match self.value.is_null() {
            true => Ok(None),
            false => read(self.value).map(Some).ok_or_else(|| self.must_be(what)),
        }
    }

    /// Kubernetes' zero values count as absent.
    fn is_set(&self) -> bool {
        match self.value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            Value::Bool(true) | Value::Number(_) => true,
        }
    }

    fn must_be(&self, what: &str) -> Unsupported {
        let shown: String = self.value.to_string().chars().take(SHOWN_MAX).collect();
        self.error(&format!("{shown} is not {what}"))
    }
}
