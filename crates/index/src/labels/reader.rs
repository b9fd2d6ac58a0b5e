//! Getting groups with their labels: numbers become texts again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::Labels;

use crate::groups::{Group, Groups};
use crate::source::{Family, RowCursor, Source};
use crate::{DatabaseId, GroupId, IndexError};

/// Gets groups. Remembers families, and of each label name the last value, which the next group often has as well.
pub struct GroupReader<'a> {
    groups: &'a Groups,
    families: HashMap<(GroupId, u32), KnownFamily>,
    indexes: HashMap<(GroupId, DatabaseId, u32), usize>,
    names: Vec<KnownName<'a>>,
    values: Vec<u32>,
    rows: OwnerRows<'a>,
}

/// The rows of the source that owned the last group.
#[derive(Default)]
pub(crate) struct OwnerRows<'a>(Option<(GroupId, Box<dyn RowCursor + 'a>)>);

impl<'a> OwnerRows<'a> {
    /// As [`Source::values_of`] of the source.
    pub(crate) fn values_of(
        &mut self,
        source: &'a dyn Source,
        id: GroupId,
        values: &mut Vec<u32>,
    ) -> Result<Option<u32>, IndexError> {
        let first = source.first();
        match &mut self.0 {
            Some((owner, rows)) if *owner == first => rows.values_of(id, values),
            _ => {
                let (_, rows) = self.0.insert((first, source.rows()));
                rows.values_of(id, values)
            }
        }
    }
}

struct KnownFamily {
    family: Family,
    /// Where its label names stand among those known.
    names: Vec<usize>,
}

/// A label name with the last value that was read.
struct KnownName<'a> {
    name: &'a str,
    value: Option<u32>,
    text: String,
}

impl<'a> GroupReader<'a> {
    pub(crate) fn new(groups: &'a Groups) -> Self {
        let (families, indexes) = (HashMap::new(), HashMap::new());
        Self { groups, families, indexes, names: Vec::new(), values: Vec::new(), rows: OwnerRows::default() }
    }

    /// A group; `None` if it is removed or never was.
    pub fn get(&mut self, id: GroupId) -> Result<Option<Group>, IndexError> {
        let Some(source) = self.groups.owner(id).filter(|_| !self.groups.removed().contains(id)) else {
            return Ok(None);
        };
        self.values.clear();
        let Some(number) = self.rows.values_of(source, id, &mut self.values)? else {
            return Ok(None);
        };
        let known = match self.families.entry((source.first(), number)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let family = source.family(number)?;
                let mut names = Vec::with_capacity(family.names.len());
                for name in &family.names {
                    let place =
                        self.indexes.entry((source.first(), family.database, *name)).or_insert(self.names.len());
                    if *place == self.names.len() {
                        let name = source.name_text(family.database, *name);
                        self.names.push(KnownName { name, value: None, text: String::new() });
                    }
                    names.push(*place);
                }
                entry.insert(KnownFamily { family, names })
            }
        };
        let (database, measurement) = (known.family.database, known.family.measurement);
        for ((name, value), place) in known.family.names.iter().zip(&self.values).zip(&known.names) {
            let Some(last) = self.names.get_mut(*place).filter(|last| last.value != Some(*value)) else {
                continue;
            };
            last.text.clear();
            source.append_value(database, *name, *value, &mut last.text)?;
            last.value = Some(*value);
        }
        let names = known.names.iter().filter_map(|place| self.names.get(*place));
        let labels = Labels::from_sorted(names.map(|name| (name.name, name.text.as_str())));
        Ok(Some(Group { database, measurement, labels }))
    }
}
