//! Kubernetes quantities: `100m`, `1.5Gi`, `12e6`.
//!
//! A quantity is a whole number of billionths and the family of suffixes it was written with, so that `1536Mi` does
//! not come back as `1610612736`. As in Kubernetes, fractions of a billionth are rounded away from zero, values above
//! 2^63-1 are capped there, and two quantities are equal when their values are.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::value::text::Text;

/// Sixteen bytes: four times the number of billionths, plus the suffix family. They are kept as bytes because the
/// alignment of an `i128` would waste eight bytes beside every resource name.
#[derive(Clone, Copy, Default)]
pub struct Quantity([u8; 16]);

/// The suffixes with which a quantity is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// n u m k M G T P E
    Decimal,
    /// Ki Mi Gi Ti Pi Ei
    Binary,
    /// e3, e6, ...
    Exponent,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{value:?} is not a quantity: {rule}")]
pub struct QuantityError {
    pub value: Text,
    pub rule: &'static str,
}

const NANOS: i128 = 1_000_000_000;
const NANOS_MAX: i128 = i64::MAX as i128 * NANOS;
/// More decimal digits than the largest number of billionths has.
const DIGITS_MAX: usize = 28;
const LENGTH_MAX: usize = 128;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

const NUMBER_RULE: &str = "it must be a number with an optional suffix, as in 100m, 1.5Gi or 12e6";
const SUFFIX_RULE: &str = "its suffix must be one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3";
const LENGTH_RULE: &str = "it must have at most 128 characters";

// === impl Quantity ===

impl Quantity {
    /// The value in billionths.
    pub fn nanos(self) -> i128 {
        self.packed() >> 2
    }

    pub fn is_zero(self) -> bool {
        self.nanos() == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos() < 0
    }

    pub fn is_integral(self) -> bool {
        self.nanos() % NANOS == 0
    }

    /// The smallest whole number that is not below the value.
    pub fn to_i64_ceil(self) -> i64 {
        let floor = self.nanos().div_euclid(NANOS);
        let ceiling = floor + i128::from(!self.is_integral());
        // The value lies between -(2^63-1) and 2^63-1, so this never falls back.
        i64::try_from(ceiling).unwrap_or(i64::MAX)
    }

    /// The sum, with the suffixes of this one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self::new(self.nanos() + other.nanos(), self.family().unwrap_or(Family::Decimal))
    }

    /// The difference, with the suffixes of this one; never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let left = self.nanos().saturating_sub(other.nanos()).max(0);
        Self::new(left, self.family().unwrap_or(Family::Decimal))
    }

    /// A number of bytes, written with binary suffixes where that is shorter.
    pub fn bytes(count: u64) -> Self {
        Self::new(i128::from(count) * NANOS, Family::Binary)
    }

    fn new(nanos: i128, family: Family) -> Self {
        let tag = match family {
            Family::Decimal => 0,
            Family::Binary => 1,
            Family::Exponent => 2,
        };
        Self::from_packed((nanos.clamp(-NANOS_MAX, NANOS_MAX) << 2) | tag)
    }

    fn packed(self) -> i128 {
        i128::from_ne_bytes(self.0)
    }

    fn from_packed(packed: i128) -> Self {
        Self(packed.to_ne_bytes())
    }

    fn family(self) -> Option<Family> {
        match self.packed() & 3 {
            0 => Some(Family::Decimal),
            1 => Some(Family::Binary),
            2 => Some(Family::Exponent),
            _ => None,
        }
    }

    /// The family that shows the value exactly: small or fractional numbers are not written with binary suffixes.
    fn shown_family(self) -> Family {
        let fits_binary = self.is_integral() && self.nanos().abs() >= 1024 * NANOS;
        match self.family() {
            Some(Family::Binary) if fits_binary => Family::Binary,
            Some(Family::Exponent) => Family::Exponent,
            Some(Family::Binary | Family::Decimal) | None => Family::Decimal,
        }
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::new(i128::from(value) * NANOS, Family::Decimal)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos() == other.nanos()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos().hash(state);
    }
}

