//! Names and values of one epoch of a regular database: as CSV, as JSON, and as binary columns.
//!
//! The first bytes say which: the binary form begins with [`MAGIC`], JSON with `{`.

mod binary;
mod csv;
mod json;
#[cfg(test)]
mod tests;

use model::{EpochColumn, EpochNames};

pub use binary::{MAGIC, encode};

/// Names and values of an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochBody {
    /// The names.
    pub names: EpochNames,
    /// A value for each.
    pub values: EpochColumn,
}

/// Reads a body.
///
/// # Errors
/// With what is wrong, and where.
pub fn parse(body: &[u8]) -> Result<EpochBody, String> {
    if body.starts_with(MAGIC) {
        return binary::parse(body).map_err(|error| format!("binary columns: {error}"));
    }
    let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let mut rows = Rows::default();
    if is_json {
        json::parse(body, &mut rows)?;
    } else {
        csv::parse(body, &mut rows)?;
    }
    Ok(rows.finish())
}

/// A number as a body has it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(int) = text.parse() {
            return Some(Self::Int(int));
        }
        text.parse().ok().map(Self::Float)
    }
}

/// Names and numbers as they are read. They are integers until one is none.
#[derive(Default)]
struct Rows {
    names: EpochNames,
    ints: Vec<i64>,
    floats: Vec<f64>,
    is_float: bool,
}

impl Rows {
    fn push(&mut self, name: &str, number: Number) {
        self.names.push(name);
        match number {
            Number::Int(int) if !self.is_float => self.ints.push(int),
            Number::Int(int) => self.floats.push(int as f64),
            Number::Float(float) => {
                if !self.is_float {
                    self.is_float = true;
                    self.floats = std::mem::take(&mut self.ints).into_iter().map(|int| int as f64).collect();
                }
                self.floats.push(float);
            }
        }
    }

    fn finish(self) -> EpochBody {
        let values = if self.is_float { EpochColumn::Float(self.floats) } else { EpochColumn::Int(self.ints) };
        EpochBody { names: self.names, values }
    }
}
