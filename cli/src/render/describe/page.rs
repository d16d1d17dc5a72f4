//! A description in the making: keys with values beside them, lists, sections and tables.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use crate::render::{age, event, or, table, text};

const KEY_WIDTH: usize = 20;
const EVENTS: &[&str] = &["Type", "Reason", "Age", "From", "Message"];

#[derive(Default)]
pub(super) struct Page {
    text: String,
}

// === impl Page ===

impl Page {
    pub(super) fn field(&mut self, key: &str, value: &str) {
        self.line(format_args!("{:KEY_WIDTH$}{}", format!("{key}:"), or(value, "<none>")));
    }

    pub(super) fn optional(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.field(key, value);
        }
    }

    /// The first value beside the key, the others below it.
    pub(super) fn list(&mut self, key: &str, values: &[String]) {
        self.field(key, values.first().map_or("", String::as_str));
        for value in values.iter().skip(1) {
            self.line(format_args!("{:KEY_WIDTH$}{value}", ""));
        }
    }

    pub(super) fn section(&mut self, title: &str, lines: &[String]) {
        if lines.is_empty() {
            return self.field(title, "");
        }
        self.line(format_args!("{title}:"));
        for line in lines {
            self.line(format_args!("  {line}"));
        }
    }

    pub(super) fn table(&mut self, title: &str, headers: &'static [&'static str], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return self.field(title, "");
        }
        let mut lines = table::render(headers, rows, true);
        let mut rule = table::Table::new(headers);
        rule.fit(rows);
        let dashes: Vec<String> = headers.iter().map(|header| "-".repeat(header.len())).collect();
        lines.insert(1, rule.row(&dashes));
        self.section(title, &lines);
    }

    /// The events of the object, at the end of every page.
    pub(super) fn events(&mut self, events: &[Value], now: Timestamp) {
        self.table("Events", EVENTS, &events.iter().map(|event| event_row(event, now)).collect::<Vec<_>>());
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// In order of keys.
pub(super) fn pairs(object: &Value, separator: &str) -> Vec<String> {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let mut pairs: Vec<String> = object
        .as_object()
        .map(|fields| fields.iter().map(|(key, value)| format!("{key}{separator}{}", shown(value))).collect())
        .unwrap_or_default();
    pairs.sort();
    pairs
}

fn event_row(object: &Value, now: Timestamp) -> Vec<String> {
    let [seen, kind, reason, _, message] = <[String; 5]>::try_from(event::row(object, now)).unwrap_or_default();
    let from = or(text(object, &["source", "component"]), "<unknown>");
    let seen = if seen.is_empty() { age::human(0) } else { seen };
    vec![kind, reason, seen, from, message]
}
