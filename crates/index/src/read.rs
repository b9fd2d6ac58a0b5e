//! Getting groups with their labels: numbers become texts again.

use std::collections::HashMap;

use model::Labels;

use crate::groups::{Group, Groups};
use crate::source::Family;
use crate::{GroupId, IndexError};

/// Gets groups. Remembers families and the last value of each of their labels, which the next group often has as well.
pub struct GroupReader<'a> {
    groups: &'a Groups,
    families: HashMap<(GroupId, u32), KnownFamily<'a>>,
    values: Vec<u32>,
}

struct KnownFamily<'a> {
    family: Family,
    /// For each label its name, its last value, and that one's text.
    labels: Vec<(&'a str, Option<u32>, String)>,
}

impl<'a> GroupReader<'a> {
    pub(crate) fn new(groups: &'a Groups) -> Self {
        Self { groups, families: HashMap::new(), values: Vec::new() }
    }

    /// A group; `None` if it is removed or never was.
    pub fn get(&mut self, id: GroupId) -> Result<Option<Group>, IndexError> {
        let Some((source, _)) = self.groups.family_of(id)? else {
            return Ok(None);
        };
        self.values.clear();
        let Some(number) = source.values_of(id, &mut self.values)? else {
            return Ok(None);
        };
        let known = match self.families.entry((source.first(), number)) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let family = source.family(number)?;
                let name = |name: &u32| (source.name_text(family.database, *name), None, String::new());
                let labels = family.names.iter().map(name).collect();
                entry.insert(KnownFamily { family, labels })
            }
        };
        let (database, measurement) = (known.family.database, known.family.measurement);
        for ((name, value), (_, last, text)) in known.family.names.iter().zip(&self.values).zip(&mut known.labels) {
            if *last != Some(*value) {
                text.clear();
                source.append_value(database, *name, *value, text)?;
                *last = Some(*value);
            }
        }
        let labels = known.labels.iter().map(|(name, _, text)| (*name, text.as_str()));
        Ok(Some(Group { database, measurement, labels: Labels::from_sorted(labels) }))
    }
}
