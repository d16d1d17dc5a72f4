//! Fields of a JSON object, taken one by one.
//!
//! Reading by hand instead of by derive gives errors that say where, what was found and what was expected. It also
//! makes "unknown" exact: a field that no reader took is left over, and the leftovers keep the structure they had.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::json::{Json, Object};
use crate::field::{FieldError, Path, Shown};

pub(super) type Read<T> = Result<T, FieldError>;

/// Fields whose names are data.
pub(super) type Entries<'p, T> = Vec<(Cow<'p, str>, T)>;

/// The fields live as long as the path: the input outlives both.
pub(super) struct Fields<'p> {
    path: Path<'p>,
    given: Object<'p>,
    /// Leftovers of nested objects and lists that were taken.
    kept: Map<String, Value>,
}

// === impl Fields ===

impl<'p> Fields<'p> {
    pub(super) fn open(json: Json<'p>, path: Path<'p>) -> Read<Self> {
        let Json::Object(given) = json else { return Err(mismatch(&path, "an object", &json.to_value())) };
        Ok(Self { path, given, kept: Map::new() })
    }

    /// An error about the field `name` of this object.
    pub(super) fn error(&self, name: &str, rule: impl std::fmt::Display) -> FieldError {
        self.path.field(name).error(rule)
    }

    /// Drops fields that the server owns: what a manifest says about them has no effect.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.given.take(name);
        }
    }

    /// Drops `name` if it holds the empty string, which is how upstream spells an absent required text.
    pub(super) fn ignore_empty(&mut self, name: &str) {
        if self.given.get(name) == Some(&Json::Text(Cow::Borrowed(""))) {
            self.given.take(name);
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Read<Option<Cow<'p, str>>> {
        self.take(name).map(|json| text(json, &self.path.field(name))).transpose()
    }

    pub(super) fn required_text(&mut self, name: &str) -> Read<Cow<'p, str>> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) | None => Err(self.error(name, "is required")),
        }
    }

    /// A text that is parsed; the empty string counts as absent. `parse` gets the text and says what is wrong.
    pub(super) fn parsed<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Read<Option<T>> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => parse(&text).map(Some).map_err(|rule| self.error(name, rule)),
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Read<Option<bool>> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(mismatch(&self.path.field(name), "true or false", &other.to_value())),
        }
    }

    pub(super) fn integer(&mut self, name: &str) -> Read<Option<i64>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        let integer = if let Json::Number(number) = &json { number.as_i64() } else { None };
        match integer {
            Some(integer) => Ok(Some(integer)),
            None => Err(mismatch(&self.path.field(name), "a whole number", &json.to_value())),
        }
    }

    /// A nested object with its own fields.
    pub(super) fn object<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields<'_>) -> Read<T>) -> Read<Option<T>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        let mut nested = Fields::open(json, self.path.field(name))?;
        let read = read(&mut nested)?;
        let leftovers = nested.leftovers();
        self.keep(name, leftovers);
        Ok(Some(read))
    }

    /// A nested object that is read whole: its leftovers are the reader's.
    pub(super) fn object_apart<T>(&mut self, name: &str, read: impl FnOnce(Fields<'_>) -> Read<T>) -> Read<Option<T>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        read(Fields::open(json, self.path.field(name))?).map(Some)
    }

    /// Reads a field without taking it: it stays among the leftovers.
    pub(super) fn peek(&self, name: &str) -> Option<Value> {
        self.given.get(name).filter(|json| **json != Json::Null).map(Json::to_value)
    }

    pub(super) fn path(&self) -> Path<'p> {
        self.path
    }

    /// A nested object whose keys are data, as labels are. `read` gets each value with its path.
    pub(super) fn entries<T>(
        &mut self,
        name: &str,
        read: impl Fn(Json<'p>, &Path<'_>) -> Read<T>,
    ) -> Read<Option<Entries<'p, T>>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let Json::Object(entries) = json else { return Err(mismatch(&path, "an object", &json.to_value())) };
        let read_entry = |(key, json): (Cow<'p, str>, Json<'p>)| read(json, &path.key(&key)).map(|value| (key, value));
        entries.into_present().map(read_entry).collect::<Read<Vec<_>>>().map(Some)
    }

    /// A list of objects. The leftovers of an element are kept beside its `identity` fields, because positions
    /// shift when the list is edited.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        identity: &[&str],
        read: impl Fn(&mut Fields<'_>) -> Read<T>,
    ) -> Read<Option<Box<[T]>>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let mut items = Vec::new();
        let mut kept = Vec::new();
        for (index, json) in elements(json, &path)?.into_iter().enumerate() {
            let mut element = Fields::open(json, path.index(index))?;
            let identified = element.subset(identity);
            items.push(read(&mut element)?);
            let leftovers = element.leftovers();
            if !leftovers.is_empty() {
                let identified = identified.into_iter().map(|(name, json)| (name.to_owned(), json.to_value()));
                kept.push(Value::Object(leftovers.into_iter().chain(identified).collect()));
            }
        }
        if !kept.is_empty() {
            self.kept.insert(name.to_owned(), Value::Array(kept));
        }
        Ok(Some(items.into()))
    }

    /// A list of texts, each parsed.
    pub(super) fn texts<T>(
        &mut self,
        name: &str,
        parse: impl Fn(Cow<'_, str>) -> Result<T, String>,
    ) -> Read<Option<Box<[T]>>> {
        let Some(json) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let read = |(index, json)| {
            let at = path.index(index);
            parse(text(json, &at)?).map_err(|rule| at.error(rule))
        };
        elements(json, &path)?.into_iter().enumerate().map(read).collect::<Read<_>>().map(Some)
    }

    /// The fields that no reader took.
    pub(super) fn leftovers(self) -> Map<String, Value> {
        let mut leftovers = self.given.to_map();
        leftovers.extend(self.kept);
        leftovers
    }

    /// As upstream does, null counts as absent in fields that Muster knows.
    fn take(&mut self, name: &str) -> Option<Json<'p>> {
        self.given.take(name).filter(|json| *json != Json::Null)
    }

    fn keep(&mut self, name: &str, leftovers: Map<String, Value>) {
        if !leftovers.is_empty() {
            self.kept.insert(name.to_owned(), Value::Object(leftovers));
        }
    }

    fn subset<'n>(&self, names: &[&'n str]) -> Vec<(&'n str, Json<'p>)> {
        names.iter().filter_map(|name| self.given.get(name).map(|json| (*name, json.clone()))).collect()
    }
}

pub(super) fn text<'a>(json: Json<'a>, path: &Path<'_>) -> Read<Cow<'a, str>> {
    let Json::Text(text) = json else { return Err(mismatch(path, "a string", &json.to_value())) };
    Ok(text)
}

pub(super) fn mismatch(path: &Path<'_>, expected: &str, found: &Value) -> FieldError {
    path.error(format_args!("expected {expected}, found {}", description(found)))
}

fn elements<'a>(json: Json<'a>, path: &Path<'_>) -> Read<Vec<Json<'a>>> {
    let Json::Array(elements) = json else { return Err(mismatch(path, "an array", &json.to_value())) };
    Ok(elements)
}

fn description(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string {}", Shown(text)),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}
