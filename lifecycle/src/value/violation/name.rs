//! Rules for names, keys and label values.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(NameViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`NameViolation`], without their parameters.")]
pub enum NameViolation {
    #[error(
        "{value:?} is not a DNS-1123 subdomain: lower case letters, digits, '-' and '.', starting and ending with a \
         letter or digit, at most 253 characters"
    )]
    Subdomain { value: Text },
    #[error("{value:?} has {length} characters: at most 253 are possible")]
    TooLong { value: Text, length: u64 },
    #[error("{value:?} has a label of {length} characters: between two dots at most 63 are possible, as in DNS")]
    LongPart { value: Text, length: u64 },
    #[error(
        "{value:?} is not a DNS-1123 label: lower case letters, digits and '-', starting and ending with a letter or \
         digit, at most 63 characters"
    )]
    Label { value: Text },
    #[error(
        "{value:?} is not a qualified name: letters, digits, '-', '_' and '.', starting and ending with a letter or \
         digit, at most 63 characters, optionally after a DNS subdomain and '/'"
    )]
    Qualified { value: Text },
    #[error("{value:?} {}", LABEL_VALUE_RULE)]
    LabelValue { value: Text },
    #[error("{value:?} {} (of key {key:?})", LABEL_VALUE_RULE)]
    LabelValueOf { value: Text, key: Text },
    #[error("{bytes} bytes of keys and values are too many: at most {most}")]
    AnnotationBytes { bytes: u64, most: u64 },
}

const LABEL_VALUE_RULE: &str = "is not a label value: empty, or letters, digits, '-', '_' and '.', starting and ending \
                                with a letter or digit, at most 63 characters";

impl NameViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
