//! Plot of series of one unit over seconds, or of costs over nodes, as an SVG of its own on white paper.
//!
//! `plotters` would write fixed colours into every element where ours are CSS classes that follow the page's light or
//! dark theme, and give no series a tooltip; for these 370 lines it brings 3 crates and 20 more into the lock file
//! for wasm.

use std::fmt::Write;

use super::axis::Axis;
use super::page::escaped;
use crate::report::timeline::Series;

const WIDTH: f64 = 760.0;
const PLOT_HEIGHT: f64 = 200.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
/// Below the plot: ticks of time, then the legend.
const BOTTOM: f64 = 34.0;
const LEGEND_ROW: f64 = 18.0;
const LEGEND_SWATCH: f64 = 24.0;
/// Generous, because fonts differ.
const LETTER: f64 = 7.2;
/// As many points as a reader can tell apart; more only make the file larger.
const POINTS_MAX: usize = 300;
const COLOURS: usize = 8;
const STYLE: &str = include_str!("plot.css");

/// Place of a series in the legend.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spot {
    x: f64,
    row: usize,
}

/// Both axes, and the unit of the one from left to right.
struct Axes {
    across: Axis,
    up: Axis,
    unit_across: &'static str,
}

/// Plots a timeline.
pub(crate) fn over_time(title: &str, unit: &str, series: &[&Series]) -> String {
    let across = Axis::over(points(series).map(|(at, _)| at));
    let up = Axis::over(points(series).map(|(_, value)| value));
    svg(title, unit, series, &Axes { across, up, unit_across: " s" })
}

/// Plots costs by the number of nodes, both logarithmic: a cost in proportion is a line at one slope, whatever its
/// unit.
pub(crate) fn over_nodes(title: &str, name: &str, series: &[&Series]) -> String {
    let across = Axis::decades(points(series).map(|(nodes, _)| nodes));
    let up = Axis::decades(points(series).map(|(_, cost)| cost));
    svg(title, name, series, &Axes { across, up, unit_across: " nodes" })
}

fn svg(title: &str, name: &str, series: &[&Series], axes: &Axes) -> String {
    let spots = legend(series);
    let rows = spots.last().map_or(0, |spot| spot.row + 1);
    let height = TOP + PLOT_HEIGHT + BOTTOM + rows as f64 * LEGEND_ROW;
    let mut svg = format!(
        "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <style>\n{STYLE}</style>\n<title>{}</title>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n",
        escaped(title)
    );
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"16\" class=\"name\">{}</text>", escaped(name));
    svg += &grid(axes);
    for (number, (one, spot)) in series.iter().zip(spots).enumerate() {
        svg += &line(number, one, axes);
        svg += &entry(number, one, spot);
    }
    svg + "</svg>\n"
}

fn points<'a>(series: &'a [&Series]) -> impl Iterator<Item = (f64, f64)> + 'a {
    series.iter().flat_map(|one| one.points.iter().copied()).filter(|(at, value)| at.is_finite() && value.is_finite())
}

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn up(share: f64) -> f64 {
    TOP + (1.0 - share) * PLOT_HEIGHT
}

fn grid(axes: &Axes) -> String {
    let mut svg = String::new();
    let (left, right, floor) = (across(0.0), across(1.0), up(0.0));
    for tick in &axes.up.ticks {
        let (y, label) = (up(axes.up.place(*tick)), axes.up.label(*tick));
        let _ = writeln!(svg, "<path class=\"rule\" d=\"M{left} {y:.1}H{right}\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            left - 8.0,
            y + 4.0
        );
    }
    for tick in &axes.across.ticks {
        let (x, label) = (across(axes.across.place(*tick)), axes.across.label(*tick));
        // The last one would stick out if it stood in the middle.
        let anchor = if x > right - 1.0 { "end" } else { "middle" };
        let _ = writeln!(svg, "<path class=\"rule\" d=\"M{x:.1} {floor}v5\"/>");
        let _ = writeln!(
            svg,
            "<text class=\"tick\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{:.1}\">{label}{}</text>",
            floor + 19.0,
            axes.unit_across
        );
    }
    svg
}

