//! Numbers in the form that people read.

/// Two decimals below a hundred, whole numbers with commas above.
pub(crate) fn grouped(value: f64) -> String {
    let text = match value.abs() {
        below if below < 100.0 && below.fract() != 0.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{rest}", with_commas(digits))
}

fn with_commas(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        for (value, text) in [
            (0.0, "0"),
            (0.034, "0.03"),
            (7.0, "7"),
            (99.5, "99.50"),
            (100.4, "100"),
            (1_234.0, "1,234"),
            (-12_345_678.0, "-12,345,678"),
            (1_000_000.0, "1,000,000"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }
}
