//! A few bins of the newest rows: those of most groups are found in heads at once, and go into the bins directly.

use store::{HeadRows, SelectedGroup, Windows};

use super::Run;
use super::binned::Binned;
use super::bins::Bin;
use super::group::{self, BinGroup, Gathered};
use super::narrow::{Narrowing, Wanted};
use super::rows;
use crate::QueryError;
use crate::plan::{Grouping, Scan};

/// Fewer groups are read one by one.
const GROUPS_MIN: usize = 16;
/// Groups between two checks of the query's budget.
const GROUPS_PER_CHECK: usize = 1024;

/// The windows of a scan whose rows may all be in heads: it has few, and they are aggregates of a table's fields.
pub(super) fn windows_of(scan: &Scan, grouping: &Grouping) -> Option<Vec<Windows>> {
    let is_plain = scan.table.is_some() && grouping.by.is_some();
    let is_recent = is_plain && group::has_few_bins(&scan.range, grouping);
    if is_recent { group::bin_ranges(&scan.range, &scan.range, grouping) } else { None }
}

impl Run<'_> {
    /// The bins of what a scan selects in few windows: groups all of whose rows are in heads together, the others by `bin`.
    pub(super) fn head_row_bins(
        &mut self,
        scan: &Scan,
        wanted: &Wanted<'_>,
        windows: &[Windows],
        grouping: &Grouping,
        bin: &BinGroup<'_>,
    ) -> Result<Vec<Binned>, QueryError> {
        let groups = self.groups(scan)?;
        let narrowing = Narrowing::new(&groups, wanted);
        let head_rows = match groups.len() {
            GROUPS_MIN.. => self.context.store.head_rows(&groups, &scan.range),
            _ => HeadRows::default(),
        };
        let is_found = |(index, group): (usize, &SelectedGroup)| {
            let read = narrowing.narrow(group);
            let has_own_labels = read.columns.iter().any(|column| !column.labels.is_empty());
            !has_own_labels && group::from_summaries(scan, &read, grouping) && head_rows.has_all(index, &read.columns)
        };
        let found: Vec<bool> = groups.iter().enumerate().map(is_found).collect();
        let others = groups.iter().zip(&found).filter(|(_, found)| !**found).map(|(group, _)| group.clone());
        let mut others = self.of_chosen(&others.collect::<Vec<_>>(), &narrowing, bin)?.into_iter();
        let mut gathered = Gathered::new(grouping, self.context.budget);
        for (index, (group, found)) in groups.iter().zip(found).enumerate() {
            if index % GROUPS_PER_CHECK == 0 {
                self.context.budget.check()?;
            }
            if found {
                self.add_head_rows(scan, &head_rows, index, &narrowing.narrow(group), windows, &mut gathered);
            } else {
                others.next().unwrap_or_default().into_iter().for_each(|binned| gathered.add(binned));
            }
        }
        let mut binned = gathered.into_binned();
        // Of a series that is grouped into it there may be stale markers alone.
        binned.retain(|binned| !binned.is_empty());
        Ok(binned)
    }

    /// Adds the bins of a group all of whose rows are in heads.
    fn add_head_rows(
        &mut self,
        scan: &Scan,
        head_rows: &HeadRows,
        index: usize,
        group: &SelectedGroup,
        bin_ranges: &[Windows],
        gathered: &mut Gathered<'_>,
    ) {
        let rows = head_rows.rows(index) as u64;
        if rows == 0 {
            return;
        }
        self.reads.window_rows += rows;
        self.reads.origins.head.rows += rows;
        let grouping = gathered.grouping;
        let parts = group::parts_of(grouping);
        let Some(target) = gathered.target(&group.labels) else { return };
        for windows in bin_ranges {
            for column in group.columns.iter() {
                head_rows.sum(index, column, windows, parts, |number, summary| {
                    let start_ns = grouping.bin_start(windows.start_of(number));
                    if summary.count > 0 {
                        let bin = Bin::Numbers { summary, values: Vec::new(), is_bool: false };
                        target.column(&column.field).add(start_ns, bin);
                    } else if scan.is_of_every_row() {
                        // A stale marker is a row without a value.
                        rows::add_row(&mut target.rows, start_ns, summary.first.0);
                    }
                });
            }
        }
    }
}
