//! Record batches as rows of a table.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Int64Array, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema, TimeUnit};
use ingest::line::{FieldColumn, FieldValues, TableColumns, TagColumn};
use model::ValueType;
use query::TableSchema;

use crate::engine::ColumnRoles;
use crate::error::Error;

const NS_PER_DAY: i64 = 86_400_000_000_000;
/// Names of the column of times, unless the caller names another.
const TIME_NAMES: [&str; 2] = ["time", "timestamp"];

/// The use of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Time,
    Tag,
    /// Values of a type, if they can be had without a loss.
    Field(ValueType),
    /// There are nulls alone.
    None,
}

/// The use of each column: as the caller says, else as the table has it; of columns that are new texts are tags.
pub(crate) fn uses(schema: &Schema, roles: &ColumnRoles, table: Option<&TableSchema>) -> Result<Vec<Use>, Error> {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let is_time = |name: &str| match &roles.time {
        Some(time) => name == time,
        None => TIME_NAMES.contains(&name.to_lowercase().as_str()),
    };
    let missing = |name: &str| Error::invalid(format!("there is no column {name:?} among {}", names.join(", ")));
    let time = names.iter().position(|name| is_time(name));
    let time = time.ok_or_else(|| missing(roles.time.as_deref().unwrap_or("time")))?;
    let named_tags = roles.tags.as_deref().unwrap_or_default();
    if let Some(tag) = named_tags.iter().find(|tag| !names.contains(&tag.as_str())) {
        return Err(missing(tag));
    }
    let use_of = |(index, field): (usize, &Arc<arrow_schema::Field>)| {
        let name = field.name();
        let known = table.and_then(|table| Some(table.fields.iter().find(|(field, _)| field == name)?.1));
        let is_known_tag = table.is_some_and(|table| table.tags.contains(name));
        let natural = natural_type(field.data_type());
        let is_tag = match &roles.tags {
            Some(tags) => tags.contains(name),
            None => is_known_tag || (known.is_none() && natural == Some(ValueType::String)),
        };
        match natural {
            _ if index == time => Ok(Use::Time),
            _ if *field.data_type() == DataType::Null => Ok(Use::None),
            Some(_) if is_tag => Ok(Use::Tag),
            Some(natural) => Ok(Use::Field(known.unwrap_or(natural))),
            None => Err(Error::invalid(format!(
                "column {name:?} is of the type {}, which a table does not have: cast it to numbers, booleans or texts",
                field.data_type()
            ))),
        }
    };
    schema.fields().iter().enumerate().map(use_of).collect()
}

/// The type of a table's field that has such values.
fn natural_type(kind: &DataType) -> Option<ValueType> {
    match kind {
        DataType::Boolean => Some(ValueType::Bool),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(ValueType::String),
        DataType::Dictionary(_, values) => natural_type(values).filter(|natural| *natural == ValueType::String),
        DataType::Float32 | DataType::Float64 => Some(ValueType::F64),
        kind if kind.is_signed_integer() => Some(ValueType::I64),
        kind if kind.is_unsigned_integer() => Some(ValueType::U64),
        _ => None,
    }
}

/// Columns of a batch in the few types that a table has; what [`TableColumns`] borrow from.
pub(crate) struct Columns {
    batch: RecordBatch,
    uses: Vec<Use>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    pub(crate) fn new(batch: RecordBatch, uses: &[Use]) -> Result<Self, Error> {
        let mut arrays = Vec::with_capacity(batch.num_columns());
        for ((field, array), column_use) in batch.schema_ref().fields().iter().zip(batch.columns()).zip(uses) {
            let made = match column_use {
                Use::Time => times(array),
                Use::Tag => Ok(tag_texts(array)),
                Use::Field(wanted) => values(array, *wanted),
                Use::None => Ok(array.clone()),
            };
            arrays.push(made.map_err(|message| Error::invalid(format!("column {:?}: {message}", field.name())))?);
        }
        Ok(Self { batch, uses: uses.to_vec(), arrays })
    }

    pub(crate) fn table<'a>(&'a self, name: &'a str) -> TableColumns<'a> {
        let mut table = TableColumns { table: name, ..TableColumns::default() };
        let names = self.batch.schema_ref().fields().iter().map(|field| field.name().as_str());
        for ((name, array), column_use) in names.zip(&self.arrays).zip(&self.uses) {
            match column_use {
                Use::Time => table.times_ns = Cow::Borrowed(array.as_primitive::<Int64Type>().values()),
                Use::Tag => {
                    let values = texts(array).into_iter().map(Option::unwrap_or_default).collect();
                    table.tags.push(TagColumn { name, values });
                }
                Use::Field(_) => table.fields.push(field(name, array)),
                Use::None => {}
            }
        }
        table
    }
}

fn field<'a>(name: &'a str, array: &'a ArrayRef) -> FieldColumn<'a> {
    let validity = array.nulls().map(|nulls| Cow::Owned(nulls.iter().collect()));
    let values = match array.data_type() {
        DataType::Float64 => FieldValues::F64(Cow::Borrowed(array.as_primitive::<Float64Type>().values())),
        DataType::Int64 => FieldValues::I64(Cow::Borrowed(array.as_primitive::<Int64Type>().values())),
        DataType::UInt64 => FieldValues::U64(Cow::Borrowed(array.as_primitive::<UInt64Type>().values())),
        DataType::Boolean => FieldValues::Bool(array.as_boolean().values().iter().collect()),
        _ => {
            let texts = texts(array);
            let is_full = texts.iter().all(Option::is_some);
            let validity = (!is_full).then(|| texts.iter().map(Option::is_some).collect());
            let values = FieldValues::Text(texts.into_iter().map(Option::unwrap_or_default).collect());
            return FieldColumn { name, values, validity };
        }
    };
    FieldColumn { name, values, validity }
}

