//! A YAML document as a tree that remembers its lines, and a reader whose errors name the line and the field.
//!
//! Serde's own errors name a line or a field, rarely both, and stop at types. A scenario's mistakes are mostly about
//! what its words mean. So the document is read as a plain tree first, and every access knows its path.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::yaml;

/// Entries of one document in all, lists and scalars alike.
const VALUES_MAX: usize = 4_000_000;

/// How much of an offending value a message quotes.
const QUOTED_MAX: usize = 64;

/// A value, and the line it begins in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Value {
    line: u64,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Null,
    Bool(bool),
    Scalar(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

/// An error, with line and field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}{field}{}{rule}", shown_line(*line), if field.is_empty() { "" } else { ": " })]
pub struct Fault {
    /// Zero if unknown.
    pub line: u64,
    /// A path such as `timeline[2].nodes`; empty for the document itself.
    pub field: String,
    /// The offending value, the rule it breaks, and the remedy.
    pub rule: String,
}

/// A value and the path that leads to it.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    value: &'a Value,
}

fn shown_line(line: u64) -> String {
    if line == 0 { " ".to_owned() } else { format!("{line}: ") }
}

/// Reads one YAML (or JSON) document.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_events: 2 * VALUES_MAX, max_nodes: VALUES_MAX },
    };
    let parsed: Result<Value, _> = serde_saphyr::from_str_with_options(text, options);
    parsed.map_err(|error| {
        let line = error.without_snippet().location().map_or(0, |at| at.line());
        Fault { line, field: String::new(), rule: format!("not YAML: {}", yaml::reason(&error)) }
    })
}

// === impl Field ===

impl<'a> Field<'a> {
    pub(super) fn document(value: &'a Value) -> Self {
        Self { path: String::new(), value }
    }

    pub(super) fn line(&self) -> u64 {
        self.value.line
    }

    pub(super) fn fault(&self, rule: impl fmt::Display) -> Fault {
        Fault { line: self.value.line, field: self.path.clone(), rule: rule.to_string() }
    }

    /// The fields of a map, none but the `known` ones.
    pub(super) fn fields(&self, known: &[&str]) -> Result<Fields<'a>, Fault> {
        let fields = Fields { own: self.clone(), entries: self.entries()? };
        for field in &fields.entries {
            if !known.contains(&field.name) {
                let name = clipped(field.name);
                let rule = format!("there is no field {name:?} here: use {}", known.join(", "));
                return Err(Fault { line: field.field.line(), field: self.path.clone(), rule });
            }
        }
        Ok(fields)
    }

    /// The entries of a map, whatever their names.
    pub(super) fn entries(&self) -> Result<Vec<Named<'a>>, Fault> {
        let Content::Map(entries) = &self.value.content else {
            return Err(self.fault(format!("must be a map of fields, not {}", self.value.content.shown())));
        };
        let named = |(name, value): &'a (String, Value)| Named { name, field: self.child(name, value) };
        Ok(entries.iter().map(named).collect())
    }

    pub(super) fn items(&self) -> Result<Vec<Field<'a>>, Fault> {
        let Content::List(items) = &self.value.content else {
            return Err(self.fault(format!("must be a list, not {}", self.value.content.shown())));
        };
        let item = |(index, value)| Field { path: format!("{}[{index}]", self.path), value };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.value.content, Content::List(_))
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.value.content, Content::Map(_))
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.content == Content::Null
    }

    /// Numbers and booleans count as the text they are written with.
    pub(super) fn text(&self) -> Result<String, Fault> {
        match &self.value.content {
            Content::Scalar(text) => Ok(text.clone()),
            Content::Bool(value) => Ok(value.to_string()),
            content @ (Content::Null | Content::List(_) | Content::Map(_)) => {
                Err(self.fault(format!("must be text, not {}", content.shown())))
            }
        }
    }

    pub(super) fn truth(&self) -> Result<bool, Fault> {
        match &self.value.content {
            Content::Bool(value) => Ok(*value),
            content @ (Content::Null | Content::Scalar(_) | Content::List(_) | Content::Map(_)) => {
                Err(self.fault(format!("must be true or false, not {}", content.shown())))
            }
        }
    }

    /// A whole number in a range.
    pub(super) fn count(&self, least: u64, most: u64) -> Result<u64, Fault> {
        let text = self.text()?;
        let count = text.parse().ok().filter(|count| (least..=most).contains(count));
        count.ok_or_else(|| self.fault(format!("{:?} is not a whole number from {least} to {most}", clipped(&text))))
    }

    fn child(&self, name: &str, value: &'a Value) -> Field<'a> {
        let name = clipped(name);
        let path = if self.path.is_empty() { name } else { format!("{}.{name}", self.path) };
        Field { path, value }
    }
}

