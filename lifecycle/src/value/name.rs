//! Kubernetes' rules for names, label keys, label values and annotation keys.
//!
//! Each function answers `Ok` or the rule that is broken, with the offending value; the caller knows the field.

use crate::value::meta::Pairs;
use crate::value::text::Text;
use crate::value::violation::NameViolation;

/// How much of an offending value a message quotes.
const QUOTED_MAX: usize = 128;

pub(crate) const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// The name of a Node.
pub fn dns_subdomain(name: &str) -> Result<(), NameViolation> {
    check(is_dns_subdomain(name), || NameViolation::Subdomain { value: quoted(name) })
}

/// The name of a node with a certificate: a DNS subdomain whose labels have at most 63 characters each, because longer
/// ones are no DNS name. Upstream lets a Node have them, so such a Node cannot have an agent with a certificate.
pub fn host_name(name: &str) -> Result<(), NameViolation> {
    check(name.split('.').all(is_dns_part), || NameViolation::Subdomain { value: quoted(name) })?;
    let length = name.len() as u64;
    check(name.len() <= SUBDOMAIN_MAX, || NameViolation::TooLong { value: quoted(name), length })?;
    let longest = name.split('.').map(str::len).max().unwrap_or_default();
    check(longest <= LABEL_MAX, || NameViolation::LongPart { value: quoted(name), length: longest as u64 })
}

pub fn dns_label(name: &str) -> Result<(), NameViolation> {
    check(is_dns_label(name), || NameViolation::Label { value: quoted(name) })
}

/// A label key, taint key, finalizer or resource name: `[prefix/]name`.
pub fn qualified_name(key: &str) -> Result<(), NameViolation> {
    check(is_qualified(key), || NameViolation::Qualified { value: quoted(key) })
}

pub fn label_value(value: &str) -> Result<(), NameViolation> {
    check(is_label_value(value), || NameViolation::LabelValue { value: quoted(value) })
}

/// Like a label key, but its case does not matter.
pub fn annotation_key(key: &str) -> Result<(), NameViolation> {
    check(is_qualified(&key.to_ascii_lowercase()), || NameViolation::Qualified { value: quoted(key) })
}

pub fn labels(labels: &Pairs) -> Result<(), NameViolation> {
    labels.iter().try_for_each(|(key, value)| {
        qualified_name(key)?;
        let wrong = || NameViolation::LabelValueOf { value: quoted(value), key: quoted(key) };
        check(is_label_value(value), wrong)
    })
}

pub fn annotations(annotations: &Pairs) -> Result<(), NameViolation> {
    annotations.iter().try_for_each(|(key, _)| annotation_key(key))?;
    let total: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    let (bytes, most) = (total as u64, ANNOTATIONS_MAX as u64);
    check(total <= ANNOTATIONS_MAX, || NameViolation::AnnotationBytes { bytes, most })
}

fn check(holds: bool, wrong: impl FnOnce() -> NameViolation) -> Result<(), NameViolation> {
    if holds { Ok(()) } else { Err(wrong()) }
}

fn quoted(value: &str) -> Text {
    Text::clipped(value, QUOTED_MAX)
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_bare_name(value)
}

fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_MAX && name.split('.').all(is_dns_part)
}

fn is_dns_label(name: &str) -> bool {
    name.len() <= LABEL_MAX && is_dns_part(name)
}

/// One dot-free part. As upstream, only the whole subdomain has a length limit.
fn is_dns_part(part: &str) -> bool {
    let lower_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_framed(part, lower_alphanumeric, |byte| byte == b'-')
}

fn is_qualified(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_bare_name(name),
        None => is_bare_name(key),
    }
}

fn is_bare_name(name: &str) -> bool {
    name.len() <= LABEL_MAX && is_framed(name, |byte| byte.is_ascii_alphanumeric(), |byte| b"-_.".contains(&byte))
}

