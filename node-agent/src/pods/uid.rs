//! Uid of a pod. A name may be used again, a uid never is.

use std::fmt;

use bytes::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(pub u128);

impl PodUid {
    /// Sixteen bytes, big-endian.
    pub(crate) fn from_wire(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u128::from_be_bytes(bytes)))
    }

    pub(crate) fn to_wire(self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_be_bytes())
    }

    /// Parses exactly what is displayed, so that two texts never mean one pod.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uid = u128::from_str_radix(&text.replace('-', ""), 16).ok().map(Self)?;
        (uid.to_string() == text).then_some(uid)
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_travels_as_sixteen_bytes_and_is_shown_as_a_uuid() {
        let uid = PodUid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(PodUid::from_wire(&uid.to_wire()), Some(uid));
        assert_eq!(uid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(PodUid::from_wire(b"short"), None);
    }

    #[test]
    fn only_the_displayed_form_of_a_uid_parses() {
        let uid = PodUid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(PodUid::parse(&uid.to_string()), Some(uid));
        for other in ["", "..", "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF", "+1"] {
            assert_eq!(PodUid::parse(other), None, "{other}");
        }
    }
}
