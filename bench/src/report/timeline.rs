//! Timeline of a scenario: rates, latencies, memory and processor time by the second. Plotted in the report.

/// Series over one clock: seconds since the scenario began to measure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MeasuredTimeline {
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// Series of one unit share a plot. Empty for a line that was not measured and that others are compared with.
    pub(crate) unit: &'static str,
    /// Seconds and values, in the order of time.
    pub(crate) points: Vec<(f64, f64)>,
}

// === impl MeasuredTimeline ===

impl MeasuredTimeline {
    /// Adds a point to the series of that name and unit.
    pub(crate) fn push(&mut self, name: &str, unit: &'static str, at: f64, value: f64) {
        let known = self.series.iter().position(|series| series.name == name && series.unit == unit);
        let index = known.unwrap_or_else(|| {
            self.series.push(Series { name: name.to_owned(), unit, points: Vec::new() });
            self.series.len() - 1
        });
        self.series[index].points.push((at, value));
    }

    pub(crate) fn extend(&mut self, series: impl IntoIterator<Item = Series>) {
        self.series.extend(series);
    }

    /// All units, in the order of their first series.
    pub(crate) fn units(&self) -> Vec<&'static str> {
        let mut units = Vec::new();
        for series in &self.series {
            if !units.contains(&series.unit) {
                units.push(series.unit);
            }
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_appended_to_their_series() {
        let mut timeline = MeasuredTimeline::default();
        timeline.push("accepted", "beats/s", 0.5, 10.0);
        timeline.push("replica 1", "MiB", 0.5, 64.0);
        timeline.push("accepted", "beats/s", 1.0, 12.0);
        assert_eq!(timeline.series.len(), 2);
        assert_eq!(timeline.series[0].points, [(0.5, 10.0), (1.0, 12.0)]);
        assert_eq!(timeline.units(), ["beats/s", "MiB"]);
    }
}