/// Not empty, `edge` characters at both ends, `edge` or `inner` ones between.
fn is_framed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => edge(*only),
        [first, middle @ .., last] => {
            edge(*first) && edge(*last) && middle.iter().all(|byte| edge(*byte) || inner(*byte))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(length: usize) -> String {
        "a".repeat(length)
    }

    #[test]
    fn nv_1_names_are_dns_subdomains() {
        let fits = format!("{}.b", long(251));
        for name in ["a", "node-1", "10.240.79.157", "a.b-c.d9", &fits] {
            assert_eq!(dns_subdomain(name), Ok(()), "{name}");
        }
        let too_long = format!("{}.b", long(252));
        for name in ["", "Node_1", "-a", "a-", "a..b", ".a", "a.", "a.-b", "ä", "a b", "a/b", "a\n", &too_long] {
            assert!(dns_subdomain(name).is_err(), "{name}");
        }
    }

    #[test]
    fn host_names_have_labels_of_63_characters() {
        let label = long(63);
        let longest = [label.as_str(), &label, &label, &long(61)].join(".");
        assert_eq!(longest.len(), SUBDOMAIN_MAX);
        for name in ["a", "10.240.79.157", &label, &longest] {
            assert_eq!(host_name(name), Ok(()), "{name}");
        }
        let refused = [
            (long(64), "has a label of 64 characters: between two dots at most 63 are possible, as in DNS"),
            (
                format!("{}.b", long(64)),
                "has a label of 64 characters: between two dots at most 63 are possible, as in DNS",
            ),
            (format!("{longest}a"), "has 254 characters: at most 253 are possible"),
            (long(254), "has 254 characters: at most 253 are possible"),
            ("Node_1".to_owned(), "starting and ending with a letter or digit, at most 253 characters"),
            (String::new(), "starting and ending with a letter or digit, at most 253 characters"),
            ("ä".repeat(200), "starting and ending with a letter or digit, at most 253 characters"),
        ];
        for (name, rule) in refused {
            let message = host_name(&name).unwrap_err().to_string();
            assert!(message.ends_with(rule), "{message}");
        }
    }

    #[test]
    fn an_error_has_the_value_and_the_rule() {
        assert_eq!(
            dns_subdomain("Node_1").unwrap_err().to_string(),
            "\"Node_1\" is not a DNS-1123 subdomain: lower case letters, digits, '-' and '.', starting and ending \
             with a letter or digit, at most 253 characters"
        );
        assert!(dns_subdomain(&"A".repeat(10_000)).unwrap_err().to_string().len() < 400);
    }

    #[test]
    fn dns_labels_have_no_dots() {
        assert_eq!(dns_label(&long(63)), Ok(()));
        for name in ["a.b", "", &long(64)] {
            assert!(dns_label(name).is_err(), "{name}");
        }
    }

    #[test]
    fn label_keys_are_qualified_names() {
        let longest = format!("{}/{}", long(253), long(63));
        for key in ["a", "A_b.c-9", "kubernetes.io/hostname", &longest] {
            assert_eq!(qualified_name(key), Ok(()), "{key}");
        }
        let (long_prefix, long_name) = (format!("{}/a", long(254)), format!("a/{}", long(64)));
        for key in ["", "/a", "a/", "a/b/c", "Upper.io/a", "_a", "a_", "a b", &long_prefix, &long_name] {
            assert!(qualified_name(key).is_err(), "{key}");
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        for value in ["", "a", "1.2_3-x", &long(63)] {
            assert_eq!(label_value(value), Ok(()), "{value}");
        }
        for value in ["-a", "a.", "a/b", "a=b", &long(64)] {
            assert!(label_value(value).is_err(), "{value}");
        }
    }

    #[test]
    fn annotation_keys_ignore_case_and_values_are_bounded_in_sum() {
        assert_eq!(annotation_key("Upper.IO/Name"), Ok(()));
        assert!(annotation_key("a b").is_err());
        let big = Pairs::from_iter([("a", "x".repeat(ANNOTATIONS_MAX - 1))]);
        assert_eq!(annotations(&big), Ok(()));
        let bigger = Pairs::from_iter([("a", "x".repeat(ANNOTATIONS_MAX))]);
        assert!(annotations(&bigger).unwrap_err().to_string().contains("262145 bytes"));
    }
}
