//! Table of figures, aligned: numbers to the right, words to the left.

use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReportTable {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

// === impl ReportTable ===

impl ReportTable {
    pub(crate) fn new(title: impl Into<String>, header: &[&str]) -> Self {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Self { title: title.into(), header, rows: Vec::new() }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether a column holds numbers only, with or without a unit.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.cells(column).filter(|cell| !matches!(*cell, "" | "-")).peekable();
        cells.peek().is_some() && cells.all(begins_as_number)
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(column)).map(String::as_str)
    }

    fn width(&self, column: usize) -> usize {
        let header = self.header.get(column).map(String::as_str);
        self.cells(column).chain(header).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line(&self, cells: &[String], columns: &[(usize, bool)]) -> String {
        let padded = columns.iter().enumerate().map(|(column, (width, right))| {
            let cell = cells.get(column).map_or("", String::as_str);
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

impl fmt::Display for ReportTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.rows.iter().map(Vec::len).chain([self.header.len()]).max().unwrap_or(0);
        let columns: Vec<_> = (0..count).map(|column| (self.width(column), self.is_numeric(column))).collect();
        writeln!(f, "{}", self.title)?;
        let header: Vec<String> = self.header.iter().map(|name| name.to_uppercase()).collect();
        writeln!(f, "{}", self.line(&header, &columns))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{}", self.line(row, &columns)))
    }
}

fn begins_as_number(cell: &str) -> bool {
    cell.trim_start_matches(['-', '+', '<', '>', '~']).starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_words_left_aligned() {
        let mut table = ReportTable::new("memory by process", &["process", "MiB", "CPU s"]);
        table.row(["replica 1", "1,024", "0.5 s"]);
        table.row(["generator", "64", "-"]);
        let lines =
            ["memory by process", "PROCESS      MIB  CPU S", "replica 1  1,024  0.5 s", "generator     64      -"];
        assert_eq!(table.to_string(), format!("{}\n", lines.join("\n")));
    }

    #[test]
    fn a_short_row_is_filled_up() {
        let mut table = ReportTable::new("t", &["a", "b"]);
        table.row(["x"]);
        table.row(["y", "1", "beyond the header"]);
        assert_eq!(table.to_string(), "t\nA  B\nx\ny  1  beyond the header\n");
    }
}
