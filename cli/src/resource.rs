//! Names of things as kubectl users type them: `nodes`, `no`, `node x y`, `node/x nodes/y`, `zone/r1/z1`.

use crate::exit::Failure;

/// The kinds that a command can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Nodes,
    Pods,
    ReplicaSets,
    StatefulSets,
    DaemonSets,
    Events,
    Replicas,
    Zones,
    Config,
    Aggregators,
}

/// A resource and the names given with it; no names means all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub resource: Resource,
    pub names: Vec<String>,
}

/// The names of one resource.
struct Words {
    plural: &'static str,
    singular: &'static str,
    /// Other spellings that people type.
    also: &'static [&'static str],
}

// === impl Resource ===

impl Resource {
    pub const ALL: [Self; 10] = [
        Self::Nodes,
        Self::Pods,
        Self::ReplicaSets,
        Self::StatefulSets,
        Self::DaemonSets,
        Self::Events,
        Self::Zones,
        Self::Config,
        Self::Aggregators,
        Self::Replicas,
    ];

    pub fn parse(text: &str) -> Result<Self, Failure> {
        let word = text.to_ascii_lowercase();
        let is_called = |resource: &Self| {
            let words = resource.words();
            word == words.plural || word == words.singular || words.also.contains(&word.as_str())
        };
        Self::ALL.into_iter().find(is_called).ok_or_else(|| {
            let known = Self::ALL.map(Self::kind).join(", ");
            Failure::Usage(format!("{text:?} is not known here; there are: {known}"))
        })
    }

    /// The plural, as the wire spells it.
    pub fn kind(self) -> &'static str {
        self.words().plural
    }

    /// The singular, as in `node/x`.
    pub fn singular(self) -> &'static str {
        self.words().singular
    }

    /// Whether two objects may have the same name, in different namespaces.
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Pods | Self::ReplicaSets | Self::StatefulSets | Self::DaemonSets => true,
            Self::Nodes | Self::Events | Self::Replicas | Self::Zones | Self::Config | Self::Aggregators => false,
        }
    }

    fn words(self) -> Words {
        let (plural, singular, also): (_, _, &[&str]) = match self {
            Self::Nodes => ("nodes", "node", &["no"]),
            Self::Pods => ("pods", "pod", &["po"]),
            Self::ReplicaSets => ("replicasets", "replicaset", &["rs"]),
            Self::StatefulSets => ("statefulsets", "statefulset", &["sts"]),
            Self::DaemonSets => ("daemonsets", "daemonset", &["ds"]),
            Self::Events => ("events", "event", &["ev"]),
            Self::Replicas => ("replicas", "replica", &[]),
            Self::Zones => ("zones", "zone", &[]),
            Self::Config => ("config", "config", &["configs"]),
            Self::Aggregators => ("aggregators", "aggregator", &[]),
        };
        Words { plural, singular, also }
    }

    /// A name of this kind. Only those of zones have a slash in them, and one at most.
    fn name(self, name: &str) -> Result<String, Failure> {
        match self == Self::Zones && name.matches('/').count() == 1 && name != "/" {
            true => Ok(name.into()),
            false => plain(name),
        }
    }
}

// === impl Selection ===

impl Selection {
    pub fn parse(words: &[String]) -> Result<Self, Failure> {
        let Some(first) = words.first() else {
            return Err(Failure::Usage("say what to work on, for example `nodes` or `node/NAME`".into()));
        };
        match first.split_once('/') {
            Some(_) => Self::parse_pairs(words),
            None => {
                let resource = Resource::parse(first)?;
                let names = words[1..].iter().map(|word| resource.name(word)).collect::<Result<_, _>>()?;
                Ok(Self { resource, names })
            }
        }
    }

    /// The names of nodes; for verbs that know no other kind, `x` alone means `node/x`.
    pub fn node_names(words: &[String]) -> Result<Vec<String>, Failure> {
        words.iter().map(|word| node_name(word)).collect()
    }

    /// As [`Selection::parse`], but only nodes, and at least one by name.
    pub fn nodes(words: &[String]) -> Result<Vec<String>, Failure> {
        Ok(Self::named(words, &[Resource::Nodes])?.names)
    }

    /// As [`Selection::parse`], but only of these kinds, and at least one by name.
    pub fn named(words: &[String], kinds: &[Resource]) -> Result<Self, Failure> {
        let selection = Self::parse(words)?;
        let (kind, noun) = (selection.resource.kind(), selection.resource.singular());
        if !kinds.contains(&selection.resource) {
            let known: Vec<&str> = kinds.iter().map(|resource| resource.kind()).collect();
            return Err(Failure::Usage(format!("this works on {} only, not on {kind}", known.join(", "))));
        }
        match selection.names.is_empty() {
            true => {
                Err(Failure::Usage(format!("name at least one {noun}, for example `{noun} NAME` or `{noun}/NAME`")))
            }
            false => Ok(selection),
        }
    }

