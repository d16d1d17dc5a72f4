//! What kubectl users type to name things: `nodes`, `no`, `node x y`, `node/x nodes/y`, `zone/r1/z1`.

use crate::exit::Failure;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Nodes,
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

// === impl Resource ===

impl Resource {
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text.to_ascii_lowercase().as_str() {
            "nodes" | "node" | "no" => Ok(Self::Nodes),
            "events" | "event" | "ev" => Ok(Self::Events),
            "replicas" | "replica" => Ok(Self::Replicas),
            "zones" | "zone" => Ok(Self::Zones),
            "config" | "configs" => Ok(Self::Config),
            "aggregators" | "aggregator" => Ok(Self::Aggregators),
            _ => {
                let known = "nodes, events, zones, config, aggregators and replicas";
                Err(Failure::Usage(format!("{text:?} is not known here; there are {known}")))
            }
        }
    }

    /// The plural, as the wire spells it.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Events => "events",
            Self::Replicas => "replicas",
            Self::Zones => "zones",
            Self::Config => "config",
            Self::Aggregators => "aggregators",
        }
    }

    /// The singular, as in `node/x`.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Nodes => "node",
            Self::Events => "event",
            Self::Replicas => "replica",
            Self::Zones => "zone",
            Self::Config => "config",
            Self::Aggregators => "aggregator",
        }
    }

    /// A name of this kind. Only those of zones have a slash in them, and one at most.
    fn name(self, name: &str) -> Result<String, Failure> {
        match self {
            Self::Zones if name.matches('/').count() == 1 && name != "/" => Ok(name.into()),
            Self::Nodes | Self::Events | Self::Replicas | Self::Zones | Self::Config | Self::Aggregators => plain(name),
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
        let selection = Self::parse(words)?;
        match selection.resource {
            Resource::Nodes if selection.names.is_empty() => {
                Err(Failure::Usage("name at least one node, for example `node NAME` or `node/NAME`".into()))
            }
            Resource::Nodes => Ok(selection.names),
            Resource::Events | Resource::Replicas | Resource::Zones | Resource::Config | Resource::Aggregators => {
                Err(Failure::Usage(format!("this works on nodes only, not on {}", selection.resource.kind())))
            }
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
    match word.split_once('/') {
        None => plain(word),
        Some((kind, name)) => match Resource::parse(kind)? {
            Resource::Nodes => plain(name),
            Resource::Events | Resource::Replicas | Resource::Zones | Resource::Config | Resource::Aggregators => {
                Err(Failure::Usage(format!("{word:?} is not a node")))
            }
        },
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
    fn the_spellings_of_kubectl_are_understood() {
        let cases = [
            ("nodes", Resource::Nodes, ""),
            ("no", Resource::Nodes, ""),
            ("node a b", Resource::Nodes, "a b"),
            ("nodes/a", Resource::Nodes, "a"),
            ("node/a no/b", Resource::Nodes, "a b"),
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
    fn nonsense_is_a_usage_error() {
        for text in ["", "pods", "node/a b", "node/a event/b", "node/", "node a/b", "zone a/b/c", "zone /"] {
            assert_eq!(Selection::parse(&words(text)).unwrap_err().exit() as u8, 2, "{text}");
        }
        assert_eq!(Selection::nodes(&words("nodes")).unwrap_err().exit() as u8, 2);
        assert_eq!(Selection::nodes(&words("events x")).unwrap_err().exit() as u8, 2);
    }

    #[test]
    fn verbs_about_nodes_take_bare_names() {
        assert_eq!(Selection::node_names(&words("a node/b")).unwrap(), words("a b"));
        assert!(Selection::node_names(&words("event/b")).is_err());
    }
}
