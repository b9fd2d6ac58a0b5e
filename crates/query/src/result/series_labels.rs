//! The labels of an answer's series. Those of groups are not copied out of the store, and a text made of them for one answer serves the next.

use std::sync::Arc;

use model::Labels;
use store::{GroupTexts, TableGroups};

/// Texts of all groups are made if one of so many is shown at least.
const SHOWN_SHARE: usize = 4;

/// Labels of series, by their numbers.
#[derive(Debug, Default)]
pub struct SeriesLabels {
    groups: Arc<TableGroups>,
    sources: Vec<LabelSource>,
    /// True if each series is a group, none twice.
    is_one_each: bool,
}

#[derive(Debug)]
enum LabelSource {
    /// The labels of a group, by its index.
    Group(u32),
    Own(Labels),
}

/// A text of each series, made for a purpose.
pub struct SeriesTexts<'a> {
    labels: &'a SeriesLabels,
    texts: Arc<GroupTexts>,
}

impl SeriesLabels {
    /// None yet, of series that are groups of a table, or have labels of their own.
    pub(crate) fn of_groups(groups: Arc<TableGroups>, is_one_each: bool) -> Self {
        Self { sources: Vec::with_capacity(groups.len()), groups, is_one_each }
    }

    /// Adds the next series, a group unless it has labels of its own.
    pub(crate) fn push_group(&mut self, place: u32, own: Option<Labels>) {
        self.is_one_each &= own.is_none();
        self.sources.push(own.map_or(LabelSource::Group(place), LabelSource::Own));
    }

    /// Adds the next series.
    pub fn push(&mut self, labels: Labels) {
        self.is_one_each = false;
        self.sources.push(LabelSource::Own(labels));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// The labels of a series.
    pub fn get(&self, series: u32) -> Option<&Labels> {
        match self.sources.get(series as usize)? {
            LabelSource::Group(place) => self.groups.get(*place as usize).map(|group| &group.labels),
            LabelSource::Own(labels) => Some(labels),
        }
    }

    /// Returns whether it is known without a look at each that no two series have the same values of some tags.
    pub fn differ_by(&self, tags: &[&str]) -> bool {
        self.is_one_each && self.groups.differ_by(tags)
    }

    /// A text of each series, made by the caller for a purpose, if texts are cached for these series and as many are shown as pay for those of
    /// all groups.
    pub fn texts(
        &self,
        purpose: &str,
        shown: usize,
        push: impl FnMut(&mut String, &Labels),
    ) -> Option<SeriesTexts<'_>> {
        let pays = self.is_one_each && shown >= self.groups.len() / SHOWN_SHARE;
        let texts = if pays { self.groups.texts(purpose, push) } else { None };
        texts.map(|texts| SeriesTexts { labels: self, texts })
    }
}

impl SeriesTexts<'_> {
    /// The text of a series.
    pub fn text(&self, series: u32) -> &str {
        match self.labels.sources.get(series as usize) {
            Some(LabelSource::Group(place)) => self.texts.get(*place as usize),
            _ => "",
        }
    }
}
