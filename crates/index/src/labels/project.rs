//! Getting the labels of many groups that an expression needs: put together once for each combination of values, not once for each group.

use std::collections::HashMap;

use hashbrown::HashTable;
use model::{Labels, METRIC_NAME};

use crate::groups::Groups;
use crate::identity::mix;
use crate::labels::reader::OwnerRows;
use crate::source::Source;
use crate::{GroupId, IndexError};

/// Sets of labels that a reader remembers; with more it begins anew.
const KNOWN_MAX: usize = 1 << 16;

/// Some of the labels: those that are named, or all but them. The metric name is no label of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projection<'a> {
    /// The names.
    pub names: &'a [String],
    /// True if those named are left out.
    pub is_without: bool,
}

impl Projection<'static> {
    /// All labels.
    pub const ALL: Self = Self { names: &[], is_without: true };

    /// No labels.
    pub const NONE: Self = Self { names: &[], is_without: false };
}

impl Projection<'_> {
    /// Returns whether all labels are kept.
    pub const fn keeps_all(&self) -> bool {
        self.is_without && self.names.is_empty()
    }

    /// Returns whether labels of a name are kept.
    pub fn keeps(&self, name: &str) -> bool {
        name != METRIC_NAME && self.names.iter().any(|named| named == name) != self.is_without
    }
}

/// Gets projected labels of groups; those of ascending ids fastest.
pub struct ProjectedReader<'a> {
    groups: &'a Groups,
    projection: Projection<'a>,
    /// Indexes of known families, by their owners and numbers.
    family_indexes: HashMap<(GroupId, u32), usize>,
    families: Vec<ProjectedFamily>,
    /// The family of the group before.
    last: Option<((GroupId, u32), usize)>,
    known: HashTable<KnownLabels>,
    row: Vec<u32>,
    rows: OwnerRows<'a>,
    key: Vec<u32>,
}

struct ProjectedFamily {
    database: u32,
    /// Of each label of the projection its place in the row, and the number of its name.
    columns: Vec<(usize, u32)>,
}

/// Labels by the numbers of their names and values in a source.
struct KnownLabels {
    hash: u64,
    owner: GroupId,
    key: Box<[u32]>,
    labels: Labels,
}

impl<'a> ProjectedReader<'a> {
    pub(crate) fn new(groups: &'a Groups, projection: Projection<'a>) -> Self {
        Self {
            groups,
            projection,
            family_indexes: HashMap::new(),
            families: Vec::new(),
            last: None,
            known: HashTable::new(),
            row: Vec::new(),
            rows: OwnerRows::default(),
            key: Vec::new(),
        }
    }

    /// The kept labels of a group; `None` if it is removed or never was.
    pub fn get(&mut self, id: GroupId) -> Result<Option<Labels>, IndexError> {
        let Some(source) = self.groups.owner(id).filter(|_| !self.groups.removed().contains(id)) else {
            return Ok(None);
        };
        self.row.clear();
        let Some(number) = self.rows.values_of(source, id, &mut self.row)? else {
            return Ok(None);
        };
        let place = self.family(source, number)?;
        let Some(family) = self.families.get(place) else { return Ok(None) };
        self.key.clear();
        self.key.push(family.database);
        for (place, name) in &family.columns {
            self.key.extend([*name, self.row.get(*place).copied().unwrap_or(0)]);
        }
        let owner = source.first();
        let hash = self.key.iter().fold(u64::from(owner), |hash, number| mix(hash, u64::from(*number)));
        let is_it = |known: &KnownLabels| known.owner == owner && *known.key == *self.key;
        if let Some(known) = self.known.find(hash, is_it) {
            return Ok(Some(known.labels.clone()));
        }
        let labels = self.put_together(source)?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let known = KnownLabels { hash, owner, key: self.key.as_slice().into(), labels: labels.clone() };
        self.known.insert_unique(hash, known, |known| known.hash);
        Ok(Some(labels))
    }

    /// The place of a family among those that are known.
    fn family(&mut self, source: &dyn Source, number: u32) -> Result<usize, IndexError> {
        let key = (source.first(), number);
        let place = match self.last.filter(|(last, _)| *last == key) {
            Some((_, place)) => place,
            None => match self.family_indexes.get(&key) {
                Some(place) => *place,
                None => {
                    let family = source.family(number)?;
                    let kept = family.names.iter().enumerate();
                    let kept =
                        kept.filter(|(_, name)| self.projection.keeps(source.name_text(family.database, **name)));
                    let kept = kept.map(|(place, name)| (place, *name)).collect();
                    self.families.push(ProjectedFamily { database: family.database, columns: kept });
                    self.family_indexes.insert(key, self.families.len() - 1);
                    self.families.len() - 1
                }
            },
        };
        self.last = Some((key, place));
        Ok(place)
    }

    /// The labels of the key.
    fn put_together(&self, source: &dyn Source) -> Result<Labels, IndexError> {
        let (database, pairs) = match self.key.split_first() {
            Some((database, pairs)) => (*database, pairs.as_chunks::<2>().0),
            None => (0, &[][..]),
        };
        let mut texts = Vec::with_capacity(pairs.len());
        for [name, value] in pairs {
            let mut text = String::new();
            source.append_value(database, *name, *value, &mut text)?;
            texts.push((source.name_text(database, *name), text));
        }
        Ok(Labels::from_sorted(texts.iter().map(|(name, text)| (*name, text.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_labels_are_those_of_the_whole_set() {
        let mut groups = Groups::with_hash_seed(7);
        let mut sets = Vec::new();
        for number in 0..200u32 {
            let mut pairs = vec![("job", format!("j{}", number % 3)), ("pod", format!("p{number}"))];
            if number % 2 == 0 {
                pairs.push(("zone", format!("z{}", number % 5)));
            }
            let labels = Labels::from_pairs(pairs).unwrap();
            let (id, _) = groups.register(1 + number % 2, number % 4, &labels, &[0]).unwrap();
            sets.push((id, labels));
        }
        let names: [&[&str]; 4] = [&[], &["job"], &["job", "zone"], &["none", "pod"]];
        for names in names {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            for is_without in [false, true] {
                let projection = Projection { names: &names, is_without };
                let mut reader = groups.projected(projection);
                for (id, labels) in &sets {
                    let expected = labels.retain(|name| projection.keeps(name));
                    assert_eq!(reader.get(*id).unwrap(), Some(expected), "{projection:?}");
                }
                assert_eq!(reader.get(9_999).unwrap(), None);
            }
        }
    }
}
