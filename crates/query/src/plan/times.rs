//! The times and the tables that a plan reads.

use model::TimeRange;

use crate::Plan;

impl Plan {
    /// The smallest range that has the times of all scans.
    pub fn read_range(&self) -> TimeRange {
        match self {
            Self::Scan(scan) => scan.range,
            Self::Join(join) => join.left.read_range().union(join.right.read_range()),
            Self::Union(plans) => plans.iter().map(Self::read_range).fold(TimeRange::EMPTY, TimeRange::union),
            Self::View(read) => {
                read.parts.iter().map(|part| part.plan.read_range()).fold(TimeRange::EMPTY, TimeRange::union)
            }
            Self::Likeness(likeness) => {
                likeness.plans().into_iter().map(Self::read_range).fold(TimeRange::EMPTY, TimeRange::union)
            }
            _ => self.input().map_or(TimeRange::EMPTY, Self::read_range),
        }
    }

    /// The tables that its scans name.
    pub(crate) fn tables(&self) -> Vec<&str> {
        match self {
            Self::Scan(scan) => scan.table.iter().map(|table| table.name.as_str()).collect(),
            Self::Join(join) => [join.left.tables(), join.right.tables()].concat(),
            Self::Union(plans) => plans.iter().flat_map(Self::tables).collect(),
            Self::View(read) => read.parts.iter().flat_map(|part| part.plan.tables()).collect(),
            Self::Likeness(likeness) => likeness.plans().into_iter().flat_map(Self::tables).collect(),
            Self::Labelled(labelled) => [labelled.input.tables(), vec![labelled.table_name()]].concat(),
            _ => self.input().map_or_else(Vec::new, Self::tables),
        }
    }
}
