//! What of lines and areas lies within the frame.

use crate::scene::Position;

/// Heights between which everything is drawn, from the top down.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Band {
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

/// The parts of a line within a band.
pub(crate) fn line(points: &[Position], band: Band) -> Vec<Vec<Position>> {
    let mut runs: Vec<Vec<Position>> = Vec::new();
    let mut run: Vec<Position> = Vec::new();
    for pair in points.windows(2) {
        let [from, to] = pair else { continue };
        let Some((begin, end)) = segment(*from, *to, band) else {
            flush(&mut runs, &mut run);
            continue;
        };
        if run.last() != Some(&begin) {
            flush(&mut runs, &mut run);
            run.push(begin);
        }
        run.push(end);
    }
    flush(&mut runs, &mut run);
    runs
}

fn flush(runs: &mut Vec<Vec<Position>>, run: &mut Vec<Position>) {
    if !run.is_empty() {
        runs.push(std::mem::take(run));
    }
}

/// The part of a segment within a band.
fn segment(from: Position, to: Position, band: Band) -> Option<(Position, Position)> {
    if from.y.max(to.y) < band.top || from.y.min(to.y) > band.bottom {
        return None;
    }
    Some((within(from, to, band), within(to, from, band)))
}

/// An end of a segment, moved along it into the band.
fn within(end: Position, other: Position, band: Band) -> Position {
    let edge = end.y.clamp(band.top, band.bottom);
    if edge.to_bits() == end.y.to_bits() {
        return end;
    }
    let part = (edge - end.y) / (other.y - end.y);
    Position { x: end.x + (other.x - end.x) * part.clamp(0.0, 1.0), y: edge }
}

/// A polygon within a band: Sutherland and Hodgman, Reentrant Polygon Clipping. CACM 17(1), 1974.
pub(crate) fn polygon(outline: &[Position], band: Band) -> Vec<Position> {
    let below_top = half(outline, band.top, |y| y >= band.top);
    half(&below_top, band.bottom, |y| y <= band.bottom)
}

fn half(outline: &[Position], edge: f64, is_inside: impl Fn(f64) -> bool) -> Vec<Position> {
    let mut kept = Vec::with_capacity(outline.len() + 2);
    let Some(mut before) = outline.last().copied() else { return kept };
    for point in outline.iter().copied() {
        if is_inside(point.y) != is_inside(before.y) {
            let part = (edge - before.y) / (point.y - before.y);
            kept.push(Position { x: before.x + (point.x - before.x) * part.clamp(0.0, 1.0), y: edge });
        }
        if is_inside(point.y) {
            kept.push(point);
        }
        before = point;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(points: &[(f64, f64)]) -> Vec<Position> {
        points.iter().map(|(x, y)| Position { x: *x, y: *y }).collect()
    }

    const BAND: Band = Band { top: 0.0, bottom: 10.0 };

    #[test]
    fn lines_end_at_the_edges() {
        let runs = line(&at(&[(0.0, 5.0), (10.0, -5.0), (20.0, 5.0), (30.0, 25.0), (40.0, 25.0)]), BAND);
        assert_eq!(runs, [at(&[(0.0, 5.0), (5.0, 0.0)]), at(&[(15.0, 0.0), (20.0, 5.0), (22.5, 10.0)])]);
        assert_eq!(line(&at(&[(0.0, -5.0), (10.0, 15.0)]), BAND), [at(&[(2.5, 0.0), (7.5, 10.0)])]);
        assert!(line(&at(&[(0.0, -5.0), (10.0, -1.0)]), BAND).is_empty());
        assert!(line(&at(&[(0.0, 5.0)]), BAND).is_empty());
    }

    #[test]
    fn polygons_end_at_the_edges() {
        let tower = at(&[(0.0, 20.0), (10.0, -10.0), (20.0, 20.0)]);
        let clipped = polygon(&tower, BAND);
        assert_eq!(clipped.len(), 4);
        assert!(clipped.iter().all(|point| (0.0..=10.0).contains(&point.y)), "{clipped:?}");
        assert!(polygon(&at(&[(0.0, -3.0), (1.0, -2.0), (2.0, -3.0)]), BAND).is_empty());
    }
}
