//! Metadata that every stored object carries, whatever its kind.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::value::text::Text;
use crate::value::time::Stamp;

/// A State counter, one step per object change. Clients see it as `resourceVersion`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub u64);

/// A random 128-bit identity, chosen by the proposer so that `apply` stays deterministic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uid(pub u128);

/// Labels or annotations: unique keys in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Box<[(Text, Text)]>")]
pub struct Pairs(Box<[(Text, Text)]>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerReference {
    pub api_version: Text,
    pub kind: Text,
    pub name: Text,
    pub uid: Uid,
    pub controller: bool,
    pub block_owner_deletion: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectMeta {
    pub name: Text,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<Text>,
    pub uid: Uid,
    pub revision: Revision,
    /// Raised when the desired state (spec) changes, not by status or labels.
    pub generation: u64,
    pub created: Stamp,
    pub deleted: Option<Stamp>,
    pub labels: Pairs,
    pub annotations: Pairs,
    pub owners: Box<[OwnerReference]>,
    pub finalizers: Box<[Text]>,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a uid: 32 hexadecimal digits, grouped 8-4-4-4-12 by hyphens")]
pub struct UidError {
    pub text: Text,
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
        write!(f, "{a}-{b}-{c}-{d}-{e}")
    }
}

impl FromStr for Uid {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Self, UidError> {
        let wrong = || UidError { text: Text::clipped(text, 64) };
        let groups: Vec<&str> = text.split('-').collect();
        let well_formed = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
            && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if !well_formed {
            return Err(wrong());
        }
        u128::from_str_radix(&groups.concat(), 16).map(Self).map_err(|_| wrong())
    }
}

impl Pairs {
    pub fn get(&self, key: &str) -> Option<&Text> {
        let found = self.0.binary_search_by(|(own, _)| own.as_str().cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Text, &Text)> + ExactSizeIterator + '_ {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one pair and returns the value it had.
    pub fn insert(&mut self, key: Text, value: Text) -> Option<Text> {
        match self.0.binary_search_by(|(own, _)| own.cmp(&key)) {
            Ok(found) => Some(std::mem::replace(&mut self.0[found].1, value)),
            Err(place) => {
                let mut pairs = std::mem::take(&mut self.0).into_vec();
                pairs.insert(place, (key, value));
                self.0 = pairs.into_boxed_slice();
                None
            }
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Text> {
        let found = self.0.binary_search_by(|(own, _)| own.as_str().cmp(key)).ok()?;
        let mut pairs = std::mem::take(&mut self.0).into_vec();
        let (_, value) = pairs.remove(found);
        self.0 = pairs.into_boxed_slice();
        Some(value)
    }

    /// These pairs and the other's; where both have a key, the other's value wins.
    #[must_use]
    pub fn merged(&self, other: &Pairs) -> Pairs {
        self.0.iter().chain(other.0.iter()).cloned().collect()
    }

    pub(crate) fn texts_mut(&mut self) -> impl Iterator<Item = (&mut Text, &mut Text)> {
        self.0.iter_mut().map(|(key, value)| (key, value))
    }
}

/// Of pairs with the same key, the last one wins.
impl<K: Into<Text>, V: Into<Text>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let sorted: BTreeMap<Text, Text> = pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(sorted.into_iter().collect())
    }
}

impl TryFrom<Box<[(Text, Text)]>> for Pairs {
    type Error = &'static str;

    fn try_from(pairs: Box<[(Text, Text)]>) -> Result<Self, Self::Error> {
        if pairs.is_sorted_by(|(left, _), (right, _)| left < right) {
            Ok(Self(pairs))
        } else {
            Err("keys must be unique and in ascending order")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_print_and_parse_as_uuids() {
        let uid = Uid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(uid.to_string(), "01234567-89ab-cdef-0011-223344556677");
        assert_eq!(uid.to_string().parse(), Ok(uid));
        assert_eq!(uid.to_string().to_uppercase().parse(), Ok(uid));
        for text in [
            "",
            "0123456789abcdef0011223344556677",
            "01234567-89ab-cdef-0011-22334455667g",
            "+1234567-89ab-cdef-0011-223344556677",
        ] {
            assert!(text.parse::<Uid>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn pairs_are_sorted_and_unique() {
        let mut pairs = Pairs::from_iter([("b", "1"), ("a", "2"), ("b", "3")]);
        assert_eq!(shown(&pairs), "a=2 b=3");
        assert_eq!(pairs.insert(Text::from("aa"), Text::from("4")), None);
        assert_eq!(pairs.insert(Text::from("a"), Text::from("5")), Some(Text::from("2")));
        assert_eq!(pairs.remove("b"), Some(Text::from("3")));
        assert_eq!(pairs.remove("b"), None);
        assert_eq!(shown(&pairs), "a=5 aa=4");
        assert_eq!(shown(&pairs.merged(&Pairs::from_iter([("a", "6"), ("c", "7")]))), "a=6 aa=4 c=7");
        assert_eq!(pairs.get("aa").map(Text::as_str), Some("4"));
        assert!(!pairs.contains_key("b") && pairs.len() == 2 && !pairs.is_empty());
    }

    #[test]
    fn pairs_out_of_order_do_not_decode() {
        for pairs in [vec![("b", "1"), ("a", "2")], vec![("a", "1"), ("a", "2")]] {
            let bytes = postcard::to_stdvec(&pairs).unwrap();
            assert!(postcard::from_bytes::<Pairs>(&bytes).is_err());
        }
    }

    fn shown(pairs: &Pairs) -> String {
        pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }
}
