//! Rules for the settings of a policy.

use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};
use thiserror::Error;

use crate::value::decimal::decimal;
use crate::value::setting;
use crate::value::text::Text;
use crate::value::time::{Period, PeriodError};

#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(name(SettingViolationKind), derive(IntoStaticStr, VariantArray))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "The kinds of [`SettingViolation`], without their parameters.")]
pub enum SettingViolation {
    #[error("no such setting: use one of {}", setting::ALL.join(", "))]
    Unknown,
    #[error("is named twice in one command")]
    NamedTwice,
    #[error("{0}")]
    NotPeriod(PeriodError),
    #[error("{text:?} is not a rate: write events per second, 0 or more, with at most 6 decimals, such as 0.1")]
    NotRate { text: Text },
    #[error("{text:?} is not a fraction: write a number from 0 to 1 with at most 6 decimals, such as 0.55")]
    NotFraction { text: Text },
    #[error("{text:?} is not a number of nodes: write a whole number, such as 50")]
    NotSize { text: Text },
    #[error("{text:?} is not one of zone, cluster")]
    NotScope { text: Text },
    #[error("{period} is too long: at most {most}")]
    TooLong { period: Period, most: Period },
    #[error("{period} is too short: at least {least}")]
    TooShort { period: Period, least: Period },
    #[error("{period} is not a whole number of seconds, as the tolerationSeconds it sets must be")]
    NotWholeSeconds { period: Period },
    #[error("{grace} is too short: at least {least}, or what replicas tell each other would come too late")]
    GraceTooShort { grace: Period, least: Period },
    /// `setting` is the name of the grace period.
    #[error("{period} is above {setting} ({grace}): shorten the period or lengthen the grace period")]
    AboveGrace { period: Period, setting: Text, grace: Period },
    /// Both in millionths.
    #[error("{} per second is too fast: at most {}", decimal(*rate), decimal(*most))]
    TooFast { rate: u64, most: u64 },
    /// In millionths.
    #[error("{} is not between 0 and 1", decimal(*fraction))]
    NoShare { fraction: u64 },
    #[error("{text:?} is neither a duration, such as 10m, nor the word manual")]
    NotFinalization { text: Text },
}

impl From<PeriodError> for SettingViolation {
    fn from(error: PeriodError) -> Self {
        Self::NotPeriod(error)
    }
}

impl SettingViolationKind {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;
}
