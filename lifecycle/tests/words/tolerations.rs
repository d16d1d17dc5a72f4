//! Tolerations in one line, for the tests of the cores and of the law alike.

use muster_lifecycle::text::Text;
use muster_lifecycle::toleration::{Operator, Toleration};

/// `key:Effect` tolerates any value; `key=v`, `key<5` and `key>5` compare; `*` is every key; without an effect it is
/// every effect; `@60` is for so many seconds. Nothing is checked, so that tests can make invalid ones too.
pub(crate) fn tolerations(text: &str) -> Box<[Toleration]> {
    text.split_whitespace().map(toleration).collect()
}

pub(crate) fn toleration(text: &str) -> Toleration {
    let (text, seconds) = match text.rsplit_once('@') {
        Some((text, seconds)) => (text, Some(seconds.parse().expect("seconds"))),
        None => (text, None),
    };
    let (text, effect) = match text.rsplit_once(':') {
        Some((text, effect)) => (text, Some(effect.parse().expect("an effect"))),
        None => (text, None),
    };
    let compared = [('=', Operator::Equal), ('<', Operator::Lt), ('>', Operator::Gt)];
    let parts = compared.into_iter().find_map(|(sign, operator)| Some((text.split_once(sign)?, operator)));
    let ((key, value), operator) = parts.unwrap_or(((text, ""), Operator::Exists));
    let key = if key == "*" { "" } else { key };
    Toleration { key: Text::from(key), operator, value: Text::from(value), effect, seconds }
}
