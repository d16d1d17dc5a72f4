//! Label selectors and field selectors, in Kubernetes' syntax.

use std::collections::BTreeSet;
use std::str::FromStr;

use thiserror::Error;

use crate::object::event::Event;
use crate::object::node::Node;
use crate::object::pod::Pod;
use crate::value::meta::{ObjectMeta, Pairs};
use crate::value::name;
use crate::value::text::Text;
use crate::value::violation::NameViolation;

/// `app=web,tier in (a, b),!canary`. The empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// `metadata.name=a,spec.unschedulable!=true`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFieldSelector(Vec<FieldRequirement<NodeField>>);

/// `involvedObject.name=a,type=Warning`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFieldSelector(Vec<FieldRequirement<EventField>>);

/// `spec.nodeName=a,status.phase=Running`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFieldSelector(Vec<FieldRequirement<PodField>>);

/// `metadata.name=a`, for kinds that can be selected by nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameSelector(Vec<FieldRequirement<MetaField>>);

/// The mistake in a selector, and where it is, counted in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("selector {selector:?}, at character {position}: {problem}")]
pub struct SelectorError {
    pub selector: Text,
    pub position: usize,
    pub problem: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: Text,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    /// The key is there with one of these values.
    In(BTreeSet<Text>),
    /// The key has none of these values, or is not there at all.
    NotIn(BTreeSet<Text>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRequirement<F> {
    field: F,
    equal: bool,
    value: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeField {
    Name,
    Unschedulable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventField {
    Name,
    Namespace,
    SubjectKind,
    SubjectName,
    SubjectNamespace,
    SubjectUid,
    Reason,
    Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodField {
    Name,
    Namespace,
    Node,
    Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetaField {
    Name,
    Namespace,
}

const POD_FIELDS: [(&str, PodField); 4] = [
    ("metadata.name", PodField::Name),
    ("metadata.namespace", PodField::Namespace),
    ("spec.nodeName", PodField::Node),
    ("status.phase", PodField::Phase),
];

const META_FIELDS: [(&str, MetaField); 2] =
    [("metadata.name", MetaField::Name), ("metadata.namespace", MetaField::Namespace)];

const NODE_FIELDS: [(&str, NodeField); 2] =
    [("metadata.name", NodeField::Name), ("spec.unschedulable", NodeField::Unschedulable)];

const EVENT_FIELDS: [(&str, EventField); 8] = [
    ("metadata.name", EventField::Name),
    ("metadata.namespace", EventField::Namespace),
    ("involvedObject.kind", EventField::SubjectKind),
    ("involvedObject.name", EventField::SubjectName),
    ("involvedObject.namespace", EventField::SubjectNamespace),
    ("involvedObject.uid", EventField::SubjectUid),
    ("reason", EventField::Reason),
    ("type", EventField::Type),
];

/// Bounds what every object has to be compared with for one caller.
const LENGTH_MAX: usize = 16 * 1024;

// === matching ===

impl LabelSelector {
    pub fn matches(&self, labels: &Pairs) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Requirement {
    fn matches(&self, labels: &Pairs) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

impl NodeFieldSelector {
    pub fn matches(&self, node: &Node) -> bool {
        self.0.iter().all(|requirement| {
            let value = match requirement.field {
                NodeField::Name => node.meta.name.as_str(),
                NodeField::Unschedulable if node.spec.unschedulable => "true",
                NodeField::Unschedulable => "false",
            };
            requirement.accepts(value)
        })
    }

    /// The one name that can match, if the selector says so: no need to walk the table.
    pub fn name(&self) -> Option<&Text> {
        let named =
            |requirement: &&FieldRequirement<NodeField>| requirement.equal && requirement.field == NodeField::Name;
        self.0.iter().find(named).map(|requirement| &requirement.value)
    }
}

impl EventFieldSelector {
    pub fn matches(&self, event: &Event) -> bool {
        self.0.iter().all(|requirement| match requirement.field {
            EventField::Name => requirement.accepts(&event.meta.name),
            EventField::Namespace => requirement.accepts(event.meta.namespace.as_deref().unwrap_or_default()),
            EventField::SubjectKind => requirement.accepts(&event.subject.kind),
            EventField::SubjectName => requirement.accepts(&event.subject.name),
            EventField::SubjectNamespace => requirement.accepts(event.subject.namespace.as_deref().unwrap_or_default()),
            EventField::SubjectUid => requirement.accepts(&event.subject.uid.to_string()),
            EventField::Reason => requirement.accepts(event.reason()),
            EventField::Type => requirement.accepts(event.headline().event_type.as_str()),
        })
    }
}

impl PodFieldSelector {
    pub fn matches(&self, pod: &Pod) -> bool {
        self.0.iter().all(|requirement| match requirement.field {
            PodField::Name => requirement.accepts(&pod.meta.name),
            PodField::Namespace => requirement.accepts(pod.meta.namespace.as_deref().unwrap_or_default()),
            PodField::Node => requirement.accepts(pod.node().map(Text::as_str).unwrap_or_default()),
            PodField::Phase => requirement.accepts(pod.status.phase.as_str()),
        })
    }

    /// The one node whose pods can match, if the selector says so: no need to walk the table.
    pub fn node(&self) -> Option<&Text> {
        let on_node = |requirement: &&FieldRequirement<PodField>| {
            requirement.equal && requirement.field == PodField::Node && !requirement.value.is_empty()
        };
        self.0.iter().find(on_node).map(|requirement| &requirement.value)
    }
}

impl NameSelector {
    pub fn matches(&self, meta: &ObjectMeta) -> bool {
        self.0.iter().all(|requirement| match requirement.field {
            MetaField::Name => requirement.accepts(&meta.name),
            MetaField::Namespace => requirement.accepts(meta.namespace.as_deref().unwrap_or_default()),
        })
    }
}

impl<F> FieldRequirement<F> {
    fn accepts(&self, value: &str) -> bool {
        (self.value == value) == self.equal
    }
}

// === parsing ===

impl FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Cursor::new(text)?.list(Cursor::requirement).map(Self)
    }
}

impl FromStr for NodeFieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Cursor::new(text)?.list(|cursor| cursor.field_requirement(&NODE_FIELDS)).map(Self)
    }
}

impl FromStr for EventFieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Cursor::new(text)?.list(|cursor| cursor.field_requirement(&EVENT_FIELDS)).map(Self)
    }
}

impl FromStr for PodFieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Cursor::new(text)?.list(|cursor| cursor.field_requirement(&POD_FIELDS)).map(Self)
    }
}

