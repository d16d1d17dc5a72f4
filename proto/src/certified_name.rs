//! The name of a node as its certificate holds it. Replicas write and read it here, and agents read it here.
//!
//! ```text
//!   a name of up to 52 characters    common name system:node:NAME             no DNS name
//!   a name of 53 to 253 characters   common name system:node:sha256:DIGITS    one DNS name: NAME
//! ```
//! RFC 5280 gives a common name 64 characters, which is too few for many DNS names. DIGITS are the first 44 hexadecimal
//! digits of the name's SHA-256, so that common names of different nodes differ. A name has one form: a certificate
//! that has it in another form is refused, because a reader of the common name alone would take it for another node.

use muster_lifecycle::name;
use muster_lifecycle::text::Text;
use muster_lifecycle::violation::NameViolation;
use thiserror::Error;
use x509_parser::extensions::GeneralName;

use crate::token::sha256;

/// The user of a node is this and its name.
pub const NODE_PREFIX: &str = "system:node:";
/// RFC 5280's upper bound for a common name.
pub const COMMON_NAME_MAX: usize = 64;

/// A name of a node has no colon, so this begins no user of a node.
const HASH_PREFIX: &str = "system:node:sha256:";
const HASH_DIGITS: usize = 44;
/// How much of a common name a message quotes.
const QUOTED_MAX: usize = 128;

/// The names in a certificate that say which node it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedName {
    pub common_name: String,
    pub dns_names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CertifiedNameError {
    #[error("the certificate belongs to {0:?} and not to a node: use a certificate of a node")]
    NotANode(Text),
    #[error("the certificate names no node: {0}; have one signed for a name of that form")]
    Form(NameViolation),
    #[error(
        "the certificate has node {node:?} in its common name, which has at most {COMMON_NAME_MAX} characters: have one \
         signed with common name {:?} and the node as its only DNS name", CertifiedName::of(node).common_name
    )]
    TooLong { node: String },
    #[error(
        "the certificate has node {node:?} in its common name, and also DNS names ({count}): have one signed without them"
    )]
    DnsNames { node: String, count: usize },
    #[error(
        "the certificate has common name {common_name:?}, which is the hash of a node's name, and no DNS name: have one \
         signed with the node as its DNS name"
    )]
    NoDnsName { common_name: Text },
    #[error(
        "the certificate has common name {common_name:?}, which is the hash of a node's name, and {count} DNS names: \
         have one signed with the node as its only DNS name"
    )]
    SeveralDnsNames { common_name: Text, count: usize },
    #[error(
        "the certificate has the hash of node {node:?} as its common name, which has room for the name itself: have one \
         signed with common name {:?} and no DNS name", CertifiedName::of(node).common_name
    )]
    Hashed { node: String },
    #[error(
        "the certificate has DNS name {node:?}, but {common_name:?} is not its hash: have one signed with common name \
         {:?}", CertifiedName::of(node).common_name
    )]
    OtherHash { node: String, common_name: Text },
}

/// The user of a node, whatever form its name has in the certificate.
pub fn node_user(node: &str) -> String {
    format!("{NODE_PREFIX}{node}")
}

// === impl CertifiedName ===

impl CertifiedName {
    pub fn of(node: &str) -> Self {
        if is_short(node) {
            return Self { common_name: node_user(node), dns_names: Vec::new() };
        }
        let mut digits = sha256(node.as_bytes()).to_string();
        digits.truncate(HASH_DIGITS);
        Self { common_name: format!("{HASH_PREFIX}{digits}"), dns_names: vec![node.to_owned()] }
    }

