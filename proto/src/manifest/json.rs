//! JSON for reading: strings without escapes borrow from the input instead of being copied.
//!
//! A fleet that registers sends a million manifests of some hundred strings each, and nearly all of them end up in the
//! model, not in a document. The parts that stay a document become a [`Value`].

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Object<'a>),
}

/// Names in ascending order, each once: of several fields of one name the last counts. A taken field is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Option<Json<'a>>)>);

// === impl Json ===

impl Json<'_> {
    pub(super) fn is_deeper_than(&self, levels: usize) -> bool {
        let Some(below) = levels.checked_sub(1) else { return true };
        match self {
            Self::Array(elements) => elements.iter().any(|element| element.is_deeper_than(below)),
            Self::Object(object) => object.present().any(|(_, field)| field.is_deeper_than(below)),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => false,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(*flag),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.clone().into_owned()),
            Self::Array(elements) => elements.iter().map(Self::to_value).collect(),
            Self::Object(object) => Value::Object(object.to_map()),
        }
    }
}

impl<'a> From<&'a Value> for Json<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(elements) => Self::Array(elements.iter().map(Self::from).collect()),
            Value::Object(fields) => {
                let field = |(name, value): (&'a String, &'a Value)| (Cow::Borrowed(name.as_str()), Some(value.into()));
                Self::Object(Object::new(fields.iter().map(field).collect()))
            }
        }
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    fn new(mut fields: Vec<(Cow<'a, str>, Option<Json<'a>>)>) -> Self {
        // Stable, so that of fields of one name the last comes last.
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        fields.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
        Self(fields)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0[self.place(name)?].1.as_ref()
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Json<'a>> {
        let place = self.place(name)?;
        self.0[place].1.take()
    }

    /// All fields that were not taken.
    pub(super) fn into_present(self) -> impl Iterator<Item = (Cow<'a, str>, Json<'a>)> {
        self.0.into_iter().filter_map(|(name, field)| Some((name, field?)))
    }

    pub(super) fn to_map(&self) -> Map<String, Value> {
        self.present().map(|(name, field)| (name.to_owned(), field.to_value())).collect()
    }

    fn present(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().filter_map(|(name, field)| Some((name.as_ref(), field.as_ref()?)))
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.0.binary_search_by(|(own, _)| own.as_ref().cmp(name)).ok()
    }
}

// === reading ===

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(flag))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Json<'de>, E> {
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Json<'de>, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = elements.next_element()? {
            read.push(element);
        }
        Ok(Json::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Json<'de>, A::Error> {
        let mut read = Vec::new();
        while let Some((Name(name), field)) = fields.next_entry::<Name<'de>, Json<'de>>()? {
            read.push((name, Some(field)));
        }
        Ok(Json::Object(Object::new(read)))
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(NameVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Json<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_reader_agrees_with_serde_json() {
        let texts = [
            r#"{"b":[1,-2,2.5,"x\n",null,true,{}],"a":{"z":"é","y":"\u00e9"}}"#,
            "18446744073709551615",
            "1e400",
            r#""""#,
            "[]",
            r#"{"a":1,"b":2,"a":3,"a":{"c":4}}"#,
        ];
        for text in texts {
            let expected = serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
            let found = serde_json::from_str::<Json<'_>>(text).map_err(|error| error.to_string());
            assert_eq!(found.map(|json| json.to_value()), expected, "{text}");
        }
    }

    #[test]
    fn a_text_without_escapes_is_not_copied() {
        let Json::Array(read) = read(r#"["as it is","es\tcaped"]"#) else { panic!("an array") };
        assert!(matches!(&read[0], Json::Text(Cow::Borrowed("as it is"))));
        assert!(matches!(&read[1], Json::Text(Cow::Owned(text)) if text == "es\tcaped"));
    }

    #[test]
    fn a_taken_field_is_no_longer_in_the_object() {
        let Json::Object(mut object) = read(r#"{"b":1,"a":null}"#) else { panic!("an object") };
        assert_eq!(object.take("b"), Some(Json::Number(1.into())));
        assert_eq!((object.take("b"), object.get("b"), object.get("c")), (None, None, None));
        assert_eq!(Value::Object(object.to_map()), json!({ "a": null }));
    }

    #[test]
    fn depth_counts_arrays_and_objects() {
        let json = read(r#"{"a":[{"b":1}]}"#);
        assert!(json.is_deeper_than(3) && !json.is_deeper_than(4));
    }
}
