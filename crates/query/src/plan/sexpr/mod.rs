//! The s-expression language of FrogFishDB (its thesis, section 4.4.2), grown: text to plan.

mod aggregate;
mod expression;
mod likeness;
mod lower;
mod read;
#[cfg(test)]
mod tests;

pub use read::{SyntaxError, TEXT_BYTES_MAX};

use crate::Plan;

/// The plan that a text says. `now_ns` is what `now` in it means, in nanoseconds since the Unix epoch.
pub fn parse(text: &str, now_ns: i64) -> Result<Plan, SyntaxError> {
    let tree = read::read(text)?;
    lower::Lowering { now_ns }.plan(&tree).map_err(|error| error.in_text(text))
}
