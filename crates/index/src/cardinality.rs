//! What makes a database large: counts of groups and series by measurement, label name and label, from the index alone.

use std::collections::BTreeMap;

use crate::groups::Groups;
use crate::source::{Source, TermCursor};
use crate::{DatabaseId, IndexError, MeasurementId};

/// Counts of one database. Groups that were removed still count by name and by label until their segments are merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// All groups.
    pub groups: u64,
    /// All series: the groups' members.
    pub series: u64,
    /// All pairs of label name and value.
    pub pairs: u64,
    /// Measurements with most series: groups, series.
    pub measurements: Vec<(MeasurementId, u64, u64)>,
    /// Label names with most values.
    pub names: Vec<NameCardinality>,
    /// Labels that most groups have: name, value, groups.
    pub labels: Vec<(String, String, u64)>,
}

/// Counts of one label name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameCardinality {
    /// The name.
    pub name: String,
    /// Values that it has.
    pub values: u64,
    /// Groups that have it.
    pub groups: u64,
}

/// Bytes that a counted item takes beside its text.
const ITEM_BYTES: u64 = 96;

/// Items that are gone over between two questions to the caller.
const ITEMS_PER_RESERVATION: u64 = 1_024;

/// Counts a database over several shards. Each list holds the `top` largest, largest first. `reserve` is asked for bytes before they are
/// taken, and for none again and again; when it says no, the error is [`IndexError::Refused`].
pub fn cardinality(
    shards: &[&Groups],
    database: DatabaseId,
    top: usize,
    reserve: &dyn Fn(u64) -> bool,
) -> Result<Cardinality, IndexError> {
    let mut counts = Cardinality::default();
    let mut measurements: BTreeMap<MeasurementId, (i64, i64)> = BTreeMap::new();
    for groups in shards {
        count_measurements((groups, database), reserve, &mut measurements)?;
    }
    counts.groups = measurements.values().map(|(groups, _)| *groups as u64).sum();
    counts.series = measurements.values().map(|(_, series)| *series as u64).sum();
    let sources: Vec<&dyn Source> = shards.iter().flat_map(|groups| groups.sources()).collect();
    let mut names = Names { sources: &sources, database, top, reserve, largest: Vec::new() };
    names.count(&mut counts)?;
    let live = measurements.into_iter().filter(|(_, (groups, _))| *groups > 0);
    counts.measurements = live.map(|(id, (groups, series))| (id, groups as u64, series as u64)).collect();
    counts.measurements.sort_by_key(|(id, groups, series)| (std::cmp::Reverse((*series, *groups)), *id));
    counts.measurements.truncate(top);
    counts.names.sort_by(|a, b| (b.values, b.groups, &a.name).cmp(&(a.values, a.groups, &b.name)));
    counts.names.truncate(top);
    Ok(counts)
}

/// Counts whole families, and corrects for groups that newer segments say something else of.
fn count_measurements(
    (groups, database): (&Groups, DatabaseId),
    reserve: &dyn Fn(u64) -> bool,
    counts: &mut BTreeMap<MeasurementId, (i64, i64)>,
) -> Result<(), IndexError> {
    for source in groups.sources() {
        ask(reserve, ITEM_BYTES * u64::from(source.families()))?;
        for number in 0..source.families() {
            let family = source.family(number)?;
            if family.database == database && family.groups > 0 {
                let (groups, series) = counts.entry(family.measurement).or_default();
                *groups += i64::from(family.groups);
                *series += i64::from(family.groups) * family.slots.len() as i64;
            }
        }
    }
    let mut corrected: BTreeMap<u32, Option<i64>> = BTreeMap::new();
    for source in groups.sources() {
        let overlays = source.overlays()?;
        ask(reserve, ITEM_BYTES * overlays.len() as u64)?;
        corrected.extend(overlays.into_iter().map(|(id, slots)| (id, Some(slots.len() as i64))));
    }
    ask(reserve, ITEM_BYTES * groups.removed().len())?;
    corrected.extend(groups.removed().iter().map(|id| (id, None)));
    for (id, now) in corrected {
        let Some(owner) = groups.sources().find(|source| (source.first()..source.end()).contains(&id)) else {
            continue;
        };
        let Some(family) = owner.family_of(id)?.map(|number| owner.family(number)).transpose()? else {
            continue;
        };
        if family.database == database {
            let (groups, series) = counts.entry(family.measurement).or_default();
            *groups -= i64::from(now.is_none());
            *series += now.unwrap_or(0) - family.slots.len() as i64;
        }
    }
    Ok(())
}

