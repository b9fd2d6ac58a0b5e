//! Why something cannot be registered.

use std::fmt;

use model::ValueType;

/// Why something cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogError {
    /// A field is written with another type than it has.
    TypeConflict {
        /// The measurement's name.
        measurement: String,
        /// The field's name.
        field: String,
        /// The type that the field has.
        existing: ValueType,
        /// The type that was written.
        requested: ValueType,
    },
    /// An entry does not follow from what the catalog holds: a log or a segment is missing or damaged.
    OutOfOrder {
        /// The entry.
        entry: String,
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeConflict { measurement, field, existing, requested } => write!(
                formatter,
                "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {}, already \
                 exists as type {}",
                requested.name(),
                existing.name()
            ),
            Self::OutOfOrder { entry } => write!(formatter, "catalog entry out of order: {entry}"),
        }
    }
}

impl std::error::Error for CatalogError {}
