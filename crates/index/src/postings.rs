//! Label values to groups, for one database in one shard.

use std::collections::BTreeMap;

use model::Labels;
use roaring::RoaringBitmap;

use crate::{CompiledMatcher, GroupId, MeasurementId};

/// Which groups have which labels.
#[derive(Debug, Default)]
pub(crate) struct Postings {
    all: RoaringBitmap,
    by_measurement: BTreeMap<MeasurementId, RoaringBitmap>,
    by_label: BTreeMap<String, BTreeMap<String, RoaringBitmap>>,
}

impl Postings {
    pub(crate) fn add(&mut self, group: GroupId, measurement: MeasurementId, labels: &Labels) {
        self.all.insert(group);
        self.by_measurement.entry(measurement).or_default().insert(group);
        for (name, value) in labels.iter() {
            let values = match self.by_label.get_mut(name) {
                Some(values) => values,
                None => self.by_label.entry(name.to_owned()).or_default(),
            };
            match values.get_mut(value) {
                Some(groups) => groups.insert(group),
                None => values.entry(value.to_owned()).or_default().insert(group),
            };
        }
    }

    /// The groups of a measurement.
    pub(crate) fn measurement(&self, measurement: MeasurementId) -> Option<&RoaringBitmap> {
        self.by_measurement.get(&measurement)
    }

    /// The groups that satisfy all matchers; those on the metric name are not looked at. `None` stands for all groups.
    pub(crate) fn matching(&self, matchers: &[CompiledMatcher]) -> Option<RoaringBitmap> {
        let mut chosen: Option<RoaringBitmap> = None;
        for matcher in matchers.iter().filter(|matcher| matcher.name() != model::METRIC_NAME) {
            let satisfied = self.satisfying(matcher);
            chosen = Some(match chosen {
                Some(groups) => groups & satisfied,
                None => satisfied,
            });
        }
        chosen
    }

    /// A matcher that the empty value satisfies is satisfied by groups without the label: then the values that do
    /// not satisfy it are taken away from all groups.
    fn satisfying(&self, matcher: &CompiledMatcher) -> RoaringBitmap {
        let empty_satisfies = matcher.matches("");
        let Some(values) = self.by_label.get(matcher.name()) else {
            return if empty_satisfies { self.all.clone() } else { RoaringBitmap::new() };
        };
        let mut groups = RoaringBitmap::new();
        match matcher.candidates().filter(|_| !empty_satisfies) {
            Some(candidates) => {
                for found in candidates.iter().filter_map(|value| values.get(value)) {
                    groups |= found;
                }
            }
            None => {
                for (_, found) in values.iter().filter(|(value, _)| matcher.matches(value) != empty_satisfies) {
                    groups |= found;
                }
            }
        }
        if empty_satisfies { &self.all - groups } else { groups }
    }

    /// Names of labels that one of the groups has.
    pub(crate) fn label_names<'a>(&'a self, groups: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        let used = |values: &BTreeMap<String, RoaringBitmap>| values.values().any(|found| !found.is_disjoint(groups));
        self.by_label.iter().filter(move |(_, values)| used(values)).map(|(name, _)| name.as_str())
    }

    /// Values of a label that one of the groups has.
    pub(crate) fn label_values<'a>(&'a self, name: &str, groups: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        let values = self.by_label.get(name).into_iter().flatten();
        values.filter(|(_, found)| !found.is_disjoint(groups)).map(|(value, _)| value.as_str())
    }
}
