//! Identity of a caller, read from a certificate whose chain was already verified.
//!
//! The common name is the user, the organisations are the groups. A node whose name is too long for a common name has
//! it as a DNS name ([`CertifiedName`]). A role needs the group *and* the matching form of name, as Kubernetes asks of
//! its nodes. A certificate has one role: one with two groups that grant roles is refused, because guessing between
//! them would be unsafe.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_lifecycle::fingerprint::Fingerprint;
use muster_lifecycle::name;
use muster_lifecycle::replica::ReplicaId;
use muster_proto::certified_name::{CertifiedName, CertifiedNameError, NODE_PREFIX, node_user};
use muster_proto::token::sha256;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::FleetId;

pub const REPLICAS: &str = "muster:replicas";
pub const OPERATORS: &str = "muster:operators";
pub const VIEWERS: &str = "muster:viewers";
pub const AGGREGATORS: &str = "muster:aggregators";
pub const CANARIES: &str = "muster:canaries";
pub const NODES: &str = "system:nodes";

/// The user name of a caller without a certificate.
const STRANGER: &str = "system:anonymous";

const REPLICA_PREFIX: &str = "system:muster:replica:";
const CANARY_PREFIX: &str = "system:muster:canary:";
const AGGREGATOR_PREFIX: &str = "system:muster:aggregator:";
/// Names of this form belong to machines; no human may carry one.
pub const RESERVED_PREFIX: &str = "system:";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub user: String,
    pub groups: Vec<String>,
    pub fleet: FleetId,
    pub kind: Role,
    /// The hash of the caller's public key.
    pub key: Fingerprint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Replica(ReplicaId),
    Operator,
    Viewer,
    Node(String),
    /// Carries many nodes on one stream; which ones is in its scope.
    Aggregator(String),
    /// A replica that calls its own agent door, to notice when agents cannot be heard there.
    Canary(ReplicaId),
    /// A node whose certificate has expired: it may only renew it.
    Lapsed(String),
    /// A caller without a certificate: it may only ask for one.
    Stranger,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the certificate cannot be parsed")]
    Unreadable,
    #[error("the certificate must have exactly one common name")]
    User,
    #[error("the certificate must name exactly one fleet")]
    Fleet,
    #[error("the certificate is not for clients alone")]
    Usage,
    #[error("user {user:?} is in no group that grants a role (groups: {groups:?})")]
    NoRole { user: String, groups: Vec<String> },
    #[error("user {user:?} is in several groups that grant roles: {groups:?}")]
    SeveralRoles { user: String, groups: Vec<String> },
    #[error("user {user:?} does not have the form of name that group {group} requires")]
    Name { user: String, group: &'static str },
    #[error(transparent)]
    Node(#[from] CertifiedNameError),
}

/// The user name of replica `id`.
pub fn replica_user(id: ReplicaId) -> String {
    format!("{REPLICA_PREFIX}{id}")
}

/// The user name under which replica `id` calls its own agent door.
pub fn canary_user(id: ReplicaId) -> String {
    format!("{CANARY_PREFIX}{id}")
}

pub fn aggregator_user(name: &str) -> String {
    format!("{AGGREGATOR_PREFIX}{name}")
}

// === impl Identity ===

impl Identity {
    /// Reads an identity. The caller has verified the chain; nothing here makes a certificate trustworthy.
    pub fn from_certificate(der: &CertificateDer<'_>) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Error::Unreadable)?;
        require_client_only(&certificate)?;
        let common_name = sole(common_names(&certificate)?).ok_or(Error::User)?;
        let names = alternative_names(&certificate)?;
        let user = user(common_name, names)?;
        let fleet = sole(fleets(names)).ok_or(Error::Fleet)?;
        let groups = organizations(&certificate)?;
        let kind = Role::decide(&user, &groups)?;
        let key = sha256(certificate.public_key().raw);
        Ok(Self { user, groups, fleet, kind, key })
    }

    /// The identity of a caller without a certificate.
    pub fn stranger(fleet: FleetId) -> Self {
        let (user, groups) = (STRANGER.to_owned(), Vec::new());
        Self { user, groups, fleet, kind: Role::Stranger, key: sha256(&[]) }
    }

    /// The same with a certificate that has expired. `None` unless it is a node's.
    pub fn lapsed(self) -> Option<Self> {
        match self.kind {
            Role::Node(node) | Role::Lapsed(node) => Some(Self { kind: Role::Lapsed(node), ..self }),
            Role::Replica(_) | Role::Operator | Role::Viewer => None,
            Role::Aggregator(_) | Role::Canary(_) | Role::Stranger => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.user, self.kind.noun())
    }
}

// === impl Role ===

impl Role {
    /// The role of a user in these groups. Unknown groups grant nothing and harm nothing.
    pub fn decide(user: &str, groups: &[String]) -> Result<Self, Error> {
        let granting = [REPLICAS, OPERATORS, VIEWERS, AGGREGATORS, CANARIES, NODES];
        let held: Vec<_> = granting.into_iter().filter(|group| groups.iter().any(|held| held == group)).collect();
        let group = match held.as_slice() {
            [group] => *group,
            [] => return Err(Error::NoRole { user: user.to_owned(), groups: groups.to_vec() }),
            _ => return Err(Error::SeveralRoles { user: user.to_owned(), groups: groups.to_vec() }),
        };
        Self::in_group(user, group).ok_or_else(|| Error::Name { user: user.to_owned(), group })
    }

    /// The noun for the role in messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Replica(_) => "replica",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Node(_) => "node",
            Self::Aggregator(_) => "aggregator",
            Self::Canary(_) => "canary",
            Self::Lapsed(_) => "node with an expired certificate",
            Self::Stranger => "stranger",
        }
    }

    fn in_group(user: &str, group: &'static str) -> Option<Self> {
        match group {
            REPLICAS => number(user, REPLICA_PREFIX).map(Self::Replica),
            CANARIES => number(user, CANARY_PREFIX).map(Self::Canary),
            NODES => machine_name(user, NODE_PREFIX).map(Self::Node),
            AGGREGATORS => machine_name(user, AGGREGATOR_PREFIX).map(Self::Aggregator),
            OPERATORS => is_human(user).then_some(Self::Operator),
            VIEWERS => is_human(user).then_some(Self::Viewer),
            _ => None,
        }
    }
}

