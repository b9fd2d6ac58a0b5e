//! What a result cache needs to know about expressions, and the form of its entries.
//!
//! * `dependencies`: which samples an expression reads, and whether each of its steps can be computed alone
//! * `partial_range`: results of some steps, which can be cut and joined
//! * `subexpression`: expressions within others that several queries share; `shared_subexpressions` looks them up during evaluation
//! * `cached_rows`: the rows of range functions, as they are cached

pub(crate) mod cached_rows;
pub(crate) mod dependencies;
pub(crate) mod partial_range;
pub(crate) mod shared_subexpressions;
pub(crate) mod subexpression;
