//! What a mutable segment and an immutable one have in common: both are searched, and both are merged into new ones.
//!
//! A source owns a range of group ids. Beside its own groups it may say of older ones that they have other fields now (an
//! overlay; the newest wins) or that they are removed.
//!
//! Names and values of labels have numbers that mean something within one source and one database only. Values of the
//! numbers in a [`Family`] and in rows are those.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::ids::Ids;
use crate::{DatabaseId, GroupId, IndexError, MeasurementId, SlotSet};

/// What many groups share: all of a group but the values of its labels.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) database: DatabaseId,
    pub(crate) measurement: MeasurementId,
    /// Numbers of the names of its labels, in order of the names.
    pub(crate) names: Vec<u32>,
    pub(crate) slots: Arc<SlotSet>,
    /// Groups of the family that the source owns; removed ones count until they are purged.
    pub(crate) groups: u32,
}

/// A label's name in a database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) number: u32,
    pub(crate) text: &'a str,
    /// How many values it has.
    pub(crate) values: u32,
    /// How many groups have it.
    pub(crate) groups: u32,
}

/// Goes over the values of a label.
pub(crate) trait TermCursor {
    /// Goes to the next value, the first one to begin with; `false` behind the last.
    fn advance(&mut self) -> Result<bool, IndexError>;
    /// The value.
    fn text(&self) -> &str;
    /// Its number.
    fn number(&self) -> u32;
    /// How many groups have it.
    fn count(&self) -> u32;
    /// The groups that have it.
    fn ids(&self) -> Result<Ids, IndexError>;
}

/// Gets the values of groups, one after the other.
pub(crate) trait RowCursor {
    /// As [`Source::values_of`].
    fn values_of(&mut self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError>;
}

/// Gets the id, the family and the values of a group.
pub(crate) type GroupVisitor<'v> = dyn FnMut(GroupId, u32, &[u32]) -> Result<(), IndexError> + 'v;

/// Fingerprints of identities with their groups, sorted.
pub(crate) type Fingerprints<'a> = Box<dyn Iterator<Item = Result<(u32, GroupId), IndexError>> + 'a>;

/// A segment, as searching and merging see it.
pub(crate) trait Source {
    /// The first id of the range.
    fn first(&self) -> GroupId;
    /// One more than the last id of the range.
    fn end(&self) -> GroupId;
    /// How many groups it owns; removed ones count until they are purged.
    fn len(&self) -> u32;
    /// Databases that have groups, sorted.
    fn databases(&self) -> Vec<DatabaseId>;
    /// All groups of a database.
    fn all(&self, database: DatabaseId) -> Result<RoaringBitmap, IndexError>;
    /// Measurements of a database that have groups, sorted.
    fn measurements(&self, database: DatabaseId) -> Result<Vec<MeasurementId>, IndexError>;
    /// The groups of a measurement.
    fn measurement(&self, database: DatabaseId, measurement: MeasurementId) -> Result<Option<Ids>, IndexError>;
    /// Names of labels, sorted.
    fn names(&self, database: DatabaseId) -> Vec<Name<'_>>;
    /// The text of a name; empty if there is none of this number.
    fn name_text(&self, database: DatabaseId, number: u32) -> &str;
    /// One name.
    fn name(&self, database: DatabaseId, text: &str) -> Option<Name<'_>>;
    /// The groups that have a label of this name.
    fn having(&self, database: DatabaseId, name: u32) -> Result<RoaringBitmap, IndexError>;
    /// The groups that have this label.
    fn value(&self, database: DatabaseId, name: u32, text: &str) -> Result<Option<Ids>, IndexError>;
    /// Goes over the values that begin with the prefix; in order only if sorted is asked for.
    fn terms<'a>(
        &'a self,
        database: DatabaseId,
        name: u32,
        prefix: &'a str,
        sorted: bool,
    ) -> Result<Box<dyn TermCursor + 'a>, IndexError>;
    /// How many families there are.
    fn families(&self) -> u32;
    /// One family.
    fn family(&self, number: u32) -> Result<Family, IndexError>;
    /// The family of one of its own groups.
    fn family_of(&self, id: GroupId) -> Result<Option<u32>, IndexError>;
    /// Appends the numbers of the values of one of its own groups, and gives its family.
    fn values_of(&self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError>;
    /// For the values of many of its own groups; fast for those whose ids ascend.
    fn rows(&self) -> Box<dyn RowCursor + '_>;
    /// Appends the text of a value.
    fn append_value(&self, database: DatabaseId, name: u32, value: u32, out: &mut String) -> Result<(), IndexError>;
    /// Goes over its own groups in order of their ids.
    fn each_group(&self, visit: &mut GroupVisitor<'_>) -> Result<(), IndexError>;
    /// The fingerprints of its own groups.
    fn fingerprints(&self) -> Fingerprints<'_>;
    /// Returns whether it changes the fields of older groups.
    fn has_overlays(&self) -> bool;
    /// The fields of an older group, if this source changes them.
    fn overlay(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, IndexError>;
    /// All that it says of older groups' fields, in order of ids.
    fn overlays(&self) -> Result<Vec<(GroupId, Arc<SlotSet>)>, IndexError>;
    /// Groups that it says are removed.
    fn removed(&self) -> &RoaringBitmap;
}
