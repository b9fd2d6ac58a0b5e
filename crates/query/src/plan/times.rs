//! The times and the tables that a plan reads.

use model::TimeRange;

use crate::Plan;

impl Plan {
    /// The smallest range that has the times of all scans.
    pub fn read_range(&self) -> TimeRange {
        self.range_of(false)
    }

    /// As [`Self::read_range`], with the times of rows that are found as of later ones.
    pub fn touched_range(&self) -> TimeRange {
        self.range_of(true)
    }

    fn range_of(&self, is_touched: bool) -> TimeRange {
        let all = |plans: &mut dyn Iterator<Item = &Self>| {
            plans.map(|plan| plan.range_of(is_touched)).fold(TimeRange::EMPTY, TimeRange::union)
        };
        match self {
            Self::Scan(scan) => scan.range,
            Self::Join(join) => all(&mut [&join.left, &join.right].into_iter()),
            Self::Union(plans) => all(&mut plans.iter()),
            Self::View(read) => all(&mut read.parts.iter().map(|part| &part.plan)),
            Self::Likeness(likeness) => all(&mut likeness.plans().into_iter()),
            Self::AsOf(as_of) if is_touched => {
                let range = as_of.input.range_of(is_touched);
                let start_ns = as_of.within_ns.map_or(i64::MIN, |ns| range.start_ns.saturating_sub(ns));
                if range.start_ns > range.end_ns { range } else { TimeRange { start_ns, ..range } }
            }
            _ => self.input().map_or(TimeRange::EMPTY, |input| input.range_of(is_touched)),
        }
    }

    /// The earliest time, in nanoseconds since 1970, from which one of its scans reads.
    pub(crate) fn first_time_ns(&self) -> i64 {
        let first_of =
            |plans: &mut dyn Iterator<Item = &Self>| plans.map(Self::first_time_ns).min().unwrap_or(i64::MAX);
        match self {
            Self::Scan(scan) => scan.range.start_ns,
            Self::Join(join) => first_of(&mut [&join.left, &join.right].into_iter()),
            Self::Union(plans) => first_of(&mut plans.iter()),
            Self::View(read) => first_of(&mut read.parts.iter().map(|part| &part.plan)),
            Self::Likeness(likeness) => first_of(&mut likeness.plans().into_iter()),
            Self::Labelled(labelled) => labelled.input.first_time_ns(),
            Self::AsOf(as_of) => as_of.within_ns.map_or(i64::MIN, |ns| as_of.input.first_time_ns().saturating_sub(ns)),
            _ => self.input().map_or(i64::MIN, Self::first_time_ns),
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
            Self::AsOf(as_of) => [as_of.input.tables(), vec![as_of.table_name()]].concat(),
            _ => self.input().map_or_else(Vec::new, Self::tables),
        }
    }
}
