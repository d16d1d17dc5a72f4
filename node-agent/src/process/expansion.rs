//! Expansion of `$(NAME)` in commands, arguments and values, as Kubernetes does it: `$$` stands for `$`, and an
//! undefined name stays as written.

pub(super) fn expand<'a>(text: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let (replaced, remaining) = replace(after, &lookup);
        expanded.push_str(&replaced);
        rest = remaining;
    }
    expanded + rest
}

/// The replacement of a `$` with what belongs to it, and the rest of the text.
fn replace<'t, 'a>(after: &'t str, lookup: impl Fn(&str) -> Option<&'a str>) -> (String, &'t str) {
    if let Some(rest) = after.strip_prefix('$') {
        return ("$".to_owned(), rest);
    }
    match after.strip_prefix('(').and_then(|opened| opened.split_once(')')) {
        Some((name, rest)) => (lookup(name).map_or_else(|| format!("$({name})"), str::to_owned), rest),
        None => ("$".to_owned(), after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_kubernetes_does() {
        let lookup = |name: &str| match name {
            "A" => Some("one"),
            "B_2" => Some("$(A)"),
            "EMPTY" => Some(""),
            _ => None,
        };
        let table = [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "one"),
            ("x$(A)y$(A)", "xoneyone"),
            ("$(B_2)", "$(A)"),
            ("[$(EMPTY)]", "[]"),
            ("$(UNSET)", "$(UNSET)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$one"),
            ("$$$$(A)", "$$(A)"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("$($(A))", "$($(A))"),
            ("$()", "$()"),
            ("5$", "5$"),
            ("5$$", "5$"),
            ("é$(A)é", "éoneé"),
        ];
        for (written, read) in table {
            assert_eq!(expand(written, lookup), read, "{written}");
        }
    }
}
