//! Kubernetes' rules for names, label keys, label values and annotation keys.
//!
//! Each function answers `Ok` or a sentence with the offending value and the rule it breaks; the caller knows
//! the field.

use crate::value::meta::Pairs;
use crate::value::text::Text;

/// How much of an offending value a message quotes.
const QUOTED_MAX: usize = 128;

pub(crate) const SUBDOMAIN_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const ANNOTATIONS_MAX: usize = 256 * 1024;

const SUBDOMAIN_RULE: &str = "lower case letters, digits, '-' and '.', starting and ending with a letter or digit, \
                              at most 253 characters";
const LENGTH_RULE: &str = "at most 253 are possible";
const PART_RULE: &str = "between two dots at most 63 are possible, as in DNS";
const LABEL_RULE: &str =
    "lower case letters, digits and '-', starting and ending with a letter or digit, at most 63 characters";
const QUALIFIED_RULE: &str = "letters, digits, '-', '_' and '.', starting and ending with a letter or digit, \
                              at most 63 characters, optionally after a DNS subdomain and '/'";
const VALUE_RULE: &str = "empty, or letters, digits, '-', '_' and '.', starting and ending with a letter or digit, \
                          at most 63 characters";

/// The name of a Node.
pub fn dns_subdomain(name: &str) -> Result<(), Text> {
    check(is_dns_subdomain(name), name, "is not a DNS-1123 subdomain", SUBDOMAIN_RULE)
}

/// The name of a node with a certificate: a DNS subdomain whose labels have at most 63 characters each, because longer
/// ones are no DNS name. Upstream lets a Node have them, so such a Node cannot have an agent with a certificate.
pub fn host_name(name: &str) -> Result<(), Text> {
    check(name.split('.').all(is_dns_part), name, "is not a DNS-1123 subdomain", SUBDOMAIN_RULE)?;
    check(name.len() <= SUBDOMAIN_MAX, name, &format!("has {} characters", name.len()), LENGTH_RULE)?;
    let longest = name.split('.').map(str::len).max().unwrap_or_default();
    check(longest <= LABEL_MAX, name, &format!("has a label of {longest} characters"), PART_RULE)
}

pub fn dns_label(name: &str) -> Result<(), Text> {
    check(is_dns_label(name), name, "is not a DNS-1123 label", LABEL_RULE)
}

/// A label key, taint key, finalizer or resource name: `[prefix/]name`.
pub fn qualified_name(key: &str) -> Result<(), Text> {
    check(is_qualified(key), key, "is not a qualified name", QUALIFIED_RULE)
}

pub fn label_value(value: &str) -> Result<(), Text> {
    check(value.is_empty() || is_bare_name(value), value, "is not a label value", VALUE_RULE)
}

/// Like a label key, but its case does not matter.
pub fn annotation_key(key: &str) -> Result<(), Text> {
    check(is_qualified(&key.to_ascii_lowercase()), key, "is not a qualified name", QUALIFIED_RULE)
}

pub fn labels(labels: &Pairs) -> Result<(), Text> {
    labels.iter().try_for_each(|(key, value)| {
        qualified_name(key)?;
        label_value(value).map_err(|rule| Text::from(format!("{rule} (of key {:?})", Text::clipped(key, QUOTED_MAX))))
    })
}

pub fn annotations(annotations: &Pairs) -> Result<(), Text> {
    annotations.iter().try_for_each(|(key, _)| annotation_key(key))?;
    let total: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > ANNOTATIONS_MAX {
        return Err(Text::from(format!("{total} bytes of keys and values are too many: at most {ANNOTATIONS_MAX}")));
    }
    Ok(())
}

fn check(holds: bool, value: &str, wrong: &str, rule: &str) -> Result<(), Text> {
    if holds { Ok(()) } else { Err(Text::from(format!("{:?} {wrong}: {rule}", Text::clipped(value, QUOTED_MAX)))) }
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
            ("Node_1".to_owned(), SUBDOMAIN_RULE),
            (String::new(), SUBDOMAIN_RULE),
            ("ä".repeat(200), SUBDOMAIN_RULE),
        ];
        for (name, rule) in refused {
            let message = host_name(&name).unwrap_err();
            assert!(message.ends_with(rule), "{message}");
        }
    }

    #[test]
    fn an_error_has_the_value_and_the_rule() {
        assert_eq!(
            dns_subdomain("Node_1").unwrap_err(),
            "\"Node_1\" is not a DNS-1123 subdomain: lower case letters, digits, '-' and '.', starting and ending \
             with a letter or digit, at most 253 characters"
        );
        assert!(dns_subdomain(&"A".repeat(10_000)).unwrap_err().len() < 400);
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
        assert!(annotations(&bigger).unwrap_err().contains("262145 bytes"));
    }
}