impl FromStr for NameSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Cursor::new(text)?.list(|cursor| cursor.field_requirement(&META_FIELDS)).map(Self)
    }
}

/// The position in a selector.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Result<Self, SelectorError> {
        let cursor = Self { text, at: 0 };
        if text.len() > LENGTH_MAX {
            return Err(cursor.error(LENGTH_MAX, format!("it is too long, at most {LENGTH_MAX} bytes")));
        }
        Ok(cursor)
    }

    fn list<T>(mut self, item: impl Fn(&mut Self) -> Result<T, SelectorError>) -> Result<Vec<T>, SelectorError> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.rest().is_empty() {
            return Ok(items);
        }
        loop {
            items.push(item(&mut self)?);
            self.skip_blanks();
            if self.rest().is_empty() {
                return Ok(items);
            }
            self.demand(",", "a comma or the end")?;
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.take("!") {
            return Ok(Requirement { key: self.key()?, test: Test::Absent });
        }
        let key = self.key()?;
        let test = if self.take("!=") {
            Test::NotIn(BTreeSet::from([self.value()?]))
        } else if self.take("==") || self.take("=") {
            Test::In(BTreeSet::from([self.value()?]))
        } else {
            self.set_test()?
        };
        Ok(Requirement { key, test })
    }

    fn set_test(&mut self) -> Result<Test, SelectorError> {
        self.skip_blanks();
        let start = self.at;
        match self.word() {
            "" => Ok(Test::Exists),
            "in" => self.values().map(Test::In),
            "notin" => self.values().map(Test::NotIn),
            other => Err(self.error(start, format!("{other:?} is not one of =, ==, !=, in, notin"))),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<Text>, SelectorError> {
        self.demand("(", "'(' and a list of values")?;
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            if self.take(")") {
                return Ok(values);
            }
            self.demand(",", "a comma or ')'")?;
        }
    }

    fn key(&mut self) -> Result<Text, SelectorError> {
        self.checked_word(name::qualified_name)
    }

    fn value(&mut self) -> Result<Text, SelectorError> {
        self.checked_word(name::label_value)
    }

    fn checked_word(&mut self, check: impl Fn(&str) -> Result<(), NameViolation>) -> Result<Text, SelectorError> {
        self.skip_blanks();
        let start = self.at;
        let word = self.word();
        check(word).map_err(|rule| self.error(start, rule.to_string()))?;
        Ok(Text::from(word))
    }

    fn field_requirement<F: Copy>(&mut self, known: &[(&str, F)]) -> Result<FieldRequirement<F>, SelectorError> {
        self.skip_blanks();
        let start = self.at;
        let name = self.word();
        let Some((_, field)) = known.iter().find(|(own, _)| *own == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let quoted = Text::clipped(name, 64);
            return Err(self.error(start, format!("{quoted:?} is not a field one can select by: {}", names.join(", "))));
        };
        let equal = !self.take("!=");
        if equal && !self.take("==") {
            self.demand("=", "=, == or !=")?;
        }
        self.skip_blanks();
        Ok(FieldRequirement { field: *field, equal, value: Text::from(self.word()) })
    }

    /// Up to the next blank or operator; may be empty.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || ",()=!".contains(c);
        let (word, _) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        self.at += word.len();
        word
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn demand(&mut self, token: &str, expected: &str) -> Result<(), SelectorError> {
        if self.take(token) { Ok(()) } else { Err(self.error(self.at, format!("expected {expected}"))) }
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, at: usize, problem: impl Into<Text>) -> SelectorError {
        let position = self.text.char_indices().take_while(|(index, _)| *index < at).count() + 1;
        SelectorError { selector: Text::clipped(self.text, 256), position, problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Pairs {
        text.split_whitespace().filter_map(|pair| pair.split_once('=')).collect()
    }

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        let cases = [
            ("", "", true),
            ("a", "a=1", true),
            ("a", "b=1", false),
            ("!a", "a=1", false),
            ("!a", "b=1", true),
            ("! a", "", true),
            ("a=1", "a=1", true),
            ("a==1", "a=1", true),
            ("a = 1", "a=1", true),
            ("a=1", "a=2", false),
            ("a=1", "", false),
            ("a=", "a=", true),
            ("a=", "a=1", false),
            ("a!=1", "a=2", true),
            ("a!=1", "", true),
            ("a!=1", "a=1", false),
            ("a in (1,2)", "a=2", true),
            ("a in (1, 2)", "a=3", false),
            ("a in(1)", "a=1", true),
            ("a in (1)", "", false),
            ("a in (,1)", "a=", true),
            ("a notin (1,2)", "a=2", false),
            ("a notin (1,2)", "a=3", true),
            ("a notin ( 1 )", "", true),
            ("a=1,b", "a=1 b=2", true),
            ("a=1,b", "a=1", false),
            (" a=1 , !b ", "a=1", true),
            ("example.com/a in (x),in=1", "example.com/a=x in=1", true),
        ];
        for (selector, pairs, expected) in cases {
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!(parsed.matches(&labels(pairs)), expected, "{selector:?} on {pairs:?}");
        }
    }

    #[test]
    fn selector_errors_show_the_position() {
        let cases = [
            ("a b", 3, "\"b\" is not one of"),
            ("a in 1", 6, "expected '(' and a list"),
            ("a in (1", 8, "expected a comma or ')'"),
            ("a=1,", 5, "\"\" is not a qualified name"),
            ("=1", 1, "\"\" is not a qualified name"),
            ("a=b/c", 3, "\"b/c\" is not a label value"),
            ("ä=1", 1, "\"ä\" is not a qualified name"),
            ("a=1)", 4, "expected a comma or the end"),
            ("a,,b", 3, "\"\" is not"),
        ];
        for (selector, position, problem) in cases {
            let error = selector.parse::<LabelSelector>().unwrap_err();
            assert_eq!(error.position, position, "{error}");
            assert!(error.problem.starts_with(problem), "{error}");
        }
        assert!("a,".repeat(LENGTH_MAX).parse::<LabelSelector>().is_err());
    }

    #[test]
    fn field_selectors_accept_only_known_fields() {
        let selector: NodeFieldSelector = "metadata.name=a, spec.unschedulable!=true".parse().unwrap();
        assert_eq!(selector.name().map(Text::as_str), Some("a"));
        let any: NodeFieldSelector = "metadata.name!=a".parse().unwrap();
        assert_eq!(any.name(), None);
        let error = "spec.podCIDR=x".parse::<NodeFieldSelector>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "selector \"spec.podCIDR=x\", at character 1: \"spec.podCIDR\" is not a field one can select by: \
             metadata.name, spec.unschedulable"
        );
        let error = "reason".parse::<EventFieldSelector>().unwrap_err();
        assert_eq!((error.position, error.problem.as_str()), (7, "expected =, == or !="));
    }
}
