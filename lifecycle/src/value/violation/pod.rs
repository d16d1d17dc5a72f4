//! Rules for pods and workloads. A toleration is quoted in its own notation, `key=value:Effect for 300s`.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::meta::Uid;
use crate::value::text::Text;

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(PodViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`PodViolation`], without their parameters.")]
pub enum PodViolation {
    #[error("must be Exists when the key is empty: it then stands for every taint")]
    OperatorWithoutKey,
    #[error("must be empty when the operator is Exists: there is nothing to compare")]
    ValueWithExists,
    #[error("must be a whole number when the operator is Lt or Gt")]
    ValueNoNumber,
    #[error("must be NoExecute when tolerationSeconds is set")]
    SecondsWithoutNoExecute,
    #[error("\"{toleration}\" cannot be removed: of a pod that exists tolerations can only be added")]
    TolerationGone { toleration: Text },
    #[error("is required: labels that its pods have")]
    NoSelector,
    #[error("must have \"{key}={value}\", as spec.selector asks: its pods would not be its own")]
    LabelNotSelected { key: Text, value: Text },
    #[error("is required: at least one")]
    NoContainers,
    #[error("{seconds} is negative: write seconds, 0 or more")]
    GraceNegative { seconds: i64 },
    #[error("{seconds} is too long: at most {most}")]
    GraceTooLong { seconds: i64, most: i64 },
    #[error("are not supported on pods and workloads: leave them out")]
    Finalizers,
    #[error("cannot be changed: of a pod that exists only labels, annotations and tolerations can change")]
    PodFixed,
    #[error("cannot be changed: it says which pods are its own; make a new one under another name")]
    SelectorFixed,
    /// `workload` is the namespace and the name, `kind` Kubernetes' word.
    #[error("{workload}, a {kind} has uid {uid}: name it as it is called, in its own namespace")]
    FalseOwner { workload: Text, kind: Text, uid: Uid },
    #[error("node {node:?} not found")]
    NoSuchNode { node: Text },
}

impl PodViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
