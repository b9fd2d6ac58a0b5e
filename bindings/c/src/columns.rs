//! Rows as columns in the caller's arrays.

use std::borrow::Cow;
use std::ffi::c_void;

use embedded::{Error, FieldColumn, FieldValues, TableColumns, TagColumn};

use crate::text::{elements, thalweg_str_t};

/// The type of a field's values.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum thalweg_type_t {
    /// `double`
    THALWEG_F64 = 0,
    /// `int64_t`
    THALWEG_I64 = 1,
    /// `uint64_t`
    THALWEG_U64 = 2,
    /// `uint8_t`; all but 0 is true.
    THALWEG_BOOL = 3,
    /// `thalweg_str_t`
    THALWEG_TEXT = 4,
}

/// A tag of each row: what tells series apart.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_tag_t {
    /// Its name.
    pub name: thalweg_str_t,
    /// A value for each row; a row does not have the tag where it is empty.
    pub values: *const thalweg_str_t,
}

/// A field of each row.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_field_t {
    /// Its name.
    pub name: thalweg_str_t,
    /// A `thalweg_type_t`: the type of the elements of `values`.
    pub value_type: i32,
    /// A value for each row.
    pub values: *const c_void,
    /// A byte for each row, 0 where the row does not have the field; null: all rows have it. A row that has no field at all is not written.
    pub validity: *const u8,
}

/// Rows of a table: arrays of `rows` elements each.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_columns_t {
    /// The table's name.
    pub table: thalweg_str_t,
    /// How many rows there are.
    pub rows: usize,
    /// The time of each row, in nanoseconds since the Unix epoch.
    pub times_ns: *const i64,
    /// `tags_len` tags.
    pub tags: *const thalweg_tag_t,
    /// How many tags there are.
    pub tags_len: usize,
    /// `fields_len` fields, at least one.
    pub fields: *const thalweg_field_t,
    /// How many fields there are.
    pub fields_len: usize,
}

impl thalweg_columns_t {
    /// # Safety
    /// All arrays have as many elements as they should, which nothing changes for as long as the result is used.
    pub(crate) unsafe fn table_columns(&self) -> Result<TableColumns<'_>, Error> {
        // SAFETY: the caller vouches for the arrays.
        let (tags, fields) =
            unsafe { (elements(self.tags, self.tags_len, "tags")?, elements(self.fields, self.fields_len, "fields")?) };
        // SAFETY: as above.
        let times_ns = Cow::Borrowed(unsafe { elements(self.times_ns, self.rows, "times_ns") }?);
        // SAFETY: as above.
        let tags = tags.iter().map(|tag| unsafe { tag.column(self.rows) }).collect::<Result<Vec<_>, Error>>()?;
        // SAFETY: as above.
        let fields =
            fields.iter().map(|field| unsafe { field.column(self.rows) }).collect::<Result<Vec<_>, Error>>()?;
        // SAFETY: as above.
        Ok(TableColumns { table: unsafe { self.table.text("the table's name") }?, times_ns, tags, fields })
    }
}

impl thalweg_tag_t {
    /// # Safety
    /// As for [`thalweg_columns_t::table_columns`].
    unsafe fn column<'a>(&self, rows: usize) -> Result<TagColumn<'a>, Error> {
        // SAFETY: the caller vouches for the texts.
        let name = unsafe { self.name.text("the name of a tag") }?;
        // SAFETY: as above.
        Ok(TagColumn { name, values: unsafe { texts(self.values, rows, name) }? })
    }
}

impl thalweg_field_t {
    /// # Safety
    /// As for [`thalweg_columns_t::table_columns`].
    unsafe fn column<'a>(&self, rows: usize) -> Result<FieldColumn<'a>, Error> {
        // SAFETY: the caller vouches for the name.
        let name = unsafe { self.name.text("the name of a field") }?;
        // SAFETY: the caller vouches that the array has elements of the type that it names.
        let values = unsafe {
            match self.value_type {
                0 => FieldValues::F64(Cow::Borrowed(elements(self.values.cast(), rows, name)?)),
                1 => FieldValues::I64(Cow::Borrowed(elements(self.values.cast(), rows, name)?)),
                2 => FieldValues::U64(Cow::Borrowed(elements(self.values.cast(), rows, name)?)),
                3 => FieldValues::Bool(Cow::Owned(booleans(elements(self.values.cast(), rows, name)?))),
                4 => FieldValues::Text(texts(self.values.cast(), rows, name)?),
                other => {
                    let message = format!("field {name:?}: there is no type {other}; see thalweg_type_t");
                    return Err(Error::invalid(message));
                }
            }
        };
        if self.validity.is_null() {
            return Ok(FieldColumn { name, values, validity: None });
        }
        // SAFETY: it is not null, so the caller vouches that it has a byte for each row.
        let validity = booleans(unsafe { elements(self.validity, rows, name) }?);
        Ok(FieldColumn { name, values, validity: Some(Cow::Owned(validity)) })
    }
}

/// Bytes of C, any of which but 0 is true.
fn booleans(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().map(|byte| *byte != 0).collect()
}

/// # Safety
/// `values` is null or has `rows` texts, which nothing changes for as long as the result is used.
unsafe fn texts<'a>(values: *const thalweg_str_t, rows: usize, name: &str) -> Result<Vec<&'a str>, Error> {
    let what = format!("a value of {name:?}");
    // SAFETY: the caller vouches for the array.
    let values = unsafe { elements(values, rows, name) }?;
    // SAFETY: the caller vouches for its texts.
    values.iter().map(|value| unsafe { value.text(&what) }).collect()
}