/// An entry of a map.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) field: Field<'a>,
}

/// The entries of a map whose names are known.
pub(super) struct Fields<'a> {
    own: Field<'a>,
    entries: Vec<Named<'a>>,
}

impl<'a> Fields<'a> {
    /// A field without a value counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Field<'a>> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.field).filter(|field| !field.is_null())
    }

    pub(super) fn require(&self, name: &str, remedy: &str) -> Result<&Field<'a>, Fault> {
        self.get(name).ok_or_else(|| self.own.fault(format!("has no {name}: {remedy}")))
    }
}

pub(super) fn clipped(text: &str) -> String {
    muster_lifecycle::text::Text::clipped(text, QUOTED_MAX).to_string()
}

// === impl Content ===

impl Content {
    fn shown(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Scalar(text) => format!("{:?}", clipped(text)),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

// === reading ===

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: content, referenced, .. } = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: referenced.line(), content })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a map")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        while let Some(key) = map.next_key::<Value>()? {
            let name = match key.content {
                Content::Scalar(name) => name,
                Content::Bool(name) => name.to_string(),
                Content::Null | Content::List(_) | Content::Map(_) => {
                    return Err(A::Error::custom("a field's name must be text"));
                }
            };
            let value: Value = map.next_value()?;
            entries.push((name, Value { line: key.line, ..value }));
        }
        Ok(Content::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line_and_path() {
        let value = parse("a: 1\nb:\n  - {c: 2,\n     d: [x, y]}\n").unwrap();
        let document = Field::document(&value);
        let fields = document.fields(&["a", "b"]).unwrap();
        let first = &fields.require("b", "").unwrap().items().unwrap()[0];
        let d = first.fields(&["c", "d"]).unwrap().require("d", "").unwrap().clone();
        assert_eq!(d.fault("is wrong").to_string(), "4: b[0].d: is wrong");
        assert_eq!(d.items().unwrap()[1].fault("no").to_string(), "4: b[0].d[1]: no");
    }

    #[test]
    fn an_unexpected_value_is_named_with_a_remedy() {
        let value = parse("a: 1\n\nbb: 2\n").unwrap();
        let fault = Field::document(&value).fields(&["a", "b"]).err().unwrap();
        assert_eq!(fault.to_string(), "3: there is no field \"bb\" here: use a, b");
        let value = parse("a: [1]\n").unwrap();
        let fields = Field::document(&value).fields(&["a"]).unwrap();
        assert_eq!(fields.get("a").unwrap().text().unwrap_err().to_string(), "1: a: must be text, not a list");
        let fault = fields.require("b", "write b: 1").err().unwrap();
        assert_eq!(fault.to_string(), "1: has no b: write b: 1");
    }

    #[test]
    fn scalars_are_text_whatever_they_look_like() {
        for (text, expected) in
            [("a: \"True\"", "True"), ("a: True", "true"), ("a: 0.1", "0.1"), ("a: on", "on"), ("a: 7", "7")]
        {
            let value = parse(text).unwrap();
            let fields = Field::document(&value).fields(&["a"]).unwrap();
            assert_eq!(fields.get("a").unwrap().text().unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_line() {
        let fault = parse("a: 1\nb: [\n").unwrap_err();
        assert!(fault.rule.starts_with("not YAML: "), "{fault}");
        assert!(fault.line > 0, "{fault}");
        assert_eq!(
            parse("a: 1\nb: {c: 1,\n  c: 2}\n").unwrap_err().to_string(),
            "3: not YAML: \"c\" is there twice: keep one"
        );
    }
}