/// The texts of an array; none if it is one of other values.
fn texts(array: &dyn Array) -> Vec<Option<&str>> {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().collect(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
        DataType::Utf8View => array.as_string_view().iter().collect(),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            if dictionary.values().is_empty() {
                return vec![None; array.len()];
            }
            let known = texts(dictionary.values());
            let keys = dictionary.normalized_keys();
            let text = |(row, key): (usize, &usize)| {
                known.get(*key).copied().flatten().filter(|_| dictionary.keys().is_valid(row))
            };
            keys.iter().enumerate().map(text).collect()
        }
        _ => vec![None; array.len()],
    }
}

/// Values of a tag: texts, and numbers and booleans as such.
fn tag_texts(array: &ArrayRef) -> ArrayRef {
    fn written<T: std::fmt::Display>(values: impl Iterator<Item = Option<T>>) -> ArrayRef {
        Arc::new(values.map(|value| value.map(|value| value.to_string())).collect::<StringArray>())
    }
    if let Some(integers) = signed(array) {
        return written(integers.iter());
    }
    if let Some(integers) = unsigned(array) {
        return written(integers.iter());
    }
    match array.data_type() {
        DataType::Boolean => written(array.as_boolean().iter()),
        DataType::Float32 => written(array.as_primitive::<Float32Type>().iter()),
        DataType::Float64 => written(array.as_primitive::<Float64Type>().iter()),
        _ => array.clone(),
    }
}

/// Values of a field, as the table has them if nothing is lost by that; else as they are, for the table to refuse.
fn values(array: &ArrayRef, wanted: ValueType) -> Result<ArrayRef, String> {
    let beyond = |value: &dyn std::fmt::Display| format!("the table has {}s, which {value} is none of", wanted.name());
    if let Some(integers) = signed(array) {
        return Ok(match wanted {
            ValueType::F64 => Arc::new(integers.unary::<_, Float64Type>(|value| value as f64)),
            ValueType::U64 => Arc::new(
                integers.try_unary::<_, UInt64Type, _>(|value| u64::try_from(value).map_err(|_| beyond(&value)))?,
            ),
            _ => Arc::new(integers),
        });
    }
    if let Some(integers) = unsigned(array) {
        return Ok(match wanted {
            ValueType::F64 => Arc::new(integers.unary::<_, Float64Type>(|value| value as f64)),
            ValueType::I64 => Arc::new(
                integers.try_unary::<_, Int64Type, _>(|value| i64::try_from(value).map_err(|_| beyond(&value)))?,
            ),
            _ => Arc::new(integers),
        });
    }
    Ok(match array.data_type() {
        DataType::Float32 => Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from)),
        _ => array.clone(),
    })
}

/// Signed integers of any width.
fn signed(array: &dyn Array) -> Option<Int64Array> {
    fn wide<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Int64Array {
        array.as_primitive::<T>().unary(Into::into)
    }
    match array.data_type() {
        DataType::Int8 => Some(wide::<Int8Type>(array)),
        DataType::Int16 => Some(wide::<Int16Type>(array)),
        DataType::Int32 => Some(wide::<Int32Type>(array)),
        DataType::Int64 => Some(array.as_primitive::<Int64Type>().clone()),
        _ => None,
    }
}

/// Unsigned integers of any width.
fn unsigned(array: &dyn Array) -> Option<PrimitiveArray<UInt64Type>> {
    fn wide<T: ArrowPrimitiveType<Native: Into<u64>>>(array: &dyn Array) -> PrimitiveArray<UInt64Type> {
        array.as_primitive::<T>().unary(Into::into)
    }
    match array.data_type() {
        DataType::UInt8 => Some(wide::<UInt8Type>(array)),
        DataType::UInt16 => Some(wide::<UInt16Type>(array)),
        DataType::UInt32 => Some(wide::<UInt32Type>(array)),
        DataType::UInt64 => Some(array.as_primitive::<UInt64Type>().clone()),
        _ => None,
    }
}

/// Times in nanoseconds. Plain 64-bit integers are taken for such.
fn times(array: &ArrayRef) -> Result<ArrayRef, String> {
    fn scaled<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array, unit_ns: i64) -> Result<ArrayRef, String> {
        let time = |count: T::Native| {
            count
                .into()
                .checked_mul(unit_ns)
                .ok_or("a time lies beyond the years 1678 to 2262, which nanoseconds reach")
        };
        Ok(Arc::new(array.as_primitive::<T>().try_unary::<_, Int64Type, _>(time)?))
    }
    if array.null_count() > 0 {
        let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or_default() + 1;
        return Err(format!("row {row} has no time"));
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => scaled::<TimestampSecondType>(array, 1_000_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => scaled::<TimestampMillisecondType>(array, 1_000_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => scaled::<TimestampMicrosecondType>(array, 1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => scaled::<TimestampNanosecondType>(array, 1),
        DataType::Date32 => scaled::<Date32Type>(array, NS_PER_DAY),
        DataType::Date64 => scaled::<Date64Type>(array, 1_000_000),
        DataType::Int64 => Ok(array.clone()),
        other => Err(format!("times are timestamps, dates or integers of nanoseconds, not {other}")),
    }
}
