//! The nodes of what a merge writes: those of parts that nothing else touches as they are, the others from samples.

use std::ops::Range;

use model::TimeRange;

use crate::StoreError;
use crate::compaction::Target;
use crate::part::summary::{self, Nodes};

use super::outputs::Segment;
use super::rows::{Copied, KeyRows};

/// What one part has of a key, none of it deleted, in nodes.
pub(crate) struct PartNodes {
    /// From its first to its last row.
    pub(crate) range: TimeRange,
    pub(crate) rows: usize,
    pub(crate) nodes: Nodes,
}

impl PartNodes {
    /// Keeps those that no other of the parts' ranges overlaps, in order of time: they stand for rows as they go into the merge.
    pub(super) fn retain_alone(all: &mut Vec<Self>, ranges: &[TimeRange]) {
        all.retain(|one| ranges.iter().filter(|range| range.overlaps(&one.range)).count() == 1);
        all.sort_unstable_by_key(|one| one.range.start_ns);
    }

    /// Returns whether they are all of its rows in these segments, and can be added to nodes of a width.
    fn suits(&self, gathered: &KeyRows, segments: &[(Target, Segment<'_>)], width_ns: i64) -> bool {
        let rows = |(_, segment): &(Target, Segment<'_>)| match segment {
            Segment::Copied(copied) if self.range.contains(copied.range.start_ns) => copied.rows,
            Segment::Copied(_) => 0,
            Segment::Rows(places) => {
                let timestamps_ns = gathered.rows.timestamps_ns.get(places.clone()).unwrap_or_default();
                let before = timestamps_ns.partition_point(|timestamp_ns| *timestamp_ns < self.range.start_ns);
                timestamps_ns.partition_point(|timestamp_ns| *timestamp_ns <= self.range.end_ns) - before
            }
        };
        self.nodes.width_ns <= width_ns
            && summary::are_all_written(&self.range, self.nodes.width_ns)
            && segments.iter().map(rows).sum::<usize>() == self.rows
    }
}

/// What some of the nodes are made of.
enum Source<'a> {
    Nodes(&'a Nodes),
    Copied(&'a Copied),
    /// Places of rows.
    Rows(Range<usize>),
}

/// The nodes of what goes into one part, `segments` in order of time.
pub(super) fn of_segments(
    gathered: &KeyRows,
    segments: &[(Target, Segment<'_>)],
    width_ns: i64,
) -> Result<Nodes, StoreError> {
    let mut nodes = Nodes { width_ns, columns: Vec::new() };
    for (_, source) in sources(gathered, segments, width_ns) {
        match source {
            Source::Nodes(known) => nodes.merge(known),
            Source::Copied(copied) => nodes.merge(&Nodes::of_rows(&copied.decode()?, width_ns)),
            Source::Rows(places) => nodes.merge(&Nodes::of_some_rows(&gathered.rows, places, width_ns)),
        }
    }
    Ok(nodes)
}

/// What the nodes are made of, in order of time: only so are nodes right that two of the sources have a share in.
fn sources<'a>(gathered: &'a KeyRows, segments: &[(Target, Segment<'a>)], width_ns: i64) -> Vec<(i64, Source<'a>)> {
    let known: Vec<&PartNodes> = gathered.alone.iter().filter(|one| one.suits(gathered, segments, width_ns)).collect();
    let mut sources: Vec<(i64, Source<'a>)> =
        known.iter().map(|one| (one.range.start_ns, Source::Nodes(&one.nodes))).collect();
    let timestamps_ns = &gathered.rows.timestamps_ns;
    for (_, segment) in segments {
        match segment {
            Segment::Copied(copied) => {
                let start_ns = copied.range.start_ns;
                let is_known = known.iter().any(|one| one.range.contains(start_ns));
                sources.extend((!is_known).then_some((start_ns, Source::Copied(copied))));
            }
            Segment::Rows(places) => {
                let unknown = outside(timestamps_ns, places, &known);
                sources.extend(unknown.into_iter().map(|places| (timestamps_ns[places.start], Source::Rows(places))));
            }
        }
    }
    sources.sort_by_key(|(start_ns, _)| *start_ns);
    sources
}

/// Places of timestamps, which ascend, that lie in none of the ranges, which ascend too.
fn outside(timestamps_ns: &[i64], places: &Range<usize>, known: &[&PartNodes]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = places.start;
    for range in known.iter().map(|one| one.range) {
        let rest = timestamps_ns.get(from..places.end).unwrap_or_default();
        let before = rest.partition_point(|timestamp_ns| *timestamp_ns < range.start_ns);
        let through = rest.partition_point(|timestamp_ns| *timestamp_ns <= range.end_ns);
        found.push(from..from + before);
        from += through;
    }
    found.push(from..places.end);
    found.retain(|places| !places.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use model::ValueType;
    use proptest::prelude::*;

    use super::*;
    use crate::part::chunk::{Rows, RowsColumn};

    const WIDTH_NS: i64 = 10_000_000_000;

    fn rows(samples: &[(i64, i64)]) -> Rows {
        let mut column = RowsColumn::new(3, ValueType::I64);
        samples.iter().for_each(|(_, value)| column.push(Some(*value as u64)));
        Rows {
            timestamps_ns: samples.iter().map(|(second, _)| second * 1_000_000_000).collect(),
            columns: vec![column],
        }
    }

    proptest! {
        /// Some runs of rows were parts that had nodes, and rows are cut into segments somewhere: the nodes are those of all rows,
        /// and none that are known are made again, unless what goes into the part is not all that they stand for.
        #[test]
        fn known_nodes_are_those_of_their_rows(
            samples in proptest::collection::btree_map(0i64..300, 0i64..9, 1..80),
            parts in proptest::collection::vec((0usize..80, 1usize..20, any::<bool>()), 0..6),
            cuts in proptest::collection::btree_set(0usize..80, 0..4),
            left_out in 0usize..5,
        ) {
            let samples: Vec<(i64, i64)> = samples.into_iter().collect();
            let all = rows(&samples);
            let (mut ranges, mut alone) = (Vec::new(), Vec::new());
            for (from, count, has_nodes) in parts {
                let places = from.min(samples.len() - 1)..(from + count).min(samples.len());
                let Some(range) = all.range_of(&places).filter(|_| !places.is_empty()) else { continue };
                ranges.push(range);
                let nodes = Nodes::of_some_rows(&all, places.clone(), if has_nodes { WIDTH_NS / 10 } else { WIDTH_NS });
                alone.push(PartNodes { range, rows: places.len(), nodes });
            }
            PartNodes::retain_alone(&mut alone, &ranges);
            let mut gathered = KeyRows::default();
            gathered.rows = all.clone();
            gathered.alone = alone;
            let taken = samples.len() - left_out.min(samples.len() - 1);
            let ends: Vec<usize> = cuts.into_iter().filter(|cut| (1..taken).contains(cut)).chain([taken]).collect();
            let target = Target { level: 2, partition: TimeRange::ALL, patch_of: 0 };
            let mut from = 0;
            let segments: Vec<(Target, Segment<'_>)> =
                ends.into_iter().map(|end| (target, Segment::Rows(std::mem::replace(&mut from, end)..end))).collect();
            prop_assert_eq!(of_segments(&gathered, &segments, WIDTH_NS)?, Nodes::of_some_rows(&all, 0..taken, WIDTH_NS));
            let last_ns = all.timestamps_ns[taken - 1];
            let known = sources(&gathered, &segments, WIDTH_NS);
            let known = known.iter().filter(|(_, source)| matches!(source, Source::Nodes(_))).count();
            prop_assert_eq!(known, gathered.alone.iter().filter(|one| one.range.end_ns <= last_ns).count());
        }
    }
}
