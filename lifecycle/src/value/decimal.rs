//! Decimal numbers held exactly, in millionths.

/// One whole, in millionths.
pub(crate) const MILLION: u64 = 1_000_000;

/// Parses a decimal number exactly. Signs, exponents and words such as `inf` are refused.
pub(crate) fn millionths(text: &str) -> Option<u64> {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 6 {
        return None;
    }
    let part: u64 = format!("{decimals:0<6}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(MILLION)?.checked_add(part)
}

pub(crate) fn decimal(millionths: u64) -> String {
    let shown = format!("{}.{:06}", millionths / MILLION, millionths % MILLION);
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}
