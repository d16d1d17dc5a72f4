//! What goes on meanwhile, for the person at the terminal. Figures go to stdout, this to stderr.

use std::fmt::Display;
use std::io::Write;

/// One line. If nobody can hear it, so be it.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
