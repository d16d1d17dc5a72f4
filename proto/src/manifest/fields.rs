//! A JSON object taken apart field by field.
//!
//! Reading by hand instead of by derive gives errors that say where, what was found and what was expected, and
//! it makes "unknown" exact: whatever nobody took is left over, and the leftovers keep the structure they had.

use serde_json::{Map, Value};

use crate::field::{FieldError, Path, Shown};

pub(super) type Read<T> = Result<T, FieldError>;

pub(super) struct Fields<'p> {
    path: Path<'p>,
    given: Map<String, Value>,
    /// Leftovers of nested objects and lists that were taken.
    kept: Map<String, Value>,
}

// === impl Fields ===

impl<'p> Fields<'p> {
    pub(super) fn open(value: Value, path: Path<'p>) -> Read<Self> {
        let Value::Object(given) = value else { return Err(mismatch(&path, "an object", &value)) };
        Ok(Self { path, given, kept: Map::new() })
    }

    /// An error about the field `name` of this object.
    pub(super) fn error(&self, name: &str, rule: impl std::fmt::Display) -> FieldError {
        self.path.field(name).error(rule)
    }

    /// Drops fields that the server owns: what a manifest says about them has no effect.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.given.remove(*name);
        }
    }

    /// Drops `name` if it holds the empty string, which is how upstream spells an absent required text.
    pub(super) fn ignore_empty(&mut self, name: &str) {
        if self.given.get(name).and_then(Value::as_str) == Some("") {
            self.given.remove(name);
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Read<Option<String>> {
        self.take(name).map(|value| text(value, &self.path.field(name))).transpose()
    }

    pub(super) fn required_text(&mut self, name: &str) -> Read<String> {
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
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(mismatch(&self.path.field(name), "true or false", &other)),
        }
    }

    pub(super) fn integer(&mut self, name: &str) -> Read<Option<i64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_i64() {
            Some(integer) => Ok(Some(integer)),
            None => Err(mismatch(&self.path.field(name), "a whole number", &value)),
        }
    }

    /// A nested object with its own fields.
    pub(super) fn object<T>(&mut self, name: &str, read: impl FnOnce(&mut Fields<'_>) -> Read<T>) -> Read<Option<T>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let mut nested = Fields::open(value, self.path.field(name))?;
        let read = read(&mut nested)?;
        let leftovers = nested.leftovers();
        self.keep(name, leftovers);
        Ok(Some(read))
    }

    /// A nested object that is read whole: its leftovers are the reader's.
    pub(super) fn object_apart<T>(&mut self, name: &str, read: impl FnOnce(Fields<'_>) -> Read<T>) -> Read<Option<T>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        read(Fields::open(value, self.path.field(name))?).map(Some)
    }

    /// A field that stays among the leftovers.
    pub(super) fn peek(&self, name: &str) -> Option<&Value> {
        self.given.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn path(&self) -> Path<'p> {
        self.path
    }

    /// A nested object whose keys are data, as labels are. `read` gets each value with its path.
    pub(super) fn entries<T>(
        &mut self,
        name: &str,
        read: impl Fn(Value, &Path<'_>) -> Read<T>,
    ) -> Read<Option<Vec<(String, T)>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let Value::Object(entries) = value else { return Err(mismatch(&path, "an object", &value)) };
        let read_entry = |(key, value): (String, Value)| read(value, &path.key(&key)).map(|value| (key, value));
        entries.into_iter().map(read_entry).collect::<Read<Vec<_>>>().map(Some)
    }

    /// A list of objects. The leftovers of an element are kept beside its `identity` fields, because positions
    /// shift when the list is edited.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        identity: &[&str],
        read: impl Fn(&mut Fields<'_>) -> Read<T>,
    ) -> Read<Option<Box<[T]>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let mut items = Vec::new();
        let mut kept = Vec::new();
        for (index, value) in elements(value, &path)?.into_iter().enumerate() {
            let mut element = Fields::open(value, path.index(index))?;
            let identified = element.subset(identity);
            items.push(read(&mut element)?);
            let leftovers = element.leftovers();
            if !leftovers.is_empty() {
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
        parse: impl Fn(String) -> Result<T, String>,
    ) -> Read<Option<Box<[T]>>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let path = self.path.field(name);
        let read = |(index, value)| {
            let at = path.index(index);
            parse(text(value, &at)?).map_err(|rule| at.error(rule))
        };
        elements(value, &path)?.into_iter().enumerate().map(read).collect::<Read<_>>().map(Some)
    }

    /// What nobody took.
    pub(super) fn leftovers(mut self) -> Map<String, Value> {
        self.given.extend(self.kept);
        self.given
    }

    /// As upstream does, null counts as absent in fields we know.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.given.remove(name).filter(|value| !value.is_null())
    }

    fn keep(&mut self, name: &str, leftovers: Map<String, Value>) {
        if !leftovers.is_empty() {
            self.kept.insert(name.to_owned(), Value::Object(leftovers));
        }
    }

    fn subset(&self, names: &[&str]) -> Vec<(String, Value)> {
        names.iter().filter_map(|name| self.given.get_key_value(*name)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

pub(super) fn text(value: Value, path: &Path<'_>) -> Read<String> {
    let Value::String(text) = value else { return Err(mismatch(path, "a string", &value)) };
    Ok(text)
}

pub(super) fn mismatch(path: &Path<'_>, expected: &str, found: &Value) -> FieldError {
    path.error(format_args!("expected {expected}, found {}", description(found)))
}

fn elements(value: Value, path: &Path<'_>) -> Read<Vec<Value>> {
    let Value::Array(elements) = value else { return Err(mismatch(path, "an array", &value)) };
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
