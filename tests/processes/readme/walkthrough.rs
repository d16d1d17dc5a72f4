//! The walk-through of README.md: the commands of its `console` blocks, each with the output that README shows.
//!
//! A line that begins with `$ ` is a command; it goes on after a `\`, and to the end of a here-document. What follows,
//! up to a blank line or the next command, is what it prints. In there
//! - `…` stands for any text, and alone on a line for any lines,
//! - a time of day stands for any, and so does an age (`5s`, `3m5s`, `(2 s ago)`),
//! - the width of a column does not count.

/// A command, and the output that README shows for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of README.md.
    pub(crate) line: usize,
    pub(crate) command: String,
    /// Nothing if README shows nothing.
    pub(crate) shown: Vec<String>,
}

const ANYTHING: char = '…';

// === impl Step ===

impl Step {
    /// Whether it may be repeated until it prints what is shown.
    pub(crate) fn only_reads(&self) -> bool {
        const READERS: [&str; 6] =
            ["muster get ", "muster explain ", "muster status", "muster describe ", "muster agent status", "cat "];
        !self.command.contains('>') && READERS.iter().any(|reader| self.command.starts_with(reader))
    }
}

pub(crate) fn steps(readme: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut in_block, mut shows, mut end) = (false, false, None::<String>);
    for (index, line) in readme.lines().enumerate() {
        if line.starts_with("```") {
            (in_block, shows) = (line == "```console", false);
        } else if !in_block {
            continue;
        } else if let Some(word) = &end {
            append(&mut steps, line);
            if line == word {
                end = None;
            }
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: index + 1, command: command.to_owned(), shown: Vec::new() });
            (shows, end) = (true, here_document(command));
        } else if steps.last().is_some_and(|step| step.command.ends_with('\\')) {
            append(&mut steps, line);
        } else if line.is_empty() {
            // Output may have blank lines: they are part of it if more of it follows.
            shows = shows && steps.last().is_some_and(|step| !step.shown.is_empty());
            if let Some(step) = steps.last_mut().filter(|_| shows) {
                step.shown.push(String::new());
            }
        } else if let Some(step) = steps.last_mut().filter(|_| shows) {
            step.shown.push(line.to_owned());
        }
    }
    for step in &mut steps {
        while step.shown.last().is_some_and(String::is_empty) {
            step.shown.pop();
        }
    }
    steps
}

fn append(steps: &mut [Step], line: &str) {
    if let Some(step) = steps.last_mut() {
        step.command.push('\n');
        step.command.push_str(line);
    }
}

/// The word that ends the text a command is given, if it is given one.
fn here_document(command: &str) -> Option<String> {
    command.split_once("<<").map(|(_, word)| word.trim().trim_matches('\'').to_owned())
}

/// Whether the output is what is shown.
pub(crate) fn matches(shown: &[String], printed: &[String]) -> bool {
    let Some((first, rest)) = shown.split_first() else { return printed.iter().all(|line| line.trim().is_empty()) };
    if first.trim() == ANYTHING.to_string() {
        return (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]));
    }
    let Some((line, others)) = printed.split_first() else { return false };
    line_matches(&general(first), &general(line)) && matches(rest, others)
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let mut parts = shown.split(ANYTHING);
    let Some(mut rest) = parts.next().and_then(|start| printed.strip_prefix(start)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// A line without the parts that differ from run to run by their nature.
fn general(line: &str) -> String {
    let line = without_ago(line);
    let word = |word: &str| {
        let bare = word.trim_matches(['(', ')', ',', ';']);
        let kind = if is_age(bare) {
            "<age>"
        } else if is_time_of_day(bare) {
            "<time>"
        } else {
            bare
        };
        word.replace(bare, kind)
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// `(now)` and `(2 s ago)` are the same.
fn without_ago(line: &str) -> String {
    let mut parts = line.split('(');
    let mut general = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((inside, after)) if inside == "now" || inside.ends_with(" ago") => {
                general.push_str("(ago)");
                general.push_str(after);
            }
            _ => {
                general.push('(');
                general.push_str(part);
            }
        }
    }
    general
}

/// `5s`, `3m5s`, `2h`
fn is_age(word: &str) -> bool {
    let mut digits = 0;
    word.starts_with(|char: char| char.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word.chars().all(|char| match char {
            '0'..='9' => {
                digits += 1;
                true
            }
            's' | 'm' | 'h' | 'd' => std::mem::take(&mut digits) > 0,
            _ => false,
        })
}

/// `05:32:25`
fn is_time_of_day(word: &str) -> bool {
    let parts: Vec<&str> = word.split(':').collect();
    parts.len() == 3 && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_read_with_what_they_print() {
        let readme = "text\n```sh\n$ not this\n```\n```console\n$ a | b # why\none\n\ntwo\n\n$ c \\\n    d\n$ cat > f <<EOF\nx\n\
                      $ y\nEOF\n$ e\n```\n$ nor this\n";
        let steps = steps(readme);
        let seen: Vec<_> = steps.iter().map(|step| (step.line, step.command.as_str(), step.shown.len())).collect();
        assert_eq!(
            seen,
            [(6, "a | b # why", 3), (11, "c \\\n    d", 0), (13, "cat > f <<EOF\nx\n$ y\nEOF", 0), (17, "e", 0)]
        );
    }

    #[test]
    fn times_ages_and_ellipses_may_vary_and_nothing_else() {
        for (shown, printed) in [
            ("ZONE   SINCE\ndev/a  5s", "ZONE        SINCE\ndev/a       1m12s\n"),
            ("at 05:32:25 (2 s ago)  x", "at 17:00:01 (now)  x"),
            ("pid …", "pid 7"),
            ("a … c … e", "a b c d e"),
            ("one\n…\nlast", "one\ntwo\nthree\nlast"),
            ("one\n…", "one"),
        ] {
            assert!(matches(&lines(shown), &lines(printed)), "{shown:?} and {printed:?}");
        }
        for (shown, printed) in [
            ("dev/a  5s", "dev/b  5s"),
            ("READY 5/5", "READY 4/5"),
            ("one", "one\ntwo"),
            ("one\ntwo", "one"),
            ("a … c", "a b d"),
            ("1/s", "2/s"),
            ("one\n…\nlast", "one\ntwo"),
        ] {
            assert!(!matches(&lines(shown), &lines(printed)), "{shown:?} and {printed:?}");
        }
    }
}
