//! How long the texts are that functions make.

use query::Value;

use crate::error::{SqlError, invalid};

/// Bytes of a text that a function may make.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;

/// A text that is not too long.
pub(super) fn bounded(text: String) -> Result<Value, SqlError> {
    if text.len() > TEXT_BYTES_MAX { too_long() } else { Ok(Value::text(text)) }
}

pub(super) fn too_long() -> Result<Value, SqlError> {
    invalid(format!("a function makes texts of at most {TEXT_BYTES_MAX} bytes"))
}
