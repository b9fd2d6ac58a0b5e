//! Series from the store.

use index::compile;
use model::{Matcher, TimeRange};
use store::{ReadCounts, SelectedGroup, StoreError, Token};

use super::Run;
use crate::plan::{Scan, Selector};
use crate::{Frame, QueryError};

/// What a plan read of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Groups that were selected.
    pub groups: u64,
    /// Samples that were given on, of whole columns.
    pub samples: u64,
    /// Summaries that stood for samples.
    pub nodes: u64,
    /// Rows that were decoded for windows.
    pub window_rows: u64,
    /// Chunks that were read for windows.
    pub window_chunks: u64,
}

impl Reads {
    pub(super) fn add(&mut self, counts: &ReadCounts) {
        self.nodes += counts.nodes;
        self.window_rows += counts.rows;
        self.window_chunks += counts.chunks;
    }
}

impl Run<'_> {
    /// All samples, a frame for each series.
    pub(super) fn scan(&mut self, scan: &Scan) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        for group in self.groups(scan)? {
            self.read_group(&group, &scan.range, &mut frames)?;
        }
        Ok(frames)
    }

    /// A group's samples, behind other frames.
    pub(super) fn read_group(
        &mut self,
        group: &SelectedGroup,
        range: &TimeRange,
        frames: &mut Vec<Frame>,
    ) -> Result<(), QueryError> {
        let columns = self.context.store.read(group, range).map_err(|error| unreadable(&error))?;
        for (samples, column) in columns.into_iter().zip(group.columns.iter()) {
            let Some(frame) = Frame::of_samples(column.series_labels(&group.labels), samples) else { continue };
            self.context.budget.take(frame.samples())?;
            self.reads.samples += frame.rows() as u64;
            frames.push(frame);
        }
        Ok(())
    }

    /// The groups that a scan selects.
    pub(super) fn groups(&mut self, scan: &Scan) -> Result<Vec<SelectedGroup>, QueryError> {
        let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
        let compiled = compile(&matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let (store, database) = (self.context.store, self.context.database);
        let mut groups = if scan.tokens.is_empty() {
            store.select(database, &compiled).map_err(|error| unreadable(&error))?
        } else {
            if !matchers.is_empty() {
                let message = "series are selected by index or by labels, not by both";
                return Err(QueryError::Invalid(message.to_owned()));
            }
            let tokens: Vec<Token> = scan.tokens.iter().map(|bits| Token::from_bits(*bits)).collect();
            store.select_tokens(database, &tokens).map_err(|error| unreadable(&error))?
        };
        self.context.budget.check()?;
        groups.retain(|group| !group.columns.is_empty());
        self.reads.groups += groups.len() as u64;
        Ok(groups)
    }
}

pub(super) fn unreadable(error: &StoreError) -> QueryError {
    QueryError::Storage(error.to_string())
}
