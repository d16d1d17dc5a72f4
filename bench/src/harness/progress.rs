//! Progress for the person at the terminal. Figures go to stdout, progress to stderr.

use std::fmt::Display;
use std::io::Write;

/// Prints one line. A closed stderr is no error.
pub(crate) fn print(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
