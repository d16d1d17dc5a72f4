//! Results of the scenarios: figures held against goals, tables and timelines, and the forms they are written in:
//! JSON lines and a page with plots.

pub(crate) mod axis;
pub(crate) mod figure;
pub(crate) mod json_line;
pub(crate) mod machine;
pub(crate) mod number;
pub(crate) mod outcome;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod table;
pub(crate) mod timeline;