fn ask(reserve: &dyn Fn(u64) -> bool, bytes: u64) -> Result<(), IndexError> {
    if reserve(bytes) { Ok(()) } else { Err(IndexError::Refused) }
}

/// Where a label name occurs.
#[derive(Default)]
struct Occurrences<'a> {
    /// Groups that have it.
    groups: u64,
    /// Sources that know it, and its number in each.
    sources: Vec<(&'a dyn Source, u32)>,
}

/// Counts the label names of a database and their values.
struct Names<'a> {
    sources: &'a [&'a dyn Source],
    database: DatabaseId,
    top: usize,
    reserve: &'a dyn Fn(u64) -> bool,
    /// Labels that most groups have, largest first: groups, name, value.
    largest: Vec<(u64, String, String)>,
}

impl<'a> Names<'a> {
    fn count(&mut self, counts: &mut Cardinality) -> Result<(), IndexError> {
        let mut names: BTreeMap<&str, Occurrences<'a>> = BTreeMap::new();
        for source in self.sources {
            for name in source.names(self.database) {
                ask(self.reserve, ITEM_BYTES + name.text.len() as u64)?;
                let known = names.entry(name.text).or_default();
                known.groups += u64::from(name.groups);
                known.sources.push((*source, name.number));
            }
        }
        for (name, Occurrences { groups, sources }) in names {
            let mut cursors: Vec<Box<dyn TermCursor + '_>> = Vec::new();
            for (source, number) in sources {
                let mut cursor = source.terms(self.database, number, "", true)?;
                if cursor.advance()? {
                    cursors.push(cursor);
                }
            }
            let values = self.count_values(name, cursors)?;
            counts.pairs += values;
            counts.names.push(NameCardinality { name: name.to_owned(), values, groups });
        }
        let largest = std::mem::take(&mut self.largest);
        counts.labels = largest.into_iter().map(|(groups, name, value)| (name, value, groups)).collect();
        Ok(())
    }

    /// Goes over the values of one name in all sources, each once with the number of groups that have it; how many there are.
    fn count_values(&mut self, name: &str, mut cursors: Vec<Box<dyn TermCursor + '_>>) -> Result<u64, IndexError> {
        let mut values = 0;
        let mut smallest = String::new();
        while let Some(text) = cursors.iter().map(|cursor| cursor.text()).min() {
            text.clone_into(&mut smallest);
            let mut groups = 0;
            let mut ended = Vec::new();
            for (place, cursor) in cursors.iter_mut().enumerate() {
                if cursor.text() == smallest {
                    groups += u64::from(cursor.count());
                    if !cursor.advance()? {
                        ended.push(place);
                    }
                }
            }
            ended.into_iter().rev().for_each(|place| drop(cursors.remove(place)));
            self.note_largest(name, &smallest, groups);
            values += 1;
            if values % ITEMS_PER_RESERVATION == 0 {
                ask(self.reserve, 0)?;
            }
        }
        Ok(values)
    }

    fn note_largest(&mut self, name: &str, value: &str, groups: u64) {
        let is_large =
            self.largest.len() < self.top || self.largest.last().is_some_and(|(least, _, _)| groups > *least);
        if is_large && self.top > 0 {
            let place = self.largest.partition_point(|(known, _, _)| *known >= groups);
            self.largest.insert(place, (groups, name.to_owned(), value.to_owned()));
            self.largest.truncate(self.top);
        }
    }
}
