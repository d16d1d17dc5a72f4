//! Exponent of a cost that grows with the number of nodes: `cost = a * nodes ^ exponent`. One is in proportion, two is
//! four times the cost for twice the nodes.

/// A number of nodes and their cost.
pub(crate) type Point = (f64, f64);

/// The exponent that fits best, by least squares of logarithms; nothing with fewer than two points.
///
/// A cost below the floor is overhead that is there without any nodes, and counts as the floor. Of several such
/// points in a row only the last counts, or they would make any growth after them look flat.
pub(crate) fn exponent(points: &[Point], floor: f64) -> Option<f64> {
    if points.len() < 2 {
        return None;
    }
    let counted = counted(points, floor);
    let logarithms: Vec<Point> = counted.iter().map(|(nodes, cost)| (nodes.ln(), cost.ln())).collect();
    // Less than two: all of it is overhead.
    Some(if logarithms.len() < 2 { 0.0 } else { slope(&logarithms) })
}

/// The step at which the cost rose most steeply: how many times the nodes, and how many times the cost.
pub(crate) fn steepest(points: &[Point], floor: f64) -> Option<(f64, f64)> {
    let counted = counted(points, floor);
    let steps = counted.windows(2).map(|step| (step[1].0 / step[0].0, step[1].1 / step[0].1));
    steps.max_by(|(nodes, cost), (other_nodes, other_cost)| (cost / nodes).total_cmp(&(other_cost / other_nodes)))
}

fn counted(points: &[Point], floor: f64) -> Vec<Point> {
    let overhead = points.iter().take_while(|(_, cost)| *cost < floor).count();
    points[overhead.saturating_sub(1)..].iter().map(|(nodes, cost)| (*nodes, cost.max(floor))).collect()
}

fn slope(points: &[Point]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let run: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    rise / run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_reported_as_an_exponent() {
        for (costs, floor, expected) in [
            (&[1.0, 10.0, 100.0, 1_000.0][..], 0.5, Some(1.0)),
            (&[1.0, 100.0, 10_000.0, 1_000_000.0], 0.5, Some(2.0)),
            (&[7.0, 7.0, 7.0, 7.0], 0.5, Some(0.0)),
            (&[100.0, 10.0], 0.5, Some(-1.0)),
            // Overhead: only the last of it counts, as much as the floor.
            (&[0.1, 0.2, 10.0, 100.0], 1.0, Some(1.0)),
            (&[0.1, 0.2, 0.3, 100.0], 1.0, Some(2.0)),
            (&[0.1, 0.2, 0.3, 0.4], 1.0, Some(0.0)),
            (&[0.0, 0.0], 1.0, Some(0.0)),
            (&[5.0], 1.0, None),
            (&[], 1.0, None),
        ] {
            let points: Vec<Point> = [1e3, 1e4, 1e5, 1e6].into_iter().zip(costs.iter().copied()).collect();
            let seen = exponent(&points, floor).map(|seen| (seen * 1e6).round() / 1e6);
            assert_eq!(seen, expected, "{costs:?}");
        }
    }

    #[test]
    fn the_steepest_step_has_the_highest_cost_growth_per_node_growth() {
        let points = [(1e3, 1.0), (1e4, 5.0), (1e5, 100.0), (1e6, 900.0)];
        assert_eq!(steepest(&points, 0.1), Some((10.0, 20.0)));
        assert_eq!(steepest(&points, 50.0), Some((10.0, 9.0)));
        assert_eq!(steepest(&points[..1], 0.1), None);
    }
}