/// The last moment at which a certificate is good.
pub fn expires(der: &CertificateDer<'_>) -> Result<SystemTime, Error> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| Error::Unreadable)?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// True for a user name that an operator or viewer may carry.
pub fn is_human(user: &str) -> bool {
    !user.is_empty() && !user.starts_with(RESERVED_PREFIX)
}

/// The number must be spelled as we print it: `+1` or `01` would give one replica several names.
fn number(user: &str, prefix: &str) -> Option<ReplicaId> {
    let digits = user.strip_prefix(prefix)?;
    let id: ReplicaId = digits.parse().ok()?;
    (id != ReplicaId(0) && id.to_string() == digits).then_some(id)
}

fn machine_name(user: &str, prefix: &str) -> Option<String> {
    let name = user.strip_prefix(prefix)?;
    name::host_name(name).is_ok().then(|| name.to_owned())
}

/// The common name is the user, except that of a node with a long name.
fn user(common_name: String, names: &[GeneralName<'_>]) -> Result<String, Error> {
    if !common_name.starts_with(NODE_PREFIX) {
        return Ok(common_name);
    }
    Ok(node_user(&CertifiedName::read(common_name, names).node()?))
}

fn require_client_only(certificate: &X509Certificate<'_>) -> Result<(), Error> {
    let usage = certificate.extended_key_usage().map_err(|_| Error::Unreadable)?.ok_or(Error::Usage)?.value;
    if usage.client_auth && !usage.server_auth && !usage.any { Ok(()) } else { Err(Error::Usage) }
}

fn common_names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, Error> {
    certificate.subject().iter_common_name().map(text).collect()
}

fn organizations(certificate: &X509Certificate<'_>) -> Result<Vec<String>, Error> {
    certificate.subject().iter_organization().map(text).collect()
}

fn text(attribute: &x509_parser::x509::AttributeTypeAndValue<'_>) -> Result<String, Error> {
    attribute.as_str().map(str::to_owned).map_err(|_| Error::Unreadable)
}

fn alternative_names<'a>(certificate: &'a X509Certificate<'_>) -> Result<&'a [GeneralName<'a>], Error> {
    let names = certificate.subject_alternative_name().map_err(|_| Error::Unreadable)?;
    Ok(names.map_or(&[], |names| names.value.general_names.as_slice()))
}

fn fleets(names: &[GeneralName<'_>]) -> Vec<FleetId> {
    let uri = |name: &GeneralName<'_>| if let GeneralName::URI(uri) = name { FleetId::from_uri(uri) } else { None };
    names.iter().filter_map(uri).collect()
}

fn sole<T>(mut items: Vec<T>) -> Option<T> {
    if items.len() == 1 { items.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use muster_lifecycle::text::Text;
    use proptest::prelude::*;
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

    use super::*;

    const FLEET: &str = "0f0e0d0c-0b0a-4909-8807-060504030201";

    #[test]
    fn a_role_needs_its_group_and_its_form_of_name() {
        let accepted = [
            ("system:muster:replica:3", REPLICAS, Role::Replica(ReplicaId(3))),
            ("ada", OPERATORS, Role::Operator),
            ("grace@example.org", VIEWERS, Role::Viewer),
            ("system:node:rack-1.example.org", NODES, Role::Node("rack-1.example.org".into())),
            ("system:muster:aggregator:rack-1", AGGREGATORS, Role::Aggregator("rack-1".into())),
            ("system:muster:canary:3", CANARIES, Role::Canary(ReplicaId(3))),
        ];
        for (user, group, role) in accepted {
            assert_eq!(Role::decide(user, &groups(&[group])), Ok(role), "{user} in {group}");
        }
        let refused = [
            ("system:muster:replica:1", OPERATORS),
            ("system:muster:replica:1", NODES),
            ("system:muster:replica:0", REPLICAS),
            ("system:muster:replica:01", REPLICAS),
            ("system:muster:replica:+1", REPLICAS),
            ("system:muster:replica:", REPLICAS),
            ("system:muster:replica:18446744073709551616", REPLICAS),
            ("system:muster:replica:1", CANARIES),
            ("system:muster:canary:1", REPLICAS),
            ("system:muster:canary:01", CANARIES),
            ("system:muster:canary:0", CANARIES),
            ("ada", REPLICAS),
            ("ada", NODES),
            ("system:node:", NODES),
            ("system:node:Upper", NODES),
            ("system:node:a/b", NODES),
            ("system:node:sha256:5dc68daac3e55fd4594b79ff6d6e448774e8df2483f8", NODES),
            ("system:node:a", OPERATORS),
            ("system:admin", VIEWERS),
            ("", OPERATORS),
            ("rack-1", AGGREGATORS),
        ];
        for (user, group) in refused {
            assert!(matches!(Role::decide(user, &groups(&[group])), Err(Error::Name { .. })), "{user} in {group}");
        }
    }

    #[test]
    fn a_prefix_without_its_group_grants_nothing() {
        for user in ["system:muster:replica:1", "system:node:a", "system:muster:aggregator:a", "ada"] {
            for held in [&[][..], &["system:masters"][..]] {
                assert!(matches!(Role::decide(user, &groups(held)), Err(Error::NoRole { .. })), "{user} in {held:?}");
            }
        }
    }

    #[test]
    fn two_granting_groups_are_refused_and_a_foreign_one_is_ignored() {
        let both = groups(&[OPERATORS, VIEWERS]);
        assert!(matches!(Role::decide("ada", &both), Err(Error::SeveralRoles { .. })));
        assert_eq!(Role::decide("ada", &groups(&["staff", OPERATORS])), Ok(Role::Operator));
    }

    #[test]
    fn a_certificate_is_read_whole() {
        let identity = Identity::from_certificate(&sample().der()).unwrap();
        assert_eq!(identity.user, "ada");
        assert_eq!(identity.groups, [OPERATORS]);
        assert_eq!(identity.fleet.as_str(), FLEET);
        assert_eq!(identity.kind, Role::Operator);
    }

    #[test]
    fn a_certificate_with_missing_or_ambiguous_fields_is_refused() {
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        let other = "muster://fleet/1f0e0d0c-0b0a-4909-8807-060504030201";
        let fleet = format!("muster://fleet/{FLEET}");
        let cases = [
            (Sample { users: vec![], ..sample() }, Error::User),
            (Sample { users: vec!["ada".to_owned(), "bob".to_owned()], ..sample() }, Error::User),
            (Sample { uris: vec![], ..sample() }, Error::Fleet),
            (Sample { uris: vec!["muster://fleet/none".into()], ..sample() }, Error::Fleet),
            (Sample { uris: vec![fleet, other.into()], ..sample() }, Error::Fleet),
            (Sample { usages: vec![], ..sample() }, Error::Usage),
            (Sample { usages: vec![server.clone()], ..sample() }, Error::Usage),
            (Sample { usages: vec![client, server], ..sample() }, Error::Usage),
            (
                Sample { groups: vec![OPERATORS, VIEWERS], ..sample() },
                Error::SeveralRoles { user: "ada".into(), groups: groups(&[OPERATORS, VIEWERS]) },
            ),
        ];
        for (sample, expected) in cases {
            assert_eq!(Identity::from_certificate(&sample.der()), Err(expected));
        }
    }

    #[test]
    fn a_node_is_its_full_name_in_either_form() {
        for length in [1, 52, 53, 253] {
            let node = long(length);
            let identity = Identity::from_certificate(&node_sample(CertifiedName::of(&node)).der()).unwrap();
            assert_eq!(identity.user, format!("system:node:{node}"));
            assert_eq!(identity.kind, Role::Node(node));
        }
    }

    #[test]
    fn a_node_in_another_form_is_refused() {
        use CertifiedNameError as Bad;
        let (short, node, other) = (long(52), long(53), long(54));
        let CertifiedName { common_name: hash, .. } = CertifiedName::of(&node);
        let quoted = || Text::from(hash.as_str());
        let cases = [
            (&hash, vec![], Bad::NoDnsName { common_name: quoted() }),
            (&hash, vec![&node, &other], Bad::SeveralDnsNames { common_name: quoted(), count: 2 }),
            (&hash, vec![&node, &node], Bad::SeveralDnsNames { common_name: quoted(), count: 2 }),
            (&hash, vec![&other], Bad::OtherHash { node: other.clone(), common_name: quoted() }),
            (&hash, vec![&short], Bad::Hashed { node: short.clone() }),
            (&node_user(&short), vec![&short], Bad::DnsNames { node: short.clone(), count: 1 }),
            (&node_user(&node), vec![], Bad::TooLong { node: node.clone() }),
        ];
        for (common_name, dns_names, expected) in cases {
            let dns_names = dns_names.into_iter().cloned().collect();
            let sample = node_sample(CertifiedName { common_name: common_name.clone(), dns_names });
            assert_eq!(Identity::from_certificate(&sample.der()), Err(Error::Node(expected)));
        }
        // The hash is that of a node, and its group is another's.
        let forged = Sample { groups: vec![OPERATORS], ..node_sample(CertifiedName::of(&node)) };
        let refused = Err(Error::Name { user: node_user(&node), group: OPERATORS });
        assert_eq!(Identity::from_certificate(&forged.der()), refused);
    }

    #[test]
    fn a_person_may_have_dns_names() {
        let ada = Sample { dns_names: vec![long(53)], ..sample() };
        assert_eq!(Identity::from_certificate(&ada.der()).unwrap().user, "ada");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(Identity::from_certificate(&CertificateDer::from(bytes)).is_err());
        }

        #[test]
        fn a_damaged_certificate_never_panics(index in any::<prop::sample::Index>(), byte in any::<u8>()) {
            for sample in [sample(), node_sample(CertifiedName::of(&long(53)))] {
                let mut der = sample.der().to_vec();
                let at = index.index(der.len());
                der[at] = byte;
                let _ = Identity::from_certificate(&CertificateDer::from(der));
            }
        }
    }

    struct Sample {
        users: Vec<String>,
        groups: Vec<&'static str>,
        uris: Vec<String>,
        dns_names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
    }

    fn sample() -> Sample {
        Sample {
            users: vec!["ada".to_owned()],
            groups: vec![OPERATORS],
            uris: vec![format!("muster://fleet/{FLEET}")],
            dns_names: vec![],
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
        }
    }

    fn node_sample(names: CertifiedName) -> Sample {
        Sample { users: vec![names.common_name], dns_names: names.dns_names, groups: vec![NODES], ..sample() }
    }

    /// A name of this many characters.
    fn long(length: usize) -> String {
        (1..=length).map(|at| if at % 50 == 0 && at < length { '.' } else { 'x' }).collect()
    }

    impl Sample {
        fn der(&self) -> CertificateDer<'static> {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            let users: Vec<_> = self.users.iter().map(String::as_str).collect();
            push_all(&mut params.distinguished_name, DnType::CommonName, 3, &users);
            push_all(&mut params.distinguished_name, DnType::OrganizationName, 10, &self.groups);
            let text = |text: &String| Ia5String::try_from(text.as_str()).unwrap();
            let dns_names = self.dns_names.iter().map(|name| SanType::DnsName(text(name)));
            params.subject_alt_names = self.uris.iter().map(|uri| SanType::URI(text(uri))).chain(dns_names).collect();
            params.extended_key_usages = self.usages.clone();
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
        }
    }

    /// The library keeps one value per attribute type; a second one gets in under the raw object identifier.
    fn push_all(name: &mut DistinguishedName, kind: DnType, arc: u64, values: &[&str]) {
        let kinds = [kind, DnType::CustomDnType(vec![2, 5, 4, arc])];
        for (kind, value) in kinds.into_iter().zip(values) {
            name.push(kind, *value);
        }
    }

    fn groups(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}