fn line(number: usize, series: &Series, axes: &Axes) -> String {
    let places: Vec<(f64, f64)> = thinned(&series.points)
        .into_iter()
        .map(|(at, value)| (across(axes.across.place(at)), up(axes.up.place(value))))
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let (class, name) = (class(number, series), escaped(&series.name));
    match places[..] {
        [] => String::new(),
        [(x, y)] => format!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{name}</title></circle>\n"
        ),
        _ => {
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            format!("<polyline class=\"line {class}\" points=\"{}\"><title>{name}</title></polyline>\n", path.join(" "))
        }
    }
}

/// The colour, and a dash for series beyond the colours and for those that were not measured.
fn class(number: usize, series: &Series) -> String {
    let dash = if number >= COLOURS || series.unit.is_empty() { " dashed" } else { "" };
    format!("c{}{dash}", number % COLOURS)
}

/// Keeps the highest of points that would fall onto one another, so that no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> =
        points.iter().copied().filter(|(at, value)| at.is_finite() && value.is_finite()).collect();
    let chunk = finite.len().div_ceil(POINTS_MAX).max(1);
    finite.chunks(chunk).filter_map(|chunk| chunk.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))).collect()
}

/// Places the series from left to right, and on in the next row.
fn legend(series: &[&Series]) -> Vec<Spot> {
    let mut next = Spot { x: LEFT, row: 0 };
    let place = |one: &&Series| {
        let width = LEGEND_SWATCH + one.name.chars().count() as f64 * LETTER + LETTER * 2.0;
        if next.x > LEFT && next.x + width > WIDTH {
            next = Spot { x: LEFT, row: next.row + 1 };
        }
        let here = next;
        next.x += width;
        here
    };
    series.iter().map(place).collect()
}

fn entry(number: usize, series: &Series, spot: Spot) -> String {
    let y = TOP + PLOT_HEIGHT + BOTTOM + spot.row as f64 * LEGEND_ROW + 8.0;
    let (from, to, text) = (spot.x, spot.x + LEGEND_SWATCH - 6.0, spot.x + LEGEND_SWATCH);
    format!(
        "<path class=\"line {}\" d=\"M{from:.1} {y}H{to:.1}\"/><text class=\"tick\" x=\"{text:.1}\" y=\"{:.1}\">{}</text>\n",
        class(number, series),
        y + 4.0,
        escaped(&series.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.to_owned(), unit: "MiB", points }
    }

    #[test]
    fn a_series_is_scaled_to_the_plot_area() {
        let one = series("one", vec![(0.0, 0.0), (10.0, 50.0)]);
        let svg = over_time("memory", "MiB", &[&one]);
        assert!(svg.contains("points=\"62.0,228.0 746.0,28.0\""), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 1);
    }

    #[test]
    fn a_single_point_is_a_dot_and_no_point_is_nothing() {
        let (dot, none) = (series("dot", vec![(1.0, 1.0)]), series("none", vec![(1.0, f64::NAN)]));
        let svg = over_time("memory", "MiB", &[&dot, &none]);
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (1, 0));
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn a_proportional_cost_is_a_straight_line_over_nodes() {
        let (memory, nothing) =
            (series("memory", vec![(1e3, 1.0), (1e4, 10.0), (1e5, 100.0)]), series("nothing", vec![(1e3, 0.0)]));
        let svg = over_nodes("costs", "cost", &[&memory, &nothing]);
        assert!(svg.contains("points=\"62.0,228.0 404.0,128.0 746.0,28.0\""), "{svg}");
        assert!(svg.contains(">10k nodes</text>"), "{svg}");
        assert!(!svg.contains("inf"), "{svg}");
    }

    #[test]
    fn thinning_keeps_the_peak() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at), 1.0)).collect();
        points[5_003].1 = 99.0;
        let thin = thinned(&points);
        assert!((POINTS_MAX * 9 / 10..=POINTS_MAX).contains(&thin.len()), "{}", thin.len());
        assert!(thin.contains(&(5_003.0, 99.0)));
    }

    #[test]
    fn a_long_legend_goes_on_in_the_next_row() {
        let many: Vec<Series> = (0..12).map(|number| series(&format!("replica number {number}"), vec![])).collect();
        let spots = legend(&many.iter().collect::<Vec<_>>());
        assert!(spots.iter().all(|spot| spot.x < WIDTH - 100.0));
        assert!(spots.last().unwrap().row > 0);
        assert_eq!([7, 8].map(|number| class(number, &many[number])), ["c7", "c0 dashed"]);
        let guide = Series { unit: "", ..many[0].clone() };
        assert_eq!(class(0, &guide), "c0 dashed");
    }
}
