//! Page of `--report`: one HTML file that needs nothing else, with plots of all timelines, and the same plots as
//! files of their own, for other pages.

use super::plot;
use crate::report::figure::Figure;
use crate::report::machine::MachineInfo;
use crate::report::number::grouped;
use crate::report::outcome::ScenarioOutcome;
use crate::report::table::ReportTable;
use crate::report::timeline::Series;
use crate::scenario::BenchScenario;

/// A scenario and its outcome.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReportSection {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) outcome: ScenarioOutcome,
}

/// A plot, and the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SvgPlot {
    pub(crate) file: String,
    pub(crate) svg: String,
}

const STYLE: &str = include_str!("page.css");

// === impl ReportSection ===

impl ReportSection {
    pub(crate) fn new(scenario: &BenchScenario, outcome: ScenarioOutcome) -> Self {
        Self { name: scenario.name, about: scenario.about, outcome }
    }

    fn render(&self) -> String {
        let Self { name, about, outcome } = self;
        let faults: String =
            outcome.faults.iter().map(|fault| format!("<p class=bad>Failed: {}</p>\n", escaped(fault))).collect();
        let tables: String = outcome.tables.iter().map(table).collect();
        let plots: String = self.plots().iter().map(|plot| format!("<figure>\n{}</figure>\n", plot.svg)).collect();
        format!(
            "<section id=\"{name}\">\n<h2>{name}</h2>\n<p>{}</p>\n{faults}{tables}{plots}</section>\n",
            escaped(about)
        )
    }

    /// One plot for each unit of the timeline, and one of all costs.
    pub(crate) fn plots(&self) -> Vec<SvgPlot> {
        let over_time = self.outcome.timeline.units().into_iter().map(|unit| self.over_time(unit));
        over_time.chain(self.over_nodes()).collect()
    }

    fn over_time(&self, unit: &str) -> SvgPlot {
        let of_unit: Vec<&Series> = self.outcome.timeline.series.iter().filter(|series| series.unit == unit).collect();
        let svg = plot::over_time(&format!("{}: {unit} over time", self.name), unit, &of_unit);
        SvgPlot { file: self.file(unit), svg }
    }

    fn over_nodes(&self) -> Option<SvgPlot> {
        let curves: Vec<&Series> = self.outcome.curves.iter().collect();
        let svg = || plot::over_nodes(&format!("{}: costs by the number of nodes", self.name), "cost", &curves);
        (!curves.is_empty()).then(|| SvgPlot { file: self.file("costs by nodes"), svg: svg() })
    }

    /// "heartbeats-beats-per-s.svg".
    fn file(&self, what: &str) -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
        let what: String = what.replace('/', " per ").trim_start().chars().map(plain).collect();
        format!("{}-{what}.svg", self.name)
    }
}

/// The whole page.
pub(crate) fn page(machine: &MachineInfo, sections: &[ReportSection]) -> String {
    let body: String = sections.iter().map(ReportSection::render).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>muster bench</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>muster bench</h1>\n<p>{}</p>\n{}{body}</body>\n</html>\n",
        escaped(&machine.to_string()),
        summary(sections),
    )
}

fn summary(sections: &[ReportSection]) -> String {
    let rows: String = sections.iter().map(rows).collect();
    let head = ["goal", "scenario", "figure", "value", "wanted", ""].map(|name| format!("<th>{name}</th>")).concat();
    format!("<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
}

fn rows(section: &ReportSection) -> String {
    let found = section.outcome.figures.iter().map(finding_row);
    let name = section.name;
    let failed = section.outcome.failed().then(|| {
        format!(
            "<tr><td></td><td><a href=\"#{name}\">{name}</a></td><td colspan=3></td><td class=bad>failed</td></tr>\n"
        )
    });
    found.chain(failed).collect()
}

fn finding_row(figure: &Figure) -> String {
    let class = match figure.met() {
        Some(true) => "good",
        Some(false) => "bad",
        None => "",
    };
    let id = if figure.goal.is_numbered() { figure.goal.id } else { "" };
    let Figure { scenario, what, unit, .. } = figure;
    format!(
        "<tr><td>{id}</td><td><a href=\"#{scenario}\">{scenario}</a></td><td>{}</td><td class=n>{} {}</td>\
         <td class=n>{}</td><td class=\"{class}\">{}</td></tr>\n",
        escaped(what),
        grouped(figure.value),
        escaped(unit),
        escaped(&figure.target().unwrap_or_default()),
        escaped(&figure.result()),
    )
}

fn table(table: &ReportTable) -> String {
    let class = |column: usize| if table.is_numeric(column) { " class=n" } else { "" };
    let line = |tag: &str, cells: &[String]| {
        let cells = cells.iter().enumerate();
        let cells: String = cells.map(|(at, cell)| format!("<{tag}{}>{}</{tag}>", class(at), escaped(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|row| line("td", row)).collect();
    let head = line("th", &table.header);
    format!(
        "<table>\n<caption>{}</caption>\n<thead>{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n",
        escaped(&table.title)
    )
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Goal;
    use crate::report::timeline::MeasuredTimeline;

    fn section() -> ReportSection {
        let mut timeline = MeasuredTimeline::default();
        timeline.push("replica <1>", "MiB", 0.0, 10.0);
        timeline.push("accepted", "beats/s", 0.0, 10.0);
        let mut processes = ReportTable::new("by process", &["process", "MiB"]);
        processes.row(["a & b", "10"]);
        let figures = vec![
            Figure::new("heartbeats", Goal::at_least("P1", 2.0), "accepted", 1.0, "beats/s"),
            Figure::new("heartbeats", Goal::NONE, "streams", 7.0, "streams"),
        ];
        let outcome = ScenarioOutcome {
            figures,
            tables: vec![processes],
            timeline,
            faults: vec!["1 < 2".to_owned()],
            ..ScenarioOutcome::default()
        };
        ReportSection { name: "heartbeats", about: "Beats", outcome }
    }

    #[test]
    fn plot_files_are_self_contained() {
        let mut section = section();
        section.outcome.curves.push(Series { name: "sweep, ms".to_owned(), unit: "ms", points: vec![(1e3, 0.1)] });
        let plots = section.plots();
        let files: Vec<&str> = plots.iter().map(|plot| plot.file.as_str()).collect();
        assert_eq!(files, ["heartbeats-mib.svg", "heartbeats-beats-per-s.svg", "heartbeats-costs-by-nodes.svg"]);
        for SvgPlot { svg, .. } in plots {
            assert!(svg.starts_with("<svg ") && svg.contains("xmlns=") && svg.contains("class=\"paper\""), "{svg}");
            assert!(!svg.contains("prefers-color-scheme"), "the plot file must not follow the dark theme");
        }
    }

    #[test]
    fn the_page_is_complete_and_self_contained() {
        let page = page(&MachineInfo::this(), &[section()]);
        for part in [
            "<td class=n>&gt;= 2 beats/s</td><td class=\"bad\">missed by a factor of 2.0</td>",
            "<td class=n>7 streams</td><td class=n></td><td class=\"\"></td>",
            "<p class=bad>Failed: 1 &lt; 2</p>",
            "<tr><td>a &amp; b</td><td class=n>10</td></tr>",
            "replica &lt;1&gt;",
            "prefers-color-scheme: dark",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert_eq!(page.matches("<svg").count(), 2, "one plot per unit");
        for foreign in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
