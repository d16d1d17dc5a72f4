//! Output: data goes to stdout, narration to stderr. Neither panics when its reader has gone.

use std::fmt::Display;
use std::io::{self, BufWriter, Stdout, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::exit::Failure;

/// How objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Buffered stdout.
pub struct Out {
    inner: BufWriter<Stdout>,
}

// === impl Out ===

impl Out {
    pub fn stdout() -> Self {
        Self { inner: BufWriter::new(io::stdout()) }
    }

    pub fn line(&mut self, text: impl Display) -> Result<(), Failure> {
        Ok(writeln!(self.inner, "{text}")?)
    }

    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        Ok(self.inner.write_all(text.as_bytes())?)
    }

    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.inner, value).map_err(io::Error::from)?;
        Ok(self.inner.write_all(b"\n")?)
    }

    pub fn yaml(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_saphyr::to_string(value).map_err(Failure::other)?;
        self.text(text.trim_end())?;
        Ok(self.inner.write_all(b"\n")?)
    }

    /// Must be called at the end, so that a failure to write is noticed.
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.inner.flush()?)
    }
}

/// Prints a line for the person at the terminal. A closed terminal is no error.
pub fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