// === printing ===

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.pad("0");
        }
        let printed = match self.shown_family() {
            Family::Binary => print_binary(self.nanos() / NANOS),
            Family::Decimal => {
                let (mantissa, exponent) = thousands(self.nanos());
                let suffix = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent).map_or("", |(name, _)| name);
                format!("{mantissa}{suffix}")
            }
            Family::Exponent => match thousands(self.nanos()) {
                (mantissa, 0) => mantissa.to_string(),
                (mantissa, exponent) => format!("{mantissa}e{exponent}"),
            },
        };
        f.pad(&printed)
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The smallest mantissa whose exponent is a multiple of three.
fn thousands(nanos: i128) -> (i128, i32) {
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa != 0 && mantissa % 1000 == 0 {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}

fn print_binary(value: i128) -> String {
    let (mut mantissa, mut suffix) = (value, "");
    for (name, _) in BINARY_SUFFIXES {
        if mantissa % 1024 != 0 {
            break;
        }
        mantissa /= 1024;
        suffix = name;
    }
    format!("{mantissa}{suffix}")
}

// === parsing ===

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).map_err(|rule| QuantityError { value: Text::clipped(text, 64), rule })
    }
}

enum Suffix {
    Decimal(i32),
    Binary(u32),
    Exponent(i32),
}

fn parse(text: &str) -> Result<Quantity, &'static str> {
    if text.len() > LENGTH_MAX {
        return Err(LENGTH_RULE);
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(NUMBER_RULE);
    }
    let (nanos, family) = match parse_suffix(suffix)? {
        Suffix::Decimal(power) => (decimal_nanos(whole, fraction, power), Family::Decimal),
        Suffix::Exponent(power) => (decimal_nanos(whole, fraction, power), Family::Exponent),
        Suffix::Binary(power) => (binary_nanos(whole, fraction, power), Family::Binary),
    };
    Ok(Quantity::new(if negative { -nanos } else { nanos }, family))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn parse_suffix(suffix: &str) -> Result<Suffix, &'static str> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok(Suffix::Decimal(*power));
    }
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok(Suffix::Binary(*power));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(SUFFIX_RULE)?;
    exponent.parse().map(Suffix::Exponent).map_err(|_| SUFFIX_RULE)
}

/// Moves the decimal point over the digits, so that no intermediate number can overflow.
fn decimal_nanos(whole: &str, fraction: &str, power: i32) -> i128 {
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    // Lengths are bounded by LENGTH_MAX, the power is any i32: i64 holds every sum.
    let leading_zeros = (all.len() - digits.len()) as i64;
    let point = whole.len() as i64 - leading_zeros + i64::from(power) + 9;
    let Ok(point) = usize::try_from(point) else { return 1 };
    if point > DIGITS_MAX {
        return NANOS_MAX;
    }
    let (kept, lost) = digits.split_at(point.min(digits.len()));
    let floor: i128 = format!("0{kept:0<point$}").parse().unwrap_or(NANOS_MAX);
    round_up(floor, lost.bytes().any(|digit| digit != b'0'))
}

fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let unit = NANOS << power;
    let whole = whole.trim_start_matches('0');
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(i128::MAX) };
    let Some(wholes) = whole.checked_mul(unit) else { return NANOS_MAX };
    // From the last digit to the first, dividing by ten at each step: the floor of each step is the floor of the
    // whole, and a remainder anywhere means that something was cut off.
    let (floor, inexact) = fraction.bytes().rev().fold((0, false), |(sum, inexact), digit| {
        let sum = sum + i128::from(digit - b'0') * unit;
        (sum / 10, inexact || sum % 10 != 0)
    });
    round_up(wholes.saturating_add(floor), inexact)
}

fn round_up(floor: i128, inexact: bool) -> i128 {
    floor.saturating_add(i128::from(inexact)).min(NANOS_MAX)
}