    fn parse_pairs(words: &[String]) -> Result<Self, Failure> {
        let mut names = Vec::new();
        let mut resource = None;
        for word in words {
            let Some((kind, name)) = word.split_once('/') else {
                return Err(Failure::Usage(format!("{word:?}: do not mix `KIND/NAME` with `KIND NAME`")));
            };
            let kind = Resource::parse(kind)?;
            if resource.is_some_and(|first| first != kind) {
                return Err(Failure::Usage("ask for one kind at a time".into()));
            }
            resource = Some(kind);
            names.push(kind.name(name)?);
        }
        Ok(Self { resource: resource.unwrap_or(Resource::Nodes), names })
    }
}

/// `x`, `node/x` or `nodes/x`.
fn node_name(word: &str) -> Result<String, Failure> {
    let Some((kind, name)) = word.split_once('/') else { return plain(word) };
    match Resource::parse(kind)? == Resource::Nodes {
        true => plain(name),
        false => Err(Failure::Usage(format!("{word:?} is not a node"))),
    }
}

fn plain(name: &str) -> Result<String, Failure> {
    match name.is_empty() || name.contains('/') {
        true => Err(Failure::Usage(format!("{name:?} is not a name"))),
        false => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn kubectls_spellings_are_understood() {
        let cases = [
            ("nodes", Resource::Nodes, ""),
            ("no", Resource::Nodes, ""),
            ("node a b", Resource::Nodes, "a b"),
            ("nodes/a", Resource::Nodes, "a"),
            ("node/a no/b", Resource::Nodes, "a b"),
            ("po", Resource::Pods, ""),
            ("pod/a Pods/b", Resource::Pods, "a b"),
            ("rs web", Resource::ReplicaSets, "web"),
            ("sts", Resource::StatefulSets, ""),
            ("ds/log", Resource::DaemonSets, "log"),
            ("ev", Resource::Events, ""),
            ("replica 2", Resource::Replicas, "2"),
            ("zones", Resource::Zones, ""),
            ("zone r1/b c", Resource::Zones, "r1/b c"),
            ("zone/r1/b zone//c", Resource::Zones, "r1/b /c"),
            ("config", Resource::Config, ""),
            ("aggregator/rack-1", Resource::Aggregators, "rack-1"),
        ];
        for (text, resource, names) in cases {
            let expected = Selection { resource, names: words(names) };
            assert_eq!(Selection::parse(&words(text)).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn unknown_kinds_and_malformed_names_are_usage_errors() {
        for text in
            ["", "gadgets", "node/a b", "node/a event/b", "pod ns/a", "node/", "node a/b", "zone a/b/c", "zone /"]
        {
            assert_eq!(Selection::parse(&words(text)).unwrap_err().exit() as u8, 2, "{text}");
        }
        assert_eq!(Selection::nodes(&words("nodes")).unwrap_err().exit() as u8, 2);
        assert_eq!(Selection::nodes(&words("events x")).unwrap_err().exit() as u8, 2);
    }

    #[test]
    fn no_two_kinds_share_a_name() {
        let mut seen = std::collections::BTreeSet::new();
        for resource in Resource::ALL {
            let Words { plural, singular, also } = resource.words();
            for word in [plural, singular].into_iter().chain(also.iter().copied()) {
                assert_eq!(Resource::parse(word).unwrap(), resource, "{word}");
                assert!(seen.insert(word) || plural == singular, "{word} means two things");
            }
        }
        let namespaced = Resource::ALL.into_iter().filter(|resource| resource.is_namespaced());
        assert_eq!(
            namespaced.map(Resource::singular).collect::<Vec<_>>(),
            words("pod replicaset statefulset daemonset")
        );
    }

    #[test]
    fn verbs_take_only_kinds_they_know() {
        let kinds = [Resource::Nodes, Resource::Pods];
        let named = Selection::named(&words("pod a b"), &kinds).unwrap();
        assert_eq!((named.resource, named.names), (Resource::Pods, words("a b")));
        let wrong = |text: &str| Selection::named(&words(text), &kinds).unwrap_err().to_string();
        assert_eq!(wrong("zone a"), "this works on nodes, pods only, not on zones");
        assert_eq!(wrong("pods"), "name at least one pod, for example `pod NAME` or `pod/NAME`");
    }

    #[test]
    fn verbs_about_nodes_take_bare_names() {
        assert_eq!(Selection::node_names(&words("a node/b")).unwrap(), words("a b"));
        assert!(Selection::node_names(&words("event/b")).is_err());
    }
}