    /// The names of a certificate with this common name and these alternative names.
    pub fn read(common_name: String, names: &[GeneralName<'_>]) -> Self {
        let dns =
            |name: &GeneralName<'_>| if let GeneralName::DNSName(dns) = name { Some((*dns).to_owned()) } else { None };
        Self { common_name, dns_names: names.iter().filter_map(dns).collect() }
    }

    /// The node that a certificate with these names belongs to.
    pub fn node(self) -> Result<String, CertifiedNameError> {
        if self.common_name.starts_with(HASH_PREFIX) {
            return self.hashed_node();
        }
        let Some(node) = self.common_name.strip_prefix(NODE_PREFIX).map(str::to_owned) else {
            return Err(CertifiedNameError::NotANode(self.quoted()));
        };
        name::host_name(&node).map_err(CertifiedNameError::Form)?;
        match self.dns_names.len() {
            _ if !is_short(&node) => Err(CertifiedNameError::TooLong { node }),
            0 => Ok(node),
            count => Err(CertifiedNameError::DnsNames { node, count }),
        }
    }

    fn hashed_node(self) -> Result<String, CertifiedNameError> {
        let common_name = self.quoted();
        let node = match self.dns_names.as_slice() {
            [node] => node.clone(),
            [] => return Err(CertifiedNameError::NoDnsName { common_name }),
            several => return Err(CertifiedNameError::SeveralDnsNames { common_name, count: several.len() }),
        };
        name::host_name(&node).map_err(CertifiedNameError::Form)?;
        match Self::of(&node) {
            _ if is_short(&node) => Err(CertifiedNameError::Hashed { node }),
            wanted if wanted == self => Ok(node),
            _ => Err(CertifiedNameError::OtherHash { node, common_name }),
        }
    }

    fn quoted(&self) -> Text {
        Text::clipped(&self.common_name, QUOTED_MAX)
    }
}

/// Whether the common name has room for the name itself.
fn is_short(node: &str) -> bool {
    NODE_PREFIX.len() + node.len() <= COMMON_NAME_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A name of this many characters.
    fn long(length: usize) -> String {
        (1..=length).map(|at| if at % 50 == 0 && at < length { '.' } else { 'x' }).collect()
    }

    fn names(common_name: &str, dns_names: &[&str]) -> CertifiedName {
        let dns_names = dns_names.iter().map(|&name| name.to_owned()).collect();
        CertifiedName { common_name: common_name.to_owned(), dns_names }
    }

    #[test]
    fn a_name_that_fits_is_the_common_name_and_a_longer_one_is_the_dns_name() {
        for (length, is_plain) in [(1, true), (52, true), (53, false), (63, false), (128, false), (253, false)] {
            let node = long(length);
            assert_eq!(node.len(), length);
            let written = CertifiedName::of(&node);
            assert!(written.common_name.len() <= COMMON_NAME_MAX, "{written:?}");
            assert_eq!(written.common_name == node_user(&node), is_plain, "{written:?}");
            assert_eq!(written.dns_names, if is_plain { vec![] } else { vec![node.clone()] });
            assert_eq!(written.node(), Ok(node));
        }
    }

    /// Certificates outlive a release: this form cannot change.
    #[test]
    fn the_hash_is_the_first_44_digits_of_sha_256() {
        let written = CertifiedName::of("rack-17.row-3.hall-2.building-north.frankfurt.example.org");
        assert_eq!(written.common_name, "system:node:sha256:5dc68daac3e55fd4594b79ff6d6e448774e8df2483f8");
    }

    #[test]
    fn any_other_form_is_refused_with_what_to_do() {
        let (short, node, other) = (long(52), long(53), format!("{}y", long(52)));
        let (plain, hash) = (node_user(&node), CertifiedName::of(&node).common_name);
        let hash_of_short = format!("{HASH_PREFIX}{}", &sha256(short.as_bytes()).to_string()[..HASH_DIGITS]);
        let upper = hash.replace("sha256:", "sha256:A");
        let cases = [
            (names("ada", &[]), "belongs to \"ada\" and not to a node: use a certificate of a node"),
            (names("system:node:", &[]), "names no node: \"\" is not a DNS-1123 subdomain"),
            (names("system:node:Upper", &[]), "names no node: \"Upper\" is not a DNS-1123 subdomain"),
            (names(&node_user(&"x".repeat(64)), &[]), "has a label of 64 characters"),
            (names(&plain, &[]), "and the node as its only DNS name"),
            (names("system:node:a", &["a"]), "and also DNS names (1): have one signed without them"),
            (names("system:node:a", &["b", "c"]), "and also DNS names (2): have one signed without them"),
            (names(&hash, &[]), "and no DNS name: have one signed with the node as its DNS name"),
            (names(&hash, &[&node, &node]), "and 2 DNS names: have one signed with the node as its only DNS name"),
            (names(&hash, &["Upper"]), "names no node: \"Upper\" is not a DNS-1123 subdomain"),
            (names(&hash, &["*.example.org"]), "names no node: \"*.example.org\" is not a DNS-1123 subdomain"),
            (names(&hash_of_short, &[&short]), "signed with common name \"system:node:xxx"),
            (names(&hash, &[&short]), "and no DNS name"),
            (names(&hash, &[&other]), "is not its hash: have one signed with common name \"system:node:sha256:"),
            (names(&hash[..hash.len() - 1], &[&node]), "is not its hash"),
            (names(&format!("{hash}0"), &[&node]), "is not its hash"),
            (names(&upper, &[&node]), "is not its hash"),
            (names(HASH_PREFIX, &[&node]), "is not its hash"),
        ];
        for (names, wanted) in cases {
            let message = names.clone().node().expect_err("it is refused").to_string();
            assert!(message.contains(wanted), "{names:?}: {message}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_what_would_be_written(
            common_name in "(system:node:|system:node:sha256:)?[a-f0-9.:A-]{0,80}",
            dns_names in proptest::collection::vec("[a-z0-9.A-]{0,80}", 0..3),
        ) {
            let names = CertifiedName { common_name, dns_names };
            if let Ok(node) = names.clone().node() {
                prop_assert_eq!(CertifiedName::of(&node), names);
            }
        }
    }
}
