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

/// Counts a database over several shards. Each list holds the `top` largest, largest first.
pub fn cardinality(shards: &[&Groups], database: DatabaseId, top: usize) -> Result<Cardinality, IndexError> {
    let mut counts = Cardinality::default();
    let mut measurements: BTreeMap<MeasurementId, (i64, i64)> = BTreeMap::new();
    for groups in shards {
        count_measurements(groups, database, &mut measurements)?;
    }
    counts.groups = measurements.values().map(|(groups, _)| *groups as u64).sum();
    counts.series = measurements.values().map(|(_, series)| *series as u64).sum();
    let sources: Vec<&dyn Source> = shards.iter().flat_map(|groups| groups.sources()).collect();
    count_names(&sources, database, top, &mut counts)?;
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
    groups: &Groups,
    database: DatabaseId,
    counts: &mut BTreeMap<MeasurementId, (i64, i64)>,
) -> Result<(), IndexError> {
    for source in groups.sources() {
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
        corrected.extend(source.overlays()?.into_iter().map(|(id, slots)| (id, Some(slots.len() as i64))));
    }
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

fn count_names(
    sources: &[&dyn Source],
    database: DatabaseId,
    top: usize,
    counts: &mut Cardinality,
) -> Result<(), IndexError> {
    let mut names: BTreeMap<&str, Vec<(&dyn Source, u32)>> = BTreeMap::new();
    for source in sources {
        for name in source.names(database) {
            names.entry(name.text).or_default().push((*source, name.number));
            let groups = u64::from(name.groups);
            match counts.names.iter_mut().find(|known| known.name == name.text) {
                Some(known) => known.groups += groups,
                None => counts.names.push(NameCardinality { name: name.text.to_owned(), values: 0, groups }),
            }
        }
    }
    let mut largest: Vec<(u64, String, String)> = Vec::new();
    for known in &mut counts.names {
        let mut cursors: Vec<Box<dyn TermCursor + '_>> = Vec::new();
        for (source, number) in names.get(known.name.as_str()).into_iter().flatten() {
            let mut cursor = source.terms(database, *number, "", true)?;
            if cursor.advance()? {
                cursors.push(cursor);
            }
        }
        known.values = count_values(cursors, |value, groups| {
            let is_large = largest.len() < top || largest.last().is_some_and(|(least, _, _)| groups > *least);
            if is_large && top > 0 {
                let place = largest.partition_point(|(known, _, _)| *known >= groups);
                largest.insert(place, (groups, known.name.clone(), value.to_owned()));
                largest.truncate(top);
            }
        })?;
    }
    counts.pairs = counts.names.iter().map(|name| name.values).sum();
    counts.labels = largest.into_iter().map(|(groups, name, value)| (name, value, groups)).collect();
    Ok(())
}

/// Goes over the values of one label in all sources, each once with the number of groups that have it; how many there are.
fn count_values(
    mut cursors: Vec<Box<dyn TermCursor + '_>>,
    mut visit: impl FnMut(&str, u64),
) -> Result<u64, IndexError> {
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
        visit(&smallest, groups);
        values += 1;
    }
    Ok(values)
}
