//! `muster apply -f`: create or change nodes, pods and workloads from manifests.
//!
//! Every document is checked before the first one is sent, so that a typo in the last of a hundred does not leave
//! ninety-nine applied.

use std::io::Read;

use anyhow::Context as _;
use bytes::Bytes;
use muster_client as client;
use muster_proto::manifest::Manifest;
use muster_proto::v1::write_request::Operation;
use muster_proto::v1::{ManifestWrite, WriteResponse, write_response};
use serde_json::Value;

use super::{Context, report};
use crate::exit::Failure;
use crate::manifest::{self, Document, FILE_LIMIT, Place};
use crate::namespace::NamespaceArgs;
use crate::output::Out;
use crate::render::text;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Files with manifests, JSON or YAML; `-` reads stdin
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filename: Vec<String>,
    #[command(flatten)]
    pub namespace: NamespaceArgs,
}

/// A document that passed every check that can be made here.
struct Checked {
    place: Place,
    /// As in `pod/x`.
    subject: String,
    object: Bytes,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut checked = Vec::new();
    for file in &args.filename {
        for document in read(file)? {
            checked.push(check(document, &args.namespace)?);
        }
    }
    let client = context.client()?;
    let mut out = Out::stdout();
    let mut failures = Vec::new();
    let total = checked.len();
    for Checked { place, subject, object } in checked {
        match client.write(Operation::Apply(ManifestWrite { object })).await {
            Ok(response) => {
                out.line(format_args!("{subject} {}", word(&response)))?;
                out.flush()?;
            }
            Err(error) => failures.push(Failure::from(at(&place, error))),
        }
    }
    report(total, failures)
}

fn read(file: &str) -> Result<Vec<Document>, Failure> {
    let (name, source): (&str, Box<dyn Read>) = match file {
        "-" => ("- (stdin)", Box::new(std::io::stdin())),
        path => {
            let opened = std::fs::File::open(path).with_context(|| format!("cannot read {path}"));
            (path, Box::new(opened.map_err(Failure::Other)?))
        }
    };
    let mut bytes = Vec::new();
    // One byte more than allowed tells "too large" from "just fits".
    let limit = FILE_LIMIT as u64 + 1;
    source
        .take(limit)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))
        .map_err(Failure::Other)?;
    manifest::split(name, &bytes).map_err(Failure::other)
}

fn check(document: Document, namespace: &NamespaceArgs) -> Result<Checked, Failure> {
    let Document { place, mut object } = document;
    let wrong = |reason: String| Failure::other(anyhow::anyhow!("{place}: {reason}; nothing was sent"));
    let mut manifest = read_object(&object).map_err(wrong)?;
    if !matches!(manifest, Manifest::Node(_)) {
        put_into_namespace(&mut object, namespace).map_err(wrong)?;
        manifest = read_object(&object).map_err(wrong)?;
    }
    let checked = match &manifest {
        Manifest::Node(manifest) => manifest.draft.check(),
        Manifest::Pod(manifest) => manifest.draft.check(),
        Manifest::Workload(manifest) => manifest.draft.check(),
    };
    checked.map_err(|invalid| wrong(invalid.to_string()))?;
    let subject = format!("{}/{}", manifest.noun(), manifest.name());
    Ok(Checked { object: object.to_string().into(), place, subject })
}

fn read_object(object: &Value) -> Result<Manifest, String> {
    Manifest::from_json(object.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// An object without a namespace gets the one of the command. Two different namespaces are an error in one of them.
fn put_into_namespace(object: &mut Value, namespace: &NamespaceArgs) -> Result<(), String> {
    match (text(object, &["metadata", "namespace"]), namespace.given()) {
        ("", _) => {
            object["metadata"]["namespace"] = namespace.name().into();
            Ok(())
        }
        (own, Some(given)) if own != given => Err(format!(
            "metadata.namespace: {own:?} contradicts -n {given}: leave out one of them, or make them agree"
        )),
        (_, _) => Ok(()),
    }
}

/// A replica's complaint, with the document it is about.
fn at(place: &Place, error: client::Error) -> client::Error {
    match error {
        client::Error::Refused { code, message, address } => {
            client::Error::Refused { code, message: format!("{place}: {message}"), address }
        }
        client::Error::Exhausted(exhausted) => client::Error::Exhausted(exhausted),
    }
}

fn word(response: &WriteResponse) -> &'static str {
    use write_response::Effect;
    match response.effect() {
        Effect::Created => "created",
        Effect::Changed => "configured",
        Effect::Unchanged => "unchanged",
        Effect::Deleted | Effect::Unspecified => "applied",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(object: Value, namespace: Option<&str>) -> Result<(String, Value), String> {
        let place = Place { file: "f.yaml".into(), number: 1, item: None };
        let namespace = NamespaceArgs { namespace: namespace.map(String::from) };
        let checked = check(Document { place, object }, &namespace).map_err(|failure| failure.to_string())?;
        Ok((checked.subject, serde_json::from_slice(&checked.object).unwrap()))
    }

    fn pod(metadata: Value, spec: Value) -> Value {
        let mut pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}]}});
        pod["metadata"]["name"] = "p".into();
        spec.as_object().into_iter().flatten().for_each(|(key, value)| pod["spec"][key] = value.clone());
        pod
    }

    #[test]
    fn a_manifest_without_a_namespace_gets_that_of_the_command() {
        for (own, given, wanted) in [
            (None, None, "default"),
            (None, Some("web"), "web"),
            (Some("db"), None, "db"),
            (Some("db"), Some("db"), "db"),
        ] {
            let metadata = own.map_or(json!({}), |own| json!({ "namespace": own }));
            let (subject, sent) = checked(pod(metadata, json!({})), given).unwrap();
            assert_eq!((subject.as_str(), text(&sent, &["metadata", "namespace"])), ("pod/p", wanted));
        }
        let error = checked(pod(json!({"namespace": "db"}), json!({})), Some("web")).unwrap_err();
        assert!(error.contains("\"db\" contradicts -n web"), "{error}");
    }

    #[test]
    fn nodes_have_no_namespace_even_with_the_flag() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        assert_eq!(checked(node.clone(), Some("web")).unwrap(), ("node/n".into(), node));
    }

    #[test]
    fn an_invalid_manifest_is_refused_before_it_is_sent() {
        let requests = |cpu: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]});
        for (spec, part) in [
            (json!({"tolerations": [{"effect": "NoExecute"}]}), "spec.tolerations[0].operator: must be Exists"),
            (json!({"terminationGracePeriodSeconds": -1}), "spec.terminationGracePeriodSeconds: -1 is negative"),
            (requests("lots"), "spec.containers[0].resources.requests[\"cpu\"]"),
            (json!({"containers": []}), "spec.containers: is required"),
        ] {
            let error = checked(pod(json!({}), spec), None).unwrap_err();
            assert!(error.contains(part), "{part:?} is not in: {error}");
            assert!(error.starts_with("f.yaml, document 1: ") && error.ends_with("; nothing was sent"), "{error}");
        }
        let error = checked(pod(json!({}), json!({})), Some("Not_A_Namespace")).unwrap_err();
        assert!(error.contains("metadata.namespace"), "{error}");
    }
}
