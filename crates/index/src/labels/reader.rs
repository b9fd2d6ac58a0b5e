//! Getting groups with their labels: numbers become texts again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::Labels;

use crate::groups::{Group, Groups};
use crate::source::{Family, RowCursor, Source};
use crate::{DatabaseId, GroupId, IndexError};

/// Values of a label name that a reader remembers at most.
const KNOWN_VALUES_MAX: usize = 256;

/// Bytes by which a group's labels may be longer than those of the group before without an allocation more.
const PACKED_BYTES_MORE: usize = 16;

/// Gets groups. Remembers families, and of each label name some values, which later groups often have as well.
pub struct GroupReader<'a> {
    groups: &'a Groups,
    families: HashMap<(GroupId, u32), KnownFamily>,
    indexes: HashMap<(GroupId, DatabaseId, u32), usize>,
    names: Vec<KnownName<'a>>,
    values: Vec<u32>,
    rows: OwnerRows<'a>,
    /// A little more than the last group's labels took.
    packed_bytes: usize,
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

/// A label name with values that were read.
struct KnownName<'a> {
    name: &'a str,
    /// Each at the index that its number gives; twice as many whenever one is not among them, up to [`KNOWN_VALUES_MAX`].
    values: Vec<KnownValue>,
    /// The index of the last one.
    last: usize,
}

/// The number of a value, and its text.
#[derive(Default)]
struct KnownValue {
    number: Option<u32>,
    text: String,
}

impl KnownName<'_> {
    /// The last value's text.
    fn text(&self) -> &str {
        self.values.get(self.last).map_or("", |value| &value.text)
    }

    /// Makes a value the last one, with the text that is appended if it is not known.
    fn go_to(
        &mut self,
        number: u32,
        append: impl FnOnce(&mut String) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let index = |count: usize| number as usize & count.saturating_sub(1);
        self.last = index(self.values.len());
        if self.values.get(self.last).is_some_and(|known| known.number == Some(number)) {
            return Ok(());
        }
        if self.values.len() < KNOWN_VALUES_MAX {
            self.values.resize_with((2 * self.values.len()).max(1), KnownValue::default);
            self.last = index(self.values.len());
        }
        if let Some(known) = self.values.get_mut(self.last) {
            known.number = None;
            known.text.clear();
            append(&mut known.text)?;
            known.number = Some(number);
        }
        Ok(())
    }
}

impl<'a> GroupReader<'a> {
    pub(crate) fn new(groups: &'a Groups) -> Self {
        let (families, indexes) = (HashMap::new(), HashMap::new());
        Self {
            groups,
            families,
            indexes,
            names: Vec::new(),
            values: Vec::new(),
            rows: OwnerRows::default(),
            packed_bytes: 0,
        }
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
                        self.names.push(KnownName { name, values: Vec::new(), last: 0 });
                    }
                    names.push(*place);
                }
                entry.insert(KnownFamily { family, names })
            }
        };
        let (database, measurement) = (known.family.database, known.family.measurement);
        for ((name, value), place) in known.family.names.iter().zip(&self.values).zip(&known.names) {
            if let Some(known) = self.names.get_mut(*place) {
                known.go_to(*value, |text| source.append_value(database, *name, *value, text))?;
            }
        }
        let names = known.names.iter().filter_map(|place| self.names.get(*place));
        let labels = Labels::from_sorted_within(names.map(|name| (name.name, name.text())), self.packed_bytes);
        self.packed_bytes = labels.packed_bytes() + PACKED_BYTES_MORE;
        Ok(Some(Group { database, measurement, labels }))
    }
}