// === serde ===

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.packed().serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Text::deserialize(deserializer)?.parse().map_err(D::Error::custom);
        }
        let quantity = Self::from_packed(i128::deserialize(deserializer)?);
        if quantity.family().is_none() || quantity.nanos().abs() > NANOS_MAX {
            return Err(D::Error::custom("not a packed quantity"));
        }
        Ok(quantity)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn prints_what_kubernetes_prints() {
        let cases = [
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("0.0m", "0"),
            ("00.00", "0"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            (".5", "500m"),
            ("1.", "1"),
            ("0012", "12"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("100000", "100k"),
            ("1.5k", "1500"),
            ("1000k", "1M"),
            ("1234567", "1234567"),
            ("5G", "5G"),
            ("2.5T", "2500G"),
            ("1P", "1P"),
            ("1E", "1E"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("100Ki", "100Ki"),
            ("65826172Ki", "65826172Ki"),
            ("2048Ki", "2Mi"),
            ("1Ei", "1Ei"),
            ("2000Ki", "2000Ki"),
            ("0.1Ki", "102400m"),
            ("1.1Gi", "1181116006400m"),
            ("-1.5Gi", "-1536Mi"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E3", "1e3"),
            ("1.2e3", "1200"),
            ("100e-3", "100e-3"),
            ("1e-1", "100e-3"),
            ("12e4", "120e3"),
            ("1E+6", "1e6"),
            ("1000e6", "1e9"),
            ("1n", "1n"),
            ("1u", "1u"),
            ("1000n", "1u"),
            ("0.1n", "1n"),
            ("1.1n", "2n"),
            ("-0.1n", "-1n"),
            ("+5", "5"),
            ("-5m", "-5m"),
            ("1e-30", "1e-9"),
            ("0e99", "0"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775807"),
            ("100E", "9223372036854775807"),
            ("8Ei", "9223372036854775807"),
            ("-100E", "-9223372036854775807"),
            ("1e99999", "9223372036854775807"),
            ("9999999999999999999999999999999999999999Ki", "9223372036854775807"),
            ("0.000000000001e21", "1e9"),
        ];
        for (text, canonical) in cases {
            assert_eq!(quantity(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_quantity() {
        let long = "1".repeat(129);
        for text in [
            "", "-", ".", "abc", "1 Gi", " 1", "1ki", "1K", "1mi", "1e", "1e3.5", "1Ee", "1.2.3", "--1", "1i", "0x10",
            "∞", &long,
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
        assert_eq!(
            "1K".parse::<Quantity>().unwrap_err().to_string(),
            "\"1K\" is not a quantity: its suffix must be one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
        );
    }

    #[test]
    fn compares_by_value() {
        assert_eq!(quantity("1Gi"), quantity("1073741824"));
        assert!(quantity("1G") < quantity("1Gi"));
        assert!(quantity("-1") < quantity("-999m"));
        assert_eq!(Quantity::from(5), quantity("5"));
    }

    #[test]
    fn sign_integrality_and_ceiling_are_known() {
        assert!(quantity("-1n").is_negative() && !quantity("0").is_negative());
        assert!(quantity("2k").is_integral() && !quantity("1500m").is_integral());
        for (text, ceiling) in [("1500m", 2), ("2", 2), ("-1500m", -1), ("1n", 1), ("0", 0), ("8Ei", i64::MAX)] {
            assert_eq!(quantity(text).to_i64_ceil(), ceiling, "{text}");
        }
    }

    #[test]
    fn subtraction_keeps_the_suffix_and_stops_at_zero() {
        for (whole, part, left) in
            [("4", "1500m", "2500m"), ("1Gi", "100Mi", "924Mi"), ("2Ki", "48", "2000"), ("1", "2", "0")]
        {
            assert_eq!(quantity(whole).minus(quantity(part)).to_string(), left, "{whole} - {part}");
        }
    }

    #[test]
    fn bytes_are_written_with_binary_suffixes() {
        for (count, text) in
            [(0, "0"), (2000, "2000"), (2048, "2Ki"), (25_276_518_400, "24684100Ki"), (u64::MAX, "9223372036854775807")]
        {
            assert_eq!(Quantity::bytes(count).to_string(), text);
        }
    }

    #[test]
    fn fits_in_sixteen_bytes() {
        assert_eq!(size_of::<Quantity>(), 16);
        assert_eq!(size_of::<(Text, Quantity)>(), 24);
    }

    #[test]
    fn a_damaged_quantity_does_not_decode() {
        let unknown_family = postcard::to_stdvec(&3i128).unwrap();
        assert!(postcard::from_bytes::<Quantity>(&unknown_family).is_err());
        let too_large = postcard::to_stdvec(&i128::MAX).unwrap();
        assert!(postcard::from_bytes::<Quantity>(&too_large).is_err());
    }

    proptest! {
        #[test]
        fn canonical_forms_are_stable(text in "[-+]?[0-9]{0,12}(\\.[0-9]{1,12})?(n|u|m|k|M|G|Ki|Mi|Gi|e[0-9]|E-?[0-9])?") {
            if let Ok(parsed) = text.parse::<Quantity>() {
                let printed = parsed.to_string();
                prop_assert_eq!(quantity(&printed), parsed);
                prop_assert_eq!(quantity(&printed).to_string(), printed);
                let bytes = postcard::to_stdvec(&parsed).unwrap();
                prop_assert_eq!(postcard::from_bytes::<Quantity>(&bytes).unwrap().to_string(), parsed.to_string());
            }
        }

        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = text.parse::<Quantity>();
        }
    }
}
