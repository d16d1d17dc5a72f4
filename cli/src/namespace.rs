//! Namespaces: `-n NAMESPACE`, for every verb about kinds that have them.

pub use muster_proto::manifest::DEFAULT_NAMESPACE;

#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct NamespaceArgs {
    /// The namespace of pods and workloads; kinds that have none do not mind it [default: default]
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

// === impl NamespaceArgs ===

impl NamespaceArgs {
    /// As with kubectl, the empty namespace counts as not given: on the wire it would stand for all of them.
    pub fn given(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    pub fn name(&self) -> &str {
        self.given().unwrap_or(DEFAULT_NAMESPACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_namespace_means_default_and_not_all() {
        let args = |text: &str| NamespaceArgs { namespace: Some(text.into()) };
        assert_eq!((args("web").name(), args("web").given()), ("web", Some("web")));
        assert_eq!((args("").name(), args("").given()), ("default", None));
        assert_eq!(NamespaceArgs::default().name(), "default");
    }
}
