//! Plain padded columns, as kubectl prints them.

/// Column widths are set by the first rows printed; later rows of a watch keep to them as far as they can.
#[derive(Debug, Clone)]
pub struct Table {
    headers: Vec<&'static str>,
    widths: Vec<usize>,
}

const GAP: usize = 3;

// === impl Table ===

impl Table {
    pub fn new(headers: &[&'static str]) -> Self {
        Self { headers: headers.to_vec(), widths: headers.iter().map(|header| header.len()).collect() }
    }

    /// Makes room for these rows.
    pub fn fit(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }

    pub fn header(&self) -> String {
        self.line(self.headers.iter().copied())
    }

    pub fn row(&self, cells: &[String]) -> String {
        self.line(cells.iter().map(String::as_str))
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::new();
        for (cell, width) in cells.zip(&self.widths) {
            line.push_str(cell);
            let padding = width.saturating_sub(cell.chars().count()) + GAP;
            line.extend(std::iter::repeat_n(' ', padding));
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// A whole table, header included unless it is not wanted.
pub fn render(headers: &[&'static str], rows: &[Vec<String>], with_header: bool) -> Vec<String> {
    let mut table = Table::new(headers);
    table.fit(rows);
    let header = with_header.then(|| table.header());
    header.into_iter().chain(rows.iter().map(|row| table.row(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| cell.to_string()).collect()
    }

    #[test]
    fn columns_are_padded_and_lines_have_no_trailing_spaces() {
        let rows = [row(&["a", "Ready", "1"]), row(&["a-long-name", "NotReady", ""])];
        let lines = render(&["NAME", "STATUS", "N"], &rows, true);
        assert_eq!(lines[0], "NAME          STATUS     N");
        assert_eq!(lines[1], "a             Ready      1");
        assert_eq!(lines[2], "a-long-name   NotReady");
        assert_eq!(render(&["NAME", "STATUS", "N"], &rows, false).len(), 2);
    }

    #[test]
    fn later_rows_keep_the_column_widths() {
        let mut table = Table::new(&["A", "B"]);
        table.fit(&[row(&["xx", "y"])]);
        assert_eq!(table.row(&row(&["x", "y"])), "x    y");
        assert_eq!(table.row(&row(&["xxxxxx", "y"])), "xxxxxx   y");
    }
}
